"""Ranks equal the loop that defines them, block by block, and nobody wins by making all scores equal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessons_made import DIMS, units
from recalld_daemon.adapters import ranks
from recalld_daemon.adapters.ranks import reciprocal_ranks
from recalld_daemon.recall.types import Float32, Int64


def naive(scores: np.ndarray, gold: list[Int64], pools: list[Int64] | None) -> list[float]:
    found = []
    for n, own in enumerate(scores):
        best = max(own[row] for row in gold[n])
        pool = range(len(own)) if pools is None else pools[n].tolist()
        rivals = [own[row] for row in pool if row not in gold[n]]
        above = sum(score > best + 1e-6 for score in rivals) + 0.5 * sum(abs(score - best) <= 1e-6 for score in rivals)
        found.append(1 / (1 + above))
    return found


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5), st.booleans(), st.sampled_from([3, 7, 8_192]))
def test_equals_the_naive_loop(seed: int, memories: int, n: int, pooled: bool, block: int) -> None:
    rng = np.random.default_rng(seed)
    keys, queries = units(rng, memories, DIMS), units(rng, n, DIMS)
    keys[rng.integers(0, memories, memories // 2)] = keys[0]  # equals
    gold = [np.unique(rng.integers(0, memories, 2)) for _ in range(n)]
    pools = [np.unique(np.append(rng.integers(0, memories, 9), own)) for own in gold] if pooled else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "MEMORIES", block)
        found = reciprocal_ranks(queries, lambda rows: keys[rows], memories, gold, pools)
    np.testing.assert_allclose(found, naive(queries @ keys.T, gold, pools))


def test_all_equal_is_the_middle_and_no_number_is_last() -> None:
    ones = np.ones((101, DIMS), np.float32)

    def keys_of(rows: Int64) -> Float32:
        return ones[rows]

    assert reciprocal_ranks(ones[:1], keys_of, 101, [np.array([4])]).tolist() == [1 / 51]
    assert reciprocal_ranks(np.nan * ones[:1], keys_of, 101, [np.array([4])]).tolist() == [0.0]
