"""What a ranking is worth: Recall@1/5/10/20 (the share of the gold found) and the first gold one's reciprocal rank.

All figures are kept per question, since only paired differences can be trusted on a small log. A question without gold
has no rank and never comes here: averaged in as zero it would lower all alike and hide what changed (a fault seen
elsewhere), so it raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32, Float64, Int64

DEPTHS = (1, 5, 10, 20)
NAMES = ("r1", "r5", "r10", "r20", "mrr")
MAIN = "mrr"  # what a choice is made by
ROWS = 256  # queries scored at a time: with 20,000 memories 20 MB

Figures = Mapping[str, Float64]  # each of NAMES: (n,) one value per question


def ranks_of(ranked: Iterable[int], gold: Collection[int]) -> Int64:
    """Ranks, from 1 and rising, of the gold ones that were found. ranked: best first; of repeats the first counts.

    >>> ranks_of([7, 3, 3, 9], {9, 3, 4}).tolist()
    [2, 3]
    """
    wanted = frozenset(gold)
    return np.array([rank for rank, id in enumerate(dict.fromkeys(ranked), 1) if id in wanted], np.int64)


def figures(ranks: Sequence[Int64], sizes: Sequence[int]) -> dict[str, Float64]:
    """ranks: of each question's gold ones that were found; sizes: how many gold ones it has.

    Raises ValueError for a question without gold.

    >>> found = figures([np.array([2, 8]), np.array([], np.int64)], [4, 1])
    >>> {name: values.tolist() for name, values in found.items()}
    {'r1': [0.0, 0.0], 'r5': [0.25, 0.0], 'r10': [0.5, 0.0], 'r20': [0.5, 0.0], 'mrr': [0.5, 0.0]}
    """
    if any(size < 1 for size in sizes):
        raise ValueError("a question without gold has no rank: keep such questions apart")
    counts = np.maximum(np.array(sizes, np.float64), 1.0)
    found: dict[str, Float64] = {
        f"r{depth}": np.array([float((own <= depth).sum()) for own in ranks]) / counts for depth in DEPTHS
    }
    found[MAIN] = np.array([1.0 / float(own.min()) if len(own) else 0.0 for own in ranks], np.float64)
    return found


def figures_of(rankings: Sequence[Iterable[int]], golds: Sequence[Collection[int]]) -> dict[str, Float64]:
    """The same from rankings, each best first, and each question's gold ones."""
    ranks = [ranks_of(ranked, gold) for ranked, gold in zip(rankings, golds, strict=True)]
    return figures(ranks, [len(frozenset(gold)) for gold in golds])


def dense_figures(
    pairs: PairSet, query: Adapter | None = None, key: Adapter | None = None, bonus: Float32 | None = None
) -> dict[str, Float64]:
    """Each question of `pairs` ranked by cosine alone, exactly: cos(f_Q(q), f_K(m)), + bonus (m,) where there is one.

    A tie counts against the gold. Memory: ROWS times the memories, in float32.
    """
    memories = pairs.memories if key is None else key.apply(pairs.memories)
    queries = pairs.queries if query is None else query.apply(pairs.queries)
    ranks: list[Int64] = []
    for first in range(0, len(pairs), ROWS):
        scores = queries[first : first + ROWS] @ memories.T  # (rows, m)
        if bonus is not None:
            scores = scores + bonus
        for at, row in enumerate(scores, first):
            pool = None if pairs.pools is None else pairs.pools[at]
            ranks.append(_ranks_in(row, np.unique(pairs.gold[at]), pool))
    return figures(ranks, [len(np.unique(gold)) for gold in pairs.gold])


def means(found: Figures, weights: Float64 | None = None) -> dict[str, float]:
    """Each figure's (weighted) mean; nothing of no questions."""
    n = len(next(iter(found.values()), ()))
    if not n:
        return {}
    return {name: float(np.average(values, weights=weights)) for name, values in found.items()}


def joined(parts: Sequence[Figures]) -> dict[str, Float64]:
    """The figures of several sets of questions, one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in NAMES} if parts else {}


def _ranks_in(scores: Float32, gold: Int64, pool: Int64 | None) -> Int64:
    """scores: (m,) of all memories; gold: distinct rows; pool: the rows that could be found, None: all."""
    may = np.ones(len(scores), np.bool_) if pool is None else np.zeros(len(scores), np.bool_)
    if pool is not None:
        may[pool] = True
    here = gold[may[gold]]
    may[here] = False
    own = np.sort(scores[here])[::-1]
    above = np.array([np.count_nonzero(scores[may] >= score) for score in own], np.int64)
    return cast("Int64", above + np.arange(1, len(own) + 1))
