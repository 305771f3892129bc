"""The client's connection to the daemon: send, receive, wait, ask; and a subscription to its events.

Nothing here raises and nothing waits unless a number of seconds is given. Waiting polls zmq's file descriptor outside
the lock and in slices: the descriptor is edge-triggered, and another thread may eat the edge. A forked child drops the
socket unclosed and opens its own.
"""

from __future__ import annotations

import itertools
import logging
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from recalld_client.sockets import READ_AT_ONCE, READABLE, WRITABLE, Dealer, Subscriber, abandon_inherited
from recalld_protocol.endpoints import Endpoints, check_runtime_dir, endpoints, socket_path
from recalld_protocol.errors import EndpointError, ProtocolError
from recalld_protocol.messages import Event, FromAgent, FromDaemon
from recalld_protocol.wire import decode_event, decode_from_daemon, encode

CONNECT_SECONDS = 0.02  # after connect: else the very first send finds no peer (zmq connects in the background)
ANSWERING_SECONDS = 1.0  # how long a question waits for the connection where the daemon's socket file exists
REOPEN_SECONDS = 0.5  # between attempts to open a socket whose directory is missing or unsafe
RENEW_SECONDS = 3.0  # without a connection although the daemon's file is there; zmq itself tries at least every 2 s
SLICE_SECONDS = 0.01  # the longest that an edge eaten by another thread delays a waiting one
MAX_KEPT = 256  # messages read while a question waited for its answer
BYE_SECONDS = 0.05  # what was sent just before closing is still written, in the background, for so long
logger = logging.getLogger("recalld.client")
logger.addHandler(logging.NullHandler())  # an agent's terminal is not ours: silent unless the user sets up logging

