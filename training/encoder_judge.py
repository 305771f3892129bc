"""How well an encoder finds what answers: recall at ten and mean reciprocal rank, by its vectors and by its tokens.

The whole pool is ranked each time, by each way alone. Where an answer is a document of several passages (notes,
sessions, pages), documents are ranked by their best passage; in conversations, turns are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.late import max_sim
from recalld_daemon.recall.types import Float32, TokenBlock
from training.encoder_lessons import passage_text, set_of
from training.pools import Ask, Pool

DOCUMENTS = ("til", "entire", "bukzor", "wiki", "tldr", "beam")  # sets whose answers are documents
NONE = np.zeros(0, np.uint16)


class Encodes(Protocol):
    """What is judged: texts in; vectors (n, d), unit rows, and each text's token vectors out.

    A query's tokens are float32 unit rows; a passage's are int8, round(254 * unit row).
    """

    def queries(self, texts: Sequence[str]) -> tuple[Float32, list[Float32]]: ...

    def passages(self, texts: Sequence[str]) -> tuple[Float32, list[NDArray[np.int8]]]: ...


@dataclass(frozen=True, slots=True)
class Score:
    """Means over `n` questions, each of one way to rank."""

    n: int
    dense_r10: float
    dense_mrr: float
    late_r10: float
    late_mrr: float

    def __str__(self) -> str:
        return (
            f"n {self.n:5}  dense R@10 {self.dense_r10:.3f} MRR {self.dense_mrr:.3f}"
            f"  max-sim R@10 {self.late_r10:.3f} MRR {self.late_mrr:.3f}"
        )


def judge(encoder: Encodes, pools: Iterable[Pool]) -> dict[str, Score]:
    """Scores by data set, as their pools' names begin."""
    found: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for pool in pools:
        asks = [ask for ask in pool.asks if ask.gold]
        if not asks:
            continue
        set_name = set_of(pool.name)
        units = _units(pool, documents=set_name in DOCUMENTS)
        vectors, tokens = encoder.passages([passage_text(row) for row in pool.rows])
        block = _block(tokens)
        wanted, asked = encoder.queries([ask.focus.user_text for ask in asks])
        for ask, vector, of_query in zip(asks, wanted, asked, strict=True):
            late = np.nan_to_num(max_sim(of_query, block), nan=-1.0)
            found[set_name].append((*_found(vectors @ vector, ask, units), *_found(late, ask, units)))
    return {name: Score(len(rows), *np.mean(rows, axis=0).tolist()) for name, rows in found.items()}


def _block(tokens: Sequence[NDArray[np.int8]]) -> TokenBlock:
    return TokenBlock(np.concatenate(tokens), NONE, NONE, np.array([len(own) for own in tokens]))


def _units(pool: Pool, *, documents: bool) -> NDArray[np.int64]:
    """(n,) which unit each row belongs to: its document, or itself."""
    if not documents:
        return np.arange(len(pool.rows))
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(row.source, len(numbers)) for row in pool.rows])


def _found(scores: Float32, ask: Ask, units: NDArray[np.int64]) -> tuple[float, float]:
    """Recall at 10 and reciprocal rank of one question."""
    scores = scores.astype(np.float64)
    scores[sorted(ask.hidden)] = -np.inf
    best = np.full(int(units.max()) + 1, -np.inf)
    np.maximum.at(best, units, scores)
    gold = np.unique(units[sorted(ask.gold)])
    ranks = np.array([(best > best[unit]).sum() + (best[:unit] == best[unit]).sum() + 1 for unit in gold])
    return float((ranks <= 10).mean()), float(1.0 / ranks.min())
