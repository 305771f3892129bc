"""From questions to a `PairSet`: frozen vectors of queries and memories, to fit adapters on and to judge them alone by.

Queries are encoded as queries, memories are read as they stand in the store. Negatives are what came up in vain, and
what the subject graph says is about the same without being the answer; of those, what lies as near to the query as the
gold is probably right as well and is dropped (the 0.95 rule). What a question's session could not see, or what was
written later, is in no pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from recalld_daemon.adapters.pairs import PairSet, kept_negatives
from recalld_daemon.evaluation.questions import Question
from recalld_daemon.recall.types import Float32, Float64, Int64, View
from recalld_daemon.store.reader import Reader

MOST_MEMORIES = 20_000  # beside gold and negatives: 30 MB at 384 dims; a sample of a larger store
MOST_NEGATIVES = 16  # of one question; those it was shown first
MOST_SHARING = 200  # passages of a subject: what more of them share says nothing of what they are about
SEED = 20260102

Encode = Callable[[Sequence[str]], Float32]  # n texts, encoded as queries: (n, d) unit rows


@dataclass(frozen=True, slots=True)
class _Memories:
    """Rows by rising id. ids, scopes: (m,); written_at: (m,) epoch s; vectors: (m, d)."""

    ids: Int64
    scopes: Int64
    written_at: Float64
    vectors: Float32

    def rows_of(self, passages: Sequence[int]) -> Int64:
        """Rows of those that are here."""
        wanted = np.unique(np.array(list(passages), np.int64))
        at = np.searchsorted(self.ids, wanted)
        here = at < len(self.ids)
        here[here] = self.ids[at[here]] == wanted[here]
        return at[here].astype(np.int64)

    def seen(self, rows: Int64, view: View) -> Int64:
        """Those of the rows that are within a view."""
        may = np.ones(len(rows), np.bool_)
        if view.scopes is not None:
            may &= np.isin(self.scopes[rows], view.scopes)
        if view.as_of is not None:
            may &= self.written_at[rows] < view.as_of
        return rows[may]


def pairset_of(
    questions: Sequence[Question],
    reader: Reader,
    encode: Encode,
    encoder: int,
    snapshot: int = 0,
    *,
    most_memories: int = MOST_MEMORIES,
    seed: int = SEED,
) -> PairSet:
    """The questions, in order, that have a gold passage with a vector in this snapshot. names: their keys.

    Raises StoreError, and whatever `encode` raises.
    """
    graph = _Graph(reader)
    related = [graph.related(question.gold) for question in questions]
    named = [
        set(question.gold) | set(question.negatives) | set(more)
        for question, more in zip(questions, related, strict=True)
    ]
    memories = _memories(reader, set().union(*named) if named else set(), encoder, snapshot, most_memories, seed)
    golds = [memories.rows_of(sorted(question.gold)) for question in questions]
    kept = [n for n, gold in enumerate(golds) if len(gold)]
    chosen = [questions[n] for n in kept]
    queries = encode([question.text for question in chosen]) if chosen else memories.vectors[:0]
    pools = _Pools(memories)
    negatives, subjects, subject = [], _Subjects(reader, encoder, snapshot), []
    for place, n in enumerate(kept):
        vain = memories.rows_of(questions[n].negatives)
        near = np.setdiff1d(memories.seen(memories.rows_of(related[n]), questions[n].view), golds[n])
        rows = np.concatenate([vain, np.setdiff1d(near, vain)])[:MOST_NEGATIVES]
        far = kept_negatives(queries[place], memories.vectors[golds[n]], memories.vectors[rows])
        negatives.append(rows[far])
        subject.append(subjects.of(graph.subjects_of(questions[n].gold)))
    return PairSet(
        queries, memories.vectors, [golds[n] for n in kept], negatives,
        np.array([question.at for question in chosen], np.float64),
        np.array([question.weight for question in chosen], np.float32),
        subjects.matrix(queries.shape[1]), np.array(subject, np.int64), groups_of(chosen),
        [question.key for question in chosen], [pools.of(question.view) for question in chosen],
    )  # fmt: skip


def groups_of(questions: Sequence[Question]) -> Int64:
    """(n,) a number for each question's session: what is drawn together."""
    if not questions:
        return np.empty(0, np.int64)
    return np.unique([question.group for question in questions], return_inverse=True)[1].astype(np.int64)


