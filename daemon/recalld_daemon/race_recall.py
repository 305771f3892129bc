"""The recalls of one session: their phases, the table of transitions, and the rules that need nothing else.

            BEGIN            READY               TAKE
    WAITING ─────► RUNNING ─────────► PENDING ─────────► OVER      PENDING: the answer is final, offers are out
       │ MERGE        │ RETRACT          │ LAPSE          ▲
       │ LAPSE        ├────────► WITHDRAWN ──────────────┤        WITHDRAWN: it ended silent, but offers were sent
       │              │             TAKE, SILENT          │        before, and the client may be showing one just now
       └──────────────┴───────────────────────────────────┘
                        SILENT, FAIL, TAKE, LAPSE

The own boundary of a recall is the first boundary after any of the calls it serves has ended, or, where it serves a
turn, the first after that turn. A call that joins when that has passed gives it a new one, so that what is asked again
is fresh again; what slipped once stays slipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from recalld_daemon.race_events import Offer, RaceLimits, Timing
from recalld_daemon.recall.types import Query, Stage
from recalld_protocol.messages import Outcome

VERDICTS = ("won", "slipped", "silent", "stale", "failed", "repeat", "merged")
DEPTH: dict[Stage, int] = {"none": 0, "fused": 1, "late": 2, "full": 3}


class Phase(Enum):
    WAITING = "waiting"  # not begun: all places are taken; a newer one would merge it
    RUNNING = "running"
    PENDING = "pending"
    WITHDRAWN = "withdrawn"
    OVER = "over"


class Step(Enum):
    BEGIN = "begin"
    MERGE = "merge"  # into a newer one
    READY = "ready"  # the final answer has offers
    RETRACT = "retract"  # the final answer has none, but some had been sent
    SILENT = "silent"  # the final answer has none, and nothing of it can be shown any more
    FAIL = "fail"
    TAKE = "take"  # something of it was shown
    LAPSE = "lapse"  # stale, or the session closed


TRANSITIONS: dict[tuple[Phase, Step], Phase] = {
    (Phase.WAITING, Step.BEGIN): Phase.RUNNING,
    (Phase.WAITING, Step.MERGE): Phase.OVER,
    (Phase.WAITING, Step.LAPSE): Phase.OVER,
    (Phase.RUNNING, Step.READY): Phase.PENDING,
    (Phase.RUNNING, Step.RETRACT): Phase.WITHDRAWN,
    (Phase.RUNNING, Step.SILENT): Phase.OVER,
    (Phase.RUNNING, Step.FAIL): Phase.OVER,
    (Phase.RUNNING, Step.TAKE): Phase.OVER,
    (Phase.RUNNING, Step.LAPSE): Phase.OVER,
    (Phase.PENDING, Step.TAKE): Phase.OVER,
    (Phase.PENDING, Step.LAPSE): Phase.OVER,
    (Phase.WITHDRAWN, Step.TAKE): Phase.OVER,
    (Phase.WITHDRAWN, Step.SILENT): Phase.OVER,
}


class RaceError(Exception):
    """The race contradicts itself: a fault of this daemon, never of a client."""


@dataclass(slots=True, eq=False)
class Recall:
    """`context` counts changes of turn: a recall's answers fit the conversation only while it is the race's own.

    `best` is the newest answer. `out` is all that the agent may still show of this recall: in push all that was sent
    in this context, replaced or withdrawn though it be, since a boundary may cross with our message; in pull the best.
    Empty `out` with a `best` means that it waits to be rescored.
    """

    id: str
    query: Query
    turn: int  # the turn it serves; 0: none
    calls: tuple[str, ...]
    context: int
    due: bool  # the next boundary is its own
    phase: Phase = Phase.WAITING
    begun_at: float = 0.0
    outcome: Outcome | None = None  # once settled
    own: int | None = None  # its own boundary, once passed
    missed: int | None = None  # the first own boundary that passed without it
    stage: Stage = "none"
    best: tuple[Offer, ...] = ()
    out: dict[str, tuple[Offer, Stage]] = field(default_factory=dict)
    sent_at: int | None = None  # the `boundary` of the last Send
    held: bool = False  # what was sent last had offers: the client may hold them
    rescoring: frozenset[str] | None = None  # offer ids asked about, until the answer comes

    @property
    def open(self) -> bool:
        """Whether a repeated question may join it: it is not yet known to end in silence."""
        return self.phase in (Phase.WAITING, Phase.RUNNING, Phase.PENDING)

    def move(self, step: Step) -> None:
        """Take one step of the table. Raises RaceError where the table has none."""
        if (self.phase, step) not in TRANSITIONS:
            raise RaceError(f"recall {self.id}: no step {step.value!r} from phase {self.phase.value!r}")
        self.phase = TRANSITIONS[self.phase, step]

    def slips_at(self, number: int) -> bool:
        """Boundary `number` has passed without it: True if it was its own and the first it missed."""
        if not self.due or self.own is not None:
            return False
        self.own = number
        if self.missed is not None or self.phase is Phase.WITHDRAWN:
            return False
        self.missed = number
        return True

    def timing_at(self, number: int) -> Timing:
        """What being shown at boundary `number` means."""
        return "won" if self.missed is None or number <= self.missed else "slipped"

    def is_stale(self, boundary: int, stale_after: int) -> bool:
        """Whether it is too late to show it at `boundary`; the client, by its own rule, drops it no later.

        Counted from its own boundary. Where that is still to come, what was sent and not shown counts from the boundary
        that was next then: by now the client has dropped it.
        """
        since = self.own
        if self.sent_at is not None and (
            self.phase is Phase.WITHDRAWN or (since is None and self.phase is Phase.PENDING)
        ):
            since = self.sent_at + 1
        return since is not None and boundary - since > stale_after

    def forget_out(self) -> None:
        """A new turn: the client has forgotten what it had not shown."""
        self.out.clear()
        self.sent_at = None
        self.held = False
        self.rescoring = None

    def lose(self, passages: frozenset[int]) -> bool:
        """Nothing of these passages is offered any more; returns whether anything was."""
        out = {id: held for id, held in self.out.items() if held[0].passage not in passages}
        best = tuple(offer for offer in self.best if offer.passage not in passages)
        lost = len(out) < len(self.out) or len(best) < len(self.best)
        self.out, self.best = out, best
        return lost

    def join(self, turn: int, calls: tuple[str, ...], context: int, due: bool) -> None:
        """Serve this turn or these calls too, whose question is the same: it fits the context they came in."""
        self.context = context
        self.rescoring = None
        self.turn = turn or self.turn
        self.calls += calls
        self.due = due or (self.due and self.own is None)
        self.own = None

    def inherit(self, older: Recall, max_calls: int) -> tuple[str, ...]:
        """Serve what `older`, which never began, would have served. Returns the oldest calls beyond `max_calls`.

        An own boundary that has passed stays the older one's: what is asked now is not late yet.
        """
        calls = older.calls + self.calls
        self.calls = calls[-max_calls:]
        self.turn = self.turn or older.turn
        self.due = self.due or (older.due and older.own is None)
        return calls[:-max_calls]

    def heir(self, id: str, number: int) -> Recall:
        """Who goes on with what this one, shown at boundary `number` while it runs, has not found: late from birth."""
        return Recall(
            id, self.query, 0, (), self.context, True, Phase.RUNNING, self.begun_at, own=number, missed=number
        )

    def renumber(self, shift: int) -> None:
        """The client's boundary counter moved by `shift` (< 0). An own one stays positive: the wire knows no less."""
        self.own = None if self.own is None else max(1, self.own + shift)
        self.missed = None if self.missed is None else self.missed + shift
        self.sent_at = None if self.sent_at is None else self.sent_at + shift


