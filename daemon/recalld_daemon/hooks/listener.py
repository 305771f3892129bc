"""The hook socket: a raw Unix stream, one request and one answer per connection.

Raw, since a hook is a process too short-lived to import ZeroMQ. Nothing is trusted before its line is read, nothing is
allocated beyond what has come, connections and the bytes of all together are bounded, and who stops half-way is dropped
after READ_SECONDS. Whatever is wrong, the peer sees no bytes and the end of the stream.

The answer is written at once, by the socket itself, before any other task may run: what was taken from the outbox is
counted as shown, so no hook may go between the taking and the writing.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from recalld_daemon.hooks.figures import Figures
from recalld_daemon.hooks.request import LINE_LIMIT, PAYLOAD_LIMIT, Refused, Request, request_in
from recalld_daemon.socket_files import made_at, private_files, remove_stale
from recalld_protocol.errors import EndpointError

MAX_CONNECTIONS = 128  # at once; a machine with a dozen agents has a handful
MAX_BYTES = 8 * PAYLOAD_LIMIT  # promised by all requests under way together
READ_SECONDS = 2.0  # for a whole request; a hook of ours gives up after 0.15
SEND_SECONDS = 1.0
BACKLOG = 128  # hooks may come together; one that finds it full waits, within its own deadline
CHUNK = 65_536
NO_FILES_SECONDS = 0.1  # until the next try, where this process has no file descriptor left

log = logging.getLogger(__name__)
Answer = Callable[[Request, bytes, Callable[[], bool]], Awaitable[bytes]]


@contextmanager
def hook_socket(path: Path) -> Iterator[socket.socket]:
    """Bound, listening, 0600; its file goes with it. The caller holds the daemon's lock. Raises EndpointError."""
    remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.setblocking(False)
        try:
            with private_files():
                listening.bind(os.fspath(path))
            listening.listen(BACKLOG)
        except OSError as error:
            raise EndpointError(f"can't bind {path}: {error.strerror or error}") from error
        file = made_at(path)
        try:
            yield listening
        finally:
            file.remove()


class HookListener:
    """`answer` may raise Refused; uid: whose processes are answered."""

    def __init__(self, answer: Answer, figures: Figures, uid: int | None = None) -> None:
        self._answer, self._figures = answer, figures
        self._uid = os.getuid() if uid is None else uid
        self._open = 0
        self._promised = 0  # bytes

    async def serve(self, listening: socket.socket) -> None:
        """For ever; cancelled, it drops who is connected."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(listening)
                try:
                    peer, _ = listening.accept()
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                        self._figures.refuse(Refused("no_files", f"can't accept: {error.strerror}"))
                        await trio.sleep(NO_FILES_SECONDS)
                    continue
                peer.setblocking(False)
                nursery.start_soon(self._serve_one, peer)

    async def _serve_one(self, peer: socket.socket) -> None:
        self._open += 1
        try:
            with peer:
                await self._exchange(peer)
        except Refused as refused:
            self._figures.refuse(refused)
        except OSError as error:
            log.debug("a hook went away: %s", error)
        except Exception as error:  # the outermost loop of a hook: its fault must not end the daemon
            log.exception("a hook could not be answered")
            self._figures.refuse(Refused("failed", f"a fault in recalld: {type(error).__name__}: {error}"))
        finally:
            self._open -= 1

    async def _exchange(self, peer: socket.socket) -> None:
        if self._open > MAX_CONNECTIONS:
            raise Refused("crowded", f"{MAX_CONNECTIONS} hooks are connected already")
        uid = uid_of_peer(peer)
        if uid not in (None, self._uid):
            raise Refused("foreign", f"a process of user {uid}: this daemon is user {self._uid}'s")
        with trio.move_on_after(READ_SECONDS) as reading:
            received = bytearray()
            request = await self._line(peer, received)
            if request is None:
                return  # somebody looked whether anybody listens
            with self._promise(request):
                payload = await _payload(peer, received, request)
                reading.deadline = float("inf")
                _send_now(peer, await self._answer(request, payload, lambda: is_gone(peer)))
        if reading.cancelled_caught:
            raise Refused("slow", f"no whole request within {READ_SECONDS:g} s")

    async def _line(self, peer: socket.socket, received: bytearray) -> Request | None:
        while True:
            if not (part := await _some(peer)):
                if received:
                    raise Refused("malformed", "it ended before its line did")
                return None
            received += part
            if request := request_in(received):
                return request

    @contextmanager
    def _promise(self, request: Request) -> Iterator[None]:
        if self._promised + request.length > MAX_BYTES:
            raise Refused("crowded", f"hooks' payloads of {self._promised} bytes are being read already", request.host)
        self._promised += request.length
        try:
            yield
        finally:
            self._promised -= request.length


async def _payload(peer: socket.socket, received: bytearray, request: Request) -> bytes:
    """`received` holds the line and what came with it."""
    begin = received.index(b"\n") + 1
    while (missing := begin + request.length - len(received)) > 0:
        if not (part := await _some(peer, missing)):
            raise Refused("malformed", f"it ended {missing} bytes before its payload did", request.host)
        received += part
    if missing < 0:
        raise Refused("malformed", f"{-missing} bytes more than its line says", request.host)
    return bytes(memoryview(received)[begin:])


async def _some(peer: socket.socket, most: int = LINE_LIMIT + CHUNK) -> bytes:
    """What is there, at most a chunk; b"" at the end of the stream."""
    while True:
        try:
            return peer.recv(min(most, CHUNK))
        except BlockingIOError:
            await trio.lowlevel.wait_readable(peer)


def _send_now(peer: socket.socket, answer: bytes) -> None:
    """A fresh connection holds far more than any answer; what does not fit is an OSError, and the peer's own fault."""
    if answer:
        sent = peer.send(answer)
        if sent < len(answer):
            raise BlockingIOError(errno.EAGAIN, "its buffer is full")


def is_gone(peer: socket.socket) -> bool:
    """Whether the peer has closed its end; one that has only finished writing is still there."""
    poll = select.poll()
    poll.register(peer, select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def uid_of_peer(peer: socket.socket) -> int | None:
    """The kernel's word on whose process it is; None where the system does not tell (the directory is 0700 there)."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return int(uid)
