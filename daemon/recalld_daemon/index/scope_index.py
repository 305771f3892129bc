"""The vectors of one scope, as a value: adding or removing makes a new one, so a search never waits for a change.

New vectors first stand in a small block that is searched by plain multiplication; when that has grown, it is merged
into a FAISS index: exact while small, one byte per dimension (SQ8) from SQ8_FROM on, where an exact scan would take
longer than a race allows. Removed ones are masked until the next merge; FAISS gets the mask, or a date, as a bitmap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import Float32, Int64

BLOCK_ROWS = 2_048  # 3 MB at 384 dims: 0.2 ms to multiply
SQ8_FROM = 10_000  # rows; an exact scan of as many takes 1.3 ms, of 100,000 twenty
# FAISS's signed bytes compare without decoding: 3.8 ms at 117,000 rows where QT_8bit takes 9.0, both .99 of exact R@10.
# They hold whole numbers from -128 to 127, so vectors are spread: components beyond CLIP standard deviations are cut.
CLIP = 4.9  # of a unit vector's component, 1 / sqrt(d); R@10 .990 at the largest one, .992 here, .985 at 3.3
ROW = np.dtype([("id", "<i8"), ("written_at", "<f8"), ("mark", "<i8")])

Rows = NDArray[np.void]
Found = tuple[Int64, Float32]  # ids and cosines, best first


@dataclass(frozen=True, slots=True)
class Lookup:
    """ids: (k,) rising; rows: (k,) where each is."""

    ids: Int64
    rows: Int64

    @classmethod
    def of(cls, ids: Int64, rows: Int64) -> Lookup:
        order = np.argsort(ids, kind="stable")
        return cls(np.ascontiguousarray(ids[order]), rows[order])

    def find(self, ids: Int64) -> Int64:
        """(n,) each id's row, -1 where it is not here."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, self.rows[at], -1)


_NOWHERE = Lookup(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class ScopeIndex:
    """base: FAISS index of rows[:ntotal]; block: (k, d) float32, the rows after those; alive: (n,) bool.

    base_ids, block_ids: where the rows of each are by their passages' ids; of the block's the living ones only.
    """

    dims: int
    base: Any
    rows: Rows
    alive: NDArray[np.bool_]
    block: Float32
    dead: int = 0
    base_ids: Lookup = _NOWHERE
    block_ids: Lookup = _NOWHERE

    @classmethod
    def empty(cls, dims: int) -> Self:
        return cls(
            dims=dims,
            base=faiss.IndexFlatIP(dims),
            rows=np.empty(0, ROW),
            alive=np.empty(0, np.bool_),
            block=np.empty((0, dims), np.float32),
        )

    def __len__(self) -> int:
        return len(self.rows) - self.dead

    @property
    def kind(self) -> str:
        return "exact" if isinstance(self.base, faiss.IndexFlat) else "sq8"

    @property
    def memory_bytes(self) -> int:
        lookups = 16 * (len(self.base_ids.ids) + len(self.block_ids.ids))
        columns = self.block.nbytes + self.rows.nbytes + self.alive.nbytes
        return int(self.base.ntotal * self.base.code_size + columns + lookups)

    def live_rows(self) -> Rows:
        return self.rows[self.alive] if self.dead else self.rows

    def search(self, vector: Float32, limit: int, as_of: float | None) -> Found:
        """The nearest to a unit vector (d,) that were written before `as_of` (epoch seconds; None: all)."""
        allowed = self.alive if as_of is None else self.alive & (self.rows["written_at"] < as_of)
        masked = bool(self.dead) or as_of is not None
        split = self.base.ntotal
        return best_of(
            [
                self._search_base(vector, limit, allowed[:split] if masked else None),
                self._search_block(vector, allowed[split:]),
            ],
            limit,
        )

    def score(self, vector: Float32, ids: Int64) -> Float32:
        """(n,) cosine of each passage with a unit vector (d,); nan for those that are not here."""
        scores = np.full(len(ids), np.nan, np.float32)
        rows = self.base_ids.find(ids)
        here = rows >= 0
        here[here] = self.alive[rows[here]]
        if here.any():
            scores[here] = _cosines(self.base, rows[here], vector)
        rows = self.block_ids.find(ids)
        here = rows >= 0
        scores[here] = self.block[rows[here] - self.base.ntotal] @ vector  # (k, d) @ (d,)
        return scores

    def vectors_into(self, vectors: Float32, ids: Int64) -> NDArray[np.bool_]:
        """Writes the vectors of those that are here into rows of (n, d); returns (n,) which are."""
        rows = self.base_ids.find(ids)
        here = rows >= 0
        here[here] = self.alive[rows[here]]
        if here.any():
            vectors[here] = _vectors(self.base, rows[here])
        rows = self.block_ids.find(ids)
        new = rows >= 0
        vectors[new] = self.block[rows[new] - self.base.ntotal]
        return here | new

    def with_rows(self, rows: Rows, vectors: Float32) -> ScopeIndex:
        """With n more rows; vectors: (n, d) float32, unit length. Their ids must not be here yet."""
        grown = replace(
            self,
            rows=np.concatenate([self.rows, rows]),
            alive=np.concatenate([self.alive, np.ones(len(rows), np.bool_)]),
            block=np.concatenate([self.block, vectors]),
        )
        return grown.merged() if len(grown.block) > BLOCK_ROWS else grown._with_lookup()

    def without(self, ids: Int64) -> ScopeIndex:
        """With these ids masked out; merged when half of all rows are masked."""
        alive = self.alive & ~np.isin(self.rows["id"], ids)
        masked = replace(self, alive=alive, dead=int(len(alive) - alive.sum()))
        return masked.merged() if masked.dead > max(BLOCK_ROWS, len(masked)) else masked._with_lookup()

    def merged(self) -> ScopeIndex:
        """The same without a block and without masked rows."""
        if not self.dead and not len(self.block):
            return self
        split = self.base.ntotal
        base = faiss.clone_index(self.base)
        gone = ~self.alive[:split]
        if gone.any():
            base.remove_ids(_selector(gone))
        base = _fitting(base, len(self))
        base.add(_held(base, self.block[self.alive[split:]]))
        rows = self.live_rows()
        return replace(
            self, base=base, rows=rows, alive=np.ones(len(rows), np.bool_), block=self.block[:0].copy(), dead=0,
            base_ids=lookup_of(rows), block_ids=_NOWHERE,
        )  # fmt: skip

    def _with_lookup(self) -> ScopeIndex:
        """With the block's living rows found by their ids."""
        split = self.base.ntotal
        living = split + np.flatnonzero(self.alive[split:])
        return replace(self, block_ids=Lookup.of(self.rows["id"][living], living))

    def _search_base(self, vector: Float32, limit: int, allowed: NDArray[np.bool_] | None) -> Found:
        if not self.base.ntotal or (allowed is not None and not allowed.any()):
            return _NOTHING
        faiss.omp_set_num_threads(1)  # OpenMP counts per calling thread; more would spin against the rest of the house
        parameters = None if allowed is None else faiss.SearchParameters(sel=_selector(allowed))  # type: ignore[call-arg]
        exact = isinstance(self.base, faiss.IndexFlat)
        most = min(limit if exact else limit + limit // 2, self.base.ntotal)
        scores, places = self.base.search(_held(self.base, vector[None, :]), most, params=parameters)
        found = places[0][places[0] >= 0]  # fewer allowed than asked for: the rest is -1
        if exact:
            return self.rows["id"][found], scores[0][: len(found)]
        return self.rows["id"][found], _cosines(self.base, found, vector)  # with the query as it is and not in bytes

    def _search_block(self, vector: Float32, allowed: NDArray[np.bool_]) -> Found:
        places = np.flatnonzero(allowed)
        scores = self.block @ vector  # (k, d) @ (d,)
        return self.rows["id"][self.base.ntotal + places], scores[places]


_NOTHING: Found = (np.empty(0, np.int64), np.empty(0, np.float32))


def lookup_of(rows: Rows) -> Lookup:
    """Of all these rows; their ids are distinct."""
    return Lookup.of(rows["id"], np.arange(len(rows)))


def best_of(found: list[Found], limit: int) -> Found:
    """The best `limit` of several searches, best first; of equals the later passage first."""
    ids = np.concatenate([ids for ids, _ in found])
    scores = np.concatenate([scores for _, scores in found])
    if len(ids) > 4 * limit:
        top = np.argpartition(-scores, limit)[:limit]
        ids, scores = ids[top], scores[top]
    order = np.lexsort((-ids, -scores))[:limit]
    return ids[order], scores[order]


def _selector(allowed: NDArray[np.bool_]) -> Any:
    """A FAISS selector of the rows that are True; the wrapper keeps the bitmap alive."""
    return faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))  # type: ignore[call-arg, arg-type]


