"""What goes into a race and what comes out of it: frozen values, and the bounds of one session.

Events are what happened (to the agent, to a recall), instructions are what the caller must now do. Neither holds a
socket, a task or a clock, so a race can be played in a test like a conversation. Every bound has its reason beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from recalld_daemon.recall.types import Query, Stage
from recalld_protocol.messages import Outcome

Delivery = Literal["push", "pull"]
Timing = Literal["won", "slipped"]

MAX_OFFERS = 3  # snippets per boundary and per message: the design's "one to three"; `Inject.snippets` has this limit


@dataclass(frozen=True, slots=True)
class Offer:
    """A snippet that could be shown. id: the impression's, minted by the caller, unique among all sessions."""

    id: str
    passage: int  # the store's passage id: what must not be shown twice
    probability: float  # the gate's, calibrated
    tokens: int = 0  # that showing it costs the agent's context


# ---------------------------------------------------------------- events: what happened


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """The user spoke. `turn` is the client's counter, and the client is the authority on it."""

    turn: int
    query: Query


@dataclass(frozen=True, slots=True)
class ToolStarted:
    call: str
    query: Query
    parent: str = ""  # the enclosing call, where a subagent made this one
    name: str = ""  # the tool's: how long it will take is guessed by it


@dataclass(frozen=True, slots=True)
class ToolEnded:
    call: str


@dataclass(frozen=True, slots=True)
class BoundaryReached:
    """Push: the client passed its boundary `number` in `turn` (0: it did not say) and showed the offers `taken`."""

    number: int
    turn: int
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboxAsked:
    """Pull: a boundary whose answer is the delivery. number 0: the race counts."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class AnswerReady:
    """A recall's best so far after the gate, best first; none: silent so far. `final`: nothing deeper will come."""

    recall: str
    stage: Stage
    offers: tuple[Offer, ...]
    final: bool
    reason: str = ""  # why it is silent


@dataclass(frozen=True, slots=True)
class RecallFailed:
    recall: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rescored:
    """Answers `Rescore`: of the offers that were asked about, only `keep` still score against `turn`."""

    recall: str
    turn: int
    keep: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resumed:
    """The client said hello again, with its own counters: either side restarted, or the link was down."""

    boundary: int
    turn: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """The host has compacted the agent's context: what was shown stands there no more, and may come once more."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """These passages are forgotten: nothing of them may be shown any more."""

    passages: frozenset[int]


@dataclass(frozen=True, slots=True)
class Closed:
    """The session is over: the client said so, or its lease ran out."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes. Sent every few seconds: expires calls that never end and recalls that never answer."""


Event = (
    TurnBegan | ToolStarted | ToolEnded | BoundaryReached | OutboxAsked | AnswerReady
    | RecallFailed | Rescored | Resumed | Compacted | Forgotten | Closed | Tick
)  # fmt: skip


# ---------------------------------------------------------------- instructions: what the caller must do


@dataclass(frozen=True, slots=True)
class StartRecall:
    """Run this query. `turn`: the turn it serves (0: tool calls only); `calls`: the tool calls it serves.

    `budget_ms`: the time until its boundary is expected, by what is known of the turn or the tools.
    """

    recall: str
    query: Query
    turn: int
    calls: tuple[str, ...]
    budget_ms: float = field(default=0.0, compare=False)  # a guess is no part of what is to be done


@dataclass(frozen=True, slots=True)
class Continue:
    """`recall` was shown before its deepest answer was there: what comes of it from now on is another recall's, `heir`.

    The heir serves nobody by name. It is late for the boundary that its parent won, and has what that one lacked.
    """

    recall: str
    heir: str


@dataclass(frozen=True, slots=True)
class CancelRecall:
    """Stop it if it still runs: its answers are not wanted any more, and would be ignored."""

    recall: str


@dataclass(frozen=True, slots=True)
class Send:
    """Push these to the client; they replace what it holds of this recall; none: what it holds is withdrawn.

    `boundary` is the last one before the recall's own: the last one known, or, where its own has passed, the one before
    that. The client counts staleness from the next, so neither side holds for fresh what the other holds for stale.
    """

    recall: str
    stage: Stage
    turn: int
    boundary: int
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    """The reply to one `OutboxAsked`: at most MAX_OFFERS, highest probability first; often none."""

    offers: tuple[Offer, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """These offers (ids) were shown at `boundary`: they are impressions now. Once per recall."""

    recall: str
    offers: tuple[str, ...]
    outcome: Timing
    boundary: int
    stage: Stage


@dataclass(frozen=True, slots=True)
class Slipped:
    """The recall's own boundary passed without it. At most once per recall."""

    recall: str
    boundary: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Nothing more will come of this recall; once each. Tells a client that waits for one of `calls`, or for `turn`.

    A merged recall lists no calls: they live on in the newer one, whose own `Settle` lists them.
    """

    recall: str
    calls: tuple[str, ...]
    turn: int
    outcome: Outcome
    stage: Stage
    reason: str


@dataclass(frozen=True, slots=True)
class Rescore:
    """A new turn came: score these offers (ids) against it, and answer with `Rescored`."""

    recall: str
    offers: tuple[str, ...]
    turn: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """What this recall found is given up undelivered. `reason` begins with its kind: "stale: ..." or "closed: ..."."""

    recall: str
    reason: str


Instruction = (
    StartRecall | Continue | CancelRecall | Send | Deliver | Delivered | Slipped | Settle | Rescore | Dropped
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stimulus:
    """One line of the post-mortem log."""

    at: float
    event: Event
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class RaceLimits:
    """The bounds of one session; each field is a count unless it ends in `_seconds`."""

    max_running: int = 2  # recalls at once: two cores, and a session must not starve the others
    stale_after: int = 2  # boundaries after its own at which an offer may still be shown; `Welcome` tells the client
    max_snippets: int = MAX_OFFERS  # at one boundary, of all recalls together; `Welcome` tells the client
    boundary_tokens: int = 240  # at one boundary: three lines of eighty; `Welcome` tells the client
    session_tokens: int = 8_000  # shown in one session; a usual line has some forty
    max_live: int = 32  # recalls running or waiting for a boundary; a boundary shows three snippets, so this is plenty
    max_rescored: int = 8  # pending recalls scored anew at a new turn, the newest; the others are dropped
    max_ids: int = 24  # offer ids per recall: three snippets, four stages, and each stage answering twice
    max_calls_per_recall: int = 64  # the wire's limit of `Settled.calls`
    max_open_calls: int = 256  # tool calls under way; beyond it the one longest without a sign of life counts as ended
    max_ended_calls: int = 256  # remembered, to know duplicates and ends that overtook their starts
    max_delivered: int = 4096  # passages never shown again; at three per boundary, over 1300 boundaries
    max_log: int = 64  # stimuli kept for post-mortem; a query is a few KB, so under half a MB
    call_ttl_seconds: float = 3600.0  # longer than the longest build; then a call without an end counts as ended
    recall_ttl_seconds: float = 30.0  # a cascade takes milliseconds; one that hangs must give its place back
