"""Keeps the front (HTTP hooks) running: started once a port and a token are there, started again when it ends.

The token goes over standard input, since a command line can be read by every user. That pipe is also what ends the
front with the daemon: the kernel closes it whatever the daemon dies of. A port that somebody else has is told, and
tried again ever more seldom; hooks by command are not touched by any of it.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import trio

from recalld_daemon.hooks.figures import Figures
from recalld_daemon.hooks.request import Refused
from recalld_protocol.endpoints import state_dir
from recalld_protocol.errors import EndpointError
from recalld_protocol.hook_http import HttpHook, read_http_hook

LOOK_SECONDS = 2.0  # between two looks at the file with port and token: `recallctl install` may make it at any time
FIRST_PAUSE_SECONDS = 0.5  # after the front has ended; doubles
LONGEST_PAUSE_SECONDS = 60.0
SERVED_SECONDS = 10.0  # between two looks whether the other front is still there
STEADY_SECONDS = 30.0  # a front that lived so long begins with the first pause again
PROBE_SECONDS = 0.5  # for a front to say who it is
LINE_LIMIT = 4096  # bytes without a newline, from a process that is ours: then something is wrong with it

PACKAGES = Path(__file__).resolve().parents[2]  # where `recalld_daemon` lies
BOOTSTRAP = "import sys;sys.path.append(sys.argv.pop(1));from recalld_daemon.hooks.front import main;main()"

log = logging.getLogger(__name__)


def front_command() -> list[str]:
    """What runs the front: without environment and site-packages' start-up code, the standard library first."""
    return [sys.executable, "-I", "-S", "-E", "-c", BOOTSTRAP, str(PACKAGES)]


def greeting(hook: HttpHook, path: str) -> bytes:
    """What the front is told first, on its standard input. path: of the hook socket."""
    return f"{hook.port} {hook.token} {path}\n".encode()


def is_front(port: int) -> bool:
    """Whether what listens there is a front (`recalld hooks`, or another daemon's). It is not shown the token."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PROBE_SECONDS) as peer:
            peer.sendall(f"HEAD / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            return b"\r\nServer: recalld" in peer.recv(4096)
    except OSError:
        return False


class FrontKeeper:
    """`state`: "off", "waiting" (for `recallctl install`), "starting", "serving", "served" (by a front that stands by
    itself, see `standing`), "port busy", "restarting"."""

    def __init__(self, environ: Mapping[str, str], hook_socket: str, figures: Figures, *, enabled: bool) -> None:
        self._environ, self._path, self._figures, self._enabled = environ, hook_socket, figures, enabled
        self.state = "waiting" if enabled else "off"
        self.port, self.pid, self.restarts = 0, 0, 0
        self._why = ""  # the port can't be had

    async def serve(self) -> None:
        """For ever; returns at once where HTTP hooks are switched off."""
        pause = FIRST_PAUSE_SECONDS
        while self._enabled:
            wanted = self._wanted()
            if wanted is None:
                self.state, self.port = "waiting", 0
                await trio.sleep(LOOK_SECONDS)
                continue
            began = trio.current_time()
            self.state, self.port = "starting", wanted.port
            if await self._run(wanted):
                pause = FIRST_PAUSE_SECONDS  # it was ended by us, for another port or token
                continue
            if self.state == "port busy" and await trio.to_thread.run_sync(is_front, wanted.port):
                self.state = "served"
                await trio.sleep(SERVED_SECONDS)
                continue
            if self.state == "port busy":
                remedy = f"remove {state_dir(self._environ)}/http-hook and run `recallctl install` again"
                self._figures.refuse(Refused("port_busy", f"HTTP hooks: {self._why}; or {remedy}"))
            self.restarts += 1
            if trio.current_time() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            if self.state != "port busy":
                self.state = "restarting"
                log.warning("the process of the HTTP hooks ended; it is started again in %.1f s", pause)
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _wanted(self) -> HttpHook | None:
        try:
            return read_http_hook(self._environ)
        except EndpointError as error:
            self._figures.refuse(Refused("http_file", str(error)))
            return None

    async def _run(self, hook: HttpHook) -> bool:
        """One life of the front. True: it was ended since another port or token is wanted now."""
        process = await trio.lowlevel.open_process(
            front_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
            env={"LANG": os.environ.get("LANG", "C")},
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, process.stdout, nursery.cancel_scope)
                try:
                    await process.stdin.send_all(greeting(hook, self._path))
                except trio.BrokenResourceError:
                    log.debug("it ended before it was told its port")
                while self._wanted() == hook:
                    await trio.sleep(LOOK_SECONDS)
                nursery.cancel_scope.cancel()
                return True
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                await process.stdin.aclose()
                await process.stdout.aclose()
                self.pid = 0
        return False

    async def _listen(self, told: trio.abc.ReceiveStream, life: trio.CancelScope) -> None:
        """What the front says, line by line; its end ends this life."""
        held = b""
        async for part in told:
            *lines, held = (held + part).split(b"\n")
            for line in lines:
                self._heard(line.decode("ascii", "replace"))
            if len(held) > LINE_LIMIT:
                break
        life.cancel()

    def _heard(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        match what:
            case "listening":
                self.state = "serving"
                log.info("HTTP hooks are served at http://127.0.0.1:%d/hooks/HOST", self.port)
            case "busy":
                self.state, self._why = "port busy", rest
            case "refused":
                status, _, why = rest.partition(" ")
                self._figures.refuse(Refused(f"http_{status}", f"HTTP hook refused with {status}: {why}"))
            case "crowded":
                self._figures.refuse(Refused("http_crowded", f"HTTP hook answered empty: {rest}"))
            case "late":
                self._figures.refuse(Refused("http_late", f"HTTP hook answered empty: {rest}"))
            case _:
                log.debug("the front says %r", line)
