"""HTTP hooks: what the front lets in, what it answers while the daemon does not, and who keeps it running."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from desk_house import NoPublisher
from recalld_daemon.events import EventFeed
from recalld_daemon.hooks import front_keeper, peer_uid
from recalld_daemon.hooks.figures import Figures
from recalld_daemon.hooks.front import MAX_CONNECTIONS
from recalld_daemon.hooks.front_keeper import FrontKeeper, front_command
from recalld_daemon.hooks.http_request import PAYLOAD_LIMIT, Head, Place, Refused, head_of
from recalld_protocol.hook_http import http_hook_file, make_http_hook

PATIENCE_SECONDS = 30.0  # bounds what would otherwise hang; no test measures time
TOKEN = "kept-between-two"
PLACE = Place(20_001, TOKEN.encode(), "/nowhere")


def head(*lines: str, first: str = "POST /hooks/codex HTTP/1.1", token: str = TOKEN, host: str = "") -> bytes:
    fixed = [f"Host: {host or '127.0.0.1:20001'}", f"Authorization: Bearer {token}"]
    return "\r\n".join([first, *fixed, *(lines or ("Content-Length: 2",))]).encode("latin-1")


# ---------------------------------------------------------------- what is let in, sans-IO


def test_a_hook_is_let_in() -> None:
    assert head_of(head(), PLACE) == Head("codex", 2, True, False)
    assert head_of(head("content-length: 7", "Connection: close"), PLACE) == Head("codex", 7, False, False)
    assert head_of(head("Content-Length: 7", "Expect: 100-continue"), PLACE) == Head("codex", 7, True, True)
    assert head_of(head(first="POST /hooks/claude-code HTTP/1.0", host="LOCALHOST:20001"), PLACE).host == "claude-code"
    for value, off in (("1", True), ("", False), ("$RECALLD_OFF", False)):
        assert head_of(head("Content-Length: 2", f"X-Recalld-Off: {value}"), PLACE).off is off


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (head(token="wrong"), 401),
        (head(token=""), 401),
        (head(token=TOKEN + "x"), 401),
        (head(token="ü"), 401),
        (head("Authorization: Bearer x", "Content-Length: 2"), 400),  # twice
        (head(host="rebound.example:20001"), 403),
        (head(host="127.0.0.1"), 403),
        (head("Origin: https://page.example", "Content-Length: 2"), 403),
        (head("Origin: null", "Content-Length: 2"), 403),
        (head(first="GET /hooks/codex HTTP/1.1"), 405),
        (head(first="OPTIONS /hooks/codex HTTP/1.1"), 405),
        (head(first="POST /hooks/../x HTTP/1.1"), 404),
        (head(first="POST /hooks/ HTTP/1.1"), 404),
        (head(first="POST http://127.0.0.1:20001/hooks/codex HTTP/1.1"), 404),
        (head(first="POST /hooks/" + "x" * 33 + " HTTP/1.1"), 404),
        (head("X: y"), 411),
        (head("Transfer-Encoding: chunked"), 411),
        (head("Transfer-Encoding: chunked", "Content-Length: 2"), 411),
        (head("Content-Length: -1"), 411),
        (head("Content-Length: ²"), 411),
        (head("Content-Length: 2", "Content-Length: 3"), 400),
        (head(f"Content-Length: {PAYLOAD_LIMIT + 1}"), 413),
        (head("Content-Length: " + "9" * 30), 413),
        (head(first="POST /hooks/codex"), 400),
        (head(first="\x16\x03\x01"), 400),
        (head("no colon", "Content-Length: 2"), 400),
        (head(" Folded: 1", "Content-Length: 2"), 400),
        (b"", 400),
    ],
)
def test_whatever_else_is_refused(raw: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        head_of(raw, PLACE)
    assert refused.value.status == status
    assert TOKEN not in str(refused.value)


@given(st.one_of(st.binary(max_size=300), st.lists(st.binary(max_size=60)).map(b"\r\n".join)))
def test_any_bytes_are_a_request_or_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        head_of(raw, PLACE)


# ---------------------------------------------------------------- a real one


class Daemon:
    """A raw socket in the daemon's place. hold: it answers when this is set."""

    def __init__(self, path: Path) -> None:
        self.path, self.answer, self.hold = path, b"", threading.Event()
        self.hold.set()
        self.heard: list[bytes] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            peer, _ = self._listening.accept()
            with peer, peer.makefile("rb") as stream:
                line = stream.readline()
                if not line:
                    return
                self.heard.append(line + stream.read(int(line.split()[3])))
                self.hold.wait(PATIENCE_SECONDS)
                try:
                    peer.sendall(self.answer)
                except BrokenPipeError:
                    continue

    def close(self) -> None:
        self.hold.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.path))
        self._thread.join()
        self._listening.close()


