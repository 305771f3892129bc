"""Where the gold stands among all that could be found: for deciding when a fit stops.

In blocks, so that a memory of any size takes little. A gold that others equal stands in the midst of them, so that an
adapter which maps everything to one point is not the best of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recalld_daemon.recall.types import Float32, Float64, Int64

MEMORIES = 8_192  # rows of a block
QUERIES = 256
EQUAL = 1e-6  # scores this near are equal: the same product in another block differs in its last bits


def reciprocal_ranks(
    queries: Float32,
    keys_of: Callable[[Int64], Float32],
    memories: int,
    gold: Sequence[Int64],
    pools: Sequence[Int64] | None = None,
) -> Float64:
    """(n,) 1 / rank of the best gold of each query, 0 where its score is no number.

    queries: (n, e); keys_of: (k,) rows to (k, e), what they are searched by; memories: how many there are; pools: per
    query the rows that could be found, or None: all.
    """
    n = len(queries)
    best, above = _best(queries, keys_of, gold), np.zeros(n)
    for block in _blocks(memories, MEMORIES):
        keys = keys_of(block)
        for part in _blocks(n, QUERIES):
            scores = queries[part] @ keys.T  # (q, b)
            for own, at in zip(scores, part.tolist(), strict=True):
                own[_within(gold[at], block)] = -np.inf  # no gold is above another
                rivals = own if pools is None else own[_within(pools[at], block)]
                above[at] += np.count_nonzero(rivals > best[at] + EQUAL)
                above[at] += 0.5 * np.count_nonzero(np.abs(rivals - best[at]) <= EQUAL)
    return np.where(np.isfinite(best), 1.0 / (1.0 + above), 0.0)


def _best(queries: Float32, keys_of: Callable[[Int64], Float32], gold: Sequence[Int64]) -> Float64:
    """(n,) the score of each query's best gold."""
    rows, places = np.unique(np.concatenate([np.empty(0, np.int64), *gold]), return_inverse=True)
    keys, ends = keys_of(rows), np.cumsum([len(own) for own in gold])
    found = [
        float(np.max(keys[places[end - len(own) : end]] @ query))
        for query, own, end in zip(queries, gold, ends.tolist(), strict=True)
    ]
    return np.array(found, np.float64)


def _blocks(count: int, size: int) -> Iterator[Int64]:
    for at in range(0, count, size):
        yield np.arange(at, min(at + size, count), dtype=np.int64)


def _within(rows: Int64, block: Int64) -> Int64:
    """Those of the rows that are in this block, as places in it."""
    first, last = int(block[0]), int(block[-1])
    if len(block) and first == 0 and (not len(rows) or int(rows.max()) <= last):
        return rows
    inside = (rows >= first) & (rows <= last)
    return rows[inside] - first
