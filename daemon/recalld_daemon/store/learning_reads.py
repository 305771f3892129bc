"""Reads of what learning needs and made: judged impressions, plain vectors, versions, artefacts, states, cycles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from recalld_daemon.recall.types import Float32, Int64
from recalld_daemon.store.reads import Reads
from recalld_daemon.store.rows import FROZEN, Artefact, CycleRecord, JudgedRecord, StateRecord, Use, VersionRecord

_JUDGED = """SELECT i.id, i.recall, i.session, coalesce(s.scope, 1), r.query, r.at, i.passage, i.rank, i.probability,
    i.outcome, i.propensity, i.shown_at,
    (SELECT group_concat(verdict)
      FROM (SELECT verdict FROM feedback WHERE impression = i.id GROUP BY verdict ORDER BY max(id))),
    coalesce((SELECT max(at) FROM feedback WHERE impression = i.id), 0.0)
    FROM impressions i JOIN recalls r ON r.id = i.recall LEFT JOIN sessions s ON s.id = r.session
    WHERE {where} ORDER BY i.shown_at, i.id"""
_BESIDE = """SELECT DISTINCT o.passage FROM passage_subjects m JOIN subjects s ON s.id = m.subject AND s.shared = 1
    JOIN passage_subjects o ON o.subject = m.subject JOIN passages p ON p.id = o.passage
    WHERE m.passage = ? AND o.passage <> m.passage AND p.scope IN (SELECT value FROM json_each(?))
    ORDER BY o.passage DESC LIMIT ?"""
_USES = """SELECT i.passage, min(f.at), i.rank, i.propensity, i.outcome FROM feedback f
    JOIN impressions i ON i.id = f.impression WHERE f.at > ? AND f.verdict IN ('good', 'used', 'acted')
    AND coalesce((SELECT e.verdict FROM feedback e WHERE e.impression = i.id AND e.verdict IN ('good', 'bad')
      ORDER BY e.id DESC LIMIT 1), iif(i.outcome = 'withheld', 'bad', 'good')) = 'good'
    GROUP BY i.id"""
_LESSONS_AFTER = """SELECT impression FROM feedback WHERE at >= ? AND verdict IN ('good', 'used', 'acted')
    GROUP BY impression ORDER BY max(at) DESC LIMIT ?"""
_VERSION = """SELECT n.encoder, n.version, n.created_at, n.live, n.vectors, n.state, n.why, n.metrics, n.drift,
    (SELECT coalesce(sum(length(data)), 0) FROM artefacts a WHERE a.encoder = n.encoder AND a.version = n.version) +
    iif(n.version > 0, (SELECT coalesce(sum(length(vector)), 0) FROM vectors v
      WHERE v.encoder = n.encoder AND v.snapshot = n.version), 0)
    FROM snapshots n WHERE n.encoder = ? AND {which} ORDER BY n.version"""
_WALK = """SELECT hash, vector FROM vectors INDEXED BY vectors_hash
    WHERE hash > ? AND encoder = ? AND snapshot = ? ORDER BY hash LIMIT ?"""
_NOT_IN = f"""FROM vectors v INDEXED BY vectors_hash WHERE v.hash > ? AND v.encoder = ? AND v.snapshot = {FROZEN}
    AND NOT EXISTS (SELECT 1 FROM vectors o WHERE o.hash = v.hash AND o.encoder = v.encoder AND o.snapshot = ?)"""
# The walk stays within the index of hashes (a tenth of a second at 166,000): the rows are read of those found only.
_UNPROJECTED = f"""SELECT f.hash, f.vector FROM (SELECT v.rowid AS id {_NOT_IN} ORDER BY v.hash LIMIT ?) m
    CROSS JOIN vectors f ON f.rowid = m.id ORDER BY f.hash"""
_PER_STATEMENT = 500


class LearningReads(Reads):
    """The part of the reader that knows what is learned, and from what."""

    def judged(self, since: float = 0.0) -> list[JudgedRecord]:
        """Every impression shown, withheld or asked about since then, with its verdicts, oldest first."""
        rows = self._all(_JUDGED.format(where="i.shown_at >= ?"), (since,))
        return [_judged_of(row) for row in rows]

    def judged_of(self, recall: str) -> list[JudgedRecord]:
        """Those of one recall."""
        return [_judged_of(row) for row in self._all(_JUDGED.format(where="i.recall = ?"), (recall,))]

    def judged_asking(self, query: str) -> list[JudgedRecord]:
        """Those with a verdict, of all recalls with this query's text."""
        where = "r.query = ? AND EXISTS (SELECT 1 FROM feedback f WHERE f.impression = i.id)"
        return [_judged_of(row) for row in self._all(_JUDGED.format(where=where), (query,))]

    def helped_after(self, at: float, limit: int) -> list[str]:
        """Impressions that were said or seen to help from then on, oldest first; of more than `limit` the newest."""
        return [str(row[0]) for row in self._all(_LESSONS_AFTER, (at, limit))][::-1]

    def uses(self, since: float) -> list[Use]:
        """Every use since then: one for each impression that helped, as `evaluation.questions.label_of` says it."""
        return [Use(*row) for row in self._all(_USES, (since,))]

    def passages_beside(self, passage: int, scopes: Sequence[int], limit: int) -> list[int]:
        """Others within these scopes that have a subject in common with a passage, newest first."""
        marks = json.dumps([int(scope) for scope in scopes])
        return [int(row[0]) for row in self._all(_BESIDE, (passage, marks, limit))]

    def plain_vectors(self, ids: Sequence[int], encoder: int, snapshot: int = 0) -> tuple[Int64, Float32]:
        """(ids, (n, d) float32) of the passages that have vectors in this snapshot; in no order."""
        found: list[tuple[int, bytes]] = []
        distinct = list(dict.fromkeys(map(int, ids)))
        for at in range(0, len(distinct), _PER_STATEMENT):
            batch = distinct[at : at + _PER_STATEMENT]
            marks = ",".join("?" * len(batch))
            sql = f"""SELECT p.id, v.vector FROM passages p INDEXED BY passages_seen
                CROSS JOIN vectors v ON v.hash = p.hash
                WHERE v.encoder = ? AND v.snapshot = ? AND p.id IN ({marks})"""
            found += self._all(sql, (encoder, snapshot, *batch))
        return np.array([id for id, _ in found], np.int64), rows_of([vector for _, vector in found])

    def walk_vectors(
        self, encoder: int, snapshot: int = 0, size: int = 4_096, after: bytes = b""
    ) -> Iterator[tuple[list[bytes], Float32]]:
        """(hashes, (n, d) float32) of everything that has a vector, facts and names too, by rising hash."""
        while rows := self._all(_WALK, (after, encoder, snapshot, size)):
            after = rows[-1][0]
            yield [hash for hash, _ in rows], rows_of([vector for _, vector in rows])

    def count_vectors(self, encoder: int, snapshot: int = 0) -> int:
        sql = "SELECT count(*) FROM vectors INDEXED BY vectors_snapshot WHERE encoder = ? AND snapshot = ?"
        return int(self._all(sql, (encoder, snapshot))[0][0])

    def unprojected(
        self, encoder: int, snapshot: int, limit: int, after: bytes = b""
    ) -> tuple[list[bytes], Float32]:  # fmt: skip
        """(hashes, (n, d) float32 frozen vectors) of texts that this snapshot has no vectors of yet.

        By rising hash, those above `after`: to go on where the last call ended, rather than walk it all again.
        """
        rows = self._all(_UNPROJECTED, (after, encoder, snapshot, limit))
        return [hash for hash, _ in rows], rows_of([vector for _, vector in rows])

    def count_unprojected(self, encoder: int, snapshot: int) -> int:
        return int(self._all(f"SELECT count(*) {_NOT_IN}", (b"", encoder, snapshot))[0][0])

    def versions(self, encoder: int) -> list[VersionRecord]:
        """All of an encoder's, oldest first; 0 is the frozen one."""
        return [_version_of(encoder, row) for row in self._all(_VERSION.format(which="1"), (encoder,))]

    def version(self, encoder: int, version: int) -> VersionRecord | None:
        rows = self._all(_VERSION.format(which="n.version = ?"), (encoder, version))
        return _version_of(encoder, rows[0]) if rows else None

    def version_numbers(self) -> set[tuple[int, int]]:
        """(encoder, version) of all there are, finished or not."""
        return {(int(row[0]), int(row[1])) for row in self._all("SELECT encoder, version FROM snapshots")}

    def artefact(self, encoder: int, version: int, name: Artefact) -> tuple[str, bytes] | None:
        """(key, data), where the version has one of this name."""
        sql = "SELECT key, data FROM artefacts WHERE encoder = ? AND version = ? AND name = ?"
        rows = self._all(sql, (encoder, version, name))
        return (str(rows[0][0]), bytes(rows[0][1])) if rows else None

    def learning_state(self, name: str, encoder: int) -> StateRecord | None:
        sql = "SELECT name, encoder, key, data, at FROM learning_states WHERE name = ? AND encoder = ?"
        rows = self._all(sql, (name, encoder))
        return StateRecord(*rows[0]) if rows else None

    def cycles(self, limit: int = 20) -> list[CycleRecord]:
        """The sleep cycles, newest first."""
        sql = """SELECT id, encoder, began_at, ended_at, phase, key, version, report FROM cycles
            ORDER BY id DESC LIMIT ?"""
        return [CycleRecord(*row) for row in self._all(sql, (limit,))]


def _judged_of(row: Any) -> JudgedRecord:
    verdicts = tuple(str(row[-2]).split(",")) if row[-2] else ()
    fields: list[Any] = [*row[:-2], verdicts, row[-1]]
    return JudgedRecord(*fields)


def _version_of(encoder: int, row: Any) -> VersionRecord:
    _, version, at, live, *rest = row
    return VersionRecord(encoder, version, at, bool(live), *rest)


def rows_of(vectors: Sequence[bytes]) -> Float32:
    """(n, d) float32 of n float16 vectors as bytes; (0, 0) of none."""
    rows = np.frombuffer(b"".join(vectors), "<f2").reshape(len(vectors), -1 if vectors else 0)
    return rows.astype(np.float32)
