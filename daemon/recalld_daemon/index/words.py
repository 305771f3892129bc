"""The word index: BM25 over fields, in memory, for any passage at any time.

A passage counts a term once for each place where it stands, times the field's weight, and the sum is saturated (BM25F,
Robertson, Zaragoza and Taylor 2004, with one length for all fields). Passages lie in a few segments of quickly falling
size: what is added becomes a small one, and small ones are merged, so a change costs little and a search looks at four
or so. Changes make a new table of segments; a search takes the table as it is at that moment and waits for nobody.
Rarity is counted at the moment of the search, over what is there.

Not built on: bm25s (its matrix of scores is made once, for all documents at a time: no adding, no removing), rank-bm25
(as much, and a Python loop over documents), tantivy (adds and removes by commits; a score for an id that the search did
not return takes an `explain` or a query per id, far from 500 in a millisecond; fields are weighted by boosts that
BM25F's saturation does not see), SQLite's FTS5 (2 ms at 10,000 passages, 8 to 11 at 100,000, and no score for an id).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from recalld_daemon.index.words_segment import COUNT_STEP, Mask, Postings, Segment, merged
from recalld_daemon.index.words_terms import UInt64, asked_terms, terms_in
from recalld_daemon.recall.types import Float32, Int64, LaneHits, View
from recalld_daemon.store.passage_reads import PassageBatch

# Of the lengths and weights tried, those that were best or nearly so on every set; MRR of BM25 alone against FTS5's own
# (b .75, speaker and parts .5): LoCoMo dev .485 -> .516, REALTALK dev .507 -> .546, bukzor .710 -> .729, entire .518 ->
# .519, BEAM dev .402 -> .374 (107 questions; its messages differ most in length).
K1, B = 1.2, 0.5
FIELDS = ("text", "heading", "speaker", "path", "parts")
WEIGHTS = (1.0, 2.0, 2.0, 1.0, 1.0)  # what an occurrence in each field counts
TIER = 16  # a segment is merged into the one before it when that has not TIER times as many passages
POSTINGS_BUDGET = 100_000  # scored per search at most, rarest terms first: 4 ns each, .4 ms in all
RARE = 3  # a name that stands in so few passages always makes them candidates
SCORES_KEPT = 4  # recalls under way at a time: what a search computed is there when neighbours are asked for


@dataclass(frozen=True, slots=True)
class Table:
    """The segments at one moment, largest first; offsets: each one's first row in arrays over all."""

    segments: tuple[Segment, ...]
    offsets: tuple[int, ...]
    norms: Float32  # (n,) K1 * (1 - B + B * length / mean length) / COUNT_STEP
    passages: int  # alive

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Table:
        kept = tuple(segment for segment in segments if len(segment))
        passages = sum(map(len, kept))
        mean = sum(segment.total_length for segment in kept) / max(1, passages) or 1.0
        lengths = np.concatenate([segment.rows["length"] for segment in kept] or [np.empty(0, np.float32)])
        norms = (K1 / COUNT_STEP) * (1 - B + (B / mean) * lengths)
        offsets = np.cumsum([0, *(len(segment.ids) for segment in kept)]).tolist()[:-1]
        return cls(kept, tuple(offsets), norms.astype(np.float32), passages)


