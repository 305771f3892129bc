"""Encoders, snapshots and vectors. Vectors hang on the hash of what was embedded, never on a passage's place.

So an unchanged passage is not embedded again when its file is edited, moved, or deleted and restored; vectors that no
passage needs any more go with the next `prune`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.transactions import Transactions

ORPHANS_PER_TRANSACTION = 1_000  # 7 MB of log

_DROP_ORPHANS = """DELETE FROM vectors WHERE rowid IN (SELECT v.rowid FROM vectors v INDEXED BY vectors_hash
    WHERE NOT EXISTS (SELECT 1 FROM passages p WHERE p.hash = v.hash)
    AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.hash = v.hash)
    AND NOT EXISTS (SELECT 1 FROM subjects s WHERE s.shared = 1 AND s.hash = v.hash) LIMIT ?)"""
_PUT = "INSERT OR REPLACE INTO vectors(hash, encoder, snapshot, vector, starts, ends, tokens) VALUES (?,?,?,?,?,?,?)"


class VectorWrites(Transactions):
    """The part of the writer that keeps vectors."""

    def encoder_id(
        self, fingerprint: str, *, dims: int, token_dims: int, model: str = "", runtime: str = "", at: float = 0.0
    ) -> int:
        """The id of an encoder, made at first mention together with its snapshot 0 (the frozen encodings)."""
        with self.transaction():
            row = self._run(
                "SELECT id, dims, token_dims FROM encoders WHERE fingerprint = ?", (fingerprint,)
            ).fetchone()
            if row is not None and row[1:] != (dims, token_dims):
                raise StoreError(
                    f"{self.path}: encoder {fingerprint!r} was {row[1]} wide ({row[2]} per token) and is now {dims} "
                    f"({token_dims}): its fingerprint must name what differs"
                )
            if row is not None:
                return int(row[0])
            sql = "INSERT INTO encoders(fingerprint, model, runtime, dims, token_dims) VALUES (?, ?, ?, ?, ?)"
            id = self._run(sql, (fingerprint, model, runtime, dims, token_dims)).lastrowid
            self._run("INSERT INTO snapshots(encoder, version, created_at, live) VALUES (?, 0, ?, 0)", (id, at))
        return int(id or 0)

    def add_snapshot(self, encoder: int, version: int, *, at: float, notes: str = "") -> None:
        """A further version of an encoder's vectors, not live yet. Raises NoSuchRow for an unknown encoder."""
        with self.transaction():
            self._run(
                "INSERT INTO snapshots(encoder, version, created_at, live, notes) VALUES (?, ?, ?, 0, ?)",
                (encoder, version, at, notes),
            )

    def set_live(self, encoder: int, snapshot: int) -> None:
        """Declare which vectors are searched; the last ones stay until `drop_snapshot`, so this can be taken back."""
        with self.transaction():
            self._run("UPDATE snapshots SET live = 0 WHERE live = 1")
            sql = "UPDATE snapshots SET live = 1 WHERE encoder = ? AND version = ? AND state = 'ready'"
            if not self._run(sql, (encoder, snapshot)).rowcount:
                raise StoreError(f"{self.path}: encoder {encoder} has no finished snapshot {snapshot}: add it first")
            self._changed = True

    def drop_snapshot(self, encoder: int, snapshot: int) -> None:
        """Forget a snapshot with its vectors, and its encoder with the last one. Raises StoreError for the live one.

        Version numbers are not used twice.
        """
        with self.transaction():
            sql = "SELECT live FROM snapshots WHERE encoder = ? AND version = ?"
            if self._one(sql, (encoder, snapshot)):
                raise StoreError(f"{self.path}: snapshot {snapshot} is live: set another one live first")
            self._run("DELETE FROM snapshots WHERE encoder = ? AND version = ?", (encoder, snapshot))
            self._run("DELETE FROM encoders WHERE id NOT IN (SELECT encoder FROM snapshots)")
            self._changed = True

    def put_vectors(
        self, encoder: int, snapshot: int, hashes: Sequence[bytes], vectors: NDArray[np.float16],
        tokens: Sequence[bytes], starts: Sequence[bytes], ends: Sequence[bytes],
    ) -> list[int]:  # fmt: skip
        """Keep the vectors of n embedded texts; returns the ids of the passages that have them now.

        vectors: (n, d) float16, unit length; tokens: n times int8 (T, t); starts, ends: n times uint16 (T,),
        characters of the embedded text. Token vectors of facts and names, which nobody compares, are not kept. Raises
        NoSuchRow for an unknown snapshot, ValueError for other shapes.
        """
        _check_shapes(self._widths(encoder), len(hashes), vectors, tokens, starts, ends)
        rows = vectors.astype("<f2", copy=False)
        with self.transaction():
            marks = ",".join("?" * len(hashes))
            lines = {
                hash
                for table in ("facts WHERE", "subjects WHERE shared = 1 AND")
                for hash in self._column(f"SELECT hash FROM {table} hash IN ({marks})", hashes)
            }
            self._db.executemany(
                _PUT,
                (
                    (hash, encoder, snapshot, rows[n].tobytes())
                    + ((b"", b"", b"") if hash in lines else (starts[n], ends[n], tokens[n]))
                    for n, hash in enumerate(hashes)
                ),
            )
            self._changed |= bool(hashes)
            return self._column(f"SELECT id FROM passages WHERE hash IN ({marks})", hashes)

    def needed(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those of which a passage, a fact or a shared name is here: it may have gone while they were made."""
        marks = ",".join("?" * len(hashes))
        return {
            hash
            for table in ("passages WHERE", "facts WHERE", "subjects WHERE shared = 1 AND")
            for hash in self._column(f"SELECT hash FROM {table} hash IN ({marks})", hashes)
        }

    def drop_unneeded(self) -> int:
        """Drop some of the vectors of nothing that is kept; returns how many went, 0: there are no more."""
        with self.transaction():
            dropped = self._run(_DROP_ORPHANS, (ORPHANS_PER_TRANSACTION,)).rowcount
            self._changed |= bool(dropped)
        return dropped

    def _widths(self, encoder: int) -> tuple[int, int]:
        row = self._run("SELECT dims, token_dims FROM encoders WHERE id = ?", (encoder,)).fetchone()
        if row is None:
            raise StoreError(f"{self.path}: there is no encoder {encoder}: name it with encoder_id first")
        return row[0], row[1]


def _check_shapes(
    widths: tuple[int, int], n: int, vectors: NDArray[np.float16], tokens: Sequence[bytes], starts: Sequence[bytes],
    ends: Sequence[bytes],
) -> None:  # fmt: skip
    dims, token_dims = widths
    if vectors.shape != (n, dims) or not len(tokens) == len(starts) == len(ends) == n:
        raise ValueError(f"{n} hashes need vectors of shape {(n, dims)}, tokens, starts and ends; got {vectors.shape}")
    for token, start, end in zip(tokens, starts, ends, strict=True):
        if len(start) != len(end) or len(token) * 2 != len(start) * token_dims:
            raise ValueError(f"token vectors of {len(token)} bytes, {len(start)} and {len(end)} bytes of offsets")
