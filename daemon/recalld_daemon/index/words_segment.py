"""A part of the word index, as a value: the terms of some passages turned inside out, term by term.

Postings lie in columns, those of a term beside each other (CSR): the row of the passage that has it, and its weighted
count there. So scoring a term is five numpy calls over a stretch of two arrays. A segment is never changed: removing
gives one with rows masked, and two segments are merged into one where masked rows are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.index.words_terms import UInt64
from recalld_daemon.recall.types import Float32, Float64, Int32, Int64, View

COUNT_STEP = 0.25  # weighted counts are kept in a byte, in these steps
COUNT_MOST = 255
MASKS_KEPT = 16  # sets of scopes whose rows are remembered, per segment
ROW = np.dtype([("written_at", "<f8"), ("scope", "<i4"), ("length", "<f4")])

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Postings:
    """The terms of m passages, one after the other. ids, scopes, written_at: (m,); terms: (p,); owners: (p,) index of
    the passage that a term belongs to; weights: (p,) what one such occurrence counts. ids are distinct."""

    ids: Int64
    scopes: Int64
    written_at: Float64
    terms: UInt64
    owners: Int64
    weights: Float32


@dataclass(frozen=True, slots=True)
class Segment:
    """ids: (m,) rising; rows: (m,) ROW; alive: (m,); vocabulary: (t,) rising; starts: (t + 1,) each term's first
    posting; owners: (p,) row of each posting; counts: (p,) its weighted count in COUNT_STEPs."""

    ids: Int64
    rows: NDArray[np.void]
    alive: Mask
    vocabulary: UInt64
    starts: Int64
    owners: Int32
    counts: NDArray[np.uint8]
    dead: int = 0
    masks: dict[tuple[int, ...], Mask] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, postings: Postings) -> Self:
        """The postings turned inside out."""
        by_id = np.argsort(postings.ids, kind="stable")
        row_of = np.empty(len(by_id), np.int64)
        row_of[by_id] = np.arange(len(by_id))
        rows = np.empty(len(by_id), ROW)
        for name, column in (("written_at", postings.written_at), ("scope", postings.scopes)):
            rows[name] = column[by_id]
        lengths = np.bincount(postings.owners, postings.weights, len(by_id))
        rows["length"] = lengths[by_id]
        owners = row_of[postings.owners]
        order = np.lexsort((owners, postings.terms))
        terms, owners, weights = postings.terms[order], owners[order], postings.weights[order]
        first = np.flatnonzero(np.r_[True, (terms[1:] != terms[:-1]) | (owners[1:] != owners[:-1])][: len(terms)])
        totals = np.add.reduceat(weights, first) if len(first) else weights
        vocabulary, starts = np.unique(terms[first], return_index=True)
        return cls(
            ids=postings.ids[by_id],
            rows=rows,
            alive=np.ones(len(rows), np.bool_),
            vocabulary=vocabulary,
            starts=np.append(starts, len(first)).astype(np.int64),
            owners=owners[first].astype(np.int32),
            counts=np.clip(np.rint(totals / COUNT_STEP), 1, COUNT_MOST).astype(np.uint8),
        )

    def __len__(self) -> int:
        return len(self.rows) - self.dead

    @property
    def memory_bytes(self) -> int:
        columns = (self.ids, self.rows, self.alive, self.vocabulary, self.starts, self.owners, self.counts)
        return sum(column.nbytes for column in columns) + sum(mask.nbytes for mask in self.masks.values())

    @property
    def total_length(self) -> float:
        """Summed lengths of what is alive."""
        lengths = self.rows["length"]
        return float(lengths.sum(dtype=np.float64) if not self.dead else lengths[self.alive].sum(dtype=np.float64))

    def spans(self, terms: UInt64) -> tuple[Int64, Int64]:
        """First and one past the last posting of each term; equal where a term is not here."""
        if not len(self.vocabulary):
            return np.zeros(len(terms), np.int64), np.zeros(len(terms), np.int64)
        at = np.minimum(np.searchsorted(self.vocabulary, terms), len(self.vocabulary) - 1)
        here = self.vocabulary[at] == terms
        return np.where(here, self.starts[at], 0), np.where(here, self.starts[at + 1], 0)

    def living(self, first: int, last: int) -> int:
        """How many of these postings are of passages still here."""
        return int(np.count_nonzero(self.alive[self.owners[first:last]])) if self.dead else last - first

    def rows_of(self, ids: Int64) -> Int64:
        """(n,) the row of each id, -1 where it is not here."""
        return rows_of(self.ids, ids, self.alive if self.dead else None)

    def visible(self, view: View) -> Mask | None:
        """(m,) which rows a view may see; None: all."""
        if view.scopes is None and view.as_of is None and not self.dead:
            return None
        seen = self.alive if view.scopes is None else self._in_scopes(view.scopes)
        return seen if view.as_of is None else seen & (self.rows["written_at"] < view.as_of)

    def without(self, ids: Int64) -> Segment:
        """With these ids masked out; itself where it has none of them."""
        rows = self.rows_of(ids)
        rows = rows[rows >= 0]
        if not len(rows):
            return self
        alive = self.alive.copy()
        alive[rows] = False
        return replace(self, alive=alive, dead=int(len(alive) - np.count_nonzero(alive)), masks={})

    def _in_scopes(self, scopes: Sequence[int]) -> Mask:
        key = tuple(sorted(set(scopes)))
        known = self.masks.get(key)
        if known is None:
            known = np.zeros(len(self.rows), np.bool_)
            for scope in key:
                known |= self.rows["scope"] == scope
            known &= self.alive
            if len(self.masks) >= MASKS_KEPT:
                self.masks.clear()
            self.masks[key] = known
        return known


def merged(parts: Sequence[Segment]) -> Segment:
    """One segment of several, without masked rows. Their living ids must be distinct."""
    ids = np.concatenate([part.ids[part.alive] for part in parts])
    rows = np.concatenate([part.rows[part.alive] for part in parts])
    by_id = np.argsort(ids, kind="stable")
    new_row = np.empty(len(ids), np.int32)
    new_row[by_id] = np.arange(len(ids), dtype=np.int32)
    kept = [_living_postings(part) for part in parts]
    vocabulary = np.unique(np.concatenate([terms for terms, _, _, _ in kept]))
    places = [np.searchsorted(vocabulary, terms) for terms, _, _, _ in kept]
    per_term = np.zeros((len(parts), len(vocabulary)), np.int64)  # (parts, t) postings
    for number, (_, sizes, _, _) in enumerate(kept):
        per_term[number, places[number]] = sizes
    starts = np.concatenate([[0], np.cumsum(per_term.sum(axis=0))])
    first = starts[:-1] + np.cumsum(per_term, axis=0) - per_term  # (parts, t) where a part's postings of a term go
    owners, counts = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.uint8)
    offset = 0
    for number, (part, (_, sizes, own_owners, own_counts)) in enumerate(zip(parts, kept, strict=True)):
        own_first = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        target = np.repeat((first[number, places[number]] - own_first).astype(np.int32), sizes)
        target += np.arange(len(own_owners), dtype=np.int32)
        owners[target] = new_row[offset + own_owners]
        counts[target] = own_counts
        offset += len(part)
    alive = np.ones(len(ids), np.bool_)
    return Segment(ids[by_id], rows[by_id], alive, vocabulary, starts.astype(np.int64), owners, counts)


def rows_of(sorted_ids: Int64, ids: Int64, alive: Mask | None = None) -> Int64:
    """(n,) where each id stands among the sorted ones; -1 where it does not, or is not alive."""
    if not len(sorted_ids):
        return np.full(len(ids), -1, np.int64)
    at = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    here = sorted_ids[at] == ids
    return np.where(here if alive is None else here & alive[at], at, -1)


def _living_postings(part: Segment) -> tuple[UInt64, Int64, Int32, NDArray[np.uint8]]:
    """Terms that still occur, postings per such term, and these postings, rows renumbered without the masked ones."""
    sizes = np.diff(part.starts)
    if not part.dead:
        return part.vocabulary, sizes, part.owners, part.counts
    living = part.alive[part.owners]
    before = np.concatenate([[0], np.cumsum(living)])
    sizes = before[part.starts[1:]] - before[part.starts[:-1]]
    renumbered = (np.cumsum(part.alive) - 1).astype(np.int32)
    occurs = sizes > 0
    return part.vocabulary[occurs], sizes[occurs], renumbered[part.owners[living]], part.counts[living]
