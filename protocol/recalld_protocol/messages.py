"""Every message of the wire, as frozen typed structs.

A message is one msgpack map with a `kind`. The agent's side speaks in events ("a turn came", "a tool started")
and never waits; the daemon's side answers questions, and sends an `inject` the moment a recall is ready. Limits
are part of the types, so decoding enforces them while it reads: an over-long list is refused by its header,
before it is built. Unknown fields are skipped, unknown kinds are answered with a `problem` that names the kind
(see `wire`).

Ordering: within one session the daemon handles messages in the order they were sent. `boundary` tells what the
agent took from its buffer, so the daemon always knows which injections were delivered, and at which boundary.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

PROTOCOL_VERSIONS = (1,)  # versions this package speaks, oldest first; apart from the package's own version

SessionId = Annotated[str, Meta(min_length=1, max_length=128)]
ShortText = Annotated[str, Meta(max_length=256)]  # names, reasons, ids
PathText = Annotated[str, Meta(max_length=4096)]  # PATH_MAX
LineText = Annotated[str, Meta(max_length=1024)]  # one rendered line
Text = Annotated[str, Meta(max_length=32_768)]  # a turn, a memory; longer ones are cut by the sender
ArgsText = Annotated[str, Meta(max_length=8_192)]  # a tool call's arguments, rendered as text by the sender
HeadText = Annotated[str, Meta(max_length=2_048)]  # the head of a tool's result
Count = Annotated[int, Meta(ge=0, le=2**53)]  # every JSON reader holds these exactly
Moment = Annotated[float, Meta(ge=0, le=1e11)]  # epoch seconds; bounded, since NaN passes every `written < as_of`
Verdict = Literal["good", "bad", "acted", "used", "ignored"]
Stage = Literal["none", "fused", "late", "full"]  # how deep into the cascade an answer went
Outcome = Literal["ready", "silent", "failed", "repeat", "merged", "stale"]
ProblemCode = Literal["version", "unknown_kind", "malformed", "limit", "unknown_session", "not_found", "busy", "failed"]
Scalar = str | int | float | bool | None
Topic = Annotated[dict[ShortText, Scalar], Meta(max_length=256)]  # a flat table of facts
StageMs = Annotated[dict[ShortText, float], Meta(max_length=16)]  # stage -> ms since the event's arrival
LaneScores = Annotated[dict[ShortText, float], Meta(max_length=32)]  # lane -> its own raw score
LaneRanks = Annotated[dict[ShortText, tuple[Count, float]], Meta(max_length=32)]  # lane -> (rank from 1, score)
Gates = Annotated[dict[ShortText, LineText], Meta(max_length=32)]  # gate -> "passed: ..." | "stopped: ..."


class Message(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What all messages share.

    `session` is the conversation it belongs to ("" for control messages of no session), `id` is the sender's
    own counter, `re` the `id` that a reply answers (0: it answers none).
    """

    session: Annotated[str, Meta(max_length=128)] = ""
    id: Count = 0
    re: Count = 0


# ---------------------------------------------------------------- agent -> daemon: a session's events


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """Opens or resumes a session. Sent first, and again whenever the daemon's epoch has changed.

    `delivery`: "push" = the daemon sends `inject` as soon as a recall is ready; "pull" = it keeps them until
    `outbox`. `project` is the scope; empty, the daemon derives it from `cwd` (its git work tree, else `cwd`).
    `boundary` and `turn` are the client's own counters, so that a restarted daemon goes on where it was.
    """

    versions: Annotated[list[Count], Meta(min_length=1, max_length=16)]
    client: ShortText = ""
    host: ShortText = ""
    cwd: PathText = ""
    project: PathText = ""
    delivery: Literal["push", "pull"] = "push"
    all_scopes: bool = False  # the user said so: see every project's memory
    boundary: Count = 0
    turn: Count = 0


class Turn(Message, frozen=True, kw_only=True, tag="turn"):
    """The user said something: the conversation's `turn` counter is now this."""

    turn: Count
    text: Text
    as_of: Moment | None = None  # epoch seconds; a replay's clock: recall only what was written before


class Said(Message, frozen=True, kw_only=True, tag="said"):
    """The assistant said something."""

    text: Text


class ToolStarted(Message, frozen=True, kw_only=True, tag="tool_started"):
    """A tool call began: `call` names it until it ends, `parent` the call whose subagent made it."""

    call: SessionId  # unique within the session
    name: ShortText
    args: ArgsText = ""
    parent: ShortText = ""  # the enclosing call, where a subagent made this one
    as_of: Moment | None = None