_links: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """A socket to the daemon. `session` is stamped on messages that name none. Threads may share it."""

    def __init__(self, endpoints: Endpoints | None = None, session: str = "") -> None:
        self.session = session
        self.problem = ""  # why there is no connection; "" while nothing is known to be wrong
        self.garbled = 0  # frames from the daemon that could not be read
        self._endpoints = endpoints
        self._socket: Dealer | None = None
        self._pid = os.getpid()
        self._closed = False
        self._retry_at = 0.0  # monotonic
        self._down_since = 0.0  # monotonic; 0: it is up
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self._asked: set[int] = set()
        self._answers: dict[int, FromDaemon] = {}
        self._kept: deque[FromDaemon] = deque(maxlen=MAX_KEPT)
        _links.add(self)

    # ------------------------------------------------------------ opening and closing

    def open(self, wait_seconds: float = CONNECT_SECONDS) -> bool:
        """Open the socket unless it is open; wait up to `wait_seconds`, once, for a daemon whose socket file exists.

        True: there is a socket (see `up` for a peer). False: `problem` says why not.
        """
        with self._lock:
            opened = self._socket is None
            if not self._ensure(time.monotonic()):
                return False
        if opened and self.file_exists:
            self._wait_for(WRITABLE, wait_seconds)
        if not self.up:
            self.problem = self.absence()
        return True

    def close(self) -> None:
        """Close the socket; what was sent last is still written in the background. Further calls do nothing."""
        with self._lock:
            self._closed = True
            if self._socket is not None and self._pid == os.getpid():
                self._socket.close(BYE_SECONDS)
            self._socket = None
            self._kept.clear()
            self._answers.clear()

    def __enter__(self) -> Link:
        self.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where the daemon is expected, for people; "" where that could not be found out."""
        return self._endpoints.request.removeprefix("ipc://") if self._endpoints else ""

    @property
    def file_exists(self) -> bool:
        """Whether the daemon's socket file is there; a daemon on another machine is taken to be."""
        if self._endpoints is None:
            return False
        return not _is_file(self._endpoints.request) or os.path.exists(self.address)

    @property
    def hopeful(self) -> bool:
        """Whether a connection may come up any moment: the socket is open, and the daemon's file is there."""
        return self._socket is not None and self.file_exists

    def absence(self) -> str:
        """Why nothing is connected, with the remedy."""
        if self._socket is None:
            return self.problem
        if self.file_exists:
            return f"no answer from the daemon at {self.address}: it hangs, or is gone; start it with `recalld run`"
        return f"no daemon at {self.address}: start it with `recalld run`"

    # ------------------------------------------------------------ without waiting

    @property
    def up(self) -> bool:
        """Whether a daemon is connected and takes what is sent."""
        return bool(self.events_nowait() & WRITABLE)

    def events_nowait(self) -> int:
        """READABLE and WRITABLE, or'ed. 0 without a socket."""
        with self._lock:
            socket = self._socket
            if socket is None or self._pid != os.getpid():
                socket = self._socket if self._ensure(time.monotonic()) else None
            events = 0 if socket is None else socket.events()
            if events & WRITABLE:
                self._down_since = 0.0
            elif socket is not None:
                self._renew(time.monotonic())
            return events

    def send_nowait(self, message: FromAgent) -> bool:
        """Send, or return False: no daemon is there, its queue is full, or the message breaks the wire's limits."""
        try:
            frame = encode(self._stamped(message))
        except ProtocolError as error:
            self.problem = str(error)
            logger.warning("a message is lost: %s", error)
            return False
        with self._lock:
            return self._ensure(time.monotonic()) and self._send(frame)

    def receive_nowait(self) -> list[FromDaemon]:
        """All that has arrived, in order, except answers that a `request` waits for."""
        with self._lock:
            if self.events_nowait() & READABLE:
                self._drain()
            if not self._kept:
                return []
            kept = list(self._kept)
            self._kept.clear()
            return kept

    # ------------------------------------------------------------ waiting

    def wait(self, seconds: float) -> bool:
        """Wait until something can be received, at most `seconds`. At once False without a socket."""
        return bool(self._kept) or self._wait_for(READABLE, seconds)

    def rest(self, seconds: float) -> None:
        """Sleep until the socket stirs, at most `seconds` and never more than one slice. Holds no lock."""
        poller = select.poll()
        if (socket := self._socket) is not None:
            poller.register(socket.fd, select.POLLIN)
        poller.poll(max(0.0, min(seconds, SLICE_SECONDS)) * 1000)

    def request(self, message: FromAgent, seconds: float) -> FromDaemon | None:
        """Ask and wait for the answer (its `re` is the question's `id`, given here if it is 0), at most `seconds`.

        None: no answer; `problem` says why. A `Problem` is an answer. What else arrives is kept for `receive_nowait`.
        """
        message = self._stamped(message)
        if message.id == 0:
            message = replace(message, id=next(self._ids))
        deadline = time.monotonic() + seconds
        if not self._reach(seconds):
            return None
        with self._lock:
            self._asked.add(message.id)
        try:
            if not self.send_nowait(message):
                self.problem = self.problem or self.absence()
                return None
            return self._answer(message.id, deadline, seconds)
        finally:
            with self._lock:
                self._asked.discard(message.id)
                self._answers.pop(message.id, None)

    def _reach(self, seconds: float) -> bool:
        """Wait for the connection, if a daemon's socket file is there at all."""
        with self._lock:
            if not self._ensure(time.monotonic()):
                return False
        if self.up or (self.file_exists and self._wait_for(WRITABLE, min(seconds, ANSWERING_SECONDS))):
            self.problem = ""
            return True
        self.problem = self.absence()
        return False

    def _answer(self, asked: int, deadline: float, seconds: float) -> FromDaemon | None:
        while True:
            with self._lock:
                if self.events_nowait() & READABLE:
                    self._drain()
                if asked in self._answers:
                    self.problem = ""
                    return self._answers[asked]
            left = deadline - time.monotonic()
            if left <= 0 or self._closed:
                self.problem = f"the daemon at {self.address} did not answer within {seconds:g} s"
                return None
            self.rest(left)

    def _wait_for(self, mask: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self.events_nowait() & mask:
            left = deadline - time.monotonic()
            if left <= 0 or self._socket is None:
                return False
            self.rest(left)
        return True

    # ------------------------------------------------------------ the socket itself, under the lock

    def _ensure(self, now: float) -> bool:
        """A socket of this process, opened if need be; attempts that failed are not repeated at once."""
        if self._socket is not None and self._pid == os.getpid():
            return True
        if self._socket is not None:
            self._abandon()
        if self._closed or now < self._retry_at:
            return False
        try:
            self._endpoints = self._endpoints or endpoints(os.environ)
            self._socket = Dealer(_checked(self._endpoints.request), self._endpoints.keys)
        except (ProtocolError, OSError, ImportError) as error:
            self._retry_at = now + REOPEN_SECONDS
            self.problem = str(error)
            return False
        self._pid = os.getpid()
        self.problem = ""
        return True

    def _renew(self, now: float) -> None:
        """After a peer's protocol error (an oversize frame) zmq never reconnects: do it anew, now and then."""
        self._down_since = self._down_since or now
        if now - self._down_since > RENEW_SECONDS and self._socket is not None and self.file_exists:
            self._socket.close()
            self._socket = None
            self._down_since = 0.0
            self._ensure(now)

    def _send(self, frame: bytes) -> bool:
        try:
            return self._socket is not None and self._socket.send(frame)
        except OSError as error:
            self.problem = f"sending to {self.address}: {error}"
            return False

    def _drain(self) -> None:
        for _ in range(READ_AT_ONCE):
            frame = self._socket.receive() if self._socket is not None else None
            if frame is None:
                return
            self._sort(frame)

    def _sort(self, frame: bytes) -> None:
        try:
            message = decode_from_daemon(frame)
        except ProtocolError as error:
            self.garbled += 1
            (logger.warning if self.garbled == 1 else logger.debug)("unreadable frame: %s", error)
            return
        if message.re and message.re in self._asked:
            self._answers[message.re] = message
        else:
            self._kept.append(message)

    def _stamped(self, message: FromAgent) -> FromAgent:
        return replace(message, session=self.session) if self.session and not message.session else message

    def _abandon(self) -> None:
        """In a forked child: forget the parent's socket without closing it, and all that came through it."""
        if self._socket is not None:
            self._socket.abandon()
        self._socket, self._pid = None, os.getpid()
        self._lock = threading.RLock()  # another thread of the parent may have held the old one
        self._retry_at = 0.0
        self._kept.clear()
        self._asked.clear()
        self._answers.clear()


class Subscription:
    """The daemon's events whose topic starts with one of `topics` (none given: all). For one thread."""

    def __init__(self, endpoints: Endpoints | None = None, topics: Iterable[str] = ()) -> None:
        self.problem = ""
        self._endpoints = endpoints
        self._topics = list(topics) or [""]
        self._socket: Subscriber | None = None

    def open(self) -> bool:
        """Connect. False: `problem` says why not."""
        if self._socket is None:
            try:
                self._endpoints = self._endpoints or endpoints(os.environ)
                if not self._endpoints.events:
                    raise EndpointError("events are not served over TCP: look on the daemon's own machine")
                self._socket = Subscriber(_checked(self._endpoints.events), self._topics)
            except (ProtocolError, OSError, ImportError) as error:
                self.problem = str(error)
        return self._socket is not None

    def receive(self, seconds: float) -> Event | None:
        """The next event, or None after `seconds`. What is not an event is skipped."""
        if not self.open() or self._socket is None:
            return None
        deadline = time.monotonic() + seconds
        while (frame := self._socket.receive(max(0.0, deadline - time.monotonic()))) is not None:
            try:
                return decode_event(frame)
            except ProtocolError as error:
                logger.debug("unreadable event: %s", error)
        return None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Subscription:
        self.open()
        return self

    def __iter__(self) -> Iterator[Event]:
        """Events for ever."""
        while self._socket is not None:
            if (event := self.receive(1.0)) is not None:
                yield event

    def __exit__(self, *exception: object) -> None:
        self.close()


def _is_file(address: str) -> bool:
    return address.startswith("ipc://")


def _checked(address: str) -> str:
    """The address, if its directory may be trusted. Raises EndpointError."""
    if _is_file(address):
        check_runtime_dir(socket_path(address).parent)
    return address


def _after_fork() -> None:
    abandon_inherited()
    for link in list(_links):
        link._abandon()


os.register_at_fork(after_in_child=_after_fork)
