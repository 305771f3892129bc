"""How sure one may be of a difference: the paired bootstrap, over whole groups where questions belong together.

Champion and challenger answer the same questions, so only the differences are drawn again, with replacement (Efron and
Tibshirani 1993). Questions of one conversation are alike: drawn one by one they make an interval that is too narrow, so
conversations are drawn whole where they are given. Seeded: the same log gives the same verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import Float64

DRAWS = 2_000
SEED = 20260101
LEVEL = 0.95
LEAST_MOVED = 6  # questions: where all that moved got better, chance does that to five once in sixteen, two-sided
_Z = 1.959964  # of a normal distribution, at that level
AT_ONCE = 250  # draws per batch: with 10,000 groups 20 MB


@dataclass(frozen=True, slots=True)
class Verdict:
    """gain: mean of challenger - champion; [low, high]: its 95 % interval; n: questions; moved: those whose figure is
    not the same, None where nothing was paired.

    Of fewer than two questions nothing can be said: low and high are the bounds of any difference of shares, -1 and 1.
    """

    gain: float
    low: float
    high: float
    n: int
    moved: int | None = field(default=None, compare=False)

    @property
    def is_better(self) -> bool:
        """The rule of promotion: a gain whose lower bound is not below zero, and enough questions that tell it.

        Where no question got worse no draw falls below zero, were it a single one that got better: hence the second.
        """
        told = self.moved is None or self.moved >= LEAST_MOVED
        return self.n > 0 and self.gain > 0.0 and self.low >= 0.0 and told

    def to_json(self) -> dict[str, float | int]:
        return {"gain": round(self.gain, 5), "low": round(self.low, 5), "high": round(self.high, 5), "n": self.n}


def better(
    champion: Float64,
    challenger: Float64,
    groups: NDArray[Any] | None = None,
    weights: Float64 | None = None,
    *,
    draws: int = DRAWS,
    seed: int = SEED,
) -> Verdict:
    """champion, challenger: (n,) one figure of the same questions in the same order. groups: (n,) drawn whole.

    weights: (n,) how much each question counts. Raises ValueError where the lengths differ.

    >>> verdict = better(np.zeros(50), np.r_[np.ones(30), np.zeros(20)])
    >>> verdict.gain, verdict.n, 0.4 < verdict.low < verdict.high < 0.8
    (0.6, 50, True)
    """
    if champion.shape != challenger.shape:
        raise ValueError(f"champion and challenger answered other questions: {champion.shape}, {challenger.shape}")
    differences = challenger - champion
    found = of_mean(differences, groups, weights, draws=draws, seed=seed, bounds=(-1.0, 1.0))
    return replace(found, moved=int(np.count_nonzero(differences)))


def of_mean(
    values: Float64,
    groups: NDArray[Any] | None = None,
    weights: Float64 | None = None,
    *,
    draws: int = DRAWS,
    seed: int = SEED,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Verdict:
    """The mean of values (n,) as `gain`, with its interval. bounds: the interval where nothing can be said."""
    n = len(values)
    if n < 2:
        return Verdict(float(values.mean()) if n else 0.0, *bounds, n)
    sums, counts = _by_group(values, groups, weights)
    means = _drawn(sums, counts, np.random.default_rng(seed), draws)
    low, high = _ends(means)
    return Verdict(float(sums.sum() / counts.sum()), low, high, n)


def of_share(values: Float64, groups: NDArray[Any] | None = None, *, draws: int = DRAWS, seed: int = SEED) -> Verdict:
    """The share of ones among values (n,) of 0 and 1, as `gain`.

    Where all values are equal a bootstrap knows no doubt; so the interval is at least Wilson's (1927).

    >>> verdict = of_share(np.zeros(15))
    >>> verdict.low, round(verdict.high, 2)
    (0.0, 0.2)
    """
    drawn, n = of_mean(values, groups, draws=draws, seed=seed), len(values)
    if not n:
        return drawn
    share, z = drawn.gain, _Z
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    if n > 1:
        low, high = min(low, drawn.low), max(high, drawn.high)
    return Verdict(share, float(min(low, share)), float(max(high, share)), n)


def of_difference(one: Verdict, other: Verdict) -> Verdict:
    """one - other of two shares that are not paired, e.g. of what was shown and what was withheld.

    From their own intervals, by the square-and-add method (Newcombe 1998).
    """
    if not one.n or not other.n:
        return Verdict(0.0, -1.0, 1.0, 0)
    gain = one.gain - other.gain
    below = np.hypot(one.gain - one.low, other.high - other.gain)
    above = np.hypot(one.high - one.gain, other.gain - other.low)
    return Verdict(gain, float(max(-1.0, gain - below)), float(min(1.0, gain + above)), one.n + other.n)


def _by_group(values: Float64, groups: NDArray[Any] | None, weights: Float64 | None) -> tuple[Float64, Float64]:
    """(g,) weighted sums and (g,) sums of weights; each question its own group where fewer than two are given."""
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    if groups is None:
        return values * weights, weights
    _, place = np.unique(groups, return_inverse=True)
    if not len(place) or place.max() == 0:
        return values * weights, weights
    return _summed(place, values * weights), _summed(place, weights)


def _summed(place: NDArray[Any], values: Float64) -> Float64:
    """(g,) sums of the values at each place."""
    return np.bincount(place, values).astype(np.float64)


def _drawn(sums: Float64, counts: Float64, rng: np.random.Generator, draws: int) -> Float64:
    """(draws,) means of as many groups as there are, drawn with replacement."""
    size, found = len(sums), []
    for first in range(0, draws, AT_ONCE):
        times = rng.multinomial(size, np.full(size, 1.0 / size), size=min(AT_ONCE, draws - first))  # (draws, groups)
        found.append((times @ sums) / np.maximum(times @ counts, 1e-12))
    return np.concatenate(found)


def _ends(drawn: Float64) -> tuple[float, float]:
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return float(low), float(high)
