"""Times in memory: when each passage was written, and the stretches of time it speaks of, as columns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from recalld_daemon.recall.types import Float64, Int64
from recalld_daemon.store.extraction_reads import MomentRows, WhenRows


@dataclass(frozen=True, slots=True)
class Times:
    """At one moment. ids: (n,) passages, rising; scopes, written_at: (n,). passages: (m,) whose each time is, rising;
    rows: (m,) where that passage stands among ids; starts, ends: (m,) epoch seconds, half open."""

    ids: Int64
    scopes: Int64
    written_at: Float64
    passages: Int64
    rows: Int64
    starts: Float64
    ends: Float64

    @classmethod
    def of(cls, ids: Int64, scopes: Int64, dates: Float64, passages: Int64, starts: Float64, ends: Float64) -> Self:
        """Of columns in any order; times of passages that are not among ids are left out."""
        order = np.argsort(ids, kind="stable")
        ids = np.ascontiguousarray(ids[order])
        at = np.minimum(np.searchsorted(ids, passages), max(0, len(ids) - 1))
        known = ids[at] == passages if len(ids) else np.zeros(len(passages), np.bool_)
        rising = np.flatnonzero(known)[np.argsort(passages[known], kind="stable")]
        return cls(ids, scopes[order], dates[order], passages[rising], at[rising], starts[rising], ends[rising])

    def rows_of(self, ids: Int64) -> Int64:
        """(n,) where each passage stands, -1 where it is unknown."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, at, -1)


_INTS, _FLOATS = np.empty(0, np.int64), np.empty(0, np.float64)


class WhenTable:
    """Read by any number of threads while one changes it: `times` is a value."""

    def __init__(self) -> None:
        self.times = Times.of(_INTS, _INTS, _FLOATS, _INTS, _FLOATS, _FLOATS)
        self._changing = threading.RLock()

    def add(self, moments: MomentRows, whens: WhenRows) -> None:
        """Learn passages and the times they speak of; those already known are replaced."""
        with self._changing:
            old = self._without(moments.ids)
            self.times = Times.of(
                np.concatenate([old.ids, moments.ids]),
                np.concatenate([old.scopes, moments.scopes]),
                np.concatenate([old.written_at, moments.written_at]),
                np.concatenate([old.passages, whens.passages]),
                np.concatenate([old.starts, whens.starts]),
                np.concatenate([old.ends, whens.ends]),
            )

    def remove(self, passages: Sequence[int]) -> None:
        with self._changing:
            self.times = self._without(np.asarray(passages, np.int64))

    @property
    def memory_bytes(self) -> int:
        times = self.times
        columns = (times.ids, times.scopes, times.written_at, times.passages, times.rows, times.starts, times.ends)
        return sum(column.nbytes for column in columns)

    def _without(self, ids: Int64) -> Times:
        old = self.times
        kept, spoken = ~np.isin(old.ids, ids), ~np.isin(old.passages, ids)
        return Times.of(
            old.ids[kept], old.scopes[kept], old.written_at[kept], old.passages[spoken], old.starts[spoken],
            old.ends[spoken],
        )  # fmt: skip
