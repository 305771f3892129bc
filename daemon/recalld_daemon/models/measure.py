"""How fast a runtime is here, and whether its vectors are those of fp32: what the choice of a runtime rests on.

Speed is measured on token ids alone, on one thread, as the median (queries) or the best (batches) of a few runs.
Agreement is the lowest cosine to fp32 over some forty texts of all kinds, of two words or more: a bare "ok" or "thanks"
reaches only .97 in int8, and is nothing that one recalls by.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import msgspec
import numpy as np

from recalld_daemon.models.forward import hidden_states
from recalld_daemon.models.pooling import unit_rows
from recalld_daemon.models.runtimes import Runtime
from recalld_daemon.models.sample import sample_texts
from recalld_daemon.models.tokens import BATCH, TokenizedText, padded
from recalld_daemon.recall.types import Float32, Int64

AGREE_POOLED = 0.99  # lowest cosine of a text's vector to that of fp32
AGREE_TOKENS = 0.95  # lowest over texts of the mean cosine of its token vectors
WORTH = 1.25  # how much faster another runtime must be before vectors are made anew for it
QUERY_TOKENS, PASSAGE_TOKENS, PASSAGES = 16, 128, 8  # one query; one batch
QUERY_RUNS, PASSAGE_RUNS = 15, 2
HOPELESS = 4.0  # a first batch this many times slower than the best so far is not measured again


class Measured(msgspec.Struct, frozen=True):
    """One runtime on this machine."""

    query_ms: float
    passages_per_second: float
    pooled: float  # lowest cosine to fp32
    tokens: float

    @property
    def agrees(self) -> bool:
        return self.pooled >= AGREE_POOLED and self.tokens >= AGREE_TOKENS


class Reference(msgspec.Struct, frozen=True):
    """What fp32 makes of the texts that runtimes are compared on."""

    runtime: str
    texts: list[TokenizedText]
    pooled: list[Float32]  # each (d,)
    tokens: list[Float32]  # each (t, h), unit rows


def agreement_texts() -> list[str]:
    """One of each pattern, some of two or three words, other scripts, and one that is cut at the limit."""
    texts = sample_texts(rounds=1)
    return [*texts, "git push", "search index", "QQQQ zzxv plover-9913", "Где ключ? 鍵はどこ?", " ".join(texts)]


def reference(runtime: Runtime, texts: list[TokenizedText], pooling: str) -> Reference:
    """`runtime` is the one that is right by definition."""
    states = hidden_states(runtime, texts, pooling)
    return Reference(runtime.name, texts, [vector for vector, _ in states], [unit_rows(tokens) for _, tokens in states])


def measure(runtime: Runtime, right: Reference, pooling: str, best_batch_seconds: float) -> Measured:
    """Speed and agreement. best_batch_seconds: the fastest runtime's so far, inf for the first."""
    pooled, tokens = [1.0], [1.0]
    if runtime.name != right.runtime:
        for batch in (1, BATCH):
            of_texts, of_tokens = _agreement(runtime, right, pooling, batch)
            pooled.append(of_texts)
            tokens.append(of_tokens)
    batch_seconds = _batch_seconds(runtime, right.texts, best_batch_seconds)
    return Measured(
        query_ms=round(1000 * _query_seconds(runtime, right.texts), 3),
        passages_per_second=round(PASSAGES / batch_seconds, 1),
        pooled=round(min(pooled), 5),
        tokens=round(min(tokens), 5),
    )


def fastest(measured: dict[str, Measured], before: str, *, of_queries: bool) -> str:
    """The quickest runtime that agrees; `before`, if it still agrees, unless another is much quicker.

    >>> slow, fast = Measured(3.0, 80.0, 1.0, 1.0), Measured(2.0, 90.0, 0.992, 0.99)
    >>> fastest({"a": slow, "b": fast}, "", of_queries=False)
    'b'
    >>> fastest({"a": slow, "b": fast}, "a", of_queries=False)
    'a'
    """
    speed = {
        name: 1.0 / result.query_ms if of_queries else result.passages_per_second
        for name, result in measured.items()
        if result.agrees
    }
    best = max(speed, key=lambda name: speed[name])
    return before if before in speed and speed[best] < WORTH * speed[before] else best


def _agreement(runtime: Runtime, right: Reference, pooling: str, batch: int) -> tuple[float, float]:
    """Lowest cosine over texts, of the text's vector and of its tokens' (mean), encoded `batch` at a time.

    Dynamic quantisation scales a whole batch at once, so a text's vector depends on its neighbours.
    """
    states = hidden_states(runtime, right.texts, pooling, batch=batch)
    pooled = [float(mine @ its) for (mine, _), its in zip(states, right.pooled, strict=True)]
    tokens = [
        float(np.einsum("td,td->t", unit_rows(mine), its).mean())
        for (_, mine), its in zip(states, right.tokens, strict=True)
    ]
    return min(pooled), min(tokens)


def _query_seconds(runtime: Runtime, texts: Sequence[TokenizedText]) -> float:
    ids, mask = padded([_some_ids(texts, QUERY_TOKENS)])
    return statistics.median(_seconds(runtime, ids, mask, is_query=True) for _ in range(QUERY_RUNS))


def _batch_seconds(runtime: Runtime, texts: Sequence[TokenizedText], best_so_far: float) -> float:
    ids, mask = padded([_some_ids(texts, PASSAGE_TOKENS)] * PASSAGES)
    first = _seconds(runtime, ids, mask, is_query=False)
    if first > HOPELESS * best_so_far:
        return first
    return min(_seconds(runtime, ids, mask, is_query=False) for _ in range(PASSAGE_RUNS))


def _seconds(runtime: Runtime, ids: Int64, mask: Int64, *, is_query: bool) -> float:
    begin = time.perf_counter()
    runtime.run(ids, mask, is_query=is_query, prompt_tokens=0)
    return time.perf_counter() - begin


def _some_ids(texts: Sequence[TokenizedText], count: int) -> Int64:
    longest = max((text.ids for text in texts), key=len)
    return np.resize(longest, count)
