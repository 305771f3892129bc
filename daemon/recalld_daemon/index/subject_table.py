"""Subjects in memory: their names, the vectors of those, and which passages have them.

Only subjects of two passages or more are here: one alone leads nowhere that its own words do not lead. Names are looked
up by the words of a text, one to three at a time, folded as they were when they were kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from recalld_daemon.extract.subjects import fold
from recalld_daemon.index.scope_index import ROW, ScopeIndex
from recalld_daemon.recall.types import Float32, Float64, Int64, View
from recalld_daemon.recall.words import identifiers_of, stem, weight_of, words_of
from recalld_daemon.store.extraction_reads import LinkRows, SubjectRow

NAME_WORDS = 3  # of a name at most, as looked up in a text
COMMON_STEM = 0.6  # a file's stem that is an ordinary word ("config", "main") does not name the file
MOST_NAMED = 16  # subjects of one text

_INTS, _FLOATS = np.empty(0, np.int64), np.empty(0, np.float64)


@dataclass(frozen=True, slots=True)
class Links:
    """(n,) columns by rising subject, then passage; order: the rows by passage; by_passage: passages[order]."""

    passages: Int64
    subjects: Int64
    scopes: Int64
    written_at: Float64
    order: Int64
    by_passage: Int64

    @classmethod
    def of(cls, passages: Int64, subjects: Int64, scopes: Int64, written_at: Float64) -> Links:
        """Of columns in any order; a link that stands there twice is kept once."""
        rising = np.lexsort((passages, subjects))
        passages, subjects = passages[rising], subjects[rising]
        once = np.r_[True, (passages[1:] != passages[:-1]) | (subjects[1:] != subjects[:-1])][: len(rising)]
        rising, passages, subjects = rising[once], passages[once], subjects[once]
        order = np.argsort(passages, kind="stable")
        return cls(passages, subjects, scopes[rising], written_at[rising], order, passages[order])

    def rows_of_subject(self, subject: int) -> slice:
        first, last = np.searchsorted(self.subjects, [subject, subject + 1])
        return slice(int(first), int(last))

    def subjects_of(self, passages: Int64) -> tuple[Int64, Int64]:
        """The subjects of n passages, and for each which of those it belongs to."""
        first = np.searchsorted(self.by_passage, passages, "left")
        counts = np.searchsorted(self.by_passage, passages, "right") - first
        owners = np.repeat(np.arange(len(passages)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.subjects[self.order[np.repeat(first, counts) + within]], owners

    def seen(self, rows: slice, view: View) -> Int64:
        """The passages of these rows that are within a view."""
        allowed = np.ones(rows.stop - rows.start, np.bool_)
        if view.scopes is not None:
            allowed &= np.isin(self.scopes[rows], view.scopes)
        if view.as_of is not None:
            allowed &= self.written_at[rows] < view.as_of
        return self.passages[rows][allowed]


class SubjectTable:
    """Read by any number of threads while one changes it."""

    def __init__(self) -> None:
        self.links = Links.of(_INTS, _INTS, _INTS, _FLOATS)
        self._rows: dict[int, SubjectRow] = {}
        self._by_name: dict[str, tuple[int, ...]] = {}
        self._vectors: ScopeIndex | None = None
        self._embedded: set[int] = set()
        self._changing = threading.RLock()

    def __len__(self) -> int:
        return len(self._rows)

    # ------------------------------------------------------------ asking

    def named(self, text: str) -> list[int]:
        """Ids of the subjects a text names, by any of their names; longer names take the words of shorter ones."""
        found: dict[int, None] = {}
        for identifier in identifiers_of(text):
            if len(identifier) > 2:
                found.update(dict.fromkeys(self._by_name.get(fold(identifier), ())))
        words = [stem(word) for word in words_of(text)]
        at = 0
        while at < len(words) and len(found) < MOST_NAMED:
            for length in range(min(NAME_WORDS, len(words) - at), 0, -1):
                ids = self._by_name.get(" ".join(words[at : at + length]), ())
                if ids:
                    found.update(dict.fromkeys(ids))
                    at += length - 1
                    break
            at += 1
        return list(found)[:MOST_NAMED]

    def near(self, vector: Float32, limit: int) -> tuple[Int64, Float32]:
        """The subjects whose names are nearest to a unit vector (d,): ids and cosines, best first."""
        if self._vectors is None:
            return _INTS, np.empty(0, np.float32)
        return self._vectors.search(vector, limit, None)

    def row(self, id: int) -> SubjectRow | None:
        return self._rows.get(id)

    def unknown(self, ids: Iterable[int]) -> list[int]:
        return [id for id in dict.fromkeys(ids) if id not in self._rows]

    @property
    def memory_bytes(self) -> int:
        """Of the columns and vectors; names take some 200 bytes each beside."""
        links = self.links
        columns = (links.passages, links.subjects, links.scopes, links.written_at, links.order, links.by_passage)
        vectors = 0 if self._vectors is None else self._vectors.memory_bytes
        return sum(column.nbytes for column in columns) + vectors + 200 * len(self._rows)

    # ------------------------------------------------------------ changing

    def add(self, subjects: Sequence[SubjectRow], links: Sequence[LinkRows]) -> None:
        """Learn subjects, or their new names, and links."""
        with self._changing:
            for subject in subjects:
                self._forget_names(subject.id)
                self._rows[subject.id] = subject
                for name in _usable(subject):
                    self._by_name[name] = (*self._by_name.get(name, ()), subject.id)
            old = self.links
            self.links = Links.of(
                np.concatenate([old.passages, *(rows.passages for rows in links)]),
                np.concatenate([old.subjects, *(rows.subjects for rows in links)]),
                np.concatenate([old.scopes, *(rows.scopes for rows in links)]),
                np.concatenate([old.written_at, *(rows.written_at for rows in links)]),
            )

    def add_vectors(self, vectors: Sequence[tuple[int, Float32]]) -> None:
        """Learn the vectors (d,) of the names of subjects; those of a subject that has one are left aside."""
        with self._changing:
            here = [(id, vector) for id, vector in vectors if id in self._rows and id not in self._embedded]
            if not here:
                return
            self._embedded.update(id for id, _ in here)
            rows = np.zeros(len(here), ROW)
            rows["id"] = [id for id, _ in here]
            before = self._vectors or ScopeIndex.empty(len(here[0][1]))
            self._vectors = before.with_rows(rows, np.stack([vector for _, vector in here]))

    def remove(self, passages: Sequence[int]) -> None:
        """Forget the links of these passages, and subjects that have none left."""
        with self._changing:
            old = self.links
            kept = ~np.isin(old.passages, np.asarray(passages, np.int64))
            loosened = np.unique(old.subjects[~kept])
            self.links = Links.of(old.passages[kept], old.subjects[kept], old.scopes[kept], old.written_at[kept])
            gone = np.setdiff1d(loosened, self.links.subjects)
            for id in gone.tolist():
                self._forget_names(id)
                self._rows.pop(id, None)
                self._embedded.discard(id)
            if self._vectors is not None and len(gone):
                self._vectors = self._vectors.without(gone)

    def drop_vectors(self) -> None:
        """Another encoder: what it will make is not to be compared with what is here."""
        self._vectors, self._embedded = None, set()

    def _forget_names(self, id: int) -> None:
        before = self._rows.get(id)
        for name in () if before is None else _usable(before):
            left = tuple(other for other in self._by_name.get(name, ()) if other != id)
            if left:
                self._by_name[name] = left
            else:
                self._by_name.pop(name, None)


def _usable(subject: SubjectRow) -> list[str]:
    """The names by which a text may mean a subject."""
    names = [name for name in dict.fromkeys(subject.names) if len(name) > 1]
    if subject.kind == "path":
        return [name for name in names if not name.isalpha() or weight_of(name) >= COMMON_STEM]
    return names
