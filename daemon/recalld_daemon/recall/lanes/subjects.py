"""The subject lane: passages that have a subject in common with the query.

A query's subjects are the forty whose names are nearest to it, and those that it names. A passage gets
LAMBDA * (its best subject's cosine), to be added to what it has, never multiplied with it: in the prototype's reference
the sum was worth 6.6 points where subjects came from a language model; with cheap phrases on two people's chats it was
worth nothing, which is why the ranker decides how much it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from recalld_daemon.recall.types import Float32, Int64, LaneHits, Query, QueryEncoding, View

LAMBDA = 0.4
NEAREST = 40
NAMED = 1.0  # the cosine of a subject with its own name
MOST_PASSAGES = 500  # of a subject; with more it tells nothing ("user", the one person of a diary)


class LinkTable(Protocol):
    """Which passages have which subjects, at one moment; see `index.subject_table.Links`."""

    def rows_of_subject(self, subject: int) -> slice: ...

    def subjects_of(self, passages: Int64) -> tuple[Int64, Int64]: ...

    def seen(self, rows: slice, view: View) -> Int64: ...


class Subjects(Protocol):
    """The table of subjects, seen from here."""

    @property
    def links(self) -> LinkTable: ...

    def near(self, vector: Float32, limit: int) -> tuple[Int64, Float32]: ...

    def named(self, text: str) -> Sequence[int]: ...


NOTHING = LaneHits(np.empty(0, np.int64), np.empty(0, np.float32))


class SubjectLane:
    """A lane and a `Scorer`. Thread-safe."""

    name = "subjects"
    needs_encoding = True

    def __init__(self, subjects: Subjects, weight: float = LAMBDA) -> None:
        self._subjects = subjects
        self._weight = weight

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        """At most `limit` passages within the view; those that share the nearest subject first, then the most."""
        links = self._subjects.links
        found: list[Int64] = []
        scores: list[Float32] = []
        for subject, cosine in self._asked(query, encoding).items():
            rows = links.rows_of_subject(subject)
            if 0 < rows.stop - rows.start <= MOST_PASSAGES:
                found.append(links.seen(rows, view))
                scores.append(np.full(len(found[-1]), cosine, np.float32))
        if not found:
            return NOTHING
        ids, place = np.unique(np.concatenate(found), return_inverse=True)
        each = np.concatenate(scores)
        best = np.zeros(len(ids), np.float32)
        np.maximum.at(best, place, each)
        sums = np.bincount(place, each, len(ids))
        order = np.lexsort((-ids, -sums, -best))[:limit]
        return LaneHits(ids[order], (self._weight * best[order]).astype(np.float32))

    def score(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        """(n,) what `search` gives each passage; 0 for those that share no subject with the query."""
        asked = self._asked(query, encoding)
        best = np.zeros(len(ids), np.float32)
        links = self._subjects.links
        known, owners = links.subjects_of(ids)
        for subject, cosine in asked.items():
            rows = links.rows_of_subject(subject)
            if rows.stop - rows.start <= MOST_PASSAGES:
                np.maximum.at(best, owners[known == subject], np.float32(cosine))
        return (self._weight * best).astype(np.float32)

    def _asked(self, query: Query, encoding: QueryEncoding | None) -> dict[int, float]:
        """The query's subjects and how near each is; those named count as nearest."""
        asked: dict[int, float] = {}
        if encoding is not None:
            ids, cosines = self._subjects.near(encoding.vector, NEAREST)
            asked.update((int(id), float(cosine)) for id, cosine in zip(ids, cosines, strict=True) if cosine > 0)
        named = query.hints.subjects or self._subjects.named(query.text)
        return asked | dict.fromkeys(map(int, named), NAMED)
