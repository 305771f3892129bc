"""The client's only file that imports zmq: the two sockets it needs, with their options.

zmq takes 30 ms to import, so that happens when the first socket is made. All errors of zmq leave here as OSError.
A forked child must neither use nor close what it inherited (that would disturb the parent's, and the copy of an I/O
thread that is not there spins for ever): `abandon_inherited` keeps such things alive and out of reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from errno import EAGAIN
from typing import TYPE_CHECKING, Any

from recalld_protocol.endpoints import CurveKeys
from recalld_protocol.wire import DAEMON_FRAME_LIMIT

if TYPE_CHECKING:
    import zmq

READABLE, WRITABLE = 1, 2  # zmq.POLLIN, zmq.POLLOUT
SEND_QUEUE = 256  # frames; a hung daemon costs EAGAIN after these
RECEIVE_QUEUE = 0  # no limit, since libzmq aborts the process when a heartbeat comes due on a connection that was lost
# while its receive queue was full (libzmq issues 4364, 4767); what may wait is bounded by what this session has asked
READ_AT_ONCE = 256  # frames taken from the socket in one go; no more than a link keeps
EVENT_QUEUE = 1_000  # events that a slow reader may lie behind
RECONNECT_MS, RECONNECT_MAX_MS = 50, 2_000  # doubling
HANDSHAKE_MS = 2_000  # a frozen daemon's kernel accepts connections that nobody shakes hands on
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS = 500, 1_500  # a frozen daemon is given up after 2 s

_context: list[zmq.Context[zmq.Socket[bytes]]] = []  # this process's, made at first use
_inherited: list[Any] = []


class Dealer:
    """Frames to and from the daemon's ROUTER; never blocks. Raises OSError when it can't be made."""

    def __init__(self, address: str, keys: CurveKeys | None = None) -> None:
        import zmq

        curve = {}
        if keys is not None:
            curve = {
                zmq.CURVE_SERVERKEY: keys.daemon,
                zmq.CURVE_PUBLICKEY: keys.public,
                zmq.CURVE_SECRETKEY: keys.secret,
            }
        self._socket = _connected(
            zmq.DEALER,
            address,
            {name: key.encode() for name, key in curve.items()}
            | {
                zmq.IMMEDIATE: 1,  # no queue without a live peer: an absent daemon gets no stale backlog
                zmq.SNDHWM: SEND_QUEUE,
                zmq.RCVHWM: RECEIVE_QUEUE,
                zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
                zmq.HEARTBEAT_IVL: HEARTBEAT_MS,
                zmq.HEARTBEAT_TIMEOUT: HEARTBEAT_TIMEOUT_MS,
            },
        )
        self.fd = self._socket.fileno()
        self._events_option, self._dontwait, self._error = int(zmq.EVENTS), int(zmq.DONTWAIT), zmq.ZMQError

    def events(self) -> int:
        """READABLE and WRITABLE, or'ed. Takes in what zmq's own thread has done since."""
        events = self._socket.getsockopt(self._events_option)
        return events if isinstance(events, int) else 0

    def send(self, frame: bytes) -> bool:
        """False: no peer, or its queue is full. Raises OSError for anything else."""
        try:
            self._socket.send(frame, self._dontwait)
        except self._error as error:
            if error.errno == EAGAIN:
                return False
            raise OSError(error.errno, str(error)) from error
        return True

    def receive(self) -> bytes | None:
        """The next frame, or None."""
        try:
            return self._socket.recv(self._dontwait)
        except self._error:
            return None

    def close(self, linger_seconds: float = 0.0) -> None:
        """Close; what is queued is still written for `linger_seconds`, in the background."""
        self._socket.close(linger=round(linger_seconds * 1000))

    def abandon(self) -> None:
        """Inherited through a fork: let nothing close it."""
        _inherited.append(self._socket)


class Subscriber:
    """Receives what the daemon publishes under some topics. Raises OSError when it can't be made."""

    def __init__(self, address: str, topics: list[str]) -> None:
        import zmq

        self._socket = _connected(zmq.SUB, address, {zmq.RCVHWM: EVENT_QUEUE})
        for topic in topics:
            self._socket.subscribe(topic)

    def receive(self, seconds: float) -> bytes | None:
        """The body of the next event, or None after `seconds`."""
        return self._socket.recv_multipart()[-1] if self._socket.poll(round(seconds * 1000)) else None

    def close(self) -> None:
        self._socket.close(linger=0)


def abandon_inherited() -> None:
    """In a forked child: the context too stays untouched."""
    _inherited.extend(_context)
    _context.clear()


def _connected(kind: int, address: str, options: Mapping[int, int | bytes]) -> zmq.Socket[bytes]:
    import zmq

    common: dict[int, int | bytes] = {
        zmq.LINGER: 0,
        zmq.MAXMSGSIZE: DAEMON_FRAME_LIMIT,
        zmq.RECONNECT_IVL: RECONNECT_MS,
        zmq.RECONNECT_IVL_MAX: RECONNECT_MAX_MS,
    }
    try:
        if not _context:
            _context.append(zmq.Context())
        socket = _context[0].socket(kind)
        for option, value in (common | dict(options)).items():  # before connect: later they are silently ignored
            socket.setsockopt(option, value)
        socket.connect(address)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"{address}: {error}") from error
    return socket