class Served:
    def __init__(self, process: subprocess.Popen[bytes], port: int, daemon: Daemon) -> None:
        self.process, self.port, self.daemon = process, port, daemon

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)

    def post(self, body: bytes = b"{}", **headers: str) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            return posted(connection, body, **headers)
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """What comes back until it closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS) as peer:
            peer.sendall(data)
            return b"".join(iter(lambda: peer.recv(65_536), b""))

    def said(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def posted(connection: http.client.HTTPConnection, body: bytes = b"{}", **headers: str) -> tuple[int, bytes]:
    connection.request("POST", "/hooks/codex", body, {"Authorization": f"Bearer {TOKEN}", **headers})
    response = connection.getresponse()
    return response.status, response.read()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(port: int, path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(front_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(f"{port} {TOKEN} {path}\n".encode())
    process.stdin.flush()
    return process


@pytest.fixture
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="rh ") as directory:  # a space: nothing may split at it
        daemon = Daemon(Path(directory) / "hook.sock")
        port = free_port()
        process = started(port, daemon.path)
        try:
            house = Served(process, port, daemon)
            assert house.said() == b"listening\n"
            yield house
        finally:
            ended(process)
            daemon.close()


def ended(process: subprocess.Popen[bytes]) -> None:
    """Its standard input's end is its own."""
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode in (0, -signal.SIGKILL)


def test_a_post_is_handed_on_and_the_answer_comes_back(served: Served) -> None:
    served.daemon.answer = '{"additionalContext": "…"}'.encode()
    payload = b"\x00\xff" * 1000
    in_time(lambda: served.post(payload), (200, served.daemon.answer))
    assert served.daemon.heard[-1] == b"recalld-hook/1 codex - 2000\n" + payload


def in_time(post: Callable[[], tuple[int, bytes]], wanted: tuple[int, bytes]) -> None:
    """On a busy machine an answer may be late, and is empty then."""
    assert wanted in (post() for _ in range(20))


def test_a_connection_serves_many_requests_also_when_they_come_together(served: Served) -> None:
    connection = served.connect()
    assert [posted(connection, b"x" * n)[0] for n in range(5)] == [200] * 5
    connection.close()
    one = head("Content-Length: 3").replace(b"20001", str(served.port).encode()) + b"\r\n\r\nabc"
    last = one.replace(b"Content-Length", b"Connection: close\r\nContent-Length")
    answers = served.raw(one + one + last)
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.count(b"Connection: keep-alive") == 2


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(served: Served) -> None:
    asking = head("Content-Length: 3", "Expect: 100-continue", "Connection: close")
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_SECONDS) as peer:
        peer.sendall(asking.replace(b"20001", str(served.port).encode()) + b"\r\n\r\n")
        assert peer.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"abc")
        assert peer.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_without_the_token_nothing_is_read_and_the_refusal_arrives(served: Served) -> None:
    status, body = served.post(b"x" * 3_000_000, Authorization="Bearer guess")
    assert (status, body) == (401, b"")
    assert served.said() == b"refused 401 the token is missing or wrong: `recallctl install` writes the right one\n"
    assert served.post(Authorization="Bearer guess")[0] == 401  # told once
    assert served.post(Origin="https://page.example")[0] == 403
    assert served.said().startswith(b"refused 403 it has an Origin")
    assert served.daemon.heard == []