class ToolEnded(Message, frozen=True, kw_only=True, tag="tool_ended"):
    """A tool call ended. `result` is its head only: results never become the query wholesale."""

    call: SessionId
    ok: bool = True
    result: HeadText = ""
    result_bytes: Count = 0


class Boundary(Message, frozen=True, kw_only=True, tag="boundary"):
    """The agent passed its boundary `number` (the client counts from 1) and put `taken` into its context."""

    number: Count
    turn: Count = 0
    taken: Annotated[list[ShortText], Meta(max_length=16)] = field(default_factory=list)  # impression ids


class Outbox(Message, frozen=True, kw_only=True, tag="outbox"):
    """A boundary of a host whose hooks are processes of their own: what is there? Answered by `injections`."""

    number: Count = 0  # 0: the daemon counts


class Feedback(Message, frozen=True, kw_only=True, tag="feedback"):
    """A verdict on a snippet that was shown. Acknowledged; `key` makes resends count once."""

    impression: ShortText
    verdict: Verdict
    key: ShortText = ""


class Compacted(Message, frozen=True, kw_only=True, tag="compacted"):
    """The host has compacted the agent's context: what was shown stands there no more, and may come once more."""


class Bye(Message, frozen=True, kw_only=True, tag="bye"):
    """The session is over."""


# ---------------------------------------------------------------- agent or recallctl -> daemon: questions


class Ping(Message, frozen=True, kw_only=True, tag="ping"):
    """Heartbeat, answered by `pong`. Any traffic counts as one."""


class Remember(Message, frozen=True, kw_only=True, tag="remember"):
    """Keep this text. Acknowledged (`remembered`) once it is on disk; `key` makes resends count once."""

    text: Annotated[str, Meta(min_length=1, max_length=32_768)]
    cwd: PathText = ""
    scope: Literal["project", "global"] = "project"
    title: ShortText = ""
    key: ShortText = ""


class Forget(Message, frozen=True, kw_only=True, tag="forget"):
    """Forget this, for good: a memory ("memory:17"), or all that was read from a path that was imported.

    Answered by `forgotten` once its texts, vectors, index rows and log are gone from disk. A file that is watched
    stays its owner's: `problem` says so. Forgetting what is not known is `not_found`.
    """

    path: PathText


class Follow(Message, frozen=True, kw_only=True, tag="follow"):
    """Read this file or directory, now and whenever it changes, also after a restart, until `forget`.

    Answered by `following` as soon as it is noted; reading goes on after that. `source_kind`: how to read a file
    ("": tell by looking at it).
    """

    path: PathText  # absolute
    source_kind: ShortText = ""


class Search(Message, frozen=True, kw_only=True, tag="search"):
    """Plain search, ungated. Answered by `hits`."""

    query: Text
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    cwd: PathText = ""
    all_scopes: bool = False
    as_of: Moment | None = None


class Pack(Message, frozen=True, kw_only=True, tag="pack"):
    """All that is remembered about something, in one block within so many tokens. Answered by `packed`."""

    query: Text
    token_budget: Annotated[int, Meta(ge=50, le=1_500)] = 1_000
    cwd: PathText = ""
    all_scopes: bool = False
    as_of: Moment | None = None


class StatusAsk(Message, frozen=True, kw_only=True, tag="status_ask"):
    """How is the daemon? Answered by `status`."""


class SessionsAsk(Message, frozen=True, kw_only=True, tag="sessions_ask"):
    """Which sessions does it know? Answered by `sessions`."""


class WhyAsk(Message, frozen=True, kw_only=True, tag="why_ask"):
    """Why was this shown, or why was nothing? `target` is an impression's or a recall's id."""

    target: ShortText


class VersionsAsk(Message, frozen=True, kw_only=True, tag="versions_ask"):
    """Which versions of what was learned are there? Answered by `versions`."""


class Activate(Message, frozen=True, kw_only=True, tag="activate"):
    """Search by this version from now on: a newly learned one, or an older one again. Answered by `activated`."""

    version: Count


