"""Reads of what was extracted, for tables in memory: facts, links to subjects, times; of some passages or of all.

Each answer is in columns and says of every row whose passage it is; what is gone meanwhile is left out. Long walks go
in batches, so that no read keeps the log from being cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import Float32, Float64, Grain, Int64
from recalld_daemon.store.reads import Reads

WALK = 1_000  # passages per read of a walk over all of them

_OF = "p.id IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class FactRows:
    """n facts by rising id. ids, passages, scopes: (n,) int64; written_at: (n,) float64, its passage's, epoch s."""

    ids: Int64
    passages: Int64
    scopes: Int64
    written_at: Float64
    hashes: Sequence[bytes]
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class LinkRows:
    """n links between a passage and one of its subjects. All (n,); written_at: epoch seconds."""

    passages: Int64
    subjects: Int64
    scopes: Int64
    written_at: Float64


@dataclass(frozen=True, slots=True)
class WhenRows:
    """n times that passages speak of. passages, scopes: (n,) int64; start, end, written_at: (n,) epoch seconds."""

    passages: Int64
    scopes: Int64
    written_at: Float64
    starts: Float64
    ends: Float64
    grains: Sequence[Grain]


@dataclass(frozen=True, slots=True)
class MomentRows:
    """n passages by rising id: (n,) ids, scopes, written_at in epoch seconds."""

    ids: Int64
    scopes: Int64
    written_at: Float64


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """names: all folded ones, its own first."""

    id: int
    kind: str
    name: str
    names: tuple[str, ...]
    hash: bytes


@dataclass(frozen=True, slots=True)
class LineVectors:
    """n facts or subjects with the vectors of their texts: (n,) ids, scopes, written_at (epoch s); vectors (n, d)."""

    ids: Int64
    scopes: Int64
    written_at: Float64
    vectors: Float32


