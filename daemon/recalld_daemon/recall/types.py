"""The values that travel through one recall, and the ports through which a recall reaches the rest of the house.

A recall is an anytime cascade: lanes (dense, lexical, later more) each rank passages, fusion orders their union, late
interaction re-orders the top of it, and later a ranker and a cross-encoder go deeper. After each stage there is an
`Answer`, whose candidates carry absolute signals and a calibrated probability. Fused scores only order; the gate
decides on probabilities. Nothing here does I/O: the ports are protocols, filled by the store, the index and the worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt32 = NDArray[np.uint32]
Stage = Literal["none", "fused", "late", "full"]

TOKEN_SCALE = 254.0  # int8 = round(254 * x), clipped: unit vectors of 64 dims stay under 0.5 in all but rare components
GLOBAL_SCOPE = 1  # the id of the global scope's row, made by the first migration


@dataclass(frozen=True, slots=True)
class Focus:
    """What the conversation is about now, newest texts only. Tool results are never part of it."""

    tool_name: str = ""
    tool_args: str = ""
    user_text: str = ""
    assistant_text: str = ""


Grain = Literal["moment", "day", "week", "month", "season", "year", "span"]


@dataclass(frozen=True, slots=True)
class When:
    """A stretch of time somebody speaks of, as exactly as it is known. start, end: epoch seconds, half open."""

    start: float
    end: float
    grain: Grain
    said: str = ""  # the words, e.g. "last week"


@dataclass(frozen=True, slots=True)
class Hints:
    """What a query says of who, when and how many, resolved against what the memory knows; empty where it says nothing.

    speakers: names as the memory writes them; subjects: ids of those it names; enumerates: it asks for all, or for how
    many; asks_when: its answer is a time.
    """

    speakers: tuple[str, ...] = ()
    subjects: tuple[int, ...] = ()
    whens: tuple[When, ...] = ()
    enumerates: bool = False
    asks_when: bool = False


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class Query:
    """A focus made searchable. `key` is equal for queries that would repeat each other."""

    text: str  # what the encoder embeds, most telling words first
    terms: tuple[str, ...]  # lower-cased words and identifier parts for the lexical lane, most telling first
    key: str
    opened: tuple[str, ...] = ()  # files that the tool call itself opens: the agent has them before it
    silence: str = ""  # why there is nothing to ask, where `text` is empty
    hints: Hints = NO_HINTS  # filled when the recall begins: it takes the memory to know a name


@dataclass(frozen=True, slots=True)
class View:
    """Who looks, and when: the scopes that may be seen (None: all) and the moment before which all must be written."""

    scopes: tuple[int, ...] | None = (GLOBAL_SCOPE,)
    as_of: float | None = None  # epoch seconds; None: now


@dataclass(frozen=True, slots=True)
class QueryEncoding:
    """vector: (d,) unit length, in the live snapshot's space. tokens: (Tq, t) unit rows, projected like the index's.
    plain: (d,) what the encoder said, where f_Q made `vector` of it; None: it is `vector`."""

    vector: Float32
    tokens: Float32
    plain: Float32 | None = None

    @property
    def frozen(self) -> Float32:
        """(d,) the encoder's own vector: what is learned from."""
        return self.vector if self.plain is None else self.plain


@dataclass(frozen=True, slots=True)
class LaneHits:
    """One lane's ranking, best first. ids: (n,) passage ids; scores: (n,) the lane's absolute score, best high."""

    ids: Int64
    scores: Float32


@dataclass(frozen=True, slots=True)
class TokenBlock:
    """Token vectors of some passages, one after the other; passages without any have length 0.

    vectors: (sum(lengths), t) int8, x = round(TOKEN_SCALE * unit vector); starts: (sum(lengths),) uint16, the token's
    first character within its passage's text; ends likewise, one past its last; lengths: (n,) tokens per passage, in
    the order that was asked for.
    """

    vectors: NDArray[np.int8]
    starts: NDArray[np.uint16]
    ends: NDArray[np.uint16]
    lengths: Int64


