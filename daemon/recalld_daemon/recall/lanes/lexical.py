"""The lexical lane: passages by the words they share with the query. It needs no encoding, so it starts at once.

It asks the word index, and until that is open the store's full-text search, which finds the same sort of passages more
slowly and can't score one that it did not return. Names of the query (identifiers, capitalised words) that hardly any
passage holds make those passages candidates whatever else is found: an exact name is rarely meant by chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from recalld_daemon.recall.types import Float32, Int64, Lane, LaneHits, Query, QueryEncoding, View
from recalld_daemon.recall.words import identifiers_of

NAMES_LIMIT = 8
NAME_LETTERS = 3  # of a shorter one: it is a unit or a flag
_NAME = re.compile(r"[A-Z]|\w[_./\\:-]\w|[a-z]\d|\d[a-z]")  # capitalised, composed, or with a digit


class Words(Protocol):
    """The word index, seen from here."""

    def search(self, words: Iterable[str], view: View, limit: int, names: Iterable[str] = ()) -> LaneHits: ...

    def score(self, words: Iterable[str], ids: Int64) -> Float32: ...


class LexicalLane:
    """BM25 over the words of passages; a `Scorer` too. Both are thread-safe."""

    name = "lexical"
    needs_encoding = False

    def __init__(self, words: Words | None, fallback: Lane) -> None:
        self._words = words
        self._fallback = fallback

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        """At most `limit` passages within the view, best first; scores are BM25."""
        if self._words is None:
            return self._fallback.search(query, encoding, view, limit)
        return self._words.search(query.terms, view, limit, names_of(query))

    def score(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        """(n,) BM25 of each passage, 0 where it shares no word; nan for unknown ids, or while the index is not open."""
        if self._words is None:
            return np.full(len(ids), np.nan, np.float32)
        return self._words.score(query.terms, ids)


def names_of(query: Query) -> Sequence[str]:
    """Those of the query's terms that are names where they stand: identifiers, file names, capitalised words.

    >>> names_of(Query("Edit: did Ada fix parse_config", ("parse_config", "ada", "parse", "config", "fix"), ""))
    ['ada', 'parse_config']
    """
    terms = set(query.terms)
    found = (name.lower() for name in identifiers_of(query.text) if _NAME.search(name) and len(name) >= NAME_LETTERS)
    return [name for name in dict.fromkeys(found) if name in terms][:NAMES_LIMIT]
