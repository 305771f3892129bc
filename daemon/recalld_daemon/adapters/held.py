"""The slice of pairs that the online step never learns from, and what it says of an adapter beside the promoted one.

Each pair's gold is ranked among the golds of the others and its own negatives. Both adapters are measured on the same
pairs, so what counts is the mean of the paired differences; a few pairs differ by chance alone, and the slice is looked
at after every step, so a fall is believed only when it is larger than its own uncertainty. No torch here.
"""

from __future__ import annotations

import math

import numpy as np

from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.adapters.settings import OnlineSettings
from recalld_daemon.adapters.shelf import GOLD, QUERY, Shelf
from recalld_daemon.adapters.state import Tensors
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32, Float64

SAME = 1 - 1e-4  # cosine beyond which two vectors are those of one memory, or of one subject
EQUAL = 1e-6  # scores this near are equal


class HeldSlice:
    """queries: (n, d); promoted: (n, d), where the promoted version puts them."""

    def __init__(self, promoted: Adapter, settings: OnlineSettings) -> None:
        self._adapter, self._settings = promoted, settings
        self.shelf = Shelf(promoted.dims, settings.held_kept, settings.negatives)
        self._look()

    def put(self, pair: Pair) -> None:
        self.shelf.put(pair)
        self._look()

    def filled(self, name: str, tensors: Tensors, keys: list[str]) -> None:
        """Raises KeyError, ValueError."""
        self.shelf.filled(name, tensors, keys)
        self._look()

    def __len__(self) -> int:
        return len(self.shelf)

    def _look(self) -> None:
        """Everything that changes with the pairs alone."""
        self.queries, self._golds = self.shelf.vectors(QUERY), self.shelf.vectors(GOLD)
        self._negatives, self._there = self.shelf.negatives()
        self._same = self._golds @ self._golds.T > SAME  # (n, n)
        self.promoted = self._adapter.apply(self.queries)
        self._before = self._reciprocal(self.promoted)

    def _reciprocal(self, shifted: Float32) -> Float64:
        """(n,) 1 / rank of each gold, 0 where its score is no number. shifted: (n, d)."""
        across = shifted @ self._golds.T  # (n, n)
        own = np.diagonal(across)[:, None].copy()
        across[self._same] = -np.inf
        beside = np.matmul(self._negatives, shifted[:, :, None])[:, :, 0]  # (n, k)
        rivals = np.hstack([across, np.where(self._there, beside, -np.inf)]) - own
        above = (rivals > EQUAL).sum(axis=1) + 0.5 * (np.abs(rivals) <= EQUAL).sum(axis=1)
        return np.where(np.isfinite(own[:, 0]), 1.0 / (1.0 + above), 0.0)

    def judged(self, shifted: Float32) -> tuple[float, float, str]:
        """(MRR, the promoted version's, why this one must go or ""). shifted: (n, d) the slice's queries."""
        n = len(self)
        if not n:
            return math.nan, math.nan, ""
        now = self._reciprocal(shifted)
        own, theirs = float(now.mean()), float(self._before.mean())
        if n < self._settings.least_held or own >= theirs - self._settings.most_fall:
            return own, theirs, ""
        differences = now - self._before
        error = float(differences.std(ddof=1)) / math.sqrt(n)
        if own - theirs + self._settings.fall_errors * error >= 0:
            return own, theirs, ""
        return own, theirs, f"on {n} pairs held out its MRR is {own:.3f}, the promoted version's {theirs:.3f}"