def test_heads_without_an_end_and_half_bodies_are_ended(served: Served) -> None:
    assert served.raw(b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000).startswith(b"HTTP/1.1 431 ")
    assert served.raw(b"\x16\x03\x01\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert served.post()[0] == 200


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_can_t_take_all_connections(served: Served) -> None:
    holding = (
        f"import os,socket,sys;os.setuid(65534);held=[socket.socket() for _ in range({MAX_CONNECTIONS})];"
        f"[one.connect(('127.0.0.1',{served.port})) for one in held];print(len(held),flush=True);sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"%d\n" % MAX_CONNECTIONS
        assert served.post()[0] == 200
    assert served.said() == b"refused 403 a process of another user\n"


def test_p002_while_the_daemon_hangs_the_answer_is_empty_and_it_heals(served: Served) -> None:
    served.daemon.answer = b"late"
    served.daemon.hold.clear()
    assert [served.post() for _ in range(3)] == [(200, b"")] * 3
    assert b"no answer within 150 ms" in served.said()
    served.daemon.hold.set()
    in_time(served.post, (200, b"late"))


def test_without_a_daemon_s_socket_the_answer_is_empty(served: Served) -> None:
    hidden = served.daemon.path.rename(served.daemon.path.with_suffix(".hidden"))
    assert served.post() == (200, b"")
    hidden.rename(served.daemon.path)


def test_the_peer_s_user_is_the_one_the_kernel_names(tmp_path: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    with listening, socket.create_connection(listening.getsockname()), listening.accept()[0] as ours:
        assert peer_uid.uid_of_peer(ours) == os.getuid()
        assert peer_uid.uid_in_tables(ours) == os.getuid()
        assert peer_uid.uid_in_tables(ours, (str(tmp_path / "absent"),)) is None
        table = tmp_path / "tcp"
        table.write_bytes(b"  sl  local_address rem_address   st\n")
        assert peer_uid.uid_in_tables(ours, (str(table),)) == -1
        line = b"  0: %s %s 01 00000000:00000000 00:00000000 00000000 4242 0 1\n"
        table.write_bytes(line % (peer_uid._entry(ours.getpeername()), peer_uid._entry(ours.getsockname())))
        assert peer_uid.uid_in_tables(ours, (str(table),)) == 4242


def test_a_connection_that_is_not_there_is_nobody_s() -> None:
    class Gone:
        """In a socket's place, whose other end the kernel does not know."""

        def getpeername(self) -> tuple[str, int]:
            return ("127.0.0.1", 1)

        def getsockname(self) -> tuple[str, int]:
            return ("127.0.0.1", 2)

    assert peer_uid.uid_of_peer(Gone()) == -1  # type: ignore[arg-type]


def test_a_taken_port_is_told_and_ends_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = started(taken.getsockname()[1], Path("/nowhere"))
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"busy 127.0.0.1:")
        process.wait(PATIENCE_SECONDS)
        process.communicate()
    assert process.returncode == 3


# ---------------------------------------------------------------- its keeper


def keeping(body: Callable[[FrontKeeper, Figures, dict[str, str]], Awaitable[None]], *, enabled: bool = True) -> None:
    async def main(directory: str) -> None:
        environ = {"RECALLD_RUNTIME_DIR": directory}
        figures = Figures(EventFeed(NoPublisher()))
        keeper = FrontKeeper(environ, f"{directory}/hook.sock", figures, enabled=enabled)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.serve)
            with trio.fail_after(PATIENCE_SECONDS):
                await body(keeper, figures, environ)
            nursery.cancel_scope.cancel()
        assert keeper.pid == 0

    with tempfile.TemporaryDirectory(prefix="rh-") as directory:
        trio.run(main, directory)


async def until(said: Callable[[], Any]) -> None:
    while not said():
        await trio.sleep(0.01)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_keeper, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(front_keeper, "FIRST_PAUSE_SECONDS", 0.02)


@pytest.mark.usefixtures("quick")
def test_it_serves_once_a_port_and_a_token_are_there_and_again_when_it_died() -> None:
    async def body(keeper: FrontKeeper, figures: Figures, environ: dict[str, str]) -> None:
        await trio.sleep(0.05)
        assert (keeper.state, keeper.pid) == ("waiting", 0)
        hook = make_http_hook(environ)
        await until(lambda: keeper.state == "serving")
        assert keeper.port == hook.port
        first = keeper.pid
        assert hook.token not in " ".join(psutil.Process(first).cmdline())
        assert hook.token not in str(psutil.Process(first).environ())
        os.kill(first, signal.SIGKILL)
        await until(lambda: keeper.state == "serving" and keeper.pid not in (0, first))
        assert keeper.restarts == 1

    keeping(body)


@pytest.mark.usefixtures("quick")
def test_another_token_is_served_as_soon_as_it_is_seen() -> None:
    async def body(keeper: FrontKeeper, figures: Figures, environ: dict[str, str]) -> None:
        make_http_hook(environ)
        await until(lambda: keeper.state == "serving")
        first = keeper.pid
        http_hook_file(environ).unlink()
        await until(lambda: keeper.state == "waiting")
        make_http_hook(environ)
        await until(lambda: keeper.state == "serving")
        assert (keeper.pid != first, keeper.restarts) == (True, 0)

    keeping(body)


@pytest.mark.usefixtures("quick")
def test_a_taken_port_is_tried_again_and_a_bad_file_told() -> None:
    async def body(keeper: FrontKeeper, figures: Figures, environ: dict[str, str]) -> None:
        hook = make_http_hook(environ)
        with socket.create_server(("127.0.0.1", hook.port)):
            await until(lambda: keeper.state == "port busy")
            await until(lambda: figures.refused)
            assert f"127.0.0.1:{hook.port}" in figures.last_problem
        await until(lambda: keeper.state == "serving")
        restarts = keeper.restarts
        http_hook_file(environ).chmod(0o644)
        await until(lambda: "chmod 600" in figures.last_problem)
        await until(lambda: keeper.state == "waiting")
        figures.last_problem = ""
        http_hook_file(environ).write_text(f"99999\n{hook.token}\n")
        http_hook_file(environ).chmod(0o600)
        await until(lambda: "99999 is no port" in figures.last_problem)
        assert (keeper.state, keeper.restarts) == ("waiting", restarts)

    keeping(body)


def test_switched_off_it_serves_nothing() -> None:
    async def body(keeper: FrontKeeper, figures: Figures, environ: dict[str, str]) -> None:
        make_http_hook(environ)
        await keeper.serve()
        assert (keeper.state, keeper.port) == ("off", 0)

    keeping(body, enabled=False)


@contextmanager
def a_parent_of(place: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that keeps a front, as the daemon does; and the front's pid."""
    code = (
        "import sys, trio; from recalld_daemon.hooks.front_keeper import FrontKeeper\n"
        "from recalld_daemon.hooks.figures import Figures\n"
        "class Feed:\n    def emit(self, *a, **k): pass\n"
        "k = FrontKeeper({'RECALLD_RUNTIME_DIR': sys.argv[1]}, '/nowhere', Figures(Feed()), enabled=True)\n"
        "async def main():\n"
        "    async with trio.open_nursery() as n:\n"
        "        n.start_soon(k.serve)\n"
        "        while k.state != 'serving': await trio.sleep(0.01)\n"
        "        print(k.pid, flush=True)\n"
        "trio.run(main)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_it_ends_with_the_daemon_whatever_that_dies_of(tmp_path: Path) -> None:
    make_http_hook({"RECALLD_RUNTIME_DIR": str(tmp_path)})
    with a_parent_of(tmp_path) as (parent, pid):
        child = psutil.Process(pid)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:  # where nobody reaps orphans
            assert time.monotonic() < deadline
            time.sleep(0.01)