class WordIndex:
    """Searched by any number of threads while one adds or removes."""

    def __init__(self) -> None:
        self._table = Table.of(())
        self._changing = threading.RLock()
        self._recent: tuple[tuple[Table, bytes, Float32], ...] = ()

    # ------------------------------------------------------------ asking

    def search(self, words: Iterable[str], view: View, limit: int, names: Iterable[str] = ()) -> LaneHits:
        """At most `limit` passages within the view that have any of the words, best first; scores are BM25.

        `names` are those of the words that name one thing exactly: where RARE passages at most hold such a one, these
        have a place in the list.
        """
        table = self._table
        scores = self._scores(table, asked_terms(words))
        named = asked_terms(names)
        found = scores > 0
        seen = _visible(table, view)
        if seen is not None:
            found &= seen
        top = _best(scores * found, limit)
        if 0 < len(top) == limit and len(named):
            wanted = _rows_with(table, named)
            top = _with_places_for(top, wanted[found[wanted]], scores, limit)
        rows = top[np.argsort(-scores[top], kind="stable")]
        return LaneHits(ids=_ids_of(table, rows), scores=scores[rows])

    def score(self, words: Iterable[str], ids: Int64) -> Float32:
        """(n,) BM25 of each passage: what `search` gives it, 0 where no word is in it, nan for unknown ids."""
        table = self._table
        scores = self._scores(table, asked_terms(words))
        found = np.full(len(ids), np.nan, np.float32)
        for segment, offset in zip(table.segments, table.offsets, strict=True):
            rows = segment.rows_of(ids)
            here = rows >= 0
            found[here] = scores[offset + rows[here]]
        return found

    def __len__(self) -> int:
        return self._table.passages

    @property
    def memory_bytes(self) -> int:
        table = self._table
        kept = sum(scores.nbytes for _, _, scores in self._recent)
        return sum(segment.memory_bytes for segment in table.segments) + table.norms.nbytes + kept

    # ------------------------------------------------------------ changing

    def add(self, batch: PassageBatch) -> None:
        """Learn passages; those already known are replaced."""
        if not len(batch.ids):
            return
        new = Segment.of(postings_of(batch))
        with self._changing:
            segments = [segment.without(new.ids) for segment in self._table.segments]
            self._publish([*segments, new])

    def remove(self, ids: Sequence[int]) -> None:
        """Forget passages; unknown ids are no error."""
        gone = np.unique(np.asarray(ids, np.int64))
        with self._changing:
            self._publish([segment.without(gone) for segment in self._table.segments])

    def whole(self) -> Segment | None:
        """All of it as one segment, which it then consists of; None where there is nothing."""
        with self._changing:
            segments = [segment for segment in self._table.segments if len(segment)]
            if len(segments) > 1 or any(segment.dead for segment in segments):
                segments = [merged(segments)]
                self._publish(segments)
            return segments[0] if segments else None

    def restore(self, segment: Segment) -> None:
        """Take over a saved state."""
        with self._changing:
            self._publish([segment])

    def _publish(self, segments: list[Segment]) -> None:
        """Make these the table, small neighbours merged."""
        kept = [segment for segment in segments if len(segment)]
        while len(kept) > 1 and len(kept[-2]) < TIER * len(kept[-1]):
            kept[-2:] = [merged(kept[-2:])]
        self._table = Table.of([merged([s]) if s.dead > len(s) else s for s in kept])
        self._recent = ()

    # ------------------------------------------------------------ scoring

    def _scores(self, table: Table, terms: UInt64) -> Float32:
        """(n,) of each row of the table; of the last few queries they are remembered."""
        key = terms.tobytes()
        for known, asked, scores in self._recent:
            if known is table and asked == key:
                return scores
        scores = _scored(table, terms)
        self._recent = ((table, key, scores), *self._recent[: SCORES_KEPT - 1])
        return scores


def postings_of(batch: PassageBatch) -> Postings:
    """The terms of all fields of a batch, each occurrence with its field's weight."""
    terms: list[int] = []
    sizes: list[int] = []
    columns = (batch.texts, batch.headings, batch.speakers, batch.paths, batch.parts)
    for column in columns:
        for text in column:
            found = terms_in(text) if text else ()
            terms.extend(found)
            sizes.append(len(found))
    owners = np.tile(np.arange(len(batch.ids)), len(columns))
    weights = np.repeat(np.array(WEIGHTS, np.float32), len(batch.ids))
    return Postings(
        ids=batch.ids,
        scopes=batch.scopes,
        written_at=batch.written_at,
        terms=np.array(terms, np.uint64),
        owners=np.repeat(owners, sizes),
        weights=np.repeat(weights, sizes),
    )