def _fitting(base: Any, rows: int) -> Any:
    """The index, or its SQ8 successor when it is about to hold too many rows for an exact scan."""
    if rows < SQ8_FROM or not isinstance(base, faiss.IndexFlat):
        return base
    signed = faiss.ScalarQuantizer.QT_8bit_direct_signed
    successor = faiss.IndexScalarQuantizer(base.d, signed, faiss.METRIC_INNER_PRODUCT)
    successor.add(_held(successor, base.reconstruct_n(0, base.ntotal)))
    return successor


def _spread(base: Any) -> float:
    """By what vectors are multiplied in this index: CLIP deviations fill the byte; 1 where it is exact."""
    return 1.0 if isinstance(base, faiss.IndexFlat) else 127.0 * math.sqrt(base.d) / CLIP


def _cosines(base: Any, rows: Int64, vector: Float32) -> Float32:
    """(k,) of rows of an index with a unit vector (d,): read where they lie, a fifth of what reconstructing takes."""
    size = base.ntotal * base.d
    if isinstance(base, faiss.IndexFlat):
        held = faiss.rev_swig_ptr(base.get_xb(), size).reshape(base.ntotal, base.d)[rows]  # (k, d) float32
        return np.asarray(held @ vector, np.float32)
    codes = faiss.rev_swig_ptr(base.codes.data(), size).reshape(base.ntotal, base.d)[rows]  # (k, d) uint8: x + 128
    query = vector / np.float32(_spread(base))
    return np.asarray(codes.astype(np.float32) @ query - 128 * query.sum(), np.float32)


def _vectors(base: Any, rows: Int64) -> Float32:
    """(k, d) of rows of an index, read where they lie; of bytes to within their step, of length 1 but for that."""
    size = base.ntotal * base.d
    if isinstance(base, faiss.IndexFlat):
        return np.asarray(faiss.rev_swig_ptr(base.get_xb(), size).reshape(base.ntotal, base.d)[rows], np.float32)
    codes = faiss.rev_swig_ptr(base.codes.data(), size).reshape(base.ntotal, base.d)[rows]  # (k, d) uint8: x + 128
    return np.asarray((codes.astype(np.float32) - np.float32(128.0)) / np.float32(_spread(base)), np.float32)


def _held(base: Any, vectors: Float32) -> Float32:
    """Unit vectors (n, d) as this index holds and compares them."""
    if isinstance(base, faiss.IndexFlat):
        return np.ascontiguousarray(vectors)
    spread: Float32 = np.rint(vectors * np.float32(_spread(base))).astype(np.float32)
    return np.clip(spread, -127, 127)
