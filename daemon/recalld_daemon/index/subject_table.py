"""Subjects in memory: their names, the vectors of those, and which passages have them.

Only subjects of two passages or more are here: one alone leads nowhere that its own words do not lead. Names are looked
up by the words of a text, one to three at a time, folded as they were when they were kept. Two tables may know the same
subjects by the vectors of two spaces, while one takes the other's place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.extract.subjects import fold
from recalld_daemon.index.scope_index import ROW, ScopeIndex
from recalld_daemon.recall.types import Float32, Float64, Int64, View
from recalld_daemon.recall.words import identifiers_of, stem, weight_of, words_of
from recalld_daemon.store.extraction_reads import LinkRows, SubjectRow

NAME_WORDS = 3  # of a name at most, as looked up in a text
COMMON_STEM = 0.6  # a file's stem that is an ordinary word ("config", "main") does not name the file
MOST_NAMED = 16  # subjects of one text

_LOW = np.int64(0xFFFF_FFFF)
_INTS, _FLOATS = np.empty(0, np.int64), np.empty(0, np.float64)


@dataclass(frozen=True, slots=True)
class Links:
    """n links, as two rising columns of pairs in one number each, so that a change is an insertion and never a sort.

    keys: (n,) subject * 2^32 + passage; scopes, written_at: (n,) of the passages, in the order of keys;
    by_passage: (n,) passage * 2^32 + subject.
    """

    keys: Int64
    scopes: Int64
    written_at: Float64
    by_passage: Int64

    @property
    def passages(self) -> Int64:
        return self.keys & _LOW

    @property
    def subjects(self) -> Int64:
        return self.keys >> 32

    def rows_of_subject(self, subject: int) -> slice:
        first, last = np.searchsorted(self.keys, [subject << 32, (subject + 1) << 32])
        return slice(int(first), int(last))

    def subjects_of(self, passages: Int64) -> tuple[Int64, Int64]:
        """The subjects of n passages, and for each which of those it belongs to."""
        first = np.searchsorted(self.by_passage, passages << 32)
        counts = np.searchsorted(self.by_passage, (passages + 1) << 32) - first
        owners = np.repeat(np.arange(len(passages)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.by_passage[np.repeat(first, counts) + within] & _LOW, owners

    def seen(self, rows: slice, view: View) -> Int64:
        """The passages of these rows that are within a view."""
        passages = self.keys[rows] & _LOW
        if view.scopes is None and view.as_of is None:
            return passages
        allowed = np.ones(len(passages), np.bool_)
        if view.scopes is not None:
            allowed &= np.logical_or.reduce([self.scopes[rows] == scope for scope in view.scopes])
        if view.as_of is not None:
            allowed &= self.written_at[rows] < view.as_of
        return passages[allowed]

    def with_links(self, rows: LinkRows) -> Links:
        """With these too; those that are here already, or stand there twice, count once."""
        keys, once = np.unique((rows.subjects << 32) | rows.passages, return_index=True)
        new = ~_is_in(keys, self.keys)
        keys, once = keys[new], once[new]
        at = np.searchsorted(self.keys, keys)
        by_passage = np.sort((keys & _LOW) << 32 | keys >> 32)
        return Links(
            np.insert(self.keys, at, keys),
            np.insert(self.scopes, at, rows.scopes[once]),
            np.insert(self.written_at, at, rows.written_at[once]),
            np.insert(self.by_passage, np.searchsorted(self.by_passage, by_passage), by_passage),
        )

    def without(self, passages: Int64) -> Links:
        """Without any of these (distinct) passages."""
        subjects, owners = self.subjects_of(passages)
        if not len(subjects):
            return self
        own = passages[owners]
        at = np.searchsorted(self.keys, subjects << 32 | own)
        return Links(
            np.delete(self.keys, at),
            np.delete(self.scopes, at),
            np.delete(self.written_at, at),
            np.delete(self.by_passage, np.searchsorted(self.by_passage, own << 32 | subjects)),
        )


def _is_in(wanted: Int64, held: Int64) -> NDArray[np.bool_]:
    """(n,) which of some numbers are among others, rising ones."""
    if not len(held):
        return np.zeros(len(wanted), np.bool_)
    found: NDArray[np.bool_] = held[np.minimum(np.searchsorted(held, wanted), len(held) - 1)] == wanted
    return found


class _Known:
    """What all spaces have in common."""

    def __init__(self) -> None:
        self.links = Links(_INTS, _INTS, _FLOATS, _INTS)
        self.rows: dict[int, SubjectRow] = {}
        self.by_name: dict[str, tuple[int, ...]] = {}
        self.changing = threading.RLock()
        self.tables: list[SubjectTable] = []  # one per space


class SubjectTable:
    """Read by any number of threads while one changes it."""

    def __init__(self, known: _Known | None = None) -> None:
        self._known = known or _Known()
        self._rows, self._by_name = self._known.rows, self._known.by_name
        self._changing = self._known.changing
        self._vectors: ScopeIndex | None = None
        self._embedded: set[int] = set()
        self._known.tables.append(self)

    def beside(self) -> SubjectTable:
        """The same subjects in another space: without vectors yet, and equal to this one in all else from now on."""
        return SubjectTable(self._known)

    def retire(self) -> None:
        """It is not kept any more: the one beside it is. Searches under way may end."""
        if self in self._known.tables:
            self._known.tables.remove(self)

    @property
    def links(self) -> Links:
        return self._known.links

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
        columns = (links.keys, links.scopes, links.written_at, links.by_passage)
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
            for rows in links:
                self._known.links = self.links.with_links(rows)

    def add_vectors(self, vectors: Sequence[tuple[int, Float32]]) -> None:
        """Learn the vectors (d,) of the names of subjects; those of a subject that has one are left aside."""
        if vectors:
            self.add_lines([id for id, _ in vectors], np.stack([vector for _, vector in vectors]))

    def add_lines(self, ids: Sequence[int], vectors: Float32) -> None:
        """The same, vectors (n, d), many at once."""
        with self._changing:
            here = [n for n, id in enumerate(ids) if id in self._rows and id not in self._embedded]
            if not here:
                return
            rows = np.zeros(len(here), ROW)
            rows["id"] = [ids[n] for n in here]
            self._embedded.update(rows["id"].tolist())
            before = self._vectors or ScopeIndex.empty(vectors.shape[1])
            self._vectors = before.with_rows(rows, vectors[here])

    def remove(self, passages: Sequence[int]) -> None:
        """Forget the links of these passages, and subjects that have none left."""
        with self._changing:
            ids = np.unique(np.asarray(passages, np.int64))
            loosened = np.unique(self.links.subjects_of(ids)[0])
            if not len(loosened):
                return
            self._known.links = self.links.without(ids)
            first = np.searchsorted(self.links.keys, loosened << 32)
            gone = loosened[first == np.searchsorted(self.links.keys, (loosened + 1) << 32)]
            for id in gone.tolist():
                self._forget_names(id)
                self._rows.pop(id, None)
            for table in self._known.tables if len(gone) else ():
                table._drop(gone)

    def drop_vectors(self) -> None:
        """Another encoder: what it will make is not to be compared with what is here."""
        self._vectors, self._embedded = None, set()

    def _drop(self, gone: Int64) -> None:
        self._embedded.difference_update(gone.tolist())
        if self._vectors is not None:
            self._vectors = self._vectors.without(gone)

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
