"""Facts in memory: by their words, by their vectors, and whose passage each is.

A fact is found, its passage is returned, with the score of the best of its facts. The words need no encoder and are
there at once; vectors follow as they are made. Two tables may know the same facts by the vectors of two spaces, while
one takes the other's place: words and owners are one, and a search sees one space only. With more vectors than
MOST_SEARCHED in view a search by meaning would take longer than a race allows: it then finds nothing, but any passage
can still be scored.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recalld_daemon.index.scope_index import ROW, ScopeIndex, best_of
from recalld_daemon.index.words import WordIndex
from recalld_daemon.recall.types import Float32, Int64, LaneHits, View
from recalld_daemon.store.extraction_reads import FactRows, LineVectors
from recalld_daemon.store.passage_reads import PassageBatch

MOST_SEARCHED = 60_000  # vectors; 2 ms, while 117,000 take 3.8 (see `scope_index`)
SPARE = 2  # facts asked for per passage wanted: one has three at most, and seldom are all of them near


@dataclass(frozen=True, slots=True)
class Parents:
    """facts: (n,) ids, rising; passages: (n,) whose each is; order: (n,) rows by passage; by_passage: theirs."""

    facts: Int64
    passages: Int64
    order: Int64
    by_passage: Int64

    @classmethod
    def of(cls, facts: Int64, passages: Int64) -> Parents:
        rising = np.argsort(facts, kind="stable")
        facts, passages = facts[rising], passages[rising]
        order = np.argsort(passages, kind="stable")
        return cls(facts, passages, order, passages[order])

    def of_passages(self, ids: Int64) -> tuple[Int64, Int64]:
        """Their facts, and for each of those which of the passages asked for it belongs to."""
        first = np.searchsorted(self.by_passage, ids, "left")
        counts = np.searchsorted(self.by_passage, ids, "right") - first
        owners = np.repeat(np.arange(len(ids)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self.order[np.repeat(first, counts) + within]
        return self.facts[rows], owners

    def passages_of(self, facts: Int64) -> Int64:
        """(n,) whose each fact is, 0 where it is gone meanwhile."""
        if not len(self.facts):
            return np.zeros(len(facts), np.int64)
        at = np.minimum(np.searchsorted(self.facts, facts), len(self.facts) - 1)
        return np.where(self.facts[at] == facts, self.passages[at], 0)


NOTHING = LaneHits(np.empty(0, np.int64), np.empty(0, np.float32))
_NONE = np.empty(0, np.int64)


class _Known:
    """What all spaces have in common."""

    def __init__(self) -> None:
        self.words = WordIndex()
        self.parents = Parents.of(_NONE, _NONE)
        self.changing = threading.RLock()
        self.tables: list[FactTable] = []  # one per space


class FactTable:
    """Searched by any number of threads while one changes it."""

    def __init__(self, known: _Known | None = None) -> None:
        self._known = known or _Known()
        self._changing = self._known.changing
        self._vectors: Mapping[int, ScopeIndex] = {}
        self._known.tables.append(self)

    def __len__(self) -> int:
        return len(self._parents.facts)

    def beside(self) -> FactTable:
        """The same facts in another space: without vectors yet, and equal to this one in all else from now on."""
        return FactTable(self._known)

    def retire(self) -> None:
        """It is not kept any more: the one beside it is. Searches under way may end."""
        if self in self._known.tables:
            self._known.tables.remove(self)

    @property
    def words(self) -> WordIndex:
        return self._known.words

    @property
    def _parents(self) -> Parents:
        return self._known.parents

    # ------------------------------------------------------------ asking

    def by_words(self, terms: Iterable[str], view: View, limit: int) -> LaneHits:
        """Passages by the words of their facts, best first; scores are BM25 of the best fact."""
        return self._of_passages(self.words.search(terms, view, SPARE * limit), limit)

    def by_vector(self, vector: Float32, view: View, limit: int) -> LaneHits:
        """Passages by the fact nearest to a unit vector (d,); scores are cosines. None with too many in view."""
        vectors = self._vectors
        seen = list(vectors.values()) if view.scopes is None else [vectors[s] for s in view.scopes if s in vectors]
        if not seen or sum(map(len, seen)) > MOST_SEARCHED:
            return NOTHING
        ids, scores = best_of([scope.search(vector, SPARE * limit, view.as_of) for scope in seen], SPARE * limit)
        return self._of_passages(LaneHits(ids, scores), limit)

    def score_words(self, terms: Iterable[str], passages: Int64) -> Float32:
        """(n,) BM25 of each passage's best fact; nan for those without facts."""
        facts, owners = self._parents.of_passages(passages)
        return _best_per(owners, self.words.score(terms, facts), len(passages))

    def score_vector(self, vector: Float32, passages: Int64) -> Float32:
        """(n,) cosine of each passage's nearest fact; nan for those without, or whose facts have no vectors yet."""
        facts, owners = self._parents.of_passages(passages)
        scores = np.full(len(facts), np.nan, np.float32)
        for scope in self._vectors.values():
            open_ = np.isnan(scores)
            scores[open_] = scope.score(vector, facts[open_])
        return _best_per(owners, scores, len(passages))

    def facts_of(self, passages: Int64) -> Int64:
        """The ids of their facts."""
        return self._parents.of_passages(passages)[0]

    @property
    def vectors(self) -> int:
        """How many facts have one."""
        return sum(map(len, self._vectors.values()))

    @property
    def memory_bytes(self) -> int:
        parents = self._parents
        columns = sum(c.nbytes for c in (parents.facts, parents.passages, parents.order, parents.by_passage))
        return columns + self.words.memory_bytes + sum(scope.memory_bytes for scope in self._vectors.values())

    # ------------------------------------------------------------ changing

    def add(self, rows: FactRows) -> None:
        """Learn facts, whose passages have none here (see `remove`)."""
        if not len(rows.ids):
            return
        with self._changing:
            nothing = [""] * len(rows.ids)
            self.words.add(
                PassageBatch(
                    ids=rows.ids, scopes=rows.scopes, written_at=rows.written_at, marks=rows.ids, sources=rows.ids,
                    ordinals=rows.ids, texts=rows.texts, headings=nothing, speakers=nothing, paths=nothing,
                    parts=nothing,
                )
            )  # fmt: skip
            parents = self._parents
            self._known.parents = Parents.of(
                np.concatenate([parents.facts, rows.ids]), np.concatenate([parents.passages, rows.passages])
            )

    def add_vectors(self, rows: FactRows, vectors: Mapping[bytes, Float32]) -> None:
        """Learn the vectors of facts that are known already, by their hashes."""
        here = [n for n, hash in enumerate(rows.hashes) if hash in vectors]
        if here:
            new = np.stack([vectors[rows.hashes[n]] for n in here])  # (k, d)
            self.add_lines(LineVectors(rows.ids[here], rows.scopes[here], rows.written_at[here], new))

    def add_lines(self, lines: LineVectors) -> None:
        """The same by ids, many at once."""
        with self._changing:
            here = self._parents.passages_of(lines.ids) > 0
            ids, scopes, written_at, new = (
                column[here] for column in (lines.ids, lines.scopes, lines.written_at, lines.vectors)
            )
            table = dict(self._vectors)
            for scope in np.unique(scopes).tolist():
                own = scopes == scope
                held = np.zeros(int(own.sum()), ROW)
                held["id"], held["written_at"] = ids[own], written_at[own]
                before = table.get(scope, ScopeIndex.empty(new.shape[1])).without(ids[own])
                table[scope] = before.with_rows(held, new[own])
            self._vectors = table

    def remove(self, passages: Sequence[int]) -> None:
        """Forget the facts of these passages."""
        with self._changing:
            gone, _ = self._parents.of_passages(np.unique(np.asarray(passages, np.int64)))
            if not len(gone):
                return
            self.words.remove(gone.tolist())
            kept = ~np.isin(self._parents.facts, gone)
            self._known.parents = Parents.of(self._parents.facts[kept], self._parents.passages[kept])
            for one in self._known.tables:
                table = {scope: index.without(gone) for scope, index in one._vectors.items()}
                one._vectors = {scope: index for scope, index in table.items() if len(index)}

    def drop_vectors(self) -> None:
        """Another encoder: what it will make is not to be compared with what is here."""
        with self._changing:
            self._vectors = {}

    def _of_passages(self, hits: LaneHits, limit: int) -> LaneHits:
        """Each passage once, with its best fact's score; hits are best first."""
        passages = self._parents.passages_of(hits.ids)
        known = passages > 0
        distinct, first = np.unique(passages[known], return_index=True)
        order = np.argsort(first, kind="stable")[:limit]
        return LaneHits(distinct[order], hits.scores[known][first[order]])


def _best_per(owners: Int64, scores: Float32, n: int) -> Float32:
    """(n,) the largest score of each owner, nan where there is none."""
    best = np.full(n, -np.inf, np.float32)
    known = ~np.isnan(scores)
    np.maximum.at(best, owners[known], scores[known])
    best[np.isneginf(best)] = np.nan
    return best
