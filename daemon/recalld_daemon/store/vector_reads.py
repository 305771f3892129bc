"""Reads of vectors: what is still to be embedded, what an index needs to learn, and a walk over all of it.

A snapshot of re-projected vectors has no token vectors of its own: no adapter touches them, so they are read from the
frozen snapshot of the same encoder. A passage is in it once it has both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import Int64
from recalld_daemon.store.reads import Reads
from recalld_daemon.store.rows import FROZEN, Encoded, EncoderRecord, VectorBatch
from recalld_daemon.store.texts import embedded_text, text_offset

_BATCH = """SELECT p.id, p.scope, p.written_at, p.hash, p.heading, p.speaker, p.dated,
    v.vector, v.tokens, v.starts, v.ends
    FROM passages p CROSS JOIN vectors v ON v.hash = p.hash WHERE v.encoder = ? AND v.snapshot = ? AND """
_BATCH_PROJECTED = f"""SELECT p.id, p.scope, p.written_at, p.hash, p.heading, p.speaker, p.dated,
    v.vector, t.tokens, t.starts, t.ends
    FROM passages p CROSS JOIN vectors v ON v.hash = p.hash
    CROSS JOIN vectors t ON t.hash = p.hash AND t.encoder = v.encoder AND t.snapshot = {FROZEN}
    WHERE v.encoder = ? AND v.snapshot = ? AND """
_ENCODED = "EXISTS (SELECT 1 FROM vectors v WHERE v.hash = p.hash AND v.encoder = ? AND v.snapshot = ?)"
_WITH_TOKENS = f"""EXISTS (SELECT 1 FROM vectors v WHERE v.hash = p.hash AND v.encoder = ? AND v.snapshot = ?)
    AND EXISTS (SELECT 1 FROM vectors t WHERE t.hash = p.hash AND t.encoder = ? AND t.snapshot = {FROZEN})"""
_PASSAGES = "passages p INDEXED BY passages_seen"
_FACTS = "facts p"
_PER_STATEMENT = 500


class VectorReads(Reads):
    """The part of the reader that knows vectors."""

    _frontiers: dict[tuple[str, int, int], tuple[int, int]]

    def missing_vectors(self, encoder: int, snapshot: int, limit: int) -> list[tuple[bytes, str]]:
        """(hash, embedded text) of what has no vectors yet, each hash once: passages, then facts, then names of
        subjects; the newest of each first.
        """
        passages = self._missing_passages(encoder, snapshot, limit)
        return passages + self._missing_lines(encoder, snapshot, limit - len(passages))

    def _missing_passages(self, encoder: int, snapshot: int, limit: int) -> list[tuple[bytes, str]]:
        found = self._missing(encoder, snapshot, limit)
        with self._pool.lend() as db:
            marks = ",".join("?" * len(found))
            sql = f"SELECT id, heading, speaker, text, iif(dated, written_at, NULL) FROM passages WHERE id IN ({marks})"
            texts = {id: embedded_text(*fields) for id, *fields in db.execute(sql, list(found))}
        return list({found[id]: texts[id] for id in sorted(texts, reverse=True)}.items())

    def count_missing(self, encoder: int, snapshot: int) -> int:
        """How many passages have no vectors yet."""
        self._missing(encoder, snapshot, 1)  # moves the frontier, which makes the count cheap
        low, high = self._frontiers[_PASSAGES, encoder, snapshot]
        sql = f"SELECT count(*) FROM passages p INDEXED BY passages_seen WHERE {{ids}} AND NOT {_ENCODED}"
        below = self._all(sql.format(ids="p.id < ?"), (low, encoder, snapshot))
        above = self._all(sql.format(ids="p.id > ?"), (high, encoder, snapshot))
        return int(below[0][0] + above[0][0])

    def encoder(self, id: int) -> EncoderRecord | None:
        rows = self._all("SELECT id, fingerprint, model, runtime, dims, token_dims FROM encoders WHERE id = ?", (id,))
        return EncoderRecord(*rows[0]) if rows else None

    def encoder_named(self, fingerprint: str) -> int | None:
        """The id of an encoder the store has heard of."""
        rows = self._all("SELECT id FROM encoders WHERE fingerprint = ?", (fingerprint,))
        return int(rows[0][0]) if rows else None

    def live_snapshot(self) -> tuple[int, int] | None:
        """(encoder, snapshot) that is searched."""
        rows = self._all("SELECT encoder, version FROM snapshots WHERE live = 1")
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def live_version(self, encoder: int) -> int:
        """The version of this encoder that is searched, or was last declared so; FROZEN where none is live."""
        rows = self._all("SELECT version FROM snapshots WHERE live = 1 AND encoder = ?", (encoder,))
        return int(rows[0][0]) if rows else FROZEN

    def vectors_for(self, ids: Sequence[int], encoder: int, snapshot: int) -> VectorBatch:
        """What an index must learn of these passages; those gone, or without vectors yet, are left out."""
        rows: list[Any] = []
        distinct = list(dict.fromkeys(map(int, ids)))
        for at in range(0, len(distinct), _PER_STATEMENT):
            batch = distinct[at : at + _PER_STATEMENT]
            marks = ",".join("?" * len(batch))
            rows += self._all(f"{_batch_sql(snapshot)} p.id IN ({marks})", (encoder, snapshot, *batch))
        return _batch_of(rows)

    def vector_batches(self, encoder: int, snapshot: int, size: int = 1_000) -> Iterator[VectorBatch]:
        """All of a snapshot, `size` passages at a time by rising id, each batch a read of its own."""
        last = 0
        sql = f"{_batch_sql(snapshot)} p.id > ? ORDER BY p.id LIMIT ?"
        while rows := self._all(sql, (encoder, snapshot, last, size)):
            last = rows[-1][0]
            yield _batch_of(rows)

    def encoded(self, encoder: int, snapshot: int) -> Encoded:
        """All passages that have vectors in this snapshot, without the vectors."""
        frozen = snapshot == FROZEN
        sql = f"""SELECT p.id, p.scope, p.written_at, p.hash FROM passages p INDEXED BY passages_seen
            WHERE {_ENCODED if frozen else _WITH_TOKENS} ORDER BY p.id"""
        rows = self._all(sql, (encoder, snapshot) if frozen else (encoder, snapshot, encoder))
        return Encoded(
            ids=np.fromiter((row[0] for row in rows), np.int64, len(rows)),
            scopes=np.fromiter((row[1] for row in rows), np.int64, len(rows)),
            written_at=np.fromiter((row[2] for row in rows), np.float64, len(rows)),
            marks=marks_of([row[3] for row in rows]),
        )

    def _missing_lines(self, encoder: int, snapshot: int, limit: int) -> list[tuple[bytes, str]]:
        """Facts, then names of subjects that several passages share."""
        if limit <= 0:
            return []
        found = self._missing(encoder, snapshot, limit, _FACTS)
        marks = ",".join("?" * len(found))
        rows = self._all(f"SELECT hash, text FROM facts WHERE id IN ({marks}) ORDER BY id DESC", list(found))
        if len(found) < limit:
            sql = f"""SELECT p.hash, p.name FROM subjects p WHERE p.shared = 1 AND NOT {_ENCODED}
                ORDER BY p.id DESC LIMIT ?"""
            rows += self._all(sql, (encoder, snapshot, limit - len(found)))
        return list(dict(rows).items())

    def _missing(self, encoder: int, snapshot: int, limit: int, table: str = _PASSAGES) -> dict[int, bytes]:
        """id -> hash of the newest rows (passages, facts) without vectors, at most `limit`.

        Between the calls a frontier is remembered: every row with low <= id <= high has vectors. So a long backlog is
        not walked again for each batch. It stays true, since ids are used once, and vectors go only with their last
        row or their snapshot; when two threads race, either one's is right.
        """
        sql = f"""SELECT p.id, p.hash FROM {table}
            WHERE {{ids}} AND NOT {_ENCODED} ORDER BY p.id DESC LIMIT ?"""
        with self._pool.lend() as db:
            db.execute("BEGIN")
            (newest,) = db.execute(f"SELECT coalesce(max(p.id), 0) FROM {table}").fetchone()
            low, high = self._frontiers.get((table, encoder, snapshot), (newest + 1, newest))
            above = dict(db.execute(sql.format(ids="p.id > ?"), (high, encoder, snapshot, limit)).fetchall())
            rest = limit - len(above)
            below = dict(db.execute(sql.format(ids="p.id < ?"), (low, encoder, snapshot, rest)).fetchall())
            db.execute("COMMIT")
        if rest:
            low = max(below, default=-1) + 1
        self._frontiers[table, encoder, snapshot] = (low, high if above else max(high, newest))
        return above | below


def _batch_sql(snapshot: int) -> str:
    return _BATCH if snapshot == FROZEN else _BATCH_PROJECTED


def _batch_of(rows: Sequence[Any]) -> VectorBatch:
    ids, scopes, dates, hashes, headings, speakers, dated, vectors, tokens, starts, ends = (
        zip(*rows, strict=True) if rows else [()] * 11
    )
    spans = [
        _own_spans(start, end, text_offset(heading, speaker, date if is_own else None))
        for heading, speaker, date, is_own, start, end in zip(
            headings, speakers, dates, dated, starts, ends, strict=True
        )
    ]
    return VectorBatch(
        ids=np.array(ids, dtype=np.int64),
        scopes=np.array(scopes, dtype=np.int64),
        written_at=np.array(dates, dtype=np.float64),
        marks=marks_of(hashes),
        vectors=np.frombuffer(b"".join(vectors), dtype="<f2").reshape(len(rows), -1 if rows else 0),
        tokens=tokens,
        starts=[start for start, _ in spans],
        ends=[end for _, end in spans],
    )


def marks_of(hashes: Sequence[bytes]) -> Int64:
    """(n,) the first 8 bytes of each content hash: enough to see that a passage is not the one it was."""
    return np.frombuffer(b"".join(hash[:8] for hash in hashes), dtype="<i8").astype(np.int64)


def _own_spans(starts: bytes, ends: bytes, offset: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Token offsets within the passage's own text: (T,) starts and ends, 0 for tokens of its heading or speaker."""
    start, end = np.frombuffer(starts, dtype="<u2"), np.frombuffer(ends, dtype="<u2")
    own = start >= offset
    return np.where(own, start - offset, 0).astype(np.uint16), np.where(own, end - offset, 0).astype(np.uint16)
