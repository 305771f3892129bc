"""A `VectorIndex` as one matrix: exact, read-only, and in any space that the frozen vectors can be projected into.

It is for judging. A challenger's keys have no snapshot yet, and the index that is live belongs to the daemon; so the
frozen vectors are read once, kept as float16 as a snapshot would hold them, and projected for each challenger. Token
vectors, which no adapter touches, are read from the store as they are asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.index.interface import IndexState
from recalld_daemon.index.scope_index import best_of
from recalld_daemon.recall.types import Float32, Float64, Int64, LaneHits, TokenBlock, View
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN, EncoderRecord, VectorBatch

ROWS = 16_384  # rows compared at a time: 25 MB in float32
READ = 4_096  # passages whose vectors are read at a time
WIDE_BYTES = 128 * 1024 * 1024  # of float16: up to here held as float32, which compares ten times as fast
TOKENS_KEPT = 8_192  # passages whose token vectors are kept: some 3 KB each

Project = Callable[[Float32], Float32]  # (n, d) unit rows to (n, d) unit rows
_Tokens = tuple[NDArray[np.int8], NDArray[np.uint16], NDArray[np.uint16]]  # of one passage: tokens, starts, ends


class MatrixIndex:
    """ids: (n,) rising; scopes: (n,); written_at: (n,) epoch s; vectors: (n, d) unit rows as float16 holds them."""

    def __init__(
        self, ids: Int64, scopes: Int64, written_at: Float64, vectors: NDArray[np.float16], tokens: StoredTokens
    ) -> None:
        self._ids, self._scopes, self._written_at = ids, scopes, written_at
        small = vectors.nbytes <= WIDE_BYTES
        self._vectors: NDArray[np.float16] | Float32 = vectors.astype(np.float32) if small else vectors
        self._tokens = tokens

    def projected(self, project: Project) -> MatrixIndex:
        """The same passages in another space; token vectors stay what they are."""
        vectors = np.empty(self._vectors.shape, np.float16)
        for first in range(0, len(vectors), ROWS):
            vectors[first : first + ROWS] = project(self._vectors[first : first + ROWS].astype(np.float32))
        return MatrixIndex(self._ids, self._scopes, self._written_at, vectors, self._tokens)

    def search(self, vector: Float32, view: View, limit: int) -> LaneHits:
        """The passages within the view nearest to a unit vector (d,), best first, exactly; scores are cosines."""
        return self._best(self._products(vector), view, limit)

    def search_with(self, vector: Float32, values: MatrixIndex, wanted: Float32, view: View, limit: int) -> LaneHits:
        """By cosine plus wanted . value: values holds the same passages in the space of f_V, wanted (d,) is what the
        user is after, of any length. Scores are those sums."""
        return self._best(self._products(vector) + values._products(wanted), view, limit)

    def _products(self, vector: Float32) -> Float32:
        """(n,) of every passage with a vector (d,)."""
        blocks = [self._vectors[at : at + ROWS] for at in range(0, len(self._ids), ROWS)]
        found = [block.astype(np.float32, copy=False) @ vector for block in blocks]
        return np.concatenate(found or [np.empty(0, np.float32)])

    def _best(self, scores: Float32, view: View, limit: int) -> LaneHits:
        seen = self._seen(view)
        ids, best = best_of([(self._ids[seen], scores[seen])], limit)
        return LaneHits(ids, best)

    def score(self, vector: Float32, ids: Int64) -> Float32:
        """(n,) cosine of each passage, whatever its scope; nan for those without a vector."""
        found = np.full(len(ids), np.nan, np.float32)
        rows, here = self._rows_of(ids)
        found[here] = self._vectors[rows].astype(np.float32, copy=False) @ vector
        return found

    def vectors_of(self, ids: Int64) -> Float32:
        """(n, d) the passages' vectors in this space; nan for those without one."""
        found = np.full((len(ids), self._vectors.shape[1]), np.nan, np.float32)
        rows, here = self._rows_of(ids)
        found[here] = self._vectors[rows]
        return found

    def tokens(self, passages: Sequence[int]) -> TokenBlock:
        return self._tokens.block(passages)

    def add(self, batch: VectorBatch) -> None:
        """Raises TypeError: what is judged must not change meanwhile."""
        raise TypeError("a matrix index is read-only")

    def remove(self, ids: Sequence[int]) -> None:
        """Raises TypeError, as `add` does."""
        raise TypeError("a matrix index is read-only")

    def save(self) -> None:
        """There is nothing to save."""

    def state(self) -> IndexState:
        scopes, counts = np.unique(self._scopes, return_counts=True)
        held = dict(zip(scopes.tolist(), counts.tolist(), strict=True))
        return IndexState(len(self._ids), held, dict.fromkeys(held, "exact"), int(self._vectors.nbytes), 0, 0)

    def close(self) -> None:
        """Nothing is held open."""

    def _rows_of(self, ids: Int64) -> tuple[Int64, NDArray[np.bool_]]:
        """(k,) rows of those that are here, and (n,) which are."""
        at = np.searchsorted(self._ids, ids)
        here = at < len(self._ids)
        here[here] = self._ids[at[here]] == ids[here]
        return at[here].astype(np.int64), here

    def _seen(self, view: View) -> NDArray[np.bool_]:
        seen = np.ones(len(self._ids), np.bool_)
        if view.scopes is not None:
            seen &= np.isin(self._scopes, view.scopes)
        if view.as_of is not None:
            seen &= self._written_at < view.as_of
        return seen


