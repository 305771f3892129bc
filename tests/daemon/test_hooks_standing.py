"""`recalld hooks`: a front that is there while no daemon is, and that a daemon leaves the port to."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from desk_house import NoPublisher
from recalld_daemon.events import EventFeed
from recalld_daemon.hooks import front_keeper
from recalld_daemon.hooks.figures import Figures
from recalld_daemon.hooks.front_keeper import FrontKeeper, is_front
from recalld_protocol.hook_http import HttpHook, http_hook_file, make_http_hook

PATIENCE_SECONDS = 30.0  # bounds what would otherwise hang; no test measures time


@contextmanager
def standing(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command itself, as a service would run it."""
    environ = {**os.environ, "RECALLD_RUNTIME_DIR": str(directory)}
    process = subprocess.Popen(
        [sys.executable, "-m", "recalld_daemon", "hooks"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[bytes], of: str = "stdout") -> bytes:
    stream = getattr(process, of)
    return bytes(stream.readline())


def post(hook: HttpHook, body: bytes = b"{}") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", hook.port, timeout=PATIENCE_SECONDS)
    headers = {"Authorization": f"Bearer {hook.token}"}
    try:
        connection.request("POST", "/hooks/claude-code", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_without_a_daemon_a_hook_is_answered_with_nothing_instead_of_refused(tmp_path: Path) -> None:
    hook = make_http_hook({"RECALLD_RUNTIME_DIR": str(tmp_path)})
    with standing(tmp_path) as process:
        assert first_line(process) == b"listening\n"
        assert post(hook) == (200, b"")
        assert is_front(hook.port)
        commands = Path(f"/proc/{process.pid}/cmdline")
        assert not commands.exists() or hook.token.encode() not in commands.read_bytes()


def test_before_anything_is_installed_it_waits_and_says_for_what(tmp_path: Path) -> None:
    with standing(tmp_path) as process:
        assert b"recallctl install claude-code" in first_line(process, "stderr")
        make_http_hook({"RECALLD_RUNTIME_DIR": str(tmp_path)})
        assert first_line(process) == b"listening\n"


@pytest.mark.parametrize("chosen_anew", [True, False])
def test_it_ends_when_its_port_is_not_asked_for_any_more(tmp_path: Path, chosen_anew: bool) -> None:
    """Uninstalled, and perhaps installed again: its service starts it anew, and it serves the new port."""
    environ = {"RECALLD_RUNTIME_DIR": str(tmp_path)}
    make_http_hook(environ)
    with standing(tmp_path) as process:
        assert first_line(process) == b"listening\n"
        http_hook_file(environ).unlink()
        if chosen_anew:
            make_http_hook(environ)
        assert b"another port or token, or is gone" in first_line(process)
        assert process.wait(PATIENCE_SECONDS) == 0


def test_what_is_no_front_is_not_taken_for_one(tmp_path: Path) -> None:
    hook = make_http_hook({"RECALLD_RUNTIME_DIR": str(tmp_path)})
    assert not is_front(hook.port)


def test_a_daemon_leaves_the_port_to_it_and_serves_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_SECONDS", "FIRST_PAUSE_SECONDS", "SERVED_SECONDS"):
        monkeypatch.setattr(front_keeper, name, 0.02)
    environ = {"RECALLD_RUNTIME_DIR": str(tmp_path)}
    hook = make_http_hook(environ)
    figures = Figures(EventFeed(NoPublisher()))
    keeper = FrontKeeper(environ, f"{tmp_path}/hook.sock", figures, enabled=True)

    async def main(process: subprocess.Popen[bytes]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.serve)
            with trio.fail_after(PATIENCE_SECONDS):
                while keeper.state != "served":
                    await trio.sleep(0.01)
                assert (figures.refused, figures.last_problem) == (0, "")  # nothing is wrong
                process.send_signal(signal.SIGKILL)
                while keeper.state != "serving":
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    with standing(tmp_path) as process:
        assert first_line(process) == b"listening\n"
        trio.run(main, process)
    assert keeper.port == hook.port
