"""ZeroMQ on trio, and the daemon's sockets: the only file of the daemon that imports zmq.

A ZeroMQ socket's file descriptor is edge-triggered: it becomes readable when something has changed, and *any* send or
receive may swallow that edge. So the state is read (EVENTS) before each wait, with nothing awaited in between, and
whoever has touched the socket wakes the waiter if the state now holds what somebody waits for. A message that has been
taken from the socket is handed over before the next cancellation can strike, so cancelling loses none.

The request socket is a ROUTER: single-frame messages, answered to the identity they came from, never waiting for a
slow or vanished peer. The event socket is an XPUB: it knows what is listened for, so nobody packs what nobody reads.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import trio
import zmq
from zmq.utils import z85

from recalld_daemon.peers import ZAP_DOMAIN, Admission, uid_of
from recalld_daemon.socket_files import SocketFile, made_at, private_files, remove_stale
from recalld_protocol.endpoints import Endpoints, socket_path
from recalld_protocol.errors import EndpointError
from recalld_protocol.wire import AGENT_FRAME_LIMIT

REPLY_QUEUE = 64  # frames per peer; a peer this far behind gets no more (send_nowait is False) until it reads
REQUEST_QUEUE = 1000  # frames per peer; generous, since a peer that leaves while it is full loses its tail
EVENT_QUEUE = 1000  # events per subscriber; past that the newest are dropped for it, which `seq` shows
SUBSCRIPTION_LIMIT = 1024  # bytes; an event's name has at most 256
HANDSHAKE_MS = 2000  # a connection that has not said who it is by then is closed
BACKLOG = 256  # connections waiting to be accepted: agents may start together
TCP_PROBE_SECONDS = 10  # a TCP peer that vanished without a word is given up after three of these
ZAP_FRAMES = 8  # a CURVE request has 7, a NULL one 6

_Socket = zmq.Socket[bytes]
_Context = zmq.Context[_Socket]
_Options = Mapping[int, int | bytes]
_NO_ROUTE = (errno.EHOSTUNREACH, errno.EAGAIN)


class TrioSocket:
    """A ZeroMQ socket for any number of trio tasks that receive and send. For the trio thread only."""

    def __init__(self, socket: _Socket) -> None:
        self._socket = socket
        self._fd = int(socket.getsockopt(zmq.FD))
        self._waiting: dict[int, int] = {zmq.POLLIN: 0, zmq.POLLOUT: 0}  # tasks that wait for each
        self._pump: trio.CancelScope | None = None  # of the one task that waits for the descriptor, if any
        self._parked = trio.lowlevel.ParkingLot()  # the others

    async def receive(self, most: int = 1) -> tuple[list[zmq.Frame], int]:
        """The next message: its first `most` frames, and how many it had. Frames past `most` are read and dropped.

        A message is returned or still in the socket, never lost to a cancellation. Raises trio.ClosedResourceError.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            try:
                taken = self._take(most)
            except zmq.Again:
                await self._ready(zmq.POLLIN)
            else:
                self._kick()
                await trio.lowlevel.cancel_shielded_checkpoint()
                return taken

    async def send(self, *frames: bytes) -> None:
        """Send one message, waiting while the queue is full. Cancelled, it was not sent.

        Raises trio.ClosedResourceError.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.send_nowait(*frames):
            await self._ready(zmq.POLLOUT)
        await trio.lowlevel.cancel_shielded_checkpoint()

    def send_nowait(self, *frames: bytes) -> bool:
        """Send one message now; False when the queue is full, or (ROUTER) the peer is not there.

        Raises trio.ClosedResourceError.
        """
        self._state()
        try:
            self._socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno not in _NO_ROUTE:
                raise
            return False
        finally:
            self._kick()
        return True

    def close(self) -> None:
        """Drop what is unsent, and wake all who wait with trio.ClosedResourceError."""
        if not self._socket.closed:
            trio.lowlevel.notify_closing(self._fd)
            self._socket.close(0)
            self._parked.unpark_all()

    def _take(self, most: int) -> tuple[list[zmq.Frame], int]:
        self._state()
        frame = self._socket.recv(zmq.DONTWAIT, copy=False)
        frames, count = [frame], 1
        while frame.more:
            frame = self._socket.recv(zmq.DONTWAIT, copy=False)  # a message is there with all its frames, or not at all
            count += 1
            if count <= most:
                frames.append(frame)
        return frames, count

    def _state(self) -> int:
        if self._socket.closed:
            raise trio.ClosedResourceError("this socket was closed")
        return int(self._socket.getsockopt(zmq.EVENTS))

    def _kick(self) -> None:
        """After every send and receive: it may have eaten the edge that the pump waits for."""
        if self._pump is not None:
            state = self._state()
            if any(state & mask for mask, tasks in self._waiting.items() if tasks):
                self._pump.cancel()

    async def _ready(self, mask: int) -> None:
        self._waiting[mask] += 1
        try:
            while not self._state() & mask:
                if self._pump is None:
                    await self._wait_for_edge()
                else:
                    await self._parked.park()  # trio lets one task wait for a descriptor
        finally:
            self._waiting[mask] -= 1

    async def _wait_for_edge(self) -> None:
        try:
            with trio.CancelScope() as self._pump:
                await trio.lowlevel.wait_readable(self._fd)
        finally:
            self._pump = None
            self._parked.unpark_all()


@dataclass(frozen=True, slots=True)
class Received:
    """One request. `identity` is where the answer goes; `peer_uid` the sender's user, None over TCP."""

    identity: bytes
    frame: bytes
    peer_uid: int | None