class TrainAsk(Message, frozen=True, kw_only=True, tag="train_ask"):
    """Give a person something to judge: a query with candidates. Answered by `training`.

    Empty `query`: the daemon picks a past one, none of `skip` (recalls' ids). Answers come as `feedback`, by the
    candidates' ids.
    """

    query: Text = ""
    cwd: PathText = ""
    all_scopes: bool = False
    limit: Annotated[int, Meta(ge=1, le=10)] = 5
    skip: Annotated[list[ShortText], Meta(max_length=1000)] = field(default_factory=list)


# ---------------------------------------------------------------- daemon -> agent


class Snippet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that came to mind: 8-12 words of a source, with where they stand (bytes, half open)."""

    id: ShortText  # the impression's id
    text: LineText
    path: PathText
    start: Count
    end: Count
    date: ShortText = ""  # YYYY-MM-DD when it was written, if known
    probability: float = 0.0  # the gate's, calibrated: that this is useful now


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    version: Count
    epoch: ShortText  # changes with each start of the daemon
    daemon: ShortText = ""  # package version
    pid: Count = 0
    heartbeat_seconds: float = 5.0
    stale_after: Count = 2  # boundaries after which a late snippet is dropped
    max_snippets: Annotated[int, Meta(ge=1, le=3)] = 3  # at one boundary, of all recalls together
    boundary_tokens: Count = 0  # at one boundary, counted as in recalld_protocol.tokens; 0: no bound


class Problem(Message, frozen=True, kw_only=True, tag="problem"):
    """What was sent can't be taken; says which side, why, and the remedy."""

    code: ProblemCode
    text: LineText
    of: ShortText = ""  # the kind that was refused


class Inject(Message, frozen=True, kw_only=True, tag="inject"):
    """A recall's best answer so far. A later one of the same `recall` replaces it; no `snippets` withdraws it.

    The client drops it when `turn` is not its current turn, or when it has passed more than `stale_after`
    boundaries since `boundary` (the last one the daemon had seen when it sent this).
    """

    recall: ShortText
    stage: Stage
    turn: Count
    boundary: Count
    snippets: Annotated[list[Snippet], Meta(max_length=3)] = field(default_factory=list)
    calls: Annotated[list[SessionId], Meta(max_length=64)] = field(default_factory=list)  # tool calls it answers
    asked_turn: Count = 0  # the turn it answers; 0: tool calls only
    ms: float = 0.0  # from the event's arrival to this answer, in milliseconds


class Settled(Message, frozen=True, kw_only=True, tag="settled"):
    """A recall is over: nothing more comes of it (what it injected stays valid). Lets a waiting boundary go on."""

    recall: ShortText
    calls: Annotated[list[SessionId], Meta(max_length=64)] = field(default_factory=list)  # those it served
    turn: Count = 0  # the turn it served; 0: it was a tool call's
    outcome: Outcome
    stage: Stage = "none"
    reason: LineText = ""
    ms: float = 0.0  # from event's arrival to this answer, in milliseconds
    stage_ms: StageMs = field(default_factory=dict)


class Injections(Message, frozen=True, kw_only=True, tag="injections"):
    """Answers `outbox`: what is delivered with it counts as shown."""

    snippets: Annotated[list[Snippet], Meta(max_length=3)] = field(default_factory=list)


class Acked(Message, frozen=True, kw_only=True, tag="acked"):
    """Answers `feedback`: it is on disk."""


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    epoch: ShortText = ""
    daemon: ShortText = ""
    pid: Count = 0


class Remembered(Message, frozen=True, kw_only=True, tag="remembered"):
    memory: ShortText  # its path, e.g. "memory:17"


class Forgotten(Message, frozen=True, kw_only=True, tag="forgotten"):
    path: PathText
    passages: Count  # that are gone


class Following(Message, frozen=True, kw_only=True, tag="following"):
    path: PathText
    known: bool = False  # it was followed already


class Hit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: PathText
    start: Count
    end: Count
    text: Text
    snippet: LineText = ""
    date: ShortText = ""
    score: float = 0.0
    probability: float = 0.0
    lanes: LaneScores = field(default_factory=dict)
    scope: PathText = ""


class Hits(Message, frozen=True, kw_only=True, tag="hits"):
    hits: Annotated[list[Hit], Meta(max_length=100)] = field(default_factory=list)
    stage: Stage = "none"
    ms: float = 0.0


