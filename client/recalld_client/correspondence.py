"""One session's correspondence with the daemon: link, handshake, buffer and pledges, kept in step under one lock.

Every public action of a session passes through here, and each begins with a `pulse`: read what has arrived, notice a
lost connection, say hello if that is due, repeat what was not acknowledged. So all healing happens in passing, without
a thread of our own. A boundary that takes nothing is not worth waking the daemon for: it goes out in front of the next
message, which keeps the order the daemon counts by.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from recalld_client.buffer import Buffer, Recent
from recalld_client.handshake import Handshake
from recalld_client.injection import Injection
from recalld_client.link import Link
from recalld_client.pledges import Pledge, Pledges
from recalld_client.sockets import READABLE, WRITABLE
from recalld_protocol.messages import (
    Acked,
    Boundary,
    Bye,
    FromAgent,
    FromDaemon,
    Hello,
    Inject,
    Injections,
    Ping,
    Pong,
    Problem,
    Remembered,
    Settled,
    Turn,
    Welcome,
)

MAX_DEFERRED = 16  # boundaries held back; between two messages of a session there are seldom two
MAX_OUTCOMES = 256  # settled recalls that nobody asked about yet; the oldest go
MAX_LATE = 4  # outbox answers that came after their question was given up
PUT_OFF = ("busy", "failed", "unknown_session")  # problems after which a pledge is tried again
CONNECTING = "connecting"  # no trouble yet: the daemon has had less than a moment to answer
LOOK_SECONDS = 0.1  # between looks at why there is no connection: they touch the disk
CONNECTING_SECONDS = 1.0  # a connection takes 1 ms; on a machine under load some hundred
logger = logging.getLogger("recalld.client")


class Correspondence:
    """`hello` describes the session; its counters are filled in here. `clock` is monotonic, in seconds."""

    def __init__(self, link: Link, hello: Hello, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self.link = link
        self.buffer = Buffer()
        self.pledges = Pledges()
        self.handshake = Handshake()
        self.clock = clock
        self.closed = False
        self.session = hello.session
        self._hello = hello
        self._ids = itertools.count(1)
        self._turn: Turn | None = None
        self._turn_sent = False  # ever, to any daemon
        self._turn_follows = False  # sent since the last hello
        self._deferred: deque[Boundary] = deque(maxlen=MAX_DEFERRED)
        self._asked: set[int] = set()
        self._answers: dict[int, FromDaemon] = {}
        self._outcomes: deque[Settled] = deque(maxlen=MAX_OUTCOMES)
        self._late: deque[tuple[int, Injections]] = deque(maxlen=MAX_LATE)
        self._refusals = Recent(64)  # what was logged of problems, each once
        self._said: str | None = None  # the trouble that was logged last; "" after "connected"; None: nothing yet
        self._down_since = clock()
        self._look_at = 0.0  # when the trouble is looked into again

    # ------------------------------------------------------------ to the daemon

    def pulse(self) -> bool:
        """Take what has arrived and mend what is broken. Whether the daemon may be spoken to."""
        if self.closed:
            return False
        now = self.clock()
        events = self.link.events_nowait()
        if events & READABLE:
            for message in self.link.receive_nowait():
                self._hear(message, now)
        if not events & WRITABLE:
            self._lost(now)
        else:
            if self.handshake.hello_due(now):
                self._greet(now)
            if self.handshake.ping_due(now) and self.link.send_nowait(Ping(session=self.session, id=self.next_id())):
                self.handshake.pinged(now)
            if self.pledges and not self.handshake.refusal:
                self._repeat_pledges(now)
        writable = bool(events & WRITABLE)
        if not (writable and self.handshake.settled and self._said == "") and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._tell(self._trouble(writable, now))
        return writable and not self.handshake.refusal

    def send(self, message: FromAgent) -> bool:
        """Send it now, after the boundaries held back. False: it was lost, since no daemon is there."""
        if not self.pulse():
            return False
        self._send_deferred()
        if self.link.send_nowait(message):
            return True
        if not self.link.up:
            self._lost(self.clock())
        return False

    def say_turn(self, text: str, as_of: float | None) -> None:
        """A new turn of the user. It is kept: a daemon that comes (back) later is told of it."""
        ready = self.pulse()
        self._turn = Turn(session=self.session, turn=self.buffer.new_turn(), text=text, as_of=as_of)
        self._turn_sent = self._turn_follows = False
        if ready:
            self._send_deferred()
            self._tell_turn()

    def take_outcomes(self) -> list[Settled]:
        """What was settled since the last call."""
        self.pulse()
        outcomes = list(self._outcomes)
        self._outcomes.clear()
        return outcomes

    def take(self) -> list[Injection]:
        """Pass a boundary. Told to the daemon at once where something was taken, else with the next message."""
        taken = self.buffer.take()
        ids = [injection.id for injection in taken.injections]
        message = Boundary(session=self.session, number=taken.number, turn=taken.turn, taken=ids)
        if not ids or not self.send(message):
            self._deferred.append(message)
        return taken.injections

    def pledge(self, message: Pledge) -> None:
        """Send it, and go on sending it until it is acknowledged."""
        for given_up in self.pledges.add(message):
            logger.warning("too much is waiting for the daemon: a %s is given up", type(given_up).__name__.lower())
        if self.pulse():
            self._repeat_pledges(self.clock())

    def close(self) -> None:
        """Say goodbye and close the socket. Nothing can be sent afterwards."""
        if not self.closed:
            self.send(Bye(session=self.session, id=self.next_id()))
            self.closed = True
            self.link.close()
            if self.pledges:
                logger.warning("closed with %d messages not acknowledged by the daemon", len(self.pledges))

    def next_id(self) -> int:
        return next(self._ids)

    # ------------------------------------------------------------ questions

    def expect(self, id: int) -> None:
        """The message of this `id` will be answered, and somebody waits for that. `forget` it in the end."""
        self._asked.add(id)

    def answer(self, id: int) -> FromDaemon | None:
        """The answer, handed out once; None: not yet."""
        return self._answers.pop(id, None)

    def forget(self, id: int) -> None:
        """Nobody waits for this answer any more. What an outbox brings nevertheless is kept for the next one."""
        self._asked.discard(id)
        unread = self._answers.pop(id, None)
        if isinstance(unread, Injections):
            self._late.append((self.buffer.turn, unread))

    def late_snippets(self) -> list[Injection]:
        """What earlier outboxes brought after they were given up, as far as it belongs to this turn."""
        late = [snippet for turn, message in self._late if turn == self.buffer.turn for snippet in message.snippets]
        self._late.clear()
        return self.buffer.give(late)

    def worth_waiting(self) -> bool:
        """Whether a daemon is there that will probably answer."""
        return (
            not self.closed and self.link.up and not self.handshake.refusal and not self.handshake.silent(self.clock())
        )

    # ------------------------------------------------------------ state, for people

    @property
    def connected(self) -> bool:
        self.pulse()
        return self.handshake.welcomed and self.worth_waiting()

    @property
    def problem(self) -> str:
        """Why it is not connected; "" if it is."""
        writable = self.pulse() or self.link.up
        return "closed" if self.closed else self._trouble(writable, self.clock())

    def forked(self) -> None:
        """This is a child process now: another session, which begins with the conversation so far.

        What waited, and what was pledged, is the parent's to take and to send.
        """
        self.lock = threading.RLock()
        self.session = f"{self._hello.session[:96]}~{os.getpid()}-{os.urandom(4).hex()}"
        turn, boundary = self.buffer.turn, self.buffer.boundary
        self.buffer = Buffer()
        self.buffer.turn, self.buffer.boundary = turn, boundary
        self.pledges.clear()
        self.handshake = Handshake()
        self._turn = self._turn and replace(self._turn, session=self.session)
        self._turn_sent = self._turn_follows = False
        for kept in (self._deferred, self._asked, self._answers, self._late):
            kept.clear()

    # ------------------------------------------------------------ inside

    def _greet(self, now: float) -> None:
        """Hello, then the turn that no daemon has heard of. What a hello's counters tell is not repeated."""
        counters = {"boundary": self.buffer.boundary, "turn": self.buffer.turn}
        hello = replace(self._hello, session=self.session, id=self.next_id(), **counters)
        if not self.link.send_nowait(hello):
            return
        self.handshake.hello_sent(now)
        self._turn_follows = False
        self.pledges.lost()
        for boundary in [held for held in self._deferred if not held.taken]:
            self._deferred.remove(boundary)
        if not self._turn_sent and not self.handshake.refusal:
            self._tell_turn()

    def _send_deferred(self) -> None:
        while self._deferred:
            self.link.send_nowait(self._deferred.popleft())

    def _tell_turn(self) -> None:
        if self._turn is not None and self.link.send_nowait(self._turn):
            self._turn_sent = self._turn_follows = True

    def _repeat_pledges(self, now: float) -> None:
        for message in self.pledges.due(now):
            if not self.link.send_nowait(replace(message, session=self.session)):
                return
            self.pledges.sent(message.id, now)

    def _lost(self, now: float) -> None:
        if not self.handshake.idle:
            self.handshake.lost()
            self.pledges.lost()
            self._down_since = now
            self._look_at = 0.0

    # ------------------------------------------------------------ from the daemon

    def _hear(self, message: FromDaemon, now: float) -> None:
        if message.session and message.session != self.session:
            return  # another session's, after a fork or a mistake: never to be shown here
        self.handshake.heard(now)
        self._look_at = 0.0
        match message:
            case Inject():
                self.buffer.inject(message)
            case Settled():
                self.buffer.settle(message)
                self._outcomes.append(message)
            case Welcome():
                self._welcomed(message)
            case Problem():
                self._refused(message, now)
            case Pong():
                self.handshake.pong(message)
            case Acked() | Remembered():
                self.pledges.done(message.re)
                self._answered(message)
            case _:
                self._answered(message)

    def _answered(self, message: FromDaemon) -> None:
        if message.re in self._asked:
            self._answers[message.re] = message
        elif isinstance(message, Injections):
            self._late.append((self.buffer.turn, message))

    def _welcomed(self, message: Welcome) -> None:
        known_before = self.handshake.epoch
        another = self.handshake.welcome(message)
        if self.handshake.refusal:
            return
        self.buffer.stale_after = message.stale_after
        self.buffer.max_snippets, self.buffer.boundary_tokens = message.max_snippets, message.boundary_tokens
        if another and known_before:
            self.buffer.daemon_changed()
        if not self._turn_follows and (another or not self._turn_sent):
            self._tell_turn()

    def _refused(self, message: Problem, now: float) -> None:
        if message.code == "version" or message.of == "hello":
            self.handshake.refuse(message.text, busy=message.code == "busy")
        elif message.code == "unknown_session":
            if self.handshake.welcomed:
                self._lost(now)
                self._turn_sent = False  # it forgot what the conversation is about
        elif message.re in self.pledges and message.code not in PUT_OFF:
            self.pledges.done(message.re)
        if message.re in self._asked:
            self._answers[message.re] = message
        cause = f"{message.code} {message.of}"
        told = message.of == "hello" or message.code in ("version", "unknown_session")  # by `problem`, or mended
        if not told and cause not in self._refusals:
            self._refusals.add(cause)
            logger.warning("the daemon refused a %s: %s", message.of or "message", message.text)

    # ------------------------------------------------------------ telling people

    def _trouble(self, writable: bool, now: float) -> str:
        if not writable:
            fresh = now - self._down_since < CONNECTING_SECONDS
            return CONNECTING if fresh and self.link.hopeful else self.link.absence()
        if self.handshake.refusal:
            return self.handshake.refusal
        if self.handshake.silent(now):
            return (
                f"the daemon at {self.link.address} takes messages but does not answer: "
                "it hangs or is overloaded; see `recallctl status`, or restart it"
            )
        return "" if self.handshake.welcomed else CONNECTING

    def _tell(self, trouble: str) -> None:
        """Each cause is logged once, until it changes."""
        if trouble in (self._said, CONNECTING):
            return
        self._said = trouble
        if trouble:
            logger.warning("no recall: %s", trouble)
        else:
            logger.info("connected to recalld %s (pid %d)", self.handshake.daemon, self.handshake.pid)
