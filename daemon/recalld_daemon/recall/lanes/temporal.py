"""The temporal lane: passages of the time that the query speaks of.

A passage speaks of times itself ("we moved last week", said on 8 May) and was written at one. Either may lie within
what is asked about, or near to it. Where a query says nothing of when, the lane says nothing. "since", "until",
"before" and "after" bound what may be returned at all: what neither was written nor speaks of anything within the
bounds is left out (`within`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.extract.times import bounds_of
from recalld_daemon.recall.types import Float32, Float64, Int64, LaneHits, Query, QueryEncoding, View, When

DAY = 86_400.0
SPOKEN = 1.0  # what a time that is spoken of counts, ...
WRITTEN = 0.7  # ... and the moment of writing: one writes of other days too
NEAR = 0.5  # of that, at most, for what lies beside the time asked for
FAR_DAYS = 3.0  # "yesterday" may be the day before; "in May" the week after: people tell of it when it is over
LEAST = 0.02


class TimesNow(Protocol):
    """Columns at one moment; see `index.when_table.Times`."""

    @property
    def ids(self) -> Int64: ...
    @property
    def scopes(self) -> Int64: ...
    @property
    def written_at(self) -> Float64: ...
    @property
    def rows(self) -> Int64: ...
    @property
    def starts(self) -> Float64: ...
    @property
    def ends(self) -> Float64: ...

    def rows_of(self, ids: Int64) -> Int64: ...


class TimeTable(Protocol):
    @property
    def times(self) -> TimesNow: ...


NOTHING = LaneHits(np.empty(0, np.int64), np.empty(0, np.float32))


class TemporalLane:
    """A lane and a `Scorer` over all passages' times. Thread-safe."""

    name = "temporal"
    needs_encoding = False

    def __init__(self, table: TimeTable) -> None:
        self._table = table

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        """At most `limit` passages within the view, best first, of equals the latest; scores from 0 to 1."""
        if not query.hints.whens:
            return NOTHING
        times = self._table.times
        scores = fits(times, query.hints.whens)
        if _bounds(query):
            scores *= bounded(times, query.hints.whens)
        if view.scopes is not None:
            scores *= np.logical_or.reduce([times.scopes == scope for scope in view.scopes])
        if view.as_of is not None:
            scores *= times.written_at < view.as_of
        rows = np.flatnonzero(scores > LEAST)
        if len(rows) > 4 * limit:
            rows = rows[np.argpartition(-scores[rows], limit)[: 4 * limit]]
        order = rows[np.lexsort((-times.written_at[rows], -scores[rows]))][:limit]
        return LaneHits(times.ids[order], scores[order].astype(np.float32))

    def score(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        """(n,) how well each passage fits the time asked for, 0 to 1; nan for unknown ids, or where none is asked."""
        found = np.full(len(ids), np.nan, np.float32)
        if query.hints.whens:
            times = self._table.times
            rows = times.rows_of(ids)
            found[rows >= 0] = fits(times, query.hints.whens, rows[rows >= 0])
        return found

    def within(self, query: Query, ids: Int64) -> NDArray[np.bool_]:
        """(n,) False for passages that a "since", "until", "before" or "after" of the query leaves out."""
        allowed = np.ones(len(ids), np.bool_)
        if _bounds(query):
            times = self._table.times
            rows = times.rows_of(ids)
            allowed[rows >= 0] = bounded(times, query.hints.whens)[rows[rows >= 0]]
        return allowed


def _bounds(query: Query) -> bool:
    return any(map(math.isfinite, bounds_of(query.hints.whens)))


def fits(times: TimesNow, asked: Sequence[When], rows: Int64 | None = None) -> Float32:
    """(n,) how well each passage (of these rows; None: all) fits the best of some times: what it speaks of, or when it
    was written."""
    dates = times.written_at if rows is None else times.written_at[rows]
    spoken, owners = _spoken(times, rows)
    scores = np.zeros(len(dates), np.float32)
    for when in asked:
        np.maximum.at(scores, owners, SPOKEN * fit(times.starts[spoken], times.ends[spoken], when))
        np.maximum(scores, WRITTEN * fit(dates, dates + 1.0, when), out=scores)
    return scores


def fit(starts: Float64, ends: Float64, when: When) -> Float32:
    """(n,) how well stretches fit one asked for: 1 within it, less the more they reach beyond it, less beside it.

    A stretch half of which lies within counts .5; beside it, NEAR falls off with the distance: by 1/e in the length of
    what is asked for, FAR_DAYS at least; beyond four of these it is nothing.
    """
    scale = max(FAR_DAYS * DAY, when.end - when.start)
    overlap = np.minimum(ends, when.end) - np.maximum(starts, when.start)
    scores = np.zeros(len(starts), np.float32)
    near = np.flatnonzero(overlap > -4.0 * scale)
    close = overlap[near]
    within = np.maximum(close, 0.0) / np.maximum(ends[near] - starts[near], 1.0)
    beside = NEAR * np.exp(np.minimum(close, 0.0) / scale)
    scores[near] = np.where(close > 0, np.maximum(within, np.sqrt(within) * NEAR), beside)
    return scores


def _spoken(times: TimesNow, rows: Int64 | None) -> tuple[Int64 | slice, Int64]:
    """Which times the passages of these rows speak of, and whose of them each is; `times.rows` is rising."""
    if rows is None:
        return slice(None), times.rows
    first = np.searchsorted(times.rows, rows, "left")
    counts = np.searchsorted(times.rows, rows, "right") - first
    owners = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + within, owners


def bounded(times: TimesNow, asked: Sequence[When]) -> NDArray[np.bool_]:
    """(n,) whether each passage was written within the query's bounds, or speaks of something that lies in them."""
    low, high = bounds_of(asked)
    allowed = (times.written_at >= low) & (times.written_at < high)
    spoken = (times.ends > low) & (times.starts < high)
    allowed[times.rows[spoken]] = True
    return allowed
