"""From pools to lessons: a query, the passages that answer it, and hard negatives mined from the same pool.

Hard negatives are what the frozen encoder and BM25 rank highest of what is not known to answer; where labels are
incomplete (a link names one note of several that would do), what is about as near to the query as the answer is left
out, by the rule `cos(q, n) < 0.95 * cos(q, gold)`. In made-up conversations labels are complete, and the reply that is
nearer to the question than its answer is just what is to be learned: there the rule is off, and neighbours are added.
An answer of many passages (a meeting's stretch, a whole session) is brought down to the few that are nearest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
from numpy.typing import NDArray
from tokenizers import Tokenizer

from recalld_daemon.models import projection
from recalld_daemon.models.forward import hidden_states
from recalld_daemon.models.runtimes.torch_model import TorchModel
from recalld_daemon.models.sample import sample_texts
from recalld_daemon.models.tokens import TextTokenizer, TokenizedText
from recalld_daemon.recall.types import Float32, Int64
from recalld_daemon.recall.words import words_of
from recalld_daemon.store.texts import embedded_text
from training.pools import Pool, Row

TOKEN_DIMS = 64  # what the index keeps
NEAR_GOLD = 0.95  # the rule
MINED = 12  # hard negatives kept of each of the two rankings
FEW = 3  # answers kept of one that is a stretch of many passages
MANY = 6  # an answer of more passages than this is such a stretch
NEIGHBOURS = 2  # turns before and after an answer, in conversations
QUERY_TOKENS, PASSAGE_TOKENS = 64, 96  # in training; a step's cost goes by them
COMPLETE = ("chat", "agents")  # sets whose labels are complete


@dataclass(frozen=True, slots=True)
class Lesson:
    """query: its place in the course; gold: rows to be found; known: rows that are no negatives; near: those mined."""

    query: int
    gold: Int64
    known: frozenset[int]
    near: Int64


@dataclass(slots=True)
class Course:
    """A pool as the tuning reads it. before_*: the frozen encoder's pooled vectors, (n, d) float16."""

    name: str
    passages: list[TokenizedText]
    queries: list[TokenizedText]
    before_passages: NDArray[np.float16]
    before_queries: NDArray[np.float16]
    lessons: list[Lesson]

    @property
    def set_name(self) -> str:
        """The data set: what the pool's name begins with."""
        return set_of(self.name)


class Reader:
    """Makes courses of pools, with the frozen encoder in `folder`."""

    def __init__(self, folder: Path, max_tokens: int = 256) -> None:
        from recalld_daemon.models.runtimes import TORCH_FP32

        self.frozen = TorchModel(TORCH_FP32, folder, threads=1).to_bf16()
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.queries = TextTokenizer(tokenizer, "", QUERY_TOKENS, max_tokens)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.passages = TextTokenizer(tokenizer, "", PASSAGE_TOKENS, max_tokens)

    def course(self, pool: Pool, *, complete: bool | None = None) -> Course:
        """Tokenise, encode with the frozen encoder, and mine. complete: see `COMPLETE`; None: by the set's name."""
        texts = [passage_text(row) for row in pool.rows]
        asked = [ask.focus.user_text for ask in pool.asks]
        passages, queries = self.passages(texts), self.queries(asked)
        rows, wanted = self._vectors(passages), self._vectors(queries)
        complete = set_of(pool.name) in COMPLETE if complete is None else complete
        lessons = _lessons(pool, wanted @ rows.T, bm25(texts, asked), complete=complete) if asked else []
        return Course(pool.name, passages, queries, rows.astype(np.float16), wanted.astype(np.float16), lessons)

    def _vectors(self, texts: list[TokenizedText]) -> Float32:
        states = hidden_states(self.frozen, texts, "mean")
        return np.array([vector for vector, _ in states], dtype=np.float32).reshape(len(texts), -1)


def initial_projection(reader: Reader) -> Float32:
    """(d, 64): the one that the frozen encoder would get, fitted on the daemon's own sample."""
    texts = reader.passages(sample_texts())
    states = hidden_states(reader.frozen, texts, "mean")
    rows = np.concatenate([tokens[text.kept] for text, (_, tokens) in zip(texts, states, strict=True)])
    return projection.fit(rows, TOKEN_DIMS).matrix


