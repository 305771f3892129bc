"""The entity lane: questions that count or list want all of somebody's passages, not the few that fit best.

"Which places has Ana visited?" is answered by every passage in which she went somewhere. So where the query enumerates
and names a speaker or a subject, all of their passages are candidates, as many as are asked for and never fewer than
LEAST, best first by what the scorers say of them; of several that tell the same event once is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from recalld_daemon.recall.lanes.subjects import LinkTable
from recalld_daemon.recall.lanes.temporal import TimesNow
from recalld_daemon.recall.types import (
    Float32,
    Float64,
    Int64,
    LaneHits,
    PassageReader,
    Query,
    QueryEncoding,
    Scorer,
    View,
)
from recalld_daemon.recall.words import content_stems

LEAST = 40
MOST = 5_000  # passages of an entity that are scored, latest first
COMPARED = 120  # of the best, whose words are compared
ALIKE = 0.6  # share of words in common (Jaccard) from which two passages of one time and one set of subjects are one


class SubjectLinks(Protocol):
    @property
    def links(self) -> LinkTable: ...


class TimeTable(Protocol):
    @property
    def times(self) -> TimesNow: ...


class SpeakerRows(Protocol):
    """Columns over all passages by rising id; see `index.cards`. `rows` has id, speaker, scope and written_at."""

    def rows(self) -> np.ndarray[tuple[int], np.dtype[np.void]]: ...

    def speakers(self) -> Mapping[str, int]: ...


NOTHING = LaneHits(np.empty(0, np.int64), np.empty(0, np.float32))


class EntityLane:
    """`scorers`: whose scores order an entity's passages, each put on 0..1; lexical and dense do. Thread-safe."""

    name = "entity"
    needs_encoding = True

    def __init__(
        self, subjects: SubjectLinks, cards: SpeakerRows, times: TimeTable, scorers: Sequence[Scorer],
        passages: PassageReader,
    ) -> None:  # fmt: skip
        self._subjects = subjects
        self._cards = cards
        self._times = times
        self._scorers = scorers
        self._passages = passages

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        """At most max(limit, LEAST) passages within the view, best first; none where the query does not enumerate."""
        if not query.hints.enumerates:
            return NOTHING
        ids = self._of_entities(query, view)
        if not len(ids):
            return NOTHING
        scores = self._scores(query, encoding, ids)
        order = np.lexsort((-ids, -scores))
        kept = self._each_event_once(ids[order])
        ids, scores = ids[order][kept], scores[order][kept]
        most = max(limit, LEAST)
        return LaneHits(ids[:most], scores[:most])

    def _of_entities(self, query: Query, view: View) -> Int64:
        """All passages by the speakers, or of the subjects, that are named; of speakers and subjects both: either."""
        links = self._subjects.links
        found = [links.seen(links.rows_of_subject(subject), view) for subject in query.hints.subjects]
        known = self._cards.speakers()
        numbers = [known[name] for name in query.hints.speakers if name in known]
        if numbers:
            rows = self._cards.rows()
            own = np.isin(rows["speaker"], numbers)
            if view.scopes is not None:
                own &= np.isin(rows["scope"], view.scopes)
            if view.as_of is not None:
                own &= rows["written_at"] < view.as_of
            found.append(rows["id"][own].astype(np.int64))
        return np.unique(np.concatenate(found or [np.empty(0, np.int64)]))[-MOST:]

    def _scores(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        """(n,) 0 to 1: the mean over the scorers, each between its worst and its best."""
        total = np.zeros(len(ids), np.float32)
        for scorer in self._scorers:
            scores = np.nan_to_num(scorer.score(query, encoding, ids), nan=0.0)
            low, high = float(scores.min()), float(scores.max())
            if high > low:
                total += (scores - low) / (high - low)
        return total / np.float32(max(1, len(self._scorers)))

    def _each_event_once(self, ids: Int64) -> Int64:
        """The places of those that tell something new, in their order; only the first COMPARED are looked at."""
        compared = ids[:COMPARED]
        groups = _groups(_subject_sets(self._subjects.links, compared), _spans(self._times.times, compared))
        texts = {p.id: content_stems(p.text) for p in self._passages.passages([int(compared[n]) for n in groups])}
        dropped: set[int] = set()
        for n, others in groups.items():
            own = texts.get(int(compared[n]), frozenset())
            earlier = (texts.get(int(compared[m]), frozenset()) for m in others if m < n and m not in dropped)
            if any(_alike(own, other) for other in earlier):
                dropped.add(n)
        return np.array([n for n in range(len(ids)) if n not in dropped], np.int64)


def _subject_sets(links: LinkTable, ids: Int64) -> list[frozenset[int]]:
    subjects, owners = links.subjects_of(ids)
    found: list[set[int]] = [set() for _ in ids]
    for subject, owner in zip(subjects.tolist(), owners.tolist(), strict=True):
        found[owner].add(subject)
    return [frozenset(one) for one in found]


def _spans(times: TimesNow, ids: Int64) -> Float64:
    """(n, 2) what each passage speaks of, first to last, or else the day on which it was written."""
    rows = times.rows_of(ids)
    spans = np.full((len(ids), 2), np.nan)
    spans[rows >= 0, 0] = times.written_at[rows[rows >= 0]] - 43_200.0
    spans[rows >= 0, 1] = times.written_at[rows[rows >= 0]] + 43_200.0
    for n, row in enumerate(rows.tolist()):
        first, last = np.searchsorted(times.rows, [row, row + 1]) if row >= 0 else (0, 0)
        if last > first:
            spans[n] = times.starts[first:last].min(), times.ends[first:last].max()
    return spans


def _groups(subjects: Sequence[Iterable[int]], spans: Float64) -> dict[int, list[int]]:
    """place -> other places with the same subjects and overlapping times; those alone are left out."""
    by_subjects: dict[Iterable[int], list[int]] = {}
    for place, own in enumerate(subjects):
        by_subjects.setdefault(own, []).append(place)
    found: dict[int, list[int]] = {}
    for places in by_subjects.values():
        for place in places if len(places) > 1 else ():
            others = np.array([other for other in places if other != place], np.int64)
            overlap = (spans[others, 0] < spans[place, 1]) & (spans[place, 0] < spans[others, 1])
            if overlap.any():
                found[place] = others[overlap].tolist()
    return dict(sorted(found.items()))


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= ALIKE * max(1, len(one | other))