@dataclass(frozen=True, slots=True)
class Passage:
    """A span of a source, as the store knows it. start, end: bytes of the file on disk, half open."""

    id: int
    path: str  # absolute; "memory:17" for what a client gave
    shown_path: str  # as a user would write it: relative to the watched directory's parent
    start: int
    end: int
    text: str
    codec: str  # how bytes become text: "utf-8", "utf-16-le", "utf-16-be", "cp1252", "json" (a JSON string's inside)
    heading: str = ""
    speaker: str = ""
    written_at: float | None = None
    scope: int = GLOBAL_SCOPE
    kind: str = "markdown"  # markdown | text | claude-code | memory


class Trait(IntFlag):
    """What a passage's text looks like, whatever it is about: bits of `Cards.traits`."""

    QUESTION = 1  # its last sentence asks
    FIRST_PERSON = 2
    SECOND_PERSON = 4
    DIGITS = 8
    NAMES = 16  # capitalised words within sentences
    TIME = 32  # speaks of a time: "yesterday", "in May", a date
    CODE = 64
    PICTURE = 128  # holds the caption of a picture


@dataclass(frozen=True, slots=True)
class Cards:
    """Columns about n passages, in the order asked for; an unknown id has source 0 and zeros everywhere.

    sources, places: (n,) which source, and where in it (from 0, in reading order). speakers: (n,) number of the
    speaker's name, 0: none. written_at: (n,) epoch seconds. words: (n,) of its text. traits: (n,) `Trait` bits.
    around: (n, 4) ids of the passages two before, one before, one after and two after it in its source; 0: none.
    """

    sources: Int64
    places: Int64
    speakers: Int32
    written_at: Float64
    words: Int32
    traits: UInt32
    around: Int64


@dataclass(slots=True)
class Candidate:
    """A passage on its way through the cascade."""

    passage: int
    lanes: dict[str, tuple[int, float]] = field(default_factory=dict)  # lane -> (rank from 1, raw score)
    fused: float = 0.0  # orders only
    late: float | None = None  # mean over query tokens of the best match, in [-1, 1]
    ranked: float | None = None  # the learned ranker's score; orders only
    cross: float | None = None  # the cross-encoder's logit
    focus: tuple[int, int] | None = None  # characters [start, end) of the token of highest relevance
    probability: float = 0.0  # calibrated for the stage that last touched it
    gates: dict[str, str] = field(default_factory=dict)  # gate -> "passed: ..." | "stopped: ..."
    signals: dict[str, float] = field(default_factory=dict)  # absolute features for the gate, named in gate.FEATURES
    useful: float = 0.0  # the part of `fused` that usefulness added; no signal knows of it
    unhelped: int = 0  # its place from 0 before that was added


@dataclass(frozen=True, slots=True)
class Answer:
    """The best answer so far: candidates best first, after `stage`, `ms` after the recall began."""

    stage: Stage
    candidates: Sequence[Candidate]
    ms: float
    notes: tuple[str, ...] = ()  # what failed or was late: "dense: OSError: ...", "encoder: loading"
    final: bool = False  # nothing deeper will come


class QueryEncoder(Protocol):
    """The worker, seen from a recall. Raises EncoderUnavailable when it is loading, dead or too late."""

    async def encode_query(self, text: str) -> QueryEncoding: ...


class EncoderUnavailable(Exception):
    """No query vector can be had now; the lexical lane answers alone."""


class Lane(Protocol):
    """A retriever. `search` is synchronous, thread-safe, and runs in a thread of its own.

    `needs_encoding` lanes get the query's encoding; the others start before it is there.
    """

    name: str
    needs_encoding: bool

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits: ...


class Scorer(Protocol):
    """A lane that can also score passages it did not return: a ranker wants to know about neighbours."""

    name: str
    needs_encoding: bool

    def score(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        """(n,) the lane's absolute score of each passage; nan where the lane knows nothing of it."""
        ...


class SpreadingLane(Protocol):
    """A lane that goes on from what others found: neighbours in a conversation, one hop over subjects."""

    name: str

    def spread(self, query: Query, found: Sequence[Candidate], view: View, limit: int) -> LaneHits:
        """found: the fused candidates, best first; they may be returned again."""
        ...


class CardReader(Protocol):
    def cards(self, ids: Int64) -> Cards: ...

    def speakers(self) -> Mapping[str, int]:
        """Names of all speakers, as they are written, and their numbers in `Cards.speakers` (from 1)."""
        ...


class TokenReader(Protocol):
    def tokens(self, passages: Sequence[int]) -> TokenBlock: ...


class PassageReader(Protocol):
    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """Those that still exist, in the order asked for."""
        ...
