"""Made lessons whose right answer is known: what an adapter must learn, and what it must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recalld_daemon.adapters.pairs import Pair, PairSet
from recalld_daemon.recall.adapter import Adapter, unit
from recalld_daemon.recall.types import Float32

DIMS = 16
MEMORIES = 120


def units(rng: np.random.Generator, *shape: int) -> Float32:
    return unit(rng.normal(size=shape).astype(np.float32))


def one_shift(n: int, seed: int = 0, size: float = 1.5) -> PairSet:
    """Each query lies off its gold by one and the same vector: a bias undoes that."""
    rng = np.random.default_rng(seed)
    return _asked(units(np.random.default_rng(99), MEMORIES, DIMS), n, rng, np.full(MEMORIES, size, np.float32))


def two_shifts(n: int, seed: int = 0, size: float = 1.5) -> PairSet:
    """Each query lies off by a vector or by its opposite, as its gold is on one side or the other: no bias helps."""
    rng = np.random.default_rng(seed)
    memories = np.random.default_rng(99).normal(size=(MEMORIES, DIMS)).astype(np.float32)
    memories[:, 1] = 3 * np.sign(memories[:, 1])
    return _asked(unit(memories), n, rng, size * np.sign(memories[:, 1]))


def chance(n: int, seed: int = 0) -> PairSet:
    """The gold has nothing to do with the query."""
    rng = np.random.default_rng(seed)
    made = one_shift(n, seed, 0.0)
    return replace(made, queries=units(rng, n, DIMS))


def _asked(memories: Float32, n: int, rng: np.random.Generator, shift: Float32) -> PairSet:
    gold = rng.integers(0, len(memories), n)
    away = np.zeros(DIMS, np.float32)
    away[0] = 1.0
    noise = 0.15 * units(rng, n, DIMS)
    queries = unit(memories[gold] + shift[gold, None] * away + noise)
    return PairSet(
        queries, memories, [np.array([row]) for row in gold], [np.empty(0, np.int64)] * n,
        np.arange(n, dtype=np.float64), np.ones(n, np.float32), np.empty((0, DIMS), np.float32),
        np.full(n, -1, np.int64), np.zeros(n, np.int64), [f"question {seed_name(rng)} {at}" for at in range(n)],
    )  # fmt: skip


def seed_name(rng: np.random.Generator) -> str:
    """So that questions of two sets have different names."""
    return str(int(rng.integers(1 << 62)))


def lesson(pairs: PairSet, row: int, key: str = "", gold: int = -1) -> Pair:
    """That question with its gold, or with another; the four nearest other memories did not help."""
    query = pairs.queries[row]
    right = gold if gold >= 0 else int(pairs.gold[row][0])
    nearest = np.argsort(-(pairs.memories @ query))
    others = nearest[nearest != right][:4]
    return Pair(key or f"{row}/{right}", query, pairs.memories[right], pairs.memories[others])


def mrr(adapter: Adapter, pairs: PairSet, key: Adapter | None = None) -> float:
    """Of the best gold among all memories, spelled out."""
    memories = pairs.memories if key is None else key.apply(pairs.memories)
    found = []
    for query, gold in zip(pairs.queries, pairs.gold, strict=True):
        scores = memories @ adapter.apply(query)
        best = scores[gold].max()
        found.append(1.0 / (1 + int((np.delete(scores, gold) > best).sum())))
    return float(np.mean(found))
