"""The slice of pairs that the online step never learns from, and what it says of an adapter beside the promoted one.

Each pair's gold is ranked among the golds of all others, learned ones too. Not among its own negatives: those were kept
because the plain query ranks them below its gold, so they can only speak against what was learned (on conversations
this bias threw away a good adapter about every thirty steps). Each gold counts once, however many pairs name it, so
that a wrong one which is said again and again does not outvote the others. Both adapters are measured on the same
pairs, so what counts is the mean of the paired differences; the slice is looked at after every step, so a fall is
believed only when it is well larger than its own uncertainty. No torch here.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

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
        """Everything that changes with these pairs alone."""
        self.queries, self._golds = self.shelf.vectors(QUERY), self.shelf.vectors(GOLD)
        self.promoted = self._adapter.apply(self.queries)

    def judged(self, shifted: Float32, learned: Float32) -> tuple[float, float, str]:
        """(MRR, the promoted version's, why this one must go or "").

        shifted: (n, d) the slice's queries; learned: (b, d) golds of other pairs.
        """
        n = len(self)
        if not n:
            return math.nan, math.nan, ""
        memories = np.concatenate([self._golds, learned])  # (m, d)
        same = self._golds @ memories.T > SAME  # (n, m)
        now, before = (reciprocal(rows, self._golds, memories, same) for rows in (shifted, self.promoted))
        weights = 1.0 / same[:, :n].sum(axis=1)  # (n,) each gold counts once
        golds = float(weights.sum())
        own, theirs = float(weights @ now) / golds, float(weights @ before) / golds
        error = math.sqrt(float(((weights * (now - before - own + theirs)) ** 2).sum())) / golds
        least = max(self._settings.most_fall, self._settings.fall_errors * error)
        if golds < self._settings.least_held or theirs - own <= least:
            return own, theirs, ""
        return own, theirs, f"on {n} pairs held out its MRR is {own:.3f}, the promoted version's {theirs:.3f}"


def reciprocal(shifted: Float32, golds: Float32, memories: Float32, same: NDArray[np.bool_]) -> Float64:
    """(n,) 1 / rank of each gold, 0 where its score is no number; among equals it stands in the midst.

    shifted, golds: (n, d); memories: (m, d); same: (n, m) which of them are the gold itself.
    """
    own = np.einsum("nd,nd->n", shifted, golds)
    rivals = np.where(same, -np.inf, shifted @ memories.T - own[:, None])  # (n, m)
    above = (rivals > EQUAL).sum(axis=1) + 0.5 * (np.abs(rivals) <= EQUAL).sum(axis=1)
    return np.where(np.isfinite(own), 1.0 / (1.0 + above), 0.0)
