"""Peers of the daemon's sockets, as an agent or an attacker would make them, on the tests' own trio loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio
import trio.testing
import zmq

from recalld_daemon.sockets import Received, Sockets, TcpBinding, TrioSocket, open_sockets
from recalld_protocol.endpoints import Endpoints, endpoints_in

DEADLINE_SECONDS = 60  # only a hang gets there, also on a loaded machine

Raw = zmq.Socket[bytes]


def run(test: Callable[..., Awaitable[None]], *args: object) -> None:
    """trio.run under a deadline, so that a hang is a failure."""

    async def bounded() -> None:
        with trio.fail_after(DEADLINE_SECONDS):
            await test(*args)

    trio.run(bounded)


@contextmanager
def peers() -> Iterator[Peers]:
    context: zmq.Context[Raw] = zmq.Context()
    made = Peers(context)
    try:
        yield made
    finally:
        made.close()
        context.destroy(0)


class Peers:
    def __init__(self, context: zmq.Context[Raw]) -> None:
        self.context = context
        self._open: list[TrioSocket] = []

    def raw(self, kind: int, **options: int | bytes) -> Raw:
        socket = self.context.socket(kind)
        for name, value in {"LINGER": 0, "RECONNECT_IVL": 10, **options}.items():
            socket.setsockopt(getattr(zmq, name), value)
        return socket

    def adopt(self, socket: Raw) -> TrioSocket:
        self._open.append(adopted := TrioSocket(socket))
        return adopted

    def dealer(self, address: str, **options: int | bytes) -> TrioSocket:
        socket = self.raw(zmq.DEALER, **options)
        socket.connect(address)
        return self.adopt(socket)

    def subscriber(self, address: str, prefix: bytes = b"", **options: int | bytes) -> TrioSocket:
        socket = self.raw(zmq.SUB, **options)
        socket.connect(address)
        socket.setsockopt(zmq.SUBSCRIBE, prefix)
        return self.adopt(socket)

    def close(self) -> None:
        for socket in self._open:
            socket.close()


@asynccontextmanager
async def serving(
    directory: Path, tcp: TcpBinding | None = None, uid: int | None = None
) -> AsyncIterator[tuple[Endpoints, Sockets, Peers]]:
    """The daemon's sockets in `directory`, and a workshop for peers."""
    where = endpoints_in(directory)
    with peers() as made:
        async with open_sockets(where, tcp, allowed_uid=uid) as sockets:
            yield where, sockets, made


async def body(socket: TrioSocket) -> bytes:
    """The next single-frame message."""
    (frame, *_), count = await socket.receive()
    assert count == 1
    return frame.bytes


async def nothing_arrives(sockets: Sockets) -> None:
    """Fails if a request is there, or comes while this side has anything left to do."""
    received: list[Received] = []

    async def receive() -> None:
        received.append(await sockets.router.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert received == []
