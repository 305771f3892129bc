"""A reranker: a cross-encoder that reads the query and a passage together, and says how well the one answers the other.

It is the dearest stage of a recall, so it is bounded by time: pairs are scored in the order in which their passages
ranked, a few of like length at once, until the time is used up; whatever was not reached has no score. A score is a raw
logit, never a softmax over one: for a model with one label the label's logit, for a model with several the log-odds of
the label that says "relevant" against all others. Scores of two models lie on two scales.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recalld_daemon.models.home import Progress
from recalld_daemon.models.reranker_files import RerankerFiles, open_reranker_files
from recalld_daemon.models.reranker_home import prepared_reranker
from recalld_daemon.models.reranker_runtimes import Pair, PairModel, open_pair_model
from recalld_daemon.recall.types import Float32

WINDOW = 8  # neighbours in rank that are sorted by length, so that a batch holds like lengths
BATCH = 4  # pairs: in int8 a pair of 64 tokens costs as much in fours as in twenties, and a query waits for four only
WARM_PAIRS = 2 * BATCH
SMOOTHING = 0.3  # weight of the newest batch in the expected cost of a token

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class RerankerSettings:
    """What the user configured; never "none"."""

    cache_dir: Path
    model: str  # "default", a name (without an owner: cross-encoder/NAME), or a path
    allow_download: bool = False
    threads: int = 1


def load_reranker(settings: RerankerSettings, progress: Progress, clock: Clock = time.perf_counter) -> Reranker:
    """The reranker, prepared first where the cache lacks it.

    Raises ModelError, which names the model and the remedy, and OSError (cache not writable, disk full).
    """
    progress("looking for the cross-encoder", 0, 0)
    files = open_reranker_files(settings.model, settings.cache_dir, allow_download=settings.allow_download)
    choice = prepared_reranker(files, settings.model, settings.cache_dir, progress)
    progress("loading the cross-encoder", 0, 0)
    return Reranker(files, open_pair_model(choice.runtime, files, settings.cache_dir, settings.threads), clock)


class Reranker:
    """See load_reranker. Not thread-safe. `clock` gives seconds."""

    def __init__(self, files: RerankerFiles, model: PairModel, clock: Clock = time.perf_counter) -> None:
        self.model = files.name
        self.runtime = model.name
        self._pairs = model
        self._positive = files.positive
        self._clock = clock
        self._token_seconds = 0.0
        for _ in range(2):  # the first one warms up
            self.score(self._pairs.pairs("where does the key lie?", ["The key lies in the vault. " * 8] * WARM_PAIRS))

    @property
    def token_seconds(self) -> float:
        """What a token of a batch costs, padding too: measured at the start and followed since."""
        return self._token_seconds

    def begin(self, query: str, texts: Sequence[str], budget_seconds: float) -> Reranking:
        """Scoring texts against a query, best ranked first; the time runs from now on."""
        return Reranking(self, query, texts, self._clock() + budget_seconds, self._clock)

    def pairs(self, query: str, texts: Sequence[str]) -> list[Pair]:
        """Tokenised, cut at the bound of tokens."""
        return self._pairs.pairs(query, texts)

    def score(self, batch: Sequence[Pair]) -> Float32:
        """(b,) scores of one batch."""
        began = self._clock()
        logits = self._pairs.logits(batch)
        cost = (self._clock() - began) / (len(batch) * max(len(pair) for pair in batch))
        before = self._token_seconds or cost
        self._token_seconds = before + SMOOTHING * (cost - before)
        return scores_of(logits, self._positive)


class Reranking:
    """One rerank under way: `step` scores a batch. Between two steps others may be served."""

    def __init__(self, reranker: Reranker, query: str, texts: Sequence[str], until: float, clock: Clock) -> None:
        self._reranker, self._query, self._texts = reranker, query, texts
        self._until, self._clock = until, clock
        self._next = 0  # first text that is not tokenised yet
        self._waiting: list[tuple[int, Pair]] = []  # tokenised, shortest first
        self.scores: Float32 = np.full(len(texts), np.nan, np.float32)  # nan: not reached

    def step(self) -> bool:
        """Score one batch, if it can be expected to end in time; False when nothing more will be scored."""
        if not self._waiting:
            self._waiting = self._window()
        batch = self._affordable(self._waiting[:BATCH])
        if not batch:
            return False
        self.scores[[place for place, _ in batch]] = self._reranker.score([pair for _, pair in batch])
        del self._waiting[: len(batch)]
        return bool(self._waiting) or self._next < len(self._texts)

    def _window(self) -> list[tuple[int, Pair]]:
        """The next WINDOW texts by rank, shortest first. Nothing is tokenised for which there is no time."""
        if self._clock() >= self._until:
            return []
        texts = self._texts[self._next : self._next + WINDOW]
        found = list(enumerate(self._reranker.pairs(self._query, texts), self._next))
        self._next += len(texts)
        return sorted(found, key=lambda row: len(row[1]))

    def _affordable(self, batch: list[tuple[int, Pair]]) -> list[tuple[int, Pair]]:
        """As many of these, from the shortest on, as the time that is left is expected to pay for."""
        left = self._until - self._clock()
        cost = self._reranker.token_seconds
        while batch and len(batch) * len(batch[-1][1]) * cost > left:
            batch = batch[:-1]
        return batch


def scores_of(logits: Float32, positive: int) -> Float32:
    """(b, k) logits -> (b,). k = 1: the logit; else log p / (1 - p) of the label `positive`.

    >>> scores_of(np.array([[2.0], [-1.0]], np.float32), 0).tolist()
    [2.0, -1.0]
    >>> scores_of(np.array([[0.5, 2.0]], np.float32), 1).tolist()  # two labels: their difference
    [1.5]
    """
    if logits.shape[1] == 1:
        return logits[:, 0]
    others = np.delete(logits, positive, axis=1)
    rest: Float32 = np.logaddexp.reduce(others, axis=1)
    return logits[:, positive] - rest
