"""LoCoMo's questions as lessons: dense vectors of "Speaker: text" per turn, questions as asked, encoded as queries.

No dates, no rewriting, no neighbours: what is learned is judged over what a bare encoder sees. A question may find the
turns of its own conversation. Its time is that of its newest evidence, since the data does not say when it was asked;
within one session the file's order holds. Adversarial questions have no answer: they are counted, and no more.

Encodings lie in --work, by what was encoded and the encoder's fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from eval_pools import ADVERSARIAL, Judged
from house_encoders import Encoders
from pool_types import Ask

from recalld_daemon.adapters.pairs import PairSet, kept_negatives
from recalld_daemon.recall.types import Float32, Int64

MINED = 16  # of a question's conversation: the nearest turns that are no answer (the fit draws 8 of them per batch)
BATCH = 256  # passages


@dataclass(frozen=True, slots=True)
class Talks:
    """pairs: all questions with an answer, in the file's order; names: folded texts; subject: its speaker's name.

    asks: (place of the conversation in `judged`, the question), row by row of `pairs`. adversarial: left out.
    """

    pairs: PairSet
    judged: Sequence[Judged]
    asks: Sequence[tuple[int, Ask]]
    adversarial: int

    def __len__(self) -> int:
        return len(self.asks)


def fold(text: str) -> str:
    """What makes two questions the same one.

    >>> fold("Who  is it? ") == fold("who is it")
    True
    """
    return " ".join(text.casefold().split()).strip(" ?!.")


def talks_of(pools: Sequence[Judged], encoders: Encoders, work: Path) -> Talks:
    """Encodes what was not encoded before: some 200 turns a second on one core."""
    memories, queries, gold, times, groups, asks, speakers = [], [], [], [], [], [], []
    names: dict[str, int] = {}
    pools_of, start = [], 0
    for place, judged in enumerate(pools):
        rows = judged.pool.rows
        own = [ask for ask in judged.pool.asks if ask.gold and ask.kind != ADVERSARIAL]
        memories.append(_passages([f"{row.speaker}: {row.text}" for row in rows], encoders, work, judged.pool.name))
        queries.append(_queries([ask.focus.user_text for ask in own], encoders, work, judged.pool.name))
        pool = np.arange(start, start + len(rows), dtype=np.int64)
        for ask in own:
            turns = sorted(ask.gold)
            gold.append(np.array(turns, np.int64) + start)
            times.append(max(rows[turn].written_at or 0.0 for turn in turns))
            speakers.append(names.setdefault(rows[turns[0]].speaker, len(names)))
            groups.append(place)
            pools_of.append(pool)
            asks.append((place, ask))
        start += len(rows)
    every, asked = np.concatenate(memories), np.concatenate(queries)
    negatives = [mined(asked[n], every, gold[n], pools_of[n]) for n in range(len(asks))]
    pairs = PairSet(
        asked, every, gold, negatives, np.array(times), np.ones(len(asks), np.float32),
        _passages(list(names), encoders, work, "speakers"), np.array(speakers, np.int64), np.array(groups, np.int64),
        [fold(ask.focus.user_text) for _, ask in asks], pools_of,
    )  # fmt: skip
    adversarial = sum(ask.kind == ADVERSARIAL for judged in pools for ask in judged.pool.asks)
    return Talks(pairs, pools, asks, adversarial)


def mined(query: Float32, memories: Float32, gold: Int64, pool: Int64, most: int = MINED) -> Int64:
    """Rows of the pool nearest to the query (d,) that are no gold and not nearly as near as it (the 0.95 rule)."""
    others = np.setdiff1d(pool, gold)
    far = others[kept_negatives(query, memories[gold], memories[others])]
    nearest: Int64 = far[np.argsort(-(memories[far] @ query), kind="stable")[:most]]
    return nearest


def _passages(texts: Sequence[str], encoders: Encoders, work: Path, name: str) -> Float32:
    def encode() -> Float32:
        cuts = range(0, len(texts), BATCH)
        return np.concatenate([encoders.bulk.encode_passages(texts[at : at + BATCH]).vectors for at in cuts])

    return _kept(work, f"{name}-passages", encoders.bulk.fingerprint, texts, encode)


def _queries(texts: Sequence[str], encoders: Encoders, work: Path, name: str) -> Float32:
    def encode() -> Float32:
        return np.stack([encoders.live.encode_query(text)[0] for text in texts])

    return _kept(work, f"{name}-queries", encoders.live.fingerprint, texts, encode)


def _kept(work: Path, name: str, fingerprint: str, texts: Sequence[str], encode: Callable[[], Float32]) -> Float32:
    """(n, d) float32, made once for these texts and this encoder."""
    key = hashlib.blake2b("\0".join([fingerprint, *texts]).encode(), digest_size=8).hexdigest()
    file = work / f"learning-{name.replace(' ', '-').replace('/', '-')[:40]}-{key}.npz"
    if file.exists():
        with np.load(file) as kept:
            return np.asarray(kept["vectors"], np.float32)
    vectors = encode().astype(np.float32)
    part = file.with_suffix(".part.npz")
    np.savez(part, vectors=vectors)
    part.replace(file)
    return vectors
