"""A daemon for the real programs to meet, and the talk that they have: what is told, when tools end, what is compared.

Nothing here measures or waits for time. The tools that the scripted model calls are scripts which end when their gate
is opened, and it is opened once every recall that was to have come by then has settled, as the daemon's events tell.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recalld_client.link import Link, Subscription
from recalld_daemon.demo.private import wait_until_indexed
from recalld_protocol.endpoints import Endpoints, endpoints
from recalld_protocol.hook_http import make_http_hook
from recalld_protocol.messages import Status, StatusAsk

PATIENCE_SECONDS = 60.0  # bounds what would otherwise never end
QUIET_SECONDS = 0.2  # between two events of one message lie microseconds
GATED = """#!/bin/sh
# A tool that takes as long as the test wants it to.
n=$(($(cat .step 2>/dev/null || echo 0) + 1)); echo $n > .step
until [ -e .gates/$n ]; do sleep 0.02; done
echo done
"""


@dataclass(slots=True)
class HostedDaemon:
    """A daemon over `home`; `environ` leads hooks to it. It is what `wait_until_indexed` asks a PrivateDaemon to be."""

    home: Path
    runtime: Path
    process: subprocess.Popen[bytes]
    link: Link
    endpoints: Endpoints

    @property
    def environ(self) -> dict[str, str]:
        return {"RECALLD_RUNTIME_DIR": str(self.runtime)}

    def status(self) -> Status | None:
        reply = self.link.request(StatusAsk(), 5.0)
        return reply if isinstance(reply, Status) else None

    def wait_until(self, holds: Callable[[Status], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (status := self.status()) is None or not holds(status):
            assert time.monotonic() < deadline, status
            time.sleep(0.05)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All of its processes that answer hooks, but not the one that stands in front of it for HTTP."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def hosted_daemon(home: Path, models: Path, config: str) -> Iterator[HostedDaemon]:
    """With its user's home at `home` and `config` as its config.toml; indexed when it is handed out."""
    runtime = Path(tempfile.mkdtemp(prefix="recalld-"))  # short: a socket's path has a limit
    (home / "recalld.toml").write_text(config)
    environ = {**os.environ, "HOME": str(home), "RECALLD_RUNTIME_DIR": str(runtime)}
    command = [sys.executable, "-m", "recalld_daemon", "run", "--home", str(home / "recalld")]
    command += ["--config", str(home / "recalld.toml"), "--model-cache", str(models), "--no-withholding"]
    make_http_hook(environ)  # as an earlier `recallctl install` did: a new one is looked for every two seconds
    try:
        with (home / "recalld.log").open("w+b") as log:
            process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stderr=log)
            try:
                where = endpoints(environ)
                with _linked(where, process, home / "recalld.log") as link:
                    daemon = HostedDaemon(home, runtime, process, link, where)
                    wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)  # type: ignore[arg-type]
                    daemon.wait_until(lambda status: status.topics["hooks"]["http"] == "serving")
                    yield daemon
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE_SECONDS)
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


@contextmanager
def _linked(where: Endpoints, process: subprocess.Popen[bytes], log: Path) -> Iterator[Link]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        link = Link(where)
        try:
            if link.open() and link.request(StatusAsk(), 1.0) is not None:
                yield link
                return
        finally:
            link.close()
    raise AssertionError(f"the daemon did not start:\n{log.read_text(errors='replace')[-2000:]}")


# ---------------------------------------------------------------- gates


@dataclass(slots=True)
class Gates:
    """Lets the tools in `project` end. Gate n opens when `needs[n - 1]` of the daemon's events "turn" and
    "tool.started" have come and every recall has settled."""

    project: Path
    endpoints: Endpoints
    needs: Sequence[int]
    opened: int = 0
    events: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watched(self) -> Iterator[None]:
        (self.project / ".gates").mkdir()
        with Subscription(self.endpoints, ["turn", "tool.started", "recall."]) as subscription:
            assert subscription.open(), subscription.problem
            thread = threading.Thread(target=self._watch, args=(subscription,))
            thread.start()
            try:
                yield
            finally:
                self._over.set()
                thread.join()

    def _watch(self, subscription: Subscription) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._over.is_set() and self.opened < len(self.needs):
            event = subscription.receive(QUIET_SECONDS)
            if event is not None:
                self.events.append(event.what)
            elif self._all_told() or time.monotonic() > deadline:
                self.opened += 1
                open_gate(self.project, self.opened)

    def _all_told(self) -> bool:
        told = self.events.count("turn") + self.events.count("tool.started")
        running = self.events.count("recall.started") - self.events.count("recall.settled")
        return told >= self.needs[self.opened] and running == 0


def open_gate(project: Path, number: int) -> None:
    (project / ".gates").mkdir(exist_ok=True)
    (project / ".gates" / str(number)).touch()


# ---------------------------------------------------------------- what is compared

VARIES = re.compile(
    r"""[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}   # ids of sessions, turns, messages, devices
      | \b[0-9a-f]{64}\b
      | \b(?:ses|prt|msg)_[0-9A-Za-z]{20,}
      | \d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:\d\d)?)?               # a run may see midnight
      | \b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,\s\w+\s\d+,\s\d{4}
      | (?<=Chunk\sID:\s)[0-9a-f]{6} | (?<=Wall\stime:\s)[\d.]+ | (?<=_unix_ms\\":)\d+  # Codex
      | (?<=Process\sGroup\sPGID:\s)\d+ | (?<=run_shell_command_)\d+_\d  # Gemini
    """,
    re.VERBOSE,
)


def comparable(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Line for line what a program sent, less what varies from run to run by itself. Codex's metadata has no order."""
    whole = json.dumps(bodies, ensure_ascii=False, sort_keys=True, indent=1)
    return VARIES.sub("*", whole).splitlines()
