"""The sessions that are open: for each its race, its conversation, the way back to its client, and what it may see.

A session is keyed by the id its client chose, not by its socket: any message names its session, so the route is learned
again from each one, and either side may restart. What a session was shown is in the store, so a restarted daemon does
not show it twice. Scopes are resolved here, once per hello: a session sees its project's passages and the global ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import trio

from recalld_daemon.observer import Observer
from recalld_daemon.race import Race
from recalld_daemon.race_events import Offer, RaceLimits
from recalld_daemon.recall.budget import Lengths
from recalld_daemon.recall.in_prompt import NOTHING, InPrompt, loaded_by
from recalld_daemon.recall.types import GLOBAL_SCOPE, Answer, Passage, View
from recalld_daemon.scopes import project_of
from recalld_daemon.session import Conversation, Lease
from recalld_daemon.store.rows import SessionRecord
from recalld_protocol.messages import Hello, SessionRow, Snippet

CAUSE_CHARS = 100
MAX_SEEN = 96  # words of the passages shown last, by which their near-duplicates are known: some 40 boundaries
MAX_PENDING = 256  # offers kept with their texts per session: RaceLimits.max_live recalls of at most a few each


@dataclass(frozen=True, slots=True)
class Pending:
    """An offer's content, kept until it is delivered or dropped."""

    offer: Offer
    snippet: Snippet
    recall: str
    rank: int  # from 1
    score: float  # fused
    propensity: float = 1.0  # the chance with which what passed the gate was treated so


@dataclass(slots=True)
class Trace:
    """What happened in one recall, for `why` and the log."""

    recall: str
    turn: int  # the turn it answers; 0: tool calls only
    calls: tuple[str, ...]
    query: str
    began: float  # loop seconds
    at: float  # epoch seconds
    stage_ms: dict[str, float] = field(default_factory=dict)  # from the event to that stage's judged answer
    answer: Answer | None = None  # the deepest that was judged
    passages: list[Passage] = field(default_factory=list)

    @property
    def cause(self) -> str:
        """Who asked, in a few words."""
        calls = f"tool call {', '.join(self.calls)}" if self.calls else "deeper"
        who = f"turn {self.turn}" if self.turn else calls
        return f"{who}: {self.query[:CAUSE_CHARS]}"


@dataclass(slots=True)
class LiveSession:
    id: str
    number: int
    hello: Hello
    race: Race
    conversation: Conversation
    lease: Lease
    scope: int
    scope_key: str
    opened_at: float  # epoch seconds
    last_seen_at: float
    route: bytes | None = None
    as_of: float | None = None
    pending: dict[str, Pending] = field(default_factory=dict)  # by offer id
    running: dict[str, trio.CancelScope] = field(default_factory=dict)  # by recall id
    traces: dict[str, Trace] = field(default_factory=dict)  # by recall id, until settled
    rescores: dict[int, list[tuple[str, tuple[str, ...]]]] = field(default_factory=dict)  # turn -> recall, offer ids
    standing: tuple[int, frozenset[int]] = (0, frozenset())  # a turn, and the passages that pass the gate for it
    heirs: dict[str, str] = field(default_factory=dict)  # a task's recall -> the one its answers are of now
    seen: tuple[frozenset[str], ...] = ()  # words of what was shown, oldest first; replaced, never changed
    calls: int = 0
    observer: Observer = field(default_factory=Observer)
    showings: int = 0  # that its observer has yet to hear of
    overheard: bool = False  # it missed something
    in_prompt: InPrompt = NOTHING  # what its host has loaded
    withheld: set[int] = field(default_factory=set)  # passages that were withheld at random, and are in the log
    settled: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)  # woken when a recall is

    @property
    def push(self) -> bool:
        return self.hello.delivery == "push"

    def view(self) -> View:
        scopes = None if self.hello.all_scopes else tuple(dict.fromkeys((self.scope, GLOBAL_SCOPE)))
        return View(scopes=scopes, as_of=self.as_of)

    def keep(self, pending: Pending) -> None:
        self.pending[pending.offer.id] = pending
        while len(self.pending) > MAX_PENDING:
            del self.pending[next(iter(self.pending))]

    def now_of(self, recall: str) -> str:
        """The recall that the answers of a task begun for `recall` are of: itself, or its latest heir."""
        return self.heirs.get(recall, recall)

    def go_on_as(self, recall: str, heir: str) -> None:
        """The task of `recall` goes on as its heir's."""
        began_as = next((first for first, now in self.heirs.items() if now == recall), recall)
        self.heirs[began_as] = heir
        if recall in self.running:
            self.running[heir] = self.running.pop(recall)
        if recall in self.traces:
            self.traces[heir] = replace(self.traces[recall], recall=heir, calls=(), turn=0, answer=None, passages=[])

    def see(self, words: Iterable[frozenset[str]]) -> None:
        self.seen = (*self.seen, *words)[-MAX_SEEN:]

    def forget_recall(self, recall: str) -> None:
        self.pending = {key: value for key, value in self.pending.items() if value.recall != recall}

    def record(self, closed_at: float | None = None) -> SessionRecord:
        counts = self.race.counts
        return SessionRecord(
            id=self.id,
            scope=self.scope,
            host=self.hello.host,
            client=self.hello.client,
            cwd=self.hello.cwd,
            opened_at=self.opened_at,
            last_seen_at=self.last_seen_at,
            closed_at=closed_at,
            boundary=self.race.boundary,
            turn=self.race.turn,
            calls=self.calls,
            won=counts["won"],
            slipped=counts["slipped"],
            silent=counts["silent"],
        )

    def row(self, connected: bool) -> SessionRow:
        counts = self.race.counts
        return SessionRow(
            session=self.id,
            host=self.hello.host,
            client=self.hello.client,
            cwd=self.hello.cwd,
            scope=self.scope_key,
            connected=connected,
            opened_at=self.opened_at,
            last_seen_at=self.last_seen_at,
            turns=self.race.turn,
            calls=self.calls,
            won=counts["won"],
            slipped=counts["slipped"],
            silent=counts["silent"],
            tokens=self.race.recalls.tokens,
        )