class RouterServer:
    """The request socket. `dropped` counts messages that had not exactly one frame."""

    def __init__(self, socket: _Socket) -> None:
        self._raw = socket
        self._socket = TrioSocket(socket)
        self.dropped = 0

    async def receive(self) -> Received:
        """The next request, of at most AGENT_FRAME_LIMIT bytes; cancelling loses none."""
        while True:
            frames, count = await self._socket.receive(most=2)
            if count == 2:
                identity, frame = frames
                return Received(identity.bytes, frame.bytes, uid_of(str(frame.get("User-Id"))))
            self.dropped += 1

    def send_nowait(self, identity: bytes, frame: bytes) -> bool:
        """Hand over an answer without waiting; False when that peer is gone, or too far behind to take it."""
        return self._socket.send_nowait(identity, frame)

    def close(self) -> None:
        self._socket.close()


class EventPublisher:
    """The event socket: `[topic, body]` to whoever asked for a prefix of the topic."""

    def __init__(self, socket: _Socket) -> None:
        self._socket = TrioSocket(socket)
        self._prefixes: set[bytes] = set()

    def wanted(self, topic: str) -> bool:
        """Whether anybody listens for `topic`: if not, don't even make the event."""
        return bool(self._prefixes) and any(map(topic.encode().startswith, self._prefixes))

    def publish_nowait(self, topic: str, body: bytes) -> None:
        """Send to all who listen; one who does not keep up misses it, and no one waits."""
        self._socket.send_nowait(topic.encode(), body)

    async def serve(self) -> None:
        """Follow what is subscribed to. libzmq tells the first subscription to a prefix and the last one's end."""
        while True:
            (frame, *_), count = await self._socket.receive()
            change = frame.bytes
            if count == 1 and change[:1] == b"\x01":
                self._prefixes.add(change[1:])
            elif count == 1 and change[:1] == b"\x00":
                self._prefixes.discard(change[1:])

    def close(self) -> None:
        self._socket.close()


