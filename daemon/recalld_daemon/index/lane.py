"""The dense lane: the vector index as a recall sees it. It starts when the query's encoding is there."""

from __future__ import annotations

from recalld_daemon.index.interface import VectorIndex
from recalld_daemon.recall.types import Float32, Int64, LaneHits, Query, QueryEncoding, View


class DenseLane:
    """Nearest vectors; a `Scorer` too. Both are thread-safe."""

    name = "dense"
    needs_encoding = True

    def __init__(self, index: VectorIndex) -> None:
        self._index = index

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        """At most `limit` passages within the view, best first; scores are cosines. ValueError without encoding."""
        if encoding is None:
            raise ValueError("the dense lane searches by the query's encoding")
        return self._index.search(encoding.vector, view, limit)

    def score(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        """(n,) cosine of each passage, nan for those without a vector. ValueError without encoding."""
        if encoding is None:
            raise ValueError("the dense lane scores by the query's encoding")
        return self._index.score(encoding.vector, ids)