class Recalls:
    """Those that are not over, oldest first; how many ended how; what was shown; which question was asked last.

    A question is a repeat if the recall begun last asks it. Where that gave no answer, or none that was seen, the
    question may be asked again.
    """

    def __init__(self, prefix: str, limits: RaceLimits) -> None:
        self.counts = dict.fromkeys(VERDICTS, 0)
        self.issued = 0
        self.last_id = ""
        self.shown: dict[int, None] = {}  # passages, longest ago first
        self.tokens = 0  # shown in this session
        self._prefix = prefix
        self._limits = limits
        self._last_key = ""  # "": the last one gave no answer that was seen
        self._live: dict[str, Recall] = {}

    def __iter__(self) -> Iterator[Recall]:
        return iter(list(self._live.values()))

    def __len__(self) -> int:
        return len(self._live)

    def get(self, recall: str) -> Recall | None:
        return self._live.get(recall)

    def new_id(self) -> str:
        self.issued += 1
        return f"{self._prefix}{self.issued}"

    def add(self, recall: Recall) -> None:
        self._live[recall.id] = recall

    def waiting(self) -> Recall | None:
        return next((r for r in self._live.values() if r.phase is Phase.WAITING), None)

    def running(self) -> int:
        return sum(r.phase is Phase.RUNNING for r in self._live.values())

    def begin(self, recall: Recall, at: float) -> None:
        recall.move(Step.BEGIN)
        recall.begun_at = at
        self._last_key, self.last_id = recall.query.key, recall.id

    def end(self, recall: Recall, step: Step, verdict: str) -> None:
        recall.move(step)
        del self._live[recall.id]
        self.counts[verdict] += 1
        if verdict in ("failed", "stale") and self.last_id == recall.id:
            self._last_key = ""

    def renumber(self, shift: int) -> None:
        for recall in self:
            recall.renumber(shift)

    def same_question(self, query: Query) -> Recall | None:
        """The one that waits or was begun last, if it asks this and may still give something."""
        last = self.get(self.last_id) if self.answered(query) else None
        if not query.key:
            return None
        return next((r for r in (self.waiting(), last) if r and r.open and r.query.key == query.key), None)

    def answered(self, query: Query) -> bool:
        """Whether the recall begun last asks this."""
        return bool(query.key) and query.key == self._last_key

    def unsettled(self, turn: int, calls: Collection[str]) -> bool:
        """Whether anything may still come of a recall that serves this turn (0: none) or one of these calls."""
        return any(
            recall.outcome is None and ((turn and recall.turn == turn) or any(call in calls for call in recall.calls))
            for recall in self._live.values()
        )

    def holder(self, offer: str) -> Recall | None:
        """The recall this offer id is out with."""
        return next((r for r in self._live.values() if offer in r.out), None)

    def withheld(self, recall: Recall | None) -> set[int]:
        """The passages `recall` must not offer: shown in this session, or out with another."""
        return {o.passage for r in self if r is not recall for o, _ in r.out.values()} | self.shown.keys()

    def offerable(self, recall: Recall, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """At most `max_snippets` of these, in their order, each passage once, none withheld, all within the tokens."""
        withheld = self.withheld(recall)
        first = {offer.passage: offer for offer in reversed(offers)}
        free = [o for o in offers if first[o.passage] is o and o.passage not in withheld]
        return within(free, self._limits.max_snippets, min(self._limits.boundary_tokens, self._left(recall)))

    def _left(self, recall: Recall) -> int:
        """Tokens that may still be shown in this session, if all is shown that is out with others."""
        out = sum(o.tokens for r in self if r is not recall for o, _ in r.out.values())
        return self._limits.session_tokens - self.tokens - out

    def new_epoch(self) -> None:
        """The agent has lost what it was shown, and may be told it again; what was asked last may be asked again."""
        self.shown.clear()
        self._last_key = ""

    def remember(self, passages: Iterable[int]) -> None:
        for passage in passages:
            self.shown.pop(passage, None)
            self.shown[passage] = None
        while len(self.shown) > self._limits.max_delivered:
            del self.shown[next(iter(self.shown))]


def within(offers: Iterable[Offer], count: int, tokens: int) -> tuple[Offer, ...]:
    """At most `count` of these, in order, that together cost at most `tokens`; one that is too long is passed over.

    >>> within([Offer("a", 1, 0.9, 50), Offer("b", 2, 0.8, 60), Offer("c", 3, 0.7, 30)], 3, 90)[1].id
    'c'
    """
    chosen: list[Offer] = []
    for offer in offers:
        if len(chosen) < count and offer.tokens <= tokens:
            chosen.append(offer)
            tokens -= offer.tokens
    return tuple(chosen)