class Packed(Message, frozen=True, kw_only=True, tag="packed"):
    """Answers `pack`: quoted facts, one a line, oldest first; "" when nothing is known."""

    text: Text = ""
    tokens: Count = 0  # of `text`, counted as in recalld_protocol.tokens
    passages: Count = 0  # that `text` quotes
    left_out: Count = 0  # that fit the query too, and for which there was no room
    stage: Stage = "none"
    ms: float = 0.0


class Status(Message, frozen=True, kw_only=True, tag="status"):
    """The daemon's state, by topic: {"races": {"won": 3, ...}, "models": {...}}. Keys in docs/status.md."""

    topics: Annotated[dict[ShortText, Topic], Meta(max_length=64)]


class SessionRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    session: SessionId
    host: ShortText = ""
    client: ShortText = ""
    cwd: PathText = ""
    scope: PathText = ""
    connected: bool = False
    opened_at: float = 0.0  # epoch seconds
    last_seen_at: float = 0.0
    turns: Count = 0
    calls: Count = 0
    won: Count = 0
    slipped: Count = 0
    silent: Count = 0
    tokens: Count = 0  # shown to it since the daemon knows it


class Sessions(Message, frozen=True, kw_only=True, tag="sessions"):
    sessions: Annotated[list[SessionRow], Meta(max_length=1000)] = field(default_factory=list)


class WhyCandidate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: PathText
    start: Count = 0
    end: Count = 0
    text: LineText = ""
    fused_rank: Count = 0  # from 1; 0: not ranked
    probability: float = 0.0
    lanes: LaneRanks = field(default_factory=dict)
    gates: Gates = field(default_factory=dict)
    impression: ShortText = ""


class Why(Message, frozen=True, kw_only=True, tag="why"):
    recall: ShortText
    cause: LineText = ""  # "tool bash: git push ..." or "turn 3"
    query: Text = ""
    outcome: ShortText = ""  # won, slipped, silent, stale, withheld, repeat, failed
    reason: LineText = ""
    stage: Stage = "none"
    stage_ms: StageMs = field(default_factory=dict)
    candidates: Annotated[list[WhyCandidate], Meta(max_length=20)] = field(default_factory=list)


class VersionRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of what was learned; 0 is plain search."""

    version: Count
    live: bool = False
    created_at: float = 0.0  # epoch seconds
    why: LineText = ""  # what is learned in it, e.g. "f_Q + ranker"
    vectors: Count = 0  # the version whose vectors it searches
    drift: float = 0.0  # mean distance of its keys from those of the last re-projection
    metrics: Topic = field(default_factory=dict)  # on held-out pairs, when it was promoted
    w2: float = 0.0  # |W2| of f_Q
    b2: float = 0.0  # |b2| of f_Q
    bytes: Count = 0  # on disk


class Versions(Message, frozen=True, kw_only=True, tag="versions"):
    """Answers `versions_ask`, oldest first."""

    versions: Annotated[list[VersionRow], Meta(max_length=100)] = field(default_factory=list)


class Activated(Message, frozen=True, kw_only=True, tag="activated"):
    """Answers `activate`: recalls go by this version now."""

    version: Count
    ms: float = 0.0  # that it took


class Training(Message, frozen=True, kw_only=True, tag="training"):
    """Answers `train_ask`: what a person may judge. No candidates: there is nothing left to ask."""

    recall: ShortText = ""
    query: Text = ""
    cause: LineText = ""  # where the query comes from, e.g. "turn 3: ..."
    candidates: Annotated[list[Snippet], Meta(max_length=10)] = field(default_factory=list)


class Event(Message, frozen=True, kw_only=True, tag="event"):
    """What the PUB socket carries, for `recallctl tail`. `seq` grows by one each: a gap tells what was missed."""

    seq: Count
    at: float  # epoch seconds
    what: ShortText  # e.g. "recall.settled", "injection.won", "ingest.file"; docs/events.md
    data: Topic = field(default_factory=dict)


FromAgent = (
    Hello | Turn | Said | ToolStarted | ToolEnded | Boundary | Outbox | Feedback | Compacted | Bye
    | Ping | Remember | Forget | Follow | Search | Pack | StatusAsk | SessionsAsk | WhyAsk
    | VersionsAsk | Activate | TrainAsk
)  # fmt: skip
FromDaemon = (
    Welcome | Problem | Inject | Settled | Injections | Acked
    | Pong | Remembered | Forgotten | Following | Hits | Packed | Status | Sessions | Why
    | Versions | Activated | Training
)  # fmt: skip
AnyMessage = FromAgent | FromDaemon | Event