def _scored(table: Table, terms: UInt64) -> Float32:
    scores = np.zeros(len(table.norms), np.float32)
    if not len(terms) or not table.segments:
        return scores
    spans = [segment.spans(terms) for segment in table.segments]
    frequencies = _frequencies(table, spans)
    idf = np.log1p((table.passages - frequencies + 0.5) / (frequencies + 0.5))
    for term in _chosen(frequencies):
        for segment, offset, (firsts, lasts) in zip(table.segments, table.offsets, spans, strict=True):
            stretch = slice(firsts[term], lasts[term])
            if stretch.start == stretch.stop:
                continue
            rows = segment.owners[stretch].astype(np.int64)
            rows += offset
            gained = segment.counts[stretch].astype(np.float32)
            norms = table.norms.take(rows)
            norms += gained
            gained /= norms
            gained *= np.float32((K1 + 1) * idf[term])
            scores[rows] += gained
    return scores


def _frequencies(table: Table, spans: Sequence[tuple[Int64, Int64]]) -> Int64:
    """(t,) how many living passages have each term."""
    totals = np.zeros(len(spans[0][0]), np.int64)
    for segment, (firsts, lasts) in zip(table.segments, spans, strict=True):
        if segment.dead:
            pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
            totals += np.array([segment.living(first, last) for first, last in pairs], np.int64)
        else:
            totals += lasts - firsts
    return totals


def _chosen(frequencies: Int64) -> list[int]:
    """The terms that occur, rarest first, as far as the budget goes; one at least."""
    order = np.argsort(frequencies, kind="stable")
    order = order[frequencies[order] > 0]
    affordable = np.cumsum(frequencies[order]) <= POSTINGS_BUDGET
    affordable[:1] = True
    return [int(term) for term in order[affordable]]


def _visible(table: Table, view: View) -> Mask | None:
    """(n,) whether a row may be seen; None: all."""
    masks = [segment.visible(view) for segment in table.segments]
    if all(mask is None for mask in masks):
        return None
    return np.concatenate([s.alive if mask is None else mask for s, mask in zip(table.segments, masks, strict=True)])


def _best(scores: Float32, limit: int) -> Int64:
    """The rows of the best positive scores, at most `limit`, in no order."""
    if limit <= 0:
        return np.empty(0, np.int64)
    bound = _bound(scores, limit)
    rows = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
    return rows if len(rows) <= limit else rows[np.argpartition(scores[rows], len(rows) - limit)[-limit:]]


def _bound(scores: Float32, limit: int) -> float:
    """What the best `limit` rows reach at least: so many of some blocks' best do.

    A partition of all rows, most of which have no score, would take 25 times as long (2.5 ms at 100,000).
    """
    blocks = 4 * limit
    width = len(scores) // blocks
    if width < 4:
        return 0.0
    best = scores[: blocks * width].reshape(blocks, width).max(axis=1)
    return float(np.partition(best, blocks - limit)[blocks - limit])


def _rows_with(table: Table, terms: UInt64) -> Int64:
    """Rows that have one of the rare terms among these, masked ones too."""
    spans = [segment.spans(terms) for segment in table.segments]
    rare = np.flatnonzero((frequencies := _frequencies(table, spans)) <= RARE)
    found = [
        segment.owners[firsts[term] : lasts[term]].astype(np.int64) + offset
        for segment, offset, (firsts, lasts) in zip(table.segments, table.offsets, spans, strict=True)
        for term in rare[frequencies[rare] > 0]
    ]
    return np.unique(np.concatenate(found or [np.empty(0, np.int64)]))


def _with_places_for(top: Int64, wanted: Int64, scores: Float32, limit: int) -> Int64:
    """The best rows with those wanted among them, in the places of the worst."""
    missing = np.setdiff1d(wanted, top)[:limit]
    others = top[~np.isin(top, wanted)]
    room = limit - (len(top) - len(others)) - len(missing)
    best = others[np.argsort(-scores[others], kind="stable")][: max(0, room)]
    return np.concatenate([best, np.intersect1d(wanted, top), missing])[-limit:]


def _ids_of(table: Table, rows: Int64) -> Int64:
    ids = np.empty(len(rows), np.int64)
    for segment, offset in zip(table.segments, table.offsets, strict=True):
        own = (rows >= offset) & (rows < offset + len(segment.ids))
        ids[own] = segment.ids[rows[own] - offset]
    return ids