class ExtractionReads(Reads):
    """The part of the reader that knows what was extracted."""

    def facts_of(self, passages: Sequence[int]) -> FactRows:
        sql = f"""SELECT f.id, f.passage, p.scope, p.written_at, f.hash, f.text
            FROM passages p CROSS JOIN facts f ON f.passage = p.id WHERE {_OF} ORDER BY f.id"""
        columns = _columns(self._all(sql, (_marks(passages),)), 6)
        return FactRows(
            _ints(columns[0]), _ints(columns[1]), _ints(columns[2]), _floats(columns[3]), columns[4], columns[5]
        )

    def links_of(self, passages: Sequence[int]) -> LinkRows:
        """Links of passages to subjects that some other passage has as well."""
        return self._links(
            f"""SELECT l.passage, l.subject, p.scope, p.written_at
            FROM passages p CROSS JOIN passage_subjects l ON l.passage = p.id
            CROSS JOIN subjects s ON s.id = l.subject AND s.shared = 1 WHERE {_OF} ORDER BY 1, 2""",
            passages,
        )

    def links_to(self, subjects: Sequence[int]) -> LinkRows:
        """Links of all passages to these subjects."""
        return self._links(
            """SELECT l.passage, l.subject, p.scope, p.written_at
            FROM passage_subjects l CROSS JOIN passages p INDEXED BY passages_seen ON p.id = l.passage
            WHERE l.subject IN (SELECT value FROM json_each(?)) ORDER BY 1, 2""",
            subjects,
        )

    def _links(self, sql: str, ids: Sequence[int]) -> LinkRows:
        columns = _columns(self._all(sql, (_marks(ids),)), 4)
        return LinkRows(_ints(columns[0]), _ints(columns[1]), _ints(columns[2]), _floats(columns[3]))

    def whens_of(self, passages: Sequence[int]) -> WhenRows:
        sql = f"""SELECT w.passage, p.scope, p.written_at, w.start, w."end", w.grain
            FROM passages p CROSS JOIN passage_whens w ON w.passage = p.id WHERE {_OF} ORDER BY 1, 4"""
        columns = _columns(self._all(sql, (_marks(passages),)), 6)
        dates, starts, ends = map(_floats, columns[2:5])
        return WhenRows(_ints(columns[0]), _ints(columns[1]), dates, starts, ends, columns[5])

    def moments_of(self, passages: Sequence[int]) -> MomentRows:
        sql = (
            f"""SELECT p.id, p.scope, p.written_at FROM passages p INDEXED BY passages_seen WHERE {_OF} ORDER BY p.id"""
        )
        columns = _columns(self._all(sql, (_marks(passages),)), 3)
        return MomentRows(_ints(columns[0]), _ints(columns[1]), _floats(columns[2]))

    def subjects_of(self, ids: Sequence[int]) -> list[SubjectRow]:
        """Subjects by their ids, as far as they exist."""
        marks = (_marks(ids),)
        rows = self._all(f"SELECT p.id, p.kind, p.name, p.key, p.hash FROM subjects p WHERE {_OF} ORDER BY p.id", marks)
        sql = "SELECT subject, alias FROM subject_aliases WHERE subject IN (SELECT value FROM json_each(?))"
        aliases: dict[int, list[str]] = {}
        for id, alias in self._all(sql, marks):
            aliases.setdefault(id, []).append(alias)
        return [
            SubjectRow(id, kind, name, (key.partition(":")[2], *aliases.get(id, ())), hash)
            for id, kind, name, key, hash in rows
        ]

    def lines_of(self, hashes: Sequence[bytes]) -> tuple[FactRows, list[SubjectRow]]:
        """The facts and the subjects whose texts have these hashes."""
        marks = ",".join("?" * len(hashes))
        passages = self._all(f"SELECT DISTINCT passage FROM facts WHERE hash IN ({marks})", list(hashes))
        subjects = self._all(f"SELECT id FROM subjects WHERE shared = 1 AND hash IN ({marks})", list(hashes))
        return self.facts_of([row[0] for row in passages]), self.subjects_of([row[0] for row in subjects])

    def walk_passages(self) -> Iterator[list[int]]:
        """The ids of all passages, rising, some thousands at a time."""
        last = 0
        sql = "SELECT id FROM passages WHERE id > ? ORDER BY id LIMIT ?"
        while batch := [int(row[0]) for row in self._all(sql, (last, WALK))]:
            yield batch
            last = batch[-1]

    def line_vectors(self, hashes: Sequence[bytes], encoder: int, snapshot: int) -> dict[bytes, Float32]:
        """hash -> (d,) float32 vector of a fact or a subject's name, of those that have one."""
        found: dict[bytes, Float32] = {}
        distinct = list(dict.fromkeys(hashes))
        for at in range(0, len(distinct), 500):
            batch = distinct[at : at + 500]
            sql = f"""SELECT hash, vector FROM vectors
                WHERE hash IN ({",".join("?" * len(batch))}) AND encoder = ? AND snapshot = ?"""
            found.update(
                (hash, np.frombuffer(vector, "<f2").astype(np.float32))
                for hash, vector in self._all(sql, (*batch, encoder, snapshot))
            )
        return found

    def walk_fact_vectors(self, encoder: int, snapshot: int, size: int) -> Iterator[LineVectors]:
        """All facts that have vectors in this snapshot, by rising id, `size` at a time, each batch one read."""
        sql = """SELECT f.id, p.scope, p.written_at, v.vector FROM facts f
            CROSS JOIN passages p INDEXED BY passages_seen ON p.id = f.passage
            CROSS JOIN vectors v ON v.hash = f.hash AND v.encoder = ? AND v.snapshot = ?
            WHERE f.id > ? ORDER BY f.id LIMIT ?"""
        yield from self._walk_lines(sql, encoder, snapshot, size)

    def walk_name_vectors(self, encoder: int, snapshot: int, size: int) -> Iterator[LineVectors]:
        """All subjects of several passages whose names have vectors in this snapshot, likewise; scopes, dates: 0."""
        sql = """SELECT s.id, 0, 0.0, v.vector FROM subjects s INDEXED BY subjects_shared
            CROSS JOIN vectors v ON v.hash = s.hash AND v.encoder = ? AND v.snapshot = ?
            WHERE s.shared = 1 AND s.id > ? ORDER BY s.id LIMIT ?"""
        yield from self._walk_lines(sql, encoder, snapshot, size)

    def _walk_lines(self, sql: str, encoder: int, snapshot: int, size: int) -> Iterator[LineVectors]:
        last = 0
        while rows := self._all(sql, (encoder, snapshot, last, size)):
            last = rows[-1][0]
            columns = _columns(rows, 4)
            vectors = np.frombuffer(b"".join(columns[3]), "<f2").reshape(len(rows), -1).astype(np.float32)
            yield LineVectors(_ints(columns[0]), _ints(columns[1]), _floats(columns[2]), vectors)


def _marks(ids: Sequence[int]) -> str:
    return json.dumps([int(id) for id in ids])


def _columns(rows: Sequence[Any], width: int) -> list[Any]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _ints(column: Sequence[Any]) -> Int64:
    return np.array(column, dtype=np.int64)


def _floats(column: Sequence[Any]) -> NDArray[np.float64]:
    return np.array(column, dtype=np.float64)
