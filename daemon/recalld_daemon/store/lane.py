"""The lexical lane: the store's full-text search as a recall sees it. It needs no encoding, so it starts at once."""

from __future__ import annotations

from recalld_daemon.recall.types import LaneHits, Query, QueryEncoding, View
from recalld_daemon.store.reader import Reader


class LexicalLane:
    """bm25 over the store; `search` is thread-safe."""

    name = "lexical"
    needs_encoding = False

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        """At most `limit` passages within the view, best first; scores are bm25, higher is better."""
        return self._reader.lexical(query.terms, view, limit)
