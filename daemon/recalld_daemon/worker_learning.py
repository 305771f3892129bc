"""The part of the worker that learns: one `OnlineLearner` at a time, opened by the daemon and asked for steps.

It keeps nothing: what a step made leaves with its answer, weights and Adam's state alike, so that the process may die,
or be let go after a quiet while, at any time. Only here, and where the encoder is exported, a worker imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32
from recalld_daemon.worker_wire import LearnOpen, LearnOpened, LearnStep, LearnStepped

if TYPE_CHECKING:
    from recalld_daemon.adapters.online import OnlineLearner


class Lessons:
    """Requests in, replies out. Raises whatever goes wrong; the request's sender is told."""

    def __init__(self) -> None:
        self._learner: OnlineLearner | None = None
        self._dims = 0

    def open(self, request: LearnOpen) -> LearnOpened:
        from recalld_daemon.adapters.online import OnlineLearner

        self._learner = None
        promoted = Adapter.from_bytes(request.promoted)
        self._learner = OnlineLearner(promoted, request.settings, request.key, request.state or None)
        self._dims = promoted.dims
        return LearnOpened(id=request.id)

    def step(self, request: LearnStep) -> LearnStepped:
        if self._learner is None:
            raise RuntimeError("no adapter is open to be learned")
        step = self._learner.learn(pair_of(request, self._dims))
        figures: dict[str, Any] = {
            "drift": step.drift, "steps": step.steps, "held_pairs": self._learner.held_pairs,
            "held_mrr": step.held_mrr, "promoted_mrr": step.promoted_mrr,
        }  # fmt: skip
        notes = {name: repr(value) for name, value in figures.items()}  # what status tells after a restart
        return LearnStepped(
            id=request.id, adapter=step.adapter.to_bytes(notes), state=self._learner.state(),
            loss=step.loss, ms=step.ms, held=step.held, reverted=step.reverted, **figures,
        )  # fmt: skip


def pair_of(request: LearnStep, dims: int) -> Pair:
    """The lesson that a request carries. Raises ValueError: vectors of another width."""
    query, gold = _vector(request.query, dims), _vector(request.gold, dims)
    negatives = np.frombuffer(request.negatives, np.float32).reshape(-1, dims)
    subject = _vector(request.subject, dims) if request.subject else None
    return Pair(request.key, query, gold, negatives, subject, request.weight, request.at)


def _vector(data: bytes, dims: int) -> Float32:
    vector = np.frombuffer(data, np.float32)
    if vector.shape != (dims,):
        raise ValueError(f"a lesson's vector has {vector.size} numbers, the adapter takes {dims}")
    return vector