class _Pools:
    """What could be found, per view: rows by rising time, of which each question takes those before its moment.

    Questions of one view share an array, so a thousand of them cost no more than one.
    """

    def __init__(self, memories: _Memories) -> None:
        self._memories = memories
        self._by_scopes: dict[tuple[int, ...] | None, tuple[Int64, Float64]] = {}

    def of(self, view: View) -> Int64:
        if view.scopes not in self._by_scopes:
            every = np.arange(len(self._memories.ids), dtype=np.int64)
            rows = self._memories.seen(every, View(view.scopes))
            rows = rows[np.argsort(self._memories.written_at[rows], kind="stable")]
            self._by_scopes[view.scopes] = (rows, self._memories.written_at[rows])
        rows, times = self._by_scopes[view.scopes]
        return rows if view.as_of is None else rows[: int(np.searchsorted(times, view.as_of))]


class _Graph:
    """Passages and their subjects, as far as the questions need them; each subject is read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._passages: dict[int, list[int]] = {}  # of a subject

    def subjects_of(self, gold: frozenset[int]) -> list[int]:
        """The subjects that gold passages share with others, rarest first."""
        own = np.unique(self._reader.links_of(sorted(gold)).subjects).tolist()
        return sorted(own, key=lambda subject: len(self.passages_of(subject)))

    def related(self, gold: frozenset[int]) -> list[int]:
        """Other passages about the same, those of the rarest subject first."""
        found: dict[int, None] = {}
        for subject in self.subjects_of(gold):
            passages = self.passages_of(subject)
            if len(passages) <= MOST_SHARING:
                found.update(dict.fromkeys(passage for passage in passages if passage not in gold))
            if len(found) >= MOST_NEGATIVES:
                break
        return list(found)[:MOST_NEGATIVES]

    def passages_of(self, subject: int) -> list[int]:
        """Those that are about a subject."""
        if subject not in self._passages:
            self._passages[subject] = self._reader.links_to([subject]).passages.tolist()
        return self._passages[subject]


class _Subjects:
    """Vectors of subjects' names, each once."""

    def __init__(self, reader: Reader, encoder: int, snapshot: int) -> None:
        self._reader, self._space = reader, (encoder, snapshot)
        self._rows: dict[int, int] = {}
        self._vectors: list[Float32] = []

    def of(self, subjects: Sequence[int]) -> int:
        """The row of the first of them that has a vector; -1: none has."""
        for subject in subjects:
            if subject not in self._rows:
                row = next(iter(self._reader.subjects_of([subject])), None)
                vector = None if row is None else self._reader.line_vectors([row.hash], *self._space).get(row.hash)
                self._rows[subject] = -1 if vector is None else len(self._vectors)
                self._vectors += [] if vector is None else [vector]
            if self._rows[subject] >= 0:
                return self._rows[subject]
        return -1

    def matrix(self, dims: int) -> Float32:
        return np.stack(self._vectors) if self._vectors else np.empty((0, dims), np.float32)


def _memories(reader: Reader, named: set[int], encoder: int, snapshot: int, most: int, seed: int) -> _Memories:
    """The named passages, and as many of the others as may be, drawn with a seed; those that have vectors."""
    encoded = reader.encoded(encoder, snapshot)
    wanted = np.isin(encoded.ids, np.array(sorted(named), np.int64))
    others = np.flatnonzero(~wanted)
    if len(others) > most:
        others = np.random.default_rng(seed).choice(others, most, replace=False)
    wanted[others] = True
    ids, vectors = reader.plain_vectors(encoded.ids[wanted].tolist(), encoder, snapshot)
    order = np.argsort(ids, kind="stable")
    ids, vectors = ids[order], vectors[order]
    at = np.searchsorted(encoded.ids, ids)
    record = reader.encoder(encoder)
    dims = 0 if record is None else record.dims
    return _Memories(ids, encoded.scopes[at], encoded.written_at[at], vectors.reshape(len(ids), dims))
