"""The values that go in and out of the store, beside the shared ones of `recall.types`. Plain and frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import GLOBAL_SCOPE

SourceState = Literal["ok", "failed", "indexing"]
Outcome = Literal["won", "slipped", "withheld", "asked"]
Artefact = Literal["query", "key", "value", "usefulness", "ranker"]
FROZEN = 0  # the snapshot of the encoder's own vectors, in which nothing is learned

NO_STAT = (0, 0, 0)  # size in bytes, mtime in ns, inode of a source that has none


@dataclass(frozen=True, slots=True)
class Source:
    """A file, a transcript or a memory. `indexing` after a restart means: interrupted, to be parsed again."""

    id: int
    scope: int
    kind: str
    path: str
    shown_path: str
    size: int  # bytes
    mtime_ns: int
    inode: int  # the low 63 bits
    cursor: int  # bytes: where to go on when the file grows
    state: SourceState
    error: str
    problems: int  # lines that could not be read
    passages: int = 0


@dataclass(frozen=True, slots=True)
class EncoderRecord:
    id: int
    fingerprint: str
    model: str
    runtime: str
    dims: int
    token_dims: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """n passages that have vectors. ids (rising), scopes: (n,) int64; written_at: (n,) float64 epoch seconds;
    marks: (n,) int64, the first 8 bytes of their content hashes."""

    ids: NDArray[np.int64]
    scopes: NDArray[np.int64]
    written_at: NDArray[np.float64]
    marks: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VectorBatch:
    """What an index learns about n passages. Token offsets are already relative to each passage's own text.

    ids, scopes, written_at, marks: as in `Encoded`; vectors: (n, d) float16, unit length; tokens: n times int8 (T, t)
    as bytes; starts, ends: n arrays uint16 (T,), both 0 for tokens of heading or speaker.
    """

    ids: NDArray[np.int64]
    scopes: NDArray[np.int64]
    written_at: NDArray[np.float64]
    marks: NDArray[np.int64]
    vectors: NDArray[np.float16]
    tokens: Sequence[bytes]
    starts: Sequence[NDArray[np.uint16]]
    ends: Sequence[NDArray[np.uint16]]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    id: str
    scope: int = GLOBAL_SCOPE
    host: str = ""
    client: str = ""
    cwd: str = ""
    opened_at: float = 0.0
    last_seen_at: float = 0.0
    closed_at: float | None = None
    boundary: int = 0
    turn: int = 0
    calls: int = 0
    won: int = 0
    slipped: int = 0
    silent: int = 0


@dataclass(frozen=True, slots=True)
class RecallRecord:
    """One recall as the log keeps it; `explain` is for `why`, opaque to the store."""

    id: str
    session: str | None
    cause: str
    query: str
    at: float  # epoch seconds
    outcome: str
    reason: str = ""
    stage: str = "none"
    ms: float = 0.0
    explain: bytes = b""


@dataclass(frozen=True, slots=True)
class ImpressionRecord:
    """A snippet that was shown; that was withheld at random, to know what showing is worth; or that a person was asked
    about (`recallctl train`). propensity: the chance with which what passed the gate was treated so."""

    id: str
    recall: str
    session: str
    passage: int
    path: str
    start: int
    end: int
    text: str
    rank: int  # from 1
    score: float
    probability: float
    stage: str
    outcome: Outcome
    boundary: int
    shown_at: float  # epoch seconds
    propensity: float = 1.0


@dataclass(frozen=True, slots=True)
class FeedbackRecord:
    key: str
    impression: str
    verdict: str
    at: float


@dataclass(frozen=True, slots=True)
class JudgedRecord:
    """An impression with the query it answered and all verdicts on it: what learning is made from.

    query: its text, as the encoder gets it; scope: its session's; verdicts: distinct, in the order they last came.
    """

    impression: str
    recall: str
    session: str
    scope: int
    query: str
    asked_at: float  # epoch seconds: the recall's
    passage: int
    rank: int  # from 1
    probability: float
    outcome: Outcome
    propensity: float
    shown_at: float
    verdicts: tuple[str, ...] = ()
    judged_at: float = 0.0  # of the last verdict; 0: none


@dataclass(frozen=True, slots=True)
class Use:
    """An impression that helped; at: of the first verdict that said so, epoch seconds."""

    passage: int
    at: float
    rank: int  # from 1
    propensity: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A snapshot as `recallctl versions` lists it. metrics: JSON; size: bytes of its artefacts and own vectors."""

    encoder: int
    version: int
    created_at: float
    live: bool
    vectors: int  # the snapshot whose vectors it searches
    state: Literal["building", "ready"]
    why: str
    metrics: str
    drift: float
    size: int = 0


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A learner's state. key: every setting that shaped it; another key must not resume it."""

    name: str
    encoder: int
    key: str
    data: bytes
    at: float


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """One run of the sleep cycle. ended_at None: under way, or interrupted. report: JSON."""

    id: int
    encoder: int
    began_at: float
    ended_at: float | None
    phase: str
    key: str
    version: int | None
    report: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """blocked: a reader, perhaps of another process, kept part of the log in use. wal_bytes: the log's size after."""

    blocked: bool
    wal_bytes: int
