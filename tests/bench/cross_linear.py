"""A linear ranker over (fused, late, cross): the least that a learned one could make of the cross-encoder's score.

Weights are those of a conditional logit (softmax over a question's candidates, McFadden 1974), with a small ridge, by
gradient steps on standardised features; a candidate without a cross score counts as the middle one of its question.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cross_cases import Case
from numpy.typing import NDArray

from recalld_daemon.recall.types import Float32

RIDGE, STEPS, RATE = 1e-3, 400, 0.5
SEEN = 20  # candidates of a question

Weights = NDArray[np.float64]


def fitted(taught: Sequence[tuple[Case, Float32]], *, cross: bool) -> Weights:
    """Weights of (fused, late) or of (fused, late, cross), on the features' own scales."""
    lists = [_list(case, scores, cross) for case, scores in taught]
    lists = [(rows, gold) for rows, gold in lists if gold.any() and not gold.all()]
    scale = np.concatenate([rows - rows.mean(axis=0) for rows, _ in lists]).std(axis=0) + 1e-9
    weights = np.ones(len(scale))
    for _ in range(STEPS):
        slope = RIDGE * weights
        for rows, gold in lists:
            logits = (rows / scale) @ weights
            chances = np.exp(logits - logits.max())
            right = chances * gold / max(float((chances * gold).sum()), 1e-12)
            slope += (rows / scale).T @ (chances / chances.sum() - right) / len(lists)
        weights -= RATE * slope
    return weights / scale


def linear_scores(case: Case, scores: Float32, weights: Weights) -> Float32:
    """(m,) of all candidates; those beyond the scored ones stay below them in their order."""
    rows = features(case, scores)[:, : len(weights)]
    found = (rows @ weights).astype(np.float32)
    seen = len(scores)
    if len(found) > seen:
        found[seen:] = found[:seen].min() - 1.0 - np.arange(len(found) - seen)
    return found


def features(case: Case, scores: Float32) -> NDArray[np.float64]:
    """(m, 3) fused, late, cross."""
    cross = np.full(len(case.units), np.median(scores) if len(scores) else 0.0)
    cross[: len(scores)] = scores
    return np.column_stack([case.fused, case.late, cross]).reshape(-1, 3)


def _list(case: Case, scores: Float32, cross: bool) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    rows = features(case, scores)[:SEEN, : 3 if cross else 2]
    return rows, np.array([unit in case.gold for unit in case.units[:SEEN]], bool)
