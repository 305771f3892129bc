"""Lessons for the cross-encoder: a query, passages that answer it, and passages that rank high and do not.

The negatives are what lexical and dense search put before the answers: just what the cross-encoder will be asked to
re-order. Queries are written as a recall writes them (`query_of`) and passages as they are embedded, with heading,
speaker and date. Where a whole session or stretch of talk is the answer, only its best ranked passages are taken: most
of the others answer nothing by themselves. In conversations the answer's neighbours are negatives as well.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recalld_daemon.models.encoder import Encoder, EncoderSettings, load_encoder
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.types import Float32
from training.encoder_lessons import bm25, passage_text
from training.permissive import entire_pool, qmsum_pools, til_pool, tldr_pool, unrepeated, wiki_pool
from training.pools import Ask, Pool, split

HELD_OUT = 0.15  # of the groups (documents, meetings, conversations), for judging
MEETINGS = 20  # of QMSum's 232: its answers are the weakest labels
MOST = 2500  # lessons of a kind
GOLDS, NEGATIVES = 3, 24  # of a lesson, at most
DENSE = ("til", "wiki", "tldr")  # pools whose passages are encoded; in the others words alone find negatives
NEIGHBOURS = (-2, -1, 1)  # turns around an answer
HALF_RANK = 60.0  # of reciprocal rank fusion
SEED = 20260101


@dataclass(frozen=True, slots=True)
class Lesson:
    """One question: golds answer it, negatives are the best ranked others, best first."""

    kind: str
    query: str
    golds: tuple[str, ...]
    negatives: tuple[str, ...]


def both_sides(data: Path, chats: Sequence[Pool] = (), seed: int = SEED) -> tuple[list[Pool], list[Pool]]:
    """The permissive pools twice: with the questions to train on, and with those held out."""
    rng = random.Random(seed)
    meetings = rng.sample(qmsum_pools(data, ("train",)), MEETINGS)
    pools = [til_pool(data), wiki_pool(data), tldr_pool(data, seed), entire_pool(data), *meetings, *chats]
    left, right = split([unrepeated(pool) for pool in pools], HELD_OUT, seed)
    return [_fewer(pool, rng, MOST) for pool in left], [_fewer(pool, rng, round(MOST * HELD_OUT)) for pool in right]


class Miner:
    """Ranks a pool's passages for its questions. Encodings are kept in `work`."""

    def __init__(self, work: Path) -> None:
        settings = EncoderSettings(work, model="minilm")  # the body that is trained, untuned
        self._live: Encoder = load_encoder(settings, "live", lambda *_: None)
        self._bulk: Encoder = load_encoder(settings, "bulk", lambda *_: None)
        self._work = work

    def lessons(self, pool: Pool) -> Iterator[Lesson]:
        """Of all questions that have a text, an answer, and something beside it."""
        texts = [passage_text(row) for row in pool.rows]
        asked = [(ask, query.text) for ask in pool.asks if ask.gold and (query := query_of(ask.focus)).text]
        if not asked:
            return
        ranked = self._ranked(pool.name, texts, [query for _, query in asked])
        for (ask, query), order in zip(asked, ranked, strict=True):
            lesson = _lesson(pool, texts, ask, query, order)
            if lesson.negatives:
                yield lesson

    def _ranked(self, name: str, texts: list[str], queries: list[str]) -> Iterator[list[int]]:
        """Each query's passages, best first, by reciprocal ranks of words and, in DENSE pools, of meaning."""
        lexical = bm25(texts, queries)
        vectors = self._vectors(texts) if name in DENSE else None
        for number, query in enumerate(queries):
            fused = _reciprocal(lexical[number])
            if vectors is not None:
                fused += _reciprocal(vectors @ self._live.encode_query(query)[0])
            yield np.argsort(-fused, kind="stable").tolist()

    def _vectors(self, texts: list[str]) -> Float32:
        key = hashlib.blake2b("\0".join([self._live.fingerprint, *texts]).encode(), digest_size=12).hexdigest()
        file = self._work / f"{key}.npz"
        if not file.exists():
            order = sorted(range(len(texts)), key=lambda at: len(texts[at]))  # batches of like lengths
            made = self._bulk.encode_passages([texts[at] for at in order]).vectors
            np.savez(file, vectors=made[np.argsort(order)])
        vectors: Float32 = np.load(file)["vectors"].astype(np.float32)
        return vectors


def drawn(lesson: Lesson, count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """A gold and `count` negatives, the better ranked ones more often: 1 / (rank + 4)."""
    gold = lesson.golds[int(rng.integers(len(lesson.golds)))]
    weights = 1.0 / (np.arange(len(lesson.negatives)) + 4.0)
    count = min(count, len(weights))
    chosen = rng.choice(len(weights), count, replace=False, p=weights / weights.sum())
    return (gold, *(lesson.negatives[int(at)] for at in chosen))


def _lesson(pool: Pool, texts: list[str], ask: Ask, query: str, order: list[int]) -> Lesson:
    out = ask.gold | ask.hidden
    golds = [at for at in order if at in ask.gold][:GOLDS]
    near = [at + step for at in golds for step in NEIGHBOURS] if pool.name.startswith("chat") else []
    others = [at for at in dict.fromkeys([*near, *order[:200]]) if 0 <= at < len(texts) and at not in out]
    return Lesson(
        ask.kind,
        query,
        tuple(texts[at] for at in golds),
        tuple(texts[at] for at in others[:NEGATIVES]),
    )


def _reciprocal(scores: Float32) -> Float32:
    ranks = np.empty(len(scores), np.float32)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    fused: Float32 = 1.0 / (HALF_RANK + ranks)
    return fused


def _fewer(pool: Pool, rng: random.Random, most: int) -> Pool:
    """At most `most` questions of a kind."""
    kinds = {ask.kind: [one for one in pool.asks if one.kind == ask.kind] for ask in pool.asks}
    asks = [one for found in kinds.values() for one in rng.sample(found, min(most, len(found)))]
    return Pool(pool.name, pool.rows, asks)
