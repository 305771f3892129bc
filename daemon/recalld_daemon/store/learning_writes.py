"""Versions with their artefacts, the learners' states, the sleep cycles: all that is learned lies in the database.

A version is made in the state `building`, filled, and declared `ready`; only a ready one can be live. What is left
`building` by a cycle that will not go on is dropped whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.rows import FROZEN, Artefact, StateRecord
from recalld_daemon.store.transactions import Transactions

_PROJECTED = """INSERT OR REPLACE INTO vectors(hash, encoder, snapshot, vector, starts, ends, tokens)
    VALUES (?, ?, ?, ?, x'', x'', x'')"""
_DROP_SOME = """DELETE FROM vectors WHERE rowid IN
    (SELECT rowid FROM vectors INDEXED BY vectors_snapshot WHERE encoder = ? AND snapshot = ? LIMIT ?)"""
_ROWS_AT_ONCE = 5_000  # 4 MB of log
_STATE = """INSERT INTO learning_states(name, encoder, key, data, at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT(name, encoder) DO UPDATE SET key = excluded.key, data = excluded.data, at = excluded.at"""


class LearningWrites(Transactions):
    """The part of the writer that keeps what is learned."""

    def begin_version(self, encoder: int, *, at: float, vectors: int | None, why: str) -> int:
        """A new version of an encoder, `building`; returns its number. vectors: whose it searches; None: its own."""
        with self.transaction():
            last = self._one("SELECT max(version) FROM snapshots WHERE encoder = ?", (encoder,))
            number = max(int(last or 0), self._highest(encoder)) + 1
            self._run(
                """INSERT INTO snapshots(encoder, version, created_at, live, vectors, state, why)
                VALUES (?, ?, ?, 0, ?, 'building', ?)""",
                (encoder, number, at, number if vectors is None else vectors, why),
            )
            self._run("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"highest version of {encoder}", number))
        return number

    def put_artefact(self, encoder: int, version: int, name: Artefact, key: str, data: bytes) -> None:
        """Keep learned weights with a version. key: every setting that shaped them."""
        with self.transaction():
            self._run(
                "INSERT OR REPLACE INTO artefacts(encoder, version, name, key, data) VALUES (?, ?, ?, ?, ?)",
                (encoder, version, name, key, data),
            )

    def put_projected(self, encoder: int, version: int, hashes: Sequence[bytes], vectors: NDArray[np.float16]) -> None:
        """Keep re-projected vectors (n, d) float16 of n texts whose frozen ones are here. Again replaces."""
        if vectors.shape[0] != len(hashes):
            raise ValueError(f"{len(hashes)} hashes need as many vectors, not {vectors.shape}")
        rows = vectors.astype("<f2", copy=False)
        with self.transaction():
            values = ((hash, encoder, version, rows[n].tobytes()) for n, hash in enumerate(hashes))
            self._db.executemany(_PROJECTED, values)

    def finish_version(self, encoder: int, version: int, *, metrics: str, drift: float) -> None:
        """It is whole and may be set live."""
        with self.transaction():
            sql = "UPDATE snapshots SET state = 'ready', metrics = ?, drift = ? WHERE encoder = ? AND version = ?"
            if not self._run(sql, (metrics, drift, encoder, version)).rowcount:
                raise StoreError(f"{self.path}: encoder {encoder} has no version {version}: begin it first")

    def drop_unfinished(self, encoder: int, but: int | None = None) -> list[int]:
        """Drop the versions that are still `building`, except `but`; returns their numbers. In short transactions."""
        with self.transaction():
            sql = "SELECT version FROM snapshots WHERE encoder = ? AND state = 'building' AND version IS NOT ?"
            gone = [int(version) for version in self._column(sql, (encoder, but))]
        self._drop_versions(encoder, gone)
        return gone

    def drop_old_versions(self, encoder: int, keep: int) -> list[int]:
        """Keep version 0, the live one, the last `keep`, and whose vectors those search; returns what went."""
        gone = self.retire_old_versions(encoder, keep)
        self._drop_versions(encoder, gone)
        return gone

    def retire_old_versions(self, encoder: int, keep: int) -> list[int]:
        """Declare what `drop_old_versions` drops unfinished again: at once, and nobody can set it live any more.

        What of it is left, should the process die before `drop_version_rows` was called often enough, goes with the
        next `drop_unfinished`.
        """
        with self.transaction():
            rows = self._run(
                "SELECT version, live, vectors, state FROM snapshots WHERE encoder = ? ORDER BY version DESC",
                (encoder,),
            ).fetchall()
            ready = [version for version, _, _, state in rows if state == "ready" and version != FROZEN]
            kept = {*ready[:keep], FROZEN, *(version for version, live, _, state in rows if live or state != "ready")}
            kept |= {vectors for version, _, vectors, _ in rows if version in kept}
            gone = sorted(version for version, *_ in rows if version not in kept)
            for version in gone:
                sql = "UPDATE snapshots SET state = 'building' WHERE encoder = ? AND version = ?"
                self._run(sql, (encoder, version))
        return gone

    def drop_version_rows(self, encoder: int, version: int) -> bool:
        """Drop some of an unfinished version's vectors, and itself with the last; False when it is gone."""
        with self.transaction():
            where = "encoder = ? AND version = ? AND state = 'building' AND live = 0 AND version > 0"
            if not self._one(f"SELECT 1 FROM snapshots WHERE {where}", (encoder, version)):
                return False
            if not self._run(_DROP_SOME, (encoder, version, _ROWS_AT_ONCE)).rowcount:
                self._run(f"DELETE FROM snapshots WHERE {where}", (encoder, version))
        return True

    def _drop_versions(self, encoder: int, versions: Sequence[int]) -> None:
        for version in versions:
            while self.drop_version_rows(encoder, version):
                pass

    def put_state(self, state: StateRecord) -> None:
        """Keep a learner's state; it replaces the one before."""
        with self.transaction():
            self._run(_STATE, (state.name, state.encoder, state.key, state.data, state.at))

    def drop_state(self, name: str, encoder: int) -> None:
        with self.transaction():
            self._run("DELETE FROM learning_states WHERE name = ? AND encoder = ?", (name, encoder))

    def begin_cycle(self, encoder: int, *, at: float, phase: str, key: str) -> int:
        """A new sleep cycle; returns its id."""
        with self.transaction():
            sql = "INSERT INTO cycles(encoder, began_at, phase, key) VALUES (?, ?, ?, ?)"
            return int(self._run(sql, (encoder, at, phase, key)).lastrowid or 0)

    def note_cycle(
        self, id: int, *, phase: str, version: int | None, report: str, ended_at: float | None = None
    ) -> None:
        """Where a cycle is now."""
        with self.transaction():
            sql = "UPDATE cycles SET phase = ?, version = ?, report = ?, ended_at = ? WHERE id = ?"
            self._run(sql, (phase, version, report, ended_at, id))

    def _highest(self, encoder: int) -> int:
        """The highest number that was ever given out: numbers are not used twice."""
        return int(self._one("SELECT value FROM meta WHERE key = ?", (f"highest version of {encoder}",)) or 0)