class SessionBook:
    """All open sessions. `known_scope(key)` is the id of a scope that holds anything, else None; `delivered(session)`
    and `withheld(session)` the passages that the store knows were shown in it, or withheld from it. All are asked once
    per hello of a session not yet open. observed_boundaries: for how many what was shown is watched."""

    def __init__(
        self,
        epoch: str,
        limits: RaceLimits,
        heartbeat_seconds: float,
        idle_seconds: float,
        max_sessions: int,
        known_scope: Callable[[str], int | None],
        delivered: Callable[[str], Iterable[int]],
        withheld: Callable[[str], Iterable[int]] = lambda session: (),
        observed_boundaries: int = 4,
    ) -> None:
        self._epoch, self._limits = epoch, limits
        self._heartbeat_seconds, self._idle_seconds = heartbeat_seconds, idle_seconds
        self._max_sessions, self._known_scope, self._delivered = max_sessions, known_scope, delivered
        self._withheld, self._observed_boundaries = withheld, observed_boundaries
        self.lengths = Lengths()  # of all sessions' tools
        self._sessions: dict[str, LiveSession] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(list(self._sessions.values()))

    def get(self, session: str) -> LiveSession | None:
        return self._sessions.get(session)

    @property
    def full(self) -> bool:
        return len(self._sessions) >= self._max_sessions

    def open(self, hello: Hello, now: float) -> LiveSession:
        """The session of this hello, made if it is not open. `now`: the loop's seconds."""
        live = self._sessions.get(hello.session)
        if live is not None:
            live.hello = hello
            self._place(live)
            return live
        self._numbers += 1
        live = LiveSession(
            id=hello.session,
            number=self._numbers,
            hello=hello,
            race=self._race(hello, self._delivered(hello.session)),
            conversation=Conversation(),
            lease=Lease(self._heartbeat_seconds, now, self._idle_seconds),
            scope=GLOBAL_SCOPE,
            scope_key="",
            opened_at=time.time(),
            last_seen_at=time.time(),
            observer=Observer(self._observed_boundaries),
            withheld=set(self._withheld(hello.session)),
        )
        self._place(live)
        self._sessions[hello.session] = live
        return live

    def race_anew(self, live: LiveSession, hello: Hello, shown: Iterable[int]) -> None:
        """Another way of delivery: a race keeps its own from first to last, so a new one goes on in its place.

        `shown`: the passages that were shown in this session. The old race must be closed.
        """
        counts, tokens = live.race.counts, live.race.recalls.tokens
        self._numbers += 1
        live.race = self._race(hello, shown)
        live.race.counts.update(counts)
        live.race.recalls.tokens = tokens
        live.rescores.clear()
        live.standing = (0, frozenset())

    def _race(self, hello: Hello, shown: Iterable[int]) -> Race:
        return Race(
            hello.session, f"{self._epoch}.{self._numbers}.", hello.delivery, self._limits,
            boundary=hello.boundary, turn=hello.turn, delivered=shown, lengths=Lengths(self.lengths),
        )  # fmt: skip

    def _place(self, live: LiveSession) -> None:
        live.scope_key = project_of(live.hello.project or live.hello.cwd)
        live.scope = self._known_scope(live.scope_key) or GLOBAL_SCOPE
        live.in_prompt = loaded_by(live.hello.host, live.hello.cwd)

    def rescoped(self) -> None:
        """A scope came into being: sessions of that project may see it from now on."""
        for live in self:
            live.scope = self._known_scope(live.scope_key) or GLOBAL_SCOPE

    def close(self, session: str) -> LiveSession | None:
        return self._sessions.pop(session, None)
