"""The hook socket: real Unix sockets, one request each; whatever comes, it neither raises nor hangs nor errs."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from desk_house import NoPublisher
from recalld_daemon.events import EventFeed
from recalld_daemon.hooks import listener as of_listener
from recalld_daemon.hooks.figures import Figures
from recalld_daemon.hooks.listener import HookListener, hook_socket, is_gone
from recalld_daemon.hooks.request import LINE_LIMIT, PAYLOAD_LIMIT, Refused, Request, request_in
from recalld_protocol.errors import EndpointError


class Echo:
    """In the hook desk's place: answers with what it was asked. `hold`: waits for it first."""

    def __init__(self) -> None:
        self.asked: list[tuple[Request, bytes]] = []
        self.hold: trio.Event | None = None
        self.gone: bool | None = None
        self.fault: Exception | None = None

    async def __call__(self, request: Request, payload: bytes, gone: Callable[[], bool]) -> bytes:
        self.asked.append((request, payload))
        if self.hold is not None:
            await self.hold.wait()
        self.gone = gone()
        if self.fault is not None:
            raise self.fault
        return payload


class House:
    def __init__(self, path: Path, echo: Echo, figures: Figures) -> None:
        self.path, self.echo, self.figures = path, echo, figures

    async def connect(self) -> trio.SocketStream:
        return await trio.open_unix_socket(str(self.path))  # type: ignore[return-value]

    async def exchange(self, data: bytes, *, shut: bool = False) -> bytes:
        """What comes back until the end of the stream; a reset is an end too."""
        async with await self.connect() as stream:
            answer = b""
            try:
                await stream.send_all(data)
                if shut:
                    await stream.send_eof()
                async for part in stream:
                    answer += part
            except trio.BrokenResourceError:
                pass
            return answer


def check(body: Callable[[House], Awaitable[None]], uid: int | None = None) -> None:
    async def main() -> None:
        echo, figures = Echo(), Figures(EventFeed(NoPublisher()))
        with short_directory() as directory, hook_socket(directory / "hook.sock") as listening:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(HookListener(echo, figures, uid).serve, listening)
                with trio.fail_after(60):
                    await body(House(directory / "hook.sock", echo, figures))
                nursery.cancel_scope.cancel()

    trio.run(main)


@contextmanager
def short_directory() -> Iterator[Path]:
    """A Unix socket's path may have 107 bytes, which pytest's directories may exceed."""
    with tempfile.TemporaryDirectory(prefix="rh-") as directory:
        yield Path(directory)


def request(payload: bytes, host: str = "codex", event: str = "-") -> bytes:
    return f"recalld-hook/1 {host} {event} {len(payload)}\n".encode() + payload


def test_a_request_is_answered_and_the_stream_ends() -> None:
    async def body(house: House) -> None:
        assert await house.exchange(request(b'{"a": "\xc3\xbc"}\n', event="PostToolUse")) == b'{"a": "\xc3\xbc"}\n'
        assert house.echo.asked == [(Request("codex", "PostToolUse", 12), b'{"a": "\xc3\xbc"}\n')]
        assert await house.exchange(request(b"")) == b""
        assert house.figures.refused == 0

    check(body)


def test_a_request_may_come_byte_by_byte_and_its_sender_may_finish_writing() -> None:
    async def body(house: House) -> None:
        async with await house.connect() as stream:
            for byte in request(b"payload"):
                await stream.send_all(bytes([byte]))
                await trio.testing.wait_all_tasks_blocked()
            await stream.send_eof()
            assert b"".join([part async for part in stream]) == b"payload"
        assert house.echo.gone is False

    check(body)


def test_a_payload_of_megabytes_arrives_whole() -> None:
    async def body(house: House) -> None:
        payload = os.urandom(1024) * 4096
        assert len(await house.exchange(request(payload[:60_000]))) == 60_000
        await house.exchange(request(payload))
        assert house.echo.asked[-1][1] == payload

    check(body)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "malformed"),
        (b"x" * (LINE_LIMIT + 1), "malformed"),
        (b"recalld-hook/2 codex - 0\n", "malformed"),
        (b"recalld-hook/1 codex - -5\n", "malformed"),
        (b"recalld-hook/1 codex - 5\nab", "malformed"),
        (b"recalld-hook/1 codex - 1\nabcdef", "malformed"),
        (b"recalld-hook/1 co", "malformed"),
        (f"recalld-hook/1 codex - {PAYLOAD_LIMIT + 1}\n".encode(), "too_large"),
        (b"recalld-hook/1 codex - 99999999999\n", "too_large"),
        (b"recalld-hook/1 codex - " + b"9" * 40 + b"\n", "malformed"),
    ],
)
def test_what_is_no_request_gets_nothing_and_is_told_once(data: bytes, code: str) -> None:
    async def body(house: House) -> None:
        for _ in range(3):
            assert await house.exchange(data, shut=True) == b""
        while house.figures.refused < 3:
            await trio.lowlevel.checkpoint()
        assert house.echo.asked == []
        assert [kind for _, kind in house.figures._told] == [code]
        assert await house.exchange(request(b"well")) == b"well"

    check(body)


