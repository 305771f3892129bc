"""What is learned from: a query, the memory that helped, and others that did not. Values in numpy; no torch here.

`Pair` is one lesson for the online step, complete in itself. `PairSet` is many of them over shared matrices, for the
nightly fit and for judging. All vectors are the encoder's own, of unit length: adapters are applied by who learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import Float32, Float64, Int64

NEAR_GOLD = 0.95  # the design's: a negative this near to the query, beside the gold one, is probably right as well
MOST_WEIGHT = 5.0  # of a pair: one that was hardly ever looked at must not outweigh all others


@dataclass(frozen=True, slots=True)
class Pair:
    """query: (d,); gold: (d,), the memory that helped; negatives: (k, d), may be none; subject: (d,) of the gold, or
    None. weight: inverse propensity, clipped. key: equal for the same question about the same memory."""

    key: str
    query: Float32
    gold: Float32
    negatives: Float32
    subject: Float32 | None = None
    weight: float = 1.0
    at: float = 0.0  # epoch seconds


@dataclass(frozen=True, slots=True)
class PairSet:
    """n queries over m memories, in the order they were asked.

    queries: (n, d); memories: (m, d); gold: n arrays of rows of `memories`, never empty; negatives: n arrays of rows,
    may be empty; subjects: (s, d) and subject: (n,) row of the gold's subject, -1: none; weights, at: (n,).
    names: n, e.g. the query's text; groups: (n,) what belongs together (a conversation, a session): bootstrap unit.
    pools: n arrays of the rows that could be found, or None: all of them.
    """

    queries: Float32
    memories: Float32
    gold: Sequence[Int64]
    negatives: Sequence[Int64]
    at: Float64
    weights: Float32
    subjects: Float32
    subject: Int64
    groups: Int64
    names: Sequence[str] = ()
    pools: Sequence[Int64] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def rows(self, chosen: NDArray[np.int64] | Sequence[int]) -> PairSet:
        """Those queries only, over the same memories."""
        at = np.asarray(chosen, np.int64)
        picked = at.tolist()
        return PairSet(
            self.queries[at], self.memories, [self.gold[n] for n in picked], [self.negatives[n] for n in picked],
            self.at[at], self.weights[at], self.subjects, self.subject[at], self.groups[at],
            [self.names[n] for n in picked] if self.names else (),
            None if self.pools is None else [self.pools[n] for n in picked],
        )  # fmt: skip


def kept_negatives(query: Float32, gold: Float32, negatives: Float32) -> NDArray[np.bool_]:
    """(k,) which of the negatives (k, d) are far enough below the best gold (d,) or (g, d): cos < 0.95 * cos(gold)."""
    best = float(np.max(np.atleast_2d(gold) @ query))
    kept: NDArray[np.bool_] = negatives @ query < NEAR_GOLD * best
    return kept


def inverse_propensity(rank: int, propensity: float = 1.0, *, most: float = MOST_WEIGHT) -> float:
    """How much a verdict on what was shown at this rank (from 1) counts: 1 / P(looked at and shown), clipped.

    A reader looks at rank r with r ** -0.5 (the usual position model, Joachims et al. 2017, with its exponent halved:
    of one to three lines most are read).

    >>> [round(inverse_propensity(rank), 2) for rank in (1, 2, 3, 100)]
    [1.0, 1.41, 1.73, 5.0]
    """
    return float(min(most, np.sqrt(rank) / max(propensity, 1e-6)))
