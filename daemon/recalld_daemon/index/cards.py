"""Cards: a few columns about every passage, in memory, so that a ranker need not ask the store a row at a time.

One sorted table, and beside it the order in which passages stand in their sources: a look-up of hundreds is a search
among the ids and a step or two along that order. A change makes a new table and publishes it whole; readers go on with
the one they took. Speakers are numbered as they come, and keep their numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.index.words_segment import rows_of
from recalld_daemon.recall.traits import traits_of
from recalld_daemon.recall.types import Cards, Int32, Int64
from recalld_daemon.recall.words import words_of
from recalld_daemon.store.passage_reads import PassageBatch, PassageFacts

CARD = np.dtype(
    [
        ("id", "<i8"), ("mark", "<i8"), ("written_at", "<f8"), ("source", "<i4"), ("ordinal", "<i4"),
        ("scope", "<i4"), ("speaker", "<i4"), ("words", "<i4"), ("traits", "<u4"),
    ]
)  # fmt: skip
STEPS = np.array([-2, -1, 1, 2])  # places of the neighbours on a card, from its own

Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Table:
    """rows: (n,) CARD by rising id; ids: (n,) the same ids; order: (n,) rows in reading order, source by source;
    position: (n,) where each row stands in that order; first: (n,) where its source begins there."""

    rows: Rows
    ids: Int64
    order: Int32
    position: Int32
    first: Int32

    @classmethod
    def of(cls, rows: Rows) -> Table:
        """Of rows by rising id."""
        n = len(rows)
        key = (rows["source"].astype(np.int64) << 32) | rows["ordinal"].astype(np.int64)
        order = np.argsort(key, kind="stable").astype(np.int32)  # of equal places the earlier id first
        position = np.empty(n, np.int32)
        position[order] = np.arange(n, dtype=np.int32)
        sources = rows["source"][order]
        begins = np.r_[True, sources[1:] != sources[:-1]][:n]
        begun = np.maximum.accumulate(np.where(begins, np.arange(n, dtype=np.int32), 0))
        return cls(rows, np.ascontiguousarray(rows["id"]), order, position, begun[position].astype(np.int32))

    def with_rows(self, rows: Rows) -> Table:
        """With these, by rising id, in the places of those of the same id."""
        at = rows_of(self.ids, rows["id"])
        known = at >= 0
        held = self.rows
        if known.any():
            held = held.copy()
            held[at[known]] = rows[known]
        new = rows[~known]
        if len(new):
            rising = not len(held) or held["id"][-1] < new["id"][0]
            held = np.concatenate([held, new])
            held = held if rising else held[np.argsort(held["id"], kind="stable")]
        return Table.of(held)

    def without(self, ids: Int64) -> Table:
        at = rows_of(self.ids, ids)
        return Table.of(np.delete(self.rows, at[at >= 0])) if (at >= 0).any() else self


class CardTable:
    """A `CardReader`; read by any number of threads while one changes it."""

    def __init__(self) -> None:
        self._table = Table.of(np.empty(0, CARD))
        self._speakers: Mapping[str, int] = MappingProxyType({})
        self._changing = threading.RLock()

    # ------------------------------------------------------------ asking

    def cards(self, ids: Int64) -> Cards:
        """The cards of n passages, in the order asked for."""
        table = self._table
        wanted = np.asarray(ids, np.int64)
        at = rows_of(table.ids, wanted)
        known = at >= 0
        rows = np.zeros(len(wanted), CARD)
        rows[known] = table.rows[at[known]]
        places = np.zeros(len(wanted), np.int64)
        places[known] = table.position[at[known]] - table.first[at[known]]
        return Cards(
            sources=rows["source"].astype(np.int64),
            places=places,
            speakers=rows["speaker"].astype(np.int32),
            written_at=rows["written_at"].astype(np.float64),
            words=rows["words"].astype(np.int32),
            traits=rows["traits"].astype(np.uint32),
            around=_around(table, at, rows["source"]),
        )

    def speakers(self) -> Mapping[str, int]:
        """Names of all speakers, as they are written, and their numbers (from 1)."""
        return self._speakers

    def scopes(self, ids: Int64) -> Int32:
        """(n,) the scope of each passage, 0 where it is unknown."""
        table = self._table
        at = rows_of(table.ids, np.asarray(ids, np.int64))
        found = np.zeros(len(at), np.int32)
        found[at >= 0] = table.rows["scope"][at[at >= 0]]
        return found

    def rows(self) -> Rows:
        """(n,) CARD: all cards by rising id; not to be written to."""
        return self._table.rows

    def __len__(self) -> int:
        return len(self._table.ids)

    @property
    def memory_bytes(self) -> int:
        table = self._table
        return sum(column.nbytes for column in (table.rows, table.ids, table.order, table.position, table.first))

    # ------------------------------------------------------------ changing

    def add(self, batch: PassageBatch) -> None:
        """Learn passages; those already known are replaced."""
        with self._changing:
            rows = np.zeros(len(batch.ids), CARD)
            _place(rows, batch)
            rows["speaker"] = self._numbers_of(batch.speakers)
            rows["words"] = [len(words_of(text)) for text in batch.texts]
            rows["traits"] = [int(traits_of(text)) for text in batch.texts]
            self._table = self._table.with_rows(rows[np.argsort(rows["id"], kind="stable")])

    def place(self, facts: PassageFacts) -> None:
        """Note that passages stand elsewhere, or have another date or scope; unknown ones are left out."""
        with self._changing:
            at = rows_of(self._table.ids, facts.ids)
            rows = self._table.rows[at[at >= 0]]
            _place(rows, facts, at >= 0)
            if (rows != self._table.rows[at[at >= 0]]).any():
                self._table = self._table.with_rows(rows)

    def remove(self, ids: Sequence[int]) -> None:
        """Forget passages; unknown ids are no error."""
        with self._changing:
            self._table = self._table.without(np.asarray(ids, np.int64))

    def drop_speakers(self) -> None:
        """Forget the names of speakers who have no passage any more; their numbers are nobody's."""
        with self._changing:
            used = set(np.unique(self._table.rows["speaker"]).tolist())
            kept = {name: number for name, number in self._speakers.items() if number in used}
            self._speakers = MappingProxyType(kept)

    def speakers_by_number(self) -> list[str]:
        """For `restore`; "" where a number is nobody's."""
        names = {number: name for name, number in self._speakers.items()}
        return [names.get(number, "") for number in range(1, max(names, default=0) + 1)]

    def restore(self, rows: Rows, speakers: Iterable[str]) -> None:
        """Take over a saved state; speakers in the order of their numbers."""
        with self._changing:
            self._speakers = MappingProxyType({name: number for number, name in enumerate(speakers, 1) if name})
            self._table = Table.of(rows)

    def _numbers_of(self, names: Sequence[str]) -> list[int]:
        known = dict(self._speakers)
        for name in names:
            if name and name not in known:
                known[name] = max(known.values(), default=0) + 1
        if len(known) > len(self._speakers):
            self._speakers = MappingProxyType(known)
        return [known[name] if name else 0 for name in names]


def _place(rows: Rows, facts: PassageFacts, kept: NDArray[np.bool_] | slice = slice(None)) -> None:
    """Write what facts say into rows."""
    rows["id"], rows["mark"], rows["written_at"] = facts.ids[kept], facts.marks[kept], facts.written_at[kept]
    rows["source"], rows["ordinal"], rows["scope"] = facts.sources[kept], facts.ordinals[kept], facts.scopes[kept]


def _around(table: Table, at: Int64, sources: Int32) -> Int64:
    """(n, 4) ids of the neighbours of rows `at` (-1: none), which lie in `sources`."""
    n = len(table.ids)
    if not n:
        return np.zeros((len(at), 4), np.int64)
    places = table.position[at][:, None] + STEPS  # (n, 4)
    inside = (places >= 0) & (places < n) & (at >= 0)[:, None]
    beside = table.order[np.where(inside, places, 0)]
    same = inside & (table.rows["source"][beside] == sources[:, None])
    return np.where(same, table.ids[beside], 0)