class StoredTokens:
    """Token vectors out of the store, the latest asked for kept."""

    def __init__(self, reader: Reader, encoder: EncoderRecord, kept: int = TOKENS_KEPT) -> None:
        self._reader, self._encoder, self._most = reader, encoder, kept
        self._kept: OrderedDict[int, _Tokens] = OrderedDict()
        width = encoder.token_dims
        self._nothing: _Tokens = (np.empty((0, width), np.int8), np.empty(0, np.uint16), np.empty(0, np.uint16))

    def block(self, passages: Sequence[int]) -> TokenBlock:
        """In the order asked for; unknown passages have none. Raises StoreError."""
        wanted = [int(id) for id in passages]
        self._read([id for id in dict.fromkeys(wanted) if id not in self._kept])
        rows = [self._kept.get(id, self._nothing) for id in wanted]
        for id in wanted:
            if id in self._kept:
                self._kept.move_to_end(id)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        vectors = np.concatenate([*(row[0] for row in rows), self._nothing[0]])
        starts, ends = (np.concatenate([*(row[at] for row in rows), self._nothing[at]]) for at in (1, 2))
        return TokenBlock(vectors, starts, ends, np.array([len(row[0]) for row in rows], np.int64))

    def _read(self, ids: Sequence[int]) -> None:
        batch = self._reader.vectors_for(ids, self._encoder.id, FROZEN) if ids else None
        if batch is None:
            return
        columns = zip(batch.ids.tolist(), batch.tokens, batch.starts, batch.ends, strict=True)
        for id, tokens, starts, ends in columns:
            held = np.frombuffer(tokens, np.int8).reshape(-1, self._encoder.token_dims)
            self._kept[id] = (held, np.asarray(starts, np.uint16), np.asarray(ends, np.uint16))


def open_matrix(reader: Reader, encoder: EncoderRecord) -> MatrixIndex:
    """All passages that have frozen vectors. Memory: 2 bytes per dimension and passage. Raises StoreError."""
    encoded = reader.encoded(encoder.id, FROZEN)
    vectors = np.zeros((len(encoded.ids), encoder.dims), np.float16)
    read = np.zeros(len(encoded.ids), np.bool_)
    for first in range(0, len(encoded.ids), READ):
        ids, rows = reader.plain_vectors(encoded.ids[first : first + READ].tolist(), encoder.id, FROZEN)
        at = np.searchsorted(encoded.ids, ids)
        vectors[at], read[at] = rows, True
    return MatrixIndex(
        encoded.ids[read], encoded.scopes[read], encoded.written_at[read], vectors[read] if not read.all() else vectors,
        StoredTokens(reader, encoder),
    )  # fmt: skip