def passage_text(row: Row) -> str:
    """What is embedded of a row, as the store has it.

    >>> passage_text(Row("I adopted a puppy", "s1", "Ana", written_at=1683417600.0))
    'Ana (7 May 2023): I adopted a puppy'
    """
    return embedded_text(row.heading, row.speaker, row.text, row.written_at)


def set_of(name: str) -> str:
    """The data set that a pool is of.

    >>> set_of("qmsum Bdb001"), set_of("chat-0-17")
    ('qmsum', 'chat')
    """
    return re.split(r"[ -]", name, maxsplit=1)[0]


def bm25(texts: Sequence[str], queries: Sequence[str], k1: float = 1.2, b: float = 0.75) -> Float32:
    """(queries, texts) scores."""
    vocabulary: dict[str, int] = {}
    counts = _counts([words_of(text) for text in texts], vocabulary, grow=True)
    asked = _counts([words_of(text) for text in queries], vocabulary, grow=False)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    within = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((len(texts) - within + 0.5) / (within + 0.5))
    owner = np.repeat(np.arange(len(texts)), np.diff(counts.indptr))
    norm = k1 * (1 - b + b * lengths[owner] / max(1.0, lengths.mean()))
    counts.data = counts.data * (k1 + 1) / (counts.data + norm) * idf[counts.indices]
    return cast(Float32, (asked[:, : counts.shape[1]] @ counts.T).toarray().astype(np.float32))


def _lessons(pool: Pool, dense: Float32, lexical: Float32, *, complete: bool) -> list[Lesson]:
    lessons = []
    for number, ask in enumerate(pool.asks):
        if not ask.gold:
            continue
        known = ask.gold | ask.hidden
        gold = np.array(sorted(ask.gold), dtype=np.int64)
        if len(gold) > MANY:
            both = dense[number, gold] + lexical[number, gold] / max(1e-6, float(lexical[number].max()))
            gold = gold[np.argsort(-both)[:FEW]]
        bar = np.inf if complete else NEAR_GOLD * float(dense[number, gold].max())
        near = [*_top(dense[number], known, bar, dense[number]), *_top(lexical[number], known, bar, dense[number])]
        if complete:
            near += [row for row in _neighbours(gold, pool.rows) if row not in known]
        lessons.append(Lesson(number, gold, frozenset(known), np.array(list(dict.fromkeys(near)), dtype=np.int64)))
    return lessons


def _top(scores: Float32, known: frozenset[int], bar: float, dense: Float32) -> list[int]:
    """The MINED best rows that are not known and whose dense score is below the bar."""
    depth = min(len(scores), 2 * MINED + len(known))
    best = np.argpartition(-scores, depth - 1)[:depth]
    ordered = best[np.argsort(-scores[best])].tolist()
    return [row for row in ordered if row not in known and dense[row] < bar and scores[row] > 0][:MINED]


def _neighbours(gold: Int64, rows: Sequence[Row]) -> list[int]:
    around = [at + step for at in gold.tolist() for step in range(-NEIGHBOURS, NEIGHBOURS + 1) if step]
    inside = [at for at in around if 0 <= at < len(rows)]
    return [at for at in inside if any(rows[at].source == rows[other].source for other in gold.tolist())]


def _counts(texts: Sequence[Sequence[str]], vocabulary: dict[str, int], *, grow: bool) -> scipy.sparse.csr_matrix:
    columns, ends = [], [0]
    for words in texts:
        for word in words:
            stem = word[:-1] if len(word) > 3 and word.endswith("s") else word
            if grow:
                columns.append(vocabulary.setdefault(stem, len(vocabulary)))
            elif stem in vocabulary:
                columns.append(vocabulary[stem])
        ends.append(len(columns))
    shape = (len(texts), max(1, len(vocabulary)))
    found = scipy.sparse.csr_matrix((np.ones(len(columns)), columns, ends), shape=shape)
    found.sum_duplicates()
    return found
