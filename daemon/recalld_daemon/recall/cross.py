"""The cross-encoder's stage: the first few candidates, each read together with the query, in the time there is.

The worker scores in order of rank until its time is up, so the best candidates are always among the scored. What it
says is added to what the stages before found, as a difference to the middle one of the scored: a candidate that was not
reached keeps its score and so its place among those that the cross-encoder finds middling; there is no cliff between
them. If the worker is late or gone, the answer before this stage stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import trio

from recalld_daemon.recall.types import (
    Candidate,
    EncoderUnavailable,
    Float32,
    Passage,
    PassageReader,
    Query,
    QueryEncoding,
    Stage,
)

CROSS_LIMIT = 20  # candidates that are scored at most, whatever the time
CROSS_WEIGHT = 0.05  # of a logit against fused scores
GRACE_SECONDS = 0.030  # beyond its time: a query's encoding that went first, the pipe, the loop


class Scorer(Protocol):
    """The worker, seen from a recall's thread: (n,) scores, nan for those that time did not reach.

    Raises EncoderUnavailable when there is no worker, or when it is late.
    """

    def __call__(self, query: str, texts: Sequence[str], budget_seconds: float) -> Float32: ...


class AsyncScorer(Protocol):
    """The worker, seen from the event loop."""

    async def rerank(self, query: str, texts: Sequence[str], budget_seconds: float) -> Float32: ...


@dataclass(frozen=True, slots=True)
class CrossEncoding:
    """The deepener. text_of: what of a passage is read, its heading, speaker and date with it."""

    scorer: Scorer
    reader: PassageReader
    text_of: Callable[[Passage], str]
    budget_seconds: float
    weight: float = CROSS_WEIGHT
    limit: int = CROSS_LIMIT
    stage: Stage = "full"
    name: str = "cross"

    def deepen(self, query: Query, encoding: QueryEncoding, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """New candidates. Passages that are gone are not scored. Raises EncoderUnavailable."""
        passages = self.reader.passages([candidate.passage for candidate in candidates[: self.limit]])
        scores = self.scorer(query.text, [self.text_of(passage) for passage in passages], self.budget_seconds)
        known = zip(passages, scores.tolist(), strict=True)
        return blended(candidates, {passage.id: score for passage, score in known if score == score}, self.weight)


def blended(candidates: Sequence[Candidate], scores: dict[int, float], weight: float) -> list[Candidate]:
    """New candidates in the order of fused + weight * (score - the middle score); those without a score as they were.

    >>> [c.passage for c in blended([Candidate(1, fused=3.0), Candidate(2, fused=2.9)], {1: -1.0, 2: 1.0}, 0.1)]
    [2, 1]
    """
    if not scores:
        return list(candidates)
    middle = float(np.median(list(scores.values())))
    moved = [_scored(candidate, scores.get(candidate.passage), middle, weight) for candidate in candidates]
    return sorted(moved, key=lambda candidate: -candidate.fused)


def _scored(candidate: Candidate, score: float | None, middle: float, weight: float) -> Candidate:
    if score is None:
        return candidate
    return replace(candidate, fused=candidate.fused + weight * (score - middle), cross=score)


def from_thread(worker: AsyncScorer, grace_seconds: float = GRACE_SECONDS) -> Scorer:
    """The worker for use in threads that trio started; each call hops to the event loop and back."""

    async def ask(query: str, texts: Sequence[str], budget_seconds: float) -> Float32:
        with trio.move_on_after(budget_seconds + grace_seconds):
            return await worker.rerank(query, texts, budget_seconds)
        raise EncoderUnavailable("cross-encoder: late")

    def score(query: str, texts: Sequence[str], budget_seconds: float) -> Float32:
        return trio.from_thread.run(ask, query, texts, budget_seconds)

    return score
