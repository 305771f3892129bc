"""Made things for recall's tests: passages, candidates, lanes and encoders that answer as told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from recalld_daemon.recall.types import (
    TOKEN_SCALE,
    Answer,
    Candidate,
    LaneHits,
    Passage,
    Query,
    QueryEncoding,
    TokenBlock,
    View,
)


def passage(id: int, text: str, written_at: float | None = None, path: str = "", heading: str = "") -> Passage:
    """A passage of a Markdown note; path notes/<id>.md unless given."""
    path = path or f"/home/u/notes/{id}.md"
    return Passage(
        id, path, "/".join(path.split("/")[-2:]), 0, len(text.encode()), text, "utf-8", heading, "", written_at
    )


def found(
    id: int, cosine: float | None = 0.6, bm25: float | None = 9.0, late: float | None = None, rank: int = 1
) -> Candidate:
    """A candidate as the cascade leaves it."""
    lanes = {}
    if cosine is not None:
        lanes["dense"] = (rank, cosine)
    if bm25 is not None:
        lanes["lexical"] = (rank, bm25)
    return Candidate(id, lanes, fused=1.0 / rank, late=late)


def answer(*candidates: Candidate, background: int = 40) -> Answer:
    """An answer whose first candidates are these, over a pool of others that are far off."""
    late = any(candidate.late is not None for candidate in candidates)
    rest = [found(10_000 + i, 0.12, 1.0, 0.25 if late else None, rank=i + 10) for i in range(background)]
    return Answer("late" if late else "fused", [*candidates, *rest], 1.0)


def hits(*rows: tuple[int, float]) -> LaneHits:
    return LaneHits(np.array([i for i, _ in rows], np.int64), np.array([s for _, s in rows], np.float32))


def block(*matrices: np.ndarray) -> TokenBlock:
    """Token vectors of some passages; token i of a passage stands at characters [10 i, 10 i + 5)."""
    lengths = np.array([len(matrix) for matrix in matrices], np.int64)
    flat = np.concatenate([matrix.reshape(-1, matrix.shape[-1]) for matrix in matrices])
    starts = np.concatenate([np.arange(n) * 10 for n in lengths] or [np.zeros(0)]).astype(np.uint16)
    vectors = np.clip(np.round(flat * TOKEN_SCALE), -127, 127).astype(np.int8)
    return TokenBlock(vectors, starts, (starts + 5).astype(np.uint16), lengths)


def encoding() -> QueryEncoding:
    return QueryEncoding(np.eye(4, dtype=np.float32)[0], np.eye(4, dtype=np.float32)[:2])


@dataclass
class MadeLane:
    """A lane that gives `answer`, after `gate` is set, or raises it; `asked` holds each call's arguments."""

    name: str
    answer: LaneHits | Exception
    needs_encoding: bool = False
    gate: threading.Event | None = None
    asked: list[tuple[Query, QueryEncoding | None, View, int]] = field(default_factory=list)

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        self.asked.append((query, encoding, view, limit))
        if self.gate is not None:
            self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class MadeTokens:
    """A token store that gives each passage the same tokens, except those that are told."""

    special: dict[int, np.ndarray]
    error: Exception | None = None

    def tokens(self, passages: Sequence[int]) -> TokenBlock:
        if self.error:
            raise self.error
        plain = 0.4 * np.eye(4, dtype=np.float32)[3:]
        return block(*[self.special.get(passage, plain) for passage in passages])


Judge = Callable[[Answer], None]