def new_key_pair() -> tuple[str, str]:
    """A fresh CURVE pair, public and secret, each 40 characters of Z85."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


@dataclass(frozen=True, slots=True)
class TcpBinding:
    """Serve requests over TCP as well, encrypted.

    address: "tcp://host:port", port "*" for any free one; curve_secret: the daemon's secret key; client_keys: the
    public keys of who may connect. Keys are 40 characters of Z85. Events are not served over TCP.
    """

    address: str
    curve_secret: bytes
    client_keys: frozenset[bytes]

    def raw_keys(self) -> frozenset[bytes]:
        """The client keys as the handshake shows them. Raises EndpointError for a key that is none."""
        if not self.client_keys:
            raise EndpointError(f"{self.address}: no client key is allowed in, so nobody could connect")
        return frozenset(_raw_key(key, f"{self.address}: a client's public key") for key in self.client_keys)


@dataclass(frozen=True, slots=True)
class Sockets:
    router: RouterServer
    events: EventPublisher
    tcp_address: str | None = None  # as bound, with its real port


@asynccontextmanager
async def open_sockets(
    endpoints: Endpoints, tcp: TcpBinding | None = None, *, allowed_uid: int | None = None
) -> AsyncIterator[Sockets]:
    """Bind and serve; on leaving, close without waiting for peers and remove the socket files.

    The caller holds the daemon's lock and has made the runtime directory: a socket file found here is taken for a dead
    daemon's and replaced. `allowed_uid`: whose processes may connect, by default this process's user. An exception in
    the body leaves in an ExceptionGroup, as from any nursery.

    Raises: EndpointError when an address can't be bound, or a key is none.
    """
    uid = os.getuid() if allowed_uid is None else allowed_uid
    admission = Admission(uid, tcp.raw_keys() if tcp else frozenset())
    context: _Context = zmq.Context()
    with _bound(context, endpoints, tcp) as (zap, sockets):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve_admission, zap, admission)
            nursery.start_soon(sockets.events.serve)
            yield sockets
            nursery.cancel_scope.cancel()


@contextmanager
def _bound(context: _Context, endpoints: Endpoints, tcp: TcpBinding | None) -> Iterator[tuple[TrioSocket, Sockets]]:
    files: list[SocketFile] = []
    closing: list[TrioSocket | RouterServer | EventPublisher] = []
    try:
        zap = _new(context, zmq.REP, {})
        zap.bind("inproc://zeromq.zap.01")  # where libzmq looks for it; before anyone can knock
        closing.append(admitting := TrioSocket(zap))
        requests = _new(context, zmq.ROUTER, _ROUTER_OPTIONS)
        closing.append(router := RouterServer(requests))
        files.append(_bind_ipc(requests, endpoints.request))
        publisher = _new(context, zmq.XPUB, _XPUB_OPTIONS)
        closing.append(events := EventPublisher(publisher))
        files.append(_bind_ipc(publisher, endpoints.events))
        yield admitting, Sockets(router, events, _bind_tcp(requests, tcp) if tcp else None)
    finally:
        for socket in closing:
            socket.close()
        for file in files:
            file.remove()
        context.destroy(0)


_COMMON_OPTIONS: _Options = {
    zmq.LINGER: 0,  # never hang on what a vanished peer did not read
    zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
    zmq.BACKLOG: BACKLOG,
    zmq.ZAP_DOMAIN: ZAP_DOMAIN,  # without it libzmq asks nobody whether a peer may enter
}
_ROUTER_OPTIONS: _Options = {
    **_COMMON_OPTIONS,
    zmq.ROUTER_MANDATORY: 1,  # an unroutable answer is an error, not silence. No HANDOVER: an identity can't be stolen
    zmq.SNDHWM: REPLY_QUEUE,
    zmq.RCVHWM: REQUEST_QUEUE,
    zmq.MAXMSGSIZE: AGENT_FRAME_LIMIT,  # per frame, before it is allocated; past it the connection is closed
}
_XPUB_OPTIONS: _Options = {**_COMMON_OPTIONS, zmq.SNDHWM: EVENT_QUEUE, zmq.MAXMSGSIZE: SUBSCRIPTION_LIMIT}


def _new(context: _Context, kind: int, options: _Options) -> _Socket:
    """A socket with its options set before it is bound: libzmq ignores most of them afterwards, silently."""
    socket = context.socket(kind)
    for option, value in options.items():
        socket.setsockopt(option, value)
    return socket


def _bind_ipc(socket: _Socket, endpoint: str) -> SocketFile:
    """libzmq would replace whatever lies there; we replace sockets only."""
    path = socket_path(endpoint)
    remove_stale(path)
    with private_files():
        _bind(socket, endpoint)
    return made_at(path)


def _bind_tcp(socket: _Socket, tcp: TcpBinding) -> str:
    """Bind `socket` to TCP too. Its security options hold for binds from now on, so those before stay as they are."""
    if not tcp.address.startswith("tcp://"):
        raise EndpointError(f"{tcp.address}: a TCP address reads tcp://host:port")
    _raw_key(tcp.curve_secret, f"{tcp.address}: the daemon's secret key")
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, tcp.curve_secret)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)  # not ZeroMQ's heartbeats: with those libzmq aborts the process when one
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, TCP_PROBE_SECONDS)  # comes due on a lost connection whose queue is full
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, TCP_PROBE_SECONDS)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 2)
    _bind(socket, tcp.address)
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def _bind(socket: _Socket, address: str) -> None:
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise EndpointError(f"can't bind {address}: {error.strerror}") from error


def _raw_key(key: bytes, what: str) -> bytes:
    """The 32 bytes behind 40 characters of Z85."""
    try:
        raw = z85.decode(key)
    except (KeyError, ValueError, struct.error):
        raw = b""
    if len(raw) != 32:
        raise EndpointError(f"{what} must be 40 characters of Z85")
    return raw


async def _serve_admission(socket: TrioSocket, admission: Admission) -> None:
    """Answer libzmq's question about each peer; a question of too many frames is answered by a refusal."""
    while True:
        frames, count = await socket.receive(most=ZAP_FRAMES)
        request = [frame.bytes for frame in frames] if count <= ZAP_FRAMES else []
        await socket.send(*admission.answer(request))
