"""The values that travel through one recall, and the ports through which a recall reaches the rest of the house.

A recall is an anytime cascade: lanes (dense, lexical, later more) each rank passages, fusion orders their union, late
interaction re-orders the top of it, and later a ranker and a cross-encoder go deeper. After each stage there is an
`Answer`, whose candidates carry absolute signals and a calibrated probability. Fused scores only order; the gate
decides on probabilities. Nothing here does I/O: the ports are protocols, filled by the store, the index and the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
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


@dataclass(frozen=True, slots=True)
class Query:
    """A focus made searchable. `key` is equal for queries that would repeat each other."""

    text: str  # what the encoder embeds, most telling words first
    terms: tuple[str, ...]  # lower-cased words and identifier parts for the lexical lane, most telling first
    key: str
    opened: tuple[str, ...] = ()  # files that the tool call itself opens: the agent has them before it
    silence: str = ""  # why there is nothing to ask, where `text` is empty


@dataclass(frozen=True, slots=True)
class View:
    """Who looks, and when: the scopes that may be seen (None: all) and the moment before which all must be written."""

    scopes: tuple[int, ...] | None = (GLOBAL_SCOPE,)
    as_of: float | None = None  # epoch seconds; None: now


@dataclass(frozen=True, slots=True)
class QueryEncoding:
    """vector: (d,) unit length, in the live snapshot's space. tokens: (Tq, t) unit rows, projected like the index's."""

    vector: Float32
    tokens: Float32


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


@dataclass(slots=True)
class Candidate:
    """A passage on its way through the cascade."""

    passage: int
    lanes: dict[str, tuple[int, float]] = field(default_factory=dict)  # lane -> (rank from 1, raw score)
    fused: float = 0.0  # orders only
    late: float | None = None  # mean over query tokens of the best match, in [-1, 1]
    focus: tuple[int, int] | None = None  # characters [start, end) of the token of highest relevance
    probability: float = 0.0  # calibrated for the stage that last touched it
    gates: dict[str, str] = field(default_factory=dict)  # gate -> "passed: ..." | "stopped: ..."
    signals: dict[str, float] = field(default_factory=dict)  # absolute features for the gate, named in gate.FEATURES


@dataclass(frozen=True, slots=True)
class Answer:
    """The best answer so far: candidates best first, after `stage`, `ms` after the recall began."""

    stage: Stage
    candidates: Sequence[Candidate]
    ms: float
    notes: tuple[str, ...] = ()  # what failed or was late: "dense: OSError: ...", "encoder: loading"


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


class TokenReader(Protocol):
    def tokens(self, passages: Sequence[int]) -> TokenBlock: ...


class PassageReader(Protocol):
    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """Those that still exist, in the order asked for."""
        ...