def test_who_only_looks_is_no_trouble() -> None:
    async def body(house: House) -> None:
        assert await house.exchange(b"", shut=True) == b""
        assert await house.exchange(request(b"well")) == b"well"
        assert house.figures.refused == 0

    check(body)


def test_another_users_process_is_not_answered() -> None:
    async def body(house: House) -> None:
        assert await house.exchange(request(b"secret")) == b""
        assert house.echo.asked == []
        assert house.figures.last_problem.startswith(f"a process of user {os.getuid()}")

    check(body, uid=os.getuid() + 1)


def test_a_fault_in_the_answer_ends_that_hook_only() -> None:
    async def body(house: House) -> None:
        for fault in (RuntimeError("boom"), Refused("busy", "full")):
            house.echo.fault = fault
            assert await house.exchange(request(b"x")) == b""
        house.echo.fault = None
        assert await house.exchange(request(b"well")) == b"well"
        assert house.figures.refused == 2

    check(body)


def test_one_that_stops_half_way_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_listener, "READ_SECONDS", 0.01)

    async def body(house: House) -> None:
        assert await house.exchange(b"recalld-hook/1 codex - 10\nabc") == b""
        assert await house.exchange(b"recalld-") == b""
        assert "no whole request" in house.figures.last_problem

    check(body)


def test_connections_and_their_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_listener, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(of_listener, "MAX_BYTES", 10)

    async def body(house: House) -> None:
        house.echo.hold = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.exchange, request(b"123456"))
            await trio.testing.wait_all_tasks_blocked()
            assert await house.exchange(request(b"123456")) == b""  # beyond the bytes
            assert "payloads" in house.figures.last_problem
            nursery.start_soon(house.exchange, request(b"12"))
            nursery.start_soon(house.exchange, request(b"12"))
            await trio.testing.wait_all_tasks_blocked()
            assert await house.exchange(request(b"")) == b""  # beyond the connections
            assert "connected already" in house.figures.last_problem
            house.echo.hold.set()
        assert await house.exchange(request(b"well")) == b"well"

    check(body)


def test_a_hook_that_leaves_while_it_is_answered_is_seen_to_be_gone() -> None:
    async def body(house: House) -> None:
        house.echo.hold = trio.Event()
        async with await house.connect() as stream:
            await stream.send_all(request(b"x"))
            await trio.testing.wait_all_tasks_blocked()
        house.echo.hold.set()
        await trio.testing.wait_all_tasks_blocked()
        assert house.echo.gone is True

    check(body)


def test_gone_is_who_has_closed_not_who_has_finished_writing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_gone(ours)
        theirs.sendall(b"more")
        theirs.shutdown(socket.SHUT_WR)
        assert not is_gone(ours)
        theirs.close()
        assert is_gone(ours)


def test_the_socket_is_its_owners_and_takes_the_place_of_a_dead_one() -> None:
    with short_directory() as directory:
        path = directory / "hook.sock"
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(str(path))
        dead.close()
        with hook_socket(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.exists()
        path.write_text("mine")
        with pytest.raises(EndpointError, match="in the way"), hook_socket(path):
            pass
        assert path.read_text() == "mine"
        with pytest.raises(EndpointError, match="can't bind"), hook_socket(directory / ("x" * 120)):
            pass


def test_a_socket_that_another_has_put_there_meanwhile_stays() -> None:
    with short_directory() as directory:
        path = directory / "hook.sock"
        with hook_socket(path):
            path.unlink()
            path.write_text("somebody else's")
        assert path.exists()


def test_any_bytes_are_a_request_or_refused_and_never_hang() -> None:
    """Many at a time through one real listener, each until its stream ends."""
    pieces = st.one_of(
        st.binary(max_size=400),
        st.builds(lambda head, rest: b"recalld-hook/1 " + head + rest, st.binary(max_size=40), st.binary(max_size=40)),
        st.builds(
            lambda length, rest: f"recalld-hook/1 codex - {length}\n".encode() + rest,
            st.integers(0, 20),
            st.binary(max_size=30),
        ),
    )

    @settings(max_examples=30, deadline=None)
    @given(st.lists(pieces, min_size=1, max_size=20))
    def fuzz(attempts: list[bytes]) -> None:
        async def body(house: House) -> None:
            async with trio.open_nursery() as nursery:
                for data in attempts:

                    async def one(data: bytes = data) -> None:
                        assert await house.exchange(data, shut=True) in (b"", data.partition(b"\n")[2])

                    nursery.start_soon(one)
            assert await house.exchange(request(b"well")) == b"well"
            assert not any("fault in recalld" in line for line in [house.figures.last_problem])

        check(body)

    fuzz()


@given(st.binary(max_size=300))
def test_a_line_is_parsed_or_refused(data: bytes) -> None:
    try:
        found = request_in(data)
    except Refused:
        return
    assert found is None or 0 <= found.length <= PAYLOAD_LIMIT
