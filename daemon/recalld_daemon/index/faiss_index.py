"""The index on FAISS: one `ScopeIndex` per scope, one `TokenFile` for all, changed by one thread at a time.

A search takes the table of scopes as it is at that moment; a change builds a new value of the scopes it touches and
then puts them into a new table. So a session sees its own scope and the global one by two small searches, and never
waits for indexing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recalld_daemon.index.interface import IndexState
from recalld_daemon.index.saved import save
from recalld_daemon.index.scope_index import ROW, ScopeIndex, best_of
from recalld_daemon.index.token_file import TokenFile
from recalld_daemon.recall.types import Float32, Int64, LaneHits, TokenBlock, View
from recalld_daemon.store.rows import EncoderRecord, VectorBatch

COMPACT_ROWS = 500_000  # dead token rows (32 MB at 64 dims) from which on a save writes the files anew


class FaissIndex:
    """A `VectorIndex` in this process's memory, with its files in `directory`. Made by `open_index`."""

    def __init__(self, directory: Path, encoder: EncoderRecord, snapshot: int, token_number: int = 0) -> None:
        self.directory = directory
        self.encoder = encoder
        self.snapshot = snapshot
        self.saves = 0  # numbers the saved states
        self.unsaved = 0
        self.change_lock = threading.RLock()  # adds, removes and saves; never taken by a search
        self.scopes: dict[int, ScopeIndex] = {}
        self.scope_of: dict[int, int] = {}
        self.token_file = TokenFile(directory, token_number, encoder.token_dims)

    def search(self, vector: Float32, view: View, limit: int) -> LaneHits:
        """The passages nearest to a unit vector (d,) within the view; scores are cosines, best first."""
        if vector.shape != (self.encoder.dims,):
            raise ValueError(f"a query vector of shape {vector.shape} in an index of {self.encoder.dims} dimensions")
        scopes = self.scopes
        seen = scopes.values() if view.scopes is None else [scopes[s] for s in set(view.scopes) if s in scopes]
        query = np.ascontiguousarray(vector, dtype=np.float32)
        found = [scope.search(query, limit, view.as_of) for scope in seen]
        ids, scores = best_of(found, limit) if found else (np.empty(0, np.int64), np.empty(0, np.float32))
        return LaneHits(ids=ids, scores=scores)

    def score(self, vector: Float32, ids: Int64) -> Float32:
        """(n,) cosine of each passage with a unit vector (d,), whatever its scope; nan for those without a vector."""
        scores = np.full(len(ids), np.nan, np.float32)
        left = np.arange(len(ids))
        for scope in sorted(self.scopes.values(), key=len, reverse=True):
            found = scope.score(vector, ids[left])
            scores[left] = found
            left = left[np.isnan(found)]
            if not len(left):
                break
        return scores

    def vectors_of(self, ids: Int64) -> Float32:
        """(n, d) the passages' vectors, whatever their scope; nan for those without one."""
        vectors = np.full((len(ids), self.encoder.dims), np.nan, np.float32)
        left = np.arange(len(ids))
        for scope in sorted(self.scopes.values(), key=len, reverse=True):
            rows = vectors[left]
            here = scope.vectors_into(rows, ids[left])
            vectors[left[here]] = rows[here]
            left = left[~here]
            if not len(left):
                break
        return vectors

    def tokens(self, passages: Sequence[int]) -> TokenBlock:
        """Their token vectors in the order asked for; unknown passages have length 0."""
        return self.token_file.block(passages)

    def add(self, batch: VectorBatch) -> None:
        """Learn passages; those already known are replaced. Raises OSError when the disk is full: nothing was added."""
        if not len(batch.ids):
            return
        with self.change_lock:
            self.remove([id for id in batch.ids.tolist() if id in self.scope_of])
            spans = [np.stack(pair, axis=1) for pair in zip(batch.starts, batch.ends, strict=True)]  # n times (T, 2)
            self.token_file.append(batch.ids.tolist(), batch.tokens, spans)
            rows = np.empty(len(batch.ids), ROW)
            rows["id"], rows["written_at"], rows["mark"] = batch.ids, batch.written_at, batch.marks
            vectors = batch.vectors.astype(np.float32)
            table = dict(self.scopes)
            for scope in np.unique(batch.scopes).tolist():
                own = batch.scopes == scope
                table[scope] = table.get(scope, ScopeIndex.empty(self.encoder.dims)).with_rows(rows[own], vectors[own])
            self.scopes = table
            self.scope_of.update(zip(batch.ids.tolist(), batch.scopes.tolist(), strict=True))
            self.unsaved += len(batch.ids)

    def remove(self, ids: Sequence[int]) -> None:
        """Forget passages; unknown ids are no error."""
        with self.change_lock:
            by_scope: dict[int, list[int]] = {}
            for id in ids:
                if (scope := self.scope_of.pop(int(id), None)) is not None:
                    by_scope.setdefault(scope, []).append(int(id))
            table = dict(self.scopes)
            for scope, gone in by_scope.items():
                table[scope] = table[scope].without(np.array(gone, dtype=np.int64))
                if not len(table[scope]):
                    del table[scope]
                self.token_file.remove(gone)
                self.unsaved += len(gone)
            self.scopes = table

    def save(self) -> None:
        """Write the state to disk and swap it in at once. Raises OSError; what was saved before then stays valid."""
        with self.change_lock:
            self.scopes = {id: scope.merged() for id, scope in self.scopes.items()}
            old = self.token_file
            if old.dead_rows > max(COMPACT_ROWS, old.rows // 2):
                self.token_file = old.compacted(self.directory)
                old.close()  # searches under way keep its map
            save(self)
            self.unsaved = 0

    def purge(self) -> None:
        """Save, so that what was removed is in none of the files any more. Raises OSError, like `save`.

        Between the two steps a process that ends leaves torn token files, and the index is built anew.
        """
        with self.change_lock:
            self.token_file.scrub()
            self.save()

    def state(self) -> IndexState:
        scopes = self.scopes
        return IndexState(
            passages=sum(map(len, scopes.values())),
            scopes={id: len(scope) for id, scope in scopes.items()},
            kinds={id: scope.kind for id, scope in scopes.items()},
            memory_bytes=sum(scope.memory_bytes for scope in scopes.values()),
            token_bytes=self.token_file.used_bytes,
            unsaved=self.unsaved,
        )

    def close(self) -> None:
        """Close the files, without saving."""
        with self.change_lock:
            self.token_file.close()
