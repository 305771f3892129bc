"""The fact lanes: passages by what one of their statements says.

A fact says in one breath who did what and when, where its passage says "I", "yesterday" and much besides. A hit returns
the passage, with its best fact's score: by meaning (the cosine) and by words (BM25), as two lanes, since their scores
are not of one kind. In the prototype facts (made by a language model) added .075 to hit@1 as a summand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from recalld_daemon.recall.types import Float32, Int64, LaneHits, Query, QueryEncoding, View


class Facts(Protocol):
    """The table of facts, seen from here; see `index.fact_table`."""

    def by_words(self, terms: Iterable[str], view: View, limit: int) -> LaneHits: ...

    def by_vector(self, vector: Float32, view: View, limit: int) -> LaneHits: ...

    def score_words(self, terms: Iterable[str], passages: Int64) -> Float32: ...

    def score_vector(self, vector: Float32, passages: Int64) -> Float32: ...


class FactLane:
    """Facts by meaning; a `Scorer` too. Finds nothing where too many facts are in view to be searched in time."""

    name = "facts"
    needs_encoding = True

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        """At most `limit` passages within the view, best first; scores are cosines. ValueError without encoding."""
        if encoding is None:
            raise ValueError("facts are searched by the query's encoding")
        return self._facts.by_vector(encoding.vector, view, limit)

    def score(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        """(n,) cosine of each passage's best fact; nan for those without."""
        if encoding is None:
            return np.full(len(ids), np.nan, np.float32)
        return self._facts.score_vector(encoding.vector, ids)


class FactWordsLane:
    """Facts by their words; a `Scorer` too."""

    name = "fact_words"
    needs_encoding = False

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        """At most `limit` passages within the view, best first; scores are BM25."""
        return self._facts.by_words(query.terms, view, limit)

    def score(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        """(n,) BM25 of each passage's best fact; nan for those without."""
        return self._facts.score_words(query.terms, ids)
