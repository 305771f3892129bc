"""What the user was interested in before each query: running means of what was used before it. No torch here.

f_V is trained on these. Time runs one way: a query sees what was used strictly before its own moment, so neither its
own gold nor that of a query of the same second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.recall.types import Float32, Int64

SLOW_SHARE = 0.02  # of a use in the long-term interests: they are those of the last fifty uses or so
FAST_SHARE = 0.3  # of a use in the focus: that of the last three


@dataclass(frozen=True, slots=True)
class Interests:
    """slow, fast: (n, d), one row per query, from what was used before it; zero rows where nothing was."""

    slow: Float32
    fast: Float32

    def rows(self, chosen: Int64) -> Interests:
        return Interests(self.slow[chosen], self.fast[chosen])

    def weighted(self, slow_weight: float, fast_weight: float) -> Float32:
        """(n, d) w_s u_slow + w_f u_fast: what f_V(m) is multiplied with."""
        result: Float32 = np.float32(slow_weight) * self.slow + np.float32(fast_weight) * self.fast
        return result


def interests_before(
    pairs: PairSet, slow_share: float = SLOW_SHARE, fast_share: float = FAST_SHARE, half_life_seconds: float = 0.0
) -> Interests:
    """Rows in the pairs' order; time is `pairs.at`, epoch seconds.

    slow_share, fast_share: how far one use moves them. half_life_seconds: in which the focus fades to a half without
    any use; 0: it does not.
    """
    dims = pairs.queries.shape[1]
    slow, fast = np.zeros((len(pairs), dims), np.float32), np.zeros((len(pairs), dims), np.float32)
    now_slow, now_fast = np.zeros(dims, np.float32), np.zeros(dims, np.float32)
    before = 0.0
    order = np.argsort(pairs.at, kind="stable")
    moments, starts = np.unique(pairs.at[order], return_index=True)
    for moment, rows in zip(moments.tolist(), np.split(order, starts[1:]), strict=True):
        if half_life_seconds:
            now_fast = now_fast * np.float32(0.5 ** ((moment - before) / half_life_seconds))
            before = moment
        slow[rows], fast[rows] = now_slow, now_fast
        for n in rows.tolist():
            used = pairs.memories[pairs.gold[n]].mean(axis=0)
            now_slow = (1 - slow_share) * now_slow + slow_share * used
            now_fast = (1 - fast_share) * now_fast + fast_share * used
    return Interests(slow, fast)
