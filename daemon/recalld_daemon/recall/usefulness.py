"""What use shows and likeness misses: usefulness(m) = w_n * n(m) + w_s * (u_slow . f_V(m)) + w_f * (u_fast . f_V(m)).

n grows with how often and how recently m was used. u_slow is what this user is interested in over months: the nightly
cycle moves it, nothing resets it. u_fast is what the work is about now: every query and every use moves it, days
without any let it fade. Weights are zero at birth, so day one is plain search; the nightly fit (`usefulness_fit`)
finds them.

It is added to the score that the ranker gave (`fused`, equal to `ranked`): the sum of a forest's leaves, which means
the same for each query, so that where the ranker is certain usefulness cannot turn it, and among equals it decides. A
scale between a list's worst and best would do neither. The weights belong to the ranker they were fitted over: both are
artefacts of one version. It orders and nothing else: the gate's signals are taken from what they were before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import safetensors
import safetensors.numpy

from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Candidate, Float32, Float64, Int64, Query, QueryEncoding, Stage

DAY_SECONDS = 86_400.0
OFTEN_DAYS = 30.0  # half-life of a use: a month later it counts half
FAST_DAYS = 2.0  # half-life of the current focus, by the clock: after a weekend less than half of it is left
FAST_SHARE = 0.1  # how far a query moves the focus; some seven of them halve what was before
SLOW_SHARE = 0.02  # how far each use of a day moves the long-term interests
MANY_USES = 31.0  # recent uses from which on n is 1: log2(32) = 5 doublings
USEFUL_LIMIT = 100  # candidates that are ordered by it: those that the ranker ranked
LEAST_WEIGHT = 1e-9  # a weight below is zero


class UsefulnessUnreadable(Exception):
    """The bytes hold no weights."""


class VectorReader(Protocol):
    def vectors_of(self, ids: Int64) -> Float32:
        """(n, d) the passages' vectors in the live space; nan for those without one."""
        ...


@dataclass(frozen=True, slots=True)
class Weights:
    """w_n, w_s, w_f, each >= 0, on the ranker's scale; half-lives in days."""

    often: float = 0.0
    slow: float = 0.0
    fast: float = 0.0
    often_days: float = OFTEN_DAYS
    fast_days: float = FAST_DAYS

    @property
    def are_off(self) -> bool:
        return max(self.often, self.slow, self.fast) < LEAST_WEIGHT

    @property
    def row(self) -> Float32:
        """(3,) in the order of `Interests.features`."""
        return np.array([self.often, self.slow, self.fast], np.float32)

    def to_bytes(self, notes: dict[str, str] | None = None) -> bytes:
        """As safetensors, with `notes` as metadata."""
        days = np.array([self.often_days, self.fast_days], np.float64)
        weights = np.array([self.often, self.slow, self.fast], np.float64)
        return safetensors.numpy.save({"weights": weights, "days": days}, notes or {})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises UsefulnessUnreadable."""
        try:
            tensors = safetensors.numpy.load(data)
            weights, days = tensors["weights"], tensors["days"]
        except (safetensors.SafetensorError, KeyError) as error:
            raise UsefulnessUnreadable(f"no weights of usefulness: {error}") from error
        if weights.shape != (3,) or days.shape != (2,):
            raise UsefulnessUnreadable(f"three weights and two half-lives, not {weights.shape} and {days.shape}")
        if not (np.isfinite(weights).all() and np.isfinite(days).all() and (weights >= 0).all() and (days > 0).all()):
            raise UsefulnessUnreadable("weights must be finite and at least 0, half-lives above 0")
        return cls(*weights.tolist(), *days.tolist())


@dataclass(frozen=True, slots=True)
class Counts:
    """ids: (k,) rising passage ids; amounts: (k,) of uses, each halved since it happened, as of `at` (epoch s)."""

    ids: Int64
    amounts: Float64
    at: float = 0.0

    @classmethod
    def of(cls, passages: Int64, times: Float64, weights: Float64, at: float, days: float = OFTEN_DAYS) -> Self:
        """Of n uses: when each was (epoch s), and how much it counts (inverse propensity)."""
        ids, own = np.unique(np.asarray(passages, np.int64), return_inverse=True)
        amounts = np.zeros(len(ids))
        np.add.at(amounts, own, weights * faded(at - np.asarray(times, np.float64), days))
        return cls(ids, amounts, at)

    def plus(self, passages: Int64, weights: Float64, at: float, days: float = OFTEN_DAYS) -> Counts:
        """With uses of now."""
        everything = np.concatenate([self.ids, passages]).astype(np.int64)
        before = self.amounts * faded(np.float64(at - self.at), days)
        times = np.full(len(everything), at)
        return Counts.of(everything, times, np.concatenate([before, weights]), at, days)

    def often(self, ids: Int64, at: float, days: float = OFTEN_DAYS) -> Float32:
        """(n,) n(m), from 0 for what was never used to 1 for what was used MANY_USES times of late."""
        found = np.zeros(len(ids))
        if len(self.ids):
            places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
            found = np.where(self.ids[places] == ids, self.amounts[places], 0.0)
        now = found * faded(np.float64(at - self.at), days)
        result: Float32 = np.minimum(1.0, np.log1p(now) / np.log1p(MANY_USES)).astype(np.float32)
        return result


NO_USES = Counts(np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, slots=True)
class Interests:
    """slow, fast: (d,) in the encoder's own space, at most of length 1; fast as of `fast_at` (epoch seconds)."""

    slow: Float32
    fast: Float32
    fast_at: float = 0.0
    counts: Counts = NO_USES

    @classmethod
    def none(cls, dims: int) -> Self:
        return cls(np.zeros(dims, np.float32), np.zeros(dims, np.float32))

    def asked(self, vector: Float32, at: float, days: float = FAST_DAYS, share: float = FAST_SHARE) -> Interests:
        """After a query, or a use: vector (d,) of at most unit length."""
        moved = np.float32(1.0 - share) * self.focus(at, days) + np.float32(share) * vector
        return replace(self, fast=moved.astype(np.float32), fast_at=max(at, self.fast_at))

    def used(self, passages: Int64, weights: Float64, at: float, days: float = OFTEN_DAYS) -> Interests:
        """After uses of passages, each counting as much as its weight says."""
        return replace(self, counts=self.counts.plus(passages, weights, at, days))

    def slept(self, used: Float32, share: float = SLOW_SHARE) -> Interests:
        """After a night: used (n, d) unit vectors of what was used since the night before, oldest first."""
        return replace(self, slow=moved_slow(self.slow, used, share))

    def focus(self, at: float, days: float = FAST_DAYS) -> Float32:
        """(d,) u_fast, faded by the time that passed; a clock that was set back fades nothing."""
        result: Float32 = self.fast * np.float32(faded(np.float64(at - self.fast_at), days))
        return result

    def features(self, ids: Int64, values: Float32, at: float, weights: Weights) -> Float32:
        """(n, 3): n(m), u_slow . f_V(m), u_fast . f_V(m). values: (n, d); a row with nan counts as the others' mean."""
        found = np.empty((len(ids), 3), np.float32)
        found[:, 0] = self.counts.often(ids, at, weights.often_days)
        found[:, 1:] = values @ np.stack([self.slow, self.focus(at, weights.fast_days)], axis=1)  # (n, d) @ (d, 2)
        unknown = np.isnan(found[:, 1])
        if unknown.any():
            found[unknown, 1:] = 0.0 if unknown.all() else found[~unknown, 1:].mean(axis=0)
        return found


def faded(seconds: Float64 | np.float64, days: float) -> Float64:
    """What is left of 1 after so long; of what lies ahead, all.

    >>> faded(np.array([0.0, 86_400.0, -5.0]), 1.0).tolist()
    [1.0, 0.5, 1.0]
    """
    return np.asarray(np.exp2(-np.maximum(seconds, 0.0) / (days * DAY_SECONDS)), np.float64)


def moved_slow(slow: Float32, used: Float32, share: float = SLOW_SHARE) -> Float32:
    """(d,) a running mean, moved by each of used (n, d) in turn and never begun anew."""
    kept = 1.0 - share
    after = kept ** np.arange(len(used) - 1, -1, -1)  # (n,) what is left of each one's part
    moved = kept ** len(used) * slow + share * (after @ used) if len(used) else slow
    return np.asarray(moved, np.float32)


def usefulness(features: Float32, weights: Weights) -> Float32:
    """(n,) of features (n, 3).

    >>> usefulness(np.array([[1.0, 0.5, 0.0]], np.float32), Weights(often=0.5, slow=1.0)).tolist()
    [1.0]
    """
    result: Float32 = features @ weights.row
    return result


@dataclass(frozen=True, slots=True)
class Useful:
    """The deepener, after the ranker: the first `limit` candidates are ordered by their score + usefulness.

    index: the live vectors; value: f_V, None: the identity; interests: what they are now, None: nothing is known.
    """

    index: VectorReader
    weights: Weights
    value: Adapter | None
    interests: Callable[[], Interests | None]
    clock: Callable[[], float] = time.time
    limit: int = USEFUL_LIMIT
    name: str = "useful"
    stage: Stage | None = None

    def deepen(self, query: Query, encoding: QueryEncoding, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        now = self.interests()
        if now is None or self.weights.are_off or not candidates:
            return list(candidates)
        head = candidates[: self.limit]
        ids = np.fromiter((candidate.passage for candidate in head), np.int64, len(head))
        return with_usefulness(candidates, usefulness(self._features(now, ids), self.weights))

    def _features(self, now: Interests, ids: Int64) -> Float32:
        if self.weights.slow < LEAST_WEIGHT and self.weights.fast < LEAST_WEIGHT:
            values = np.zeros((len(ids), len(now.slow)), np.float32)  # counts alone: no vector is needed
        else:
            values = self.index.vectors_of(ids)
            values = values if self.value is None else self.value.apply(values)
        return now.features(ids, values, self.clock(), self.weights)


def with_usefulness(candidates: Sequence[Candidate], useful: Float32) -> list[Candidate]:
    """New candidates: useful (n,) is added to the first n, which are ordered anew; the rest stays below them."""
    added = enumerate(zip(candidates, useful.tolist(), strict=False))
    head = [_with(candidate, more, place) for place, (candidate, more) in added]
    head.sort(key=lambda c: -c.fused)  # stable: of equals the better-ranked first
    rest = candidates[len(head) :]
    if not rest or head[-1].fused > rest[0].fused:
        return [*head, *rest]
    lower = rest[0].fused - head[-1].fused + 1.0
    return [*head, *(_with(candidate, -lower, place) for place, candidate in enumerate(rest, start=len(head)))]


def _with(c: Candidate, more: float, place: int) -> Candidate:
    """In a third of the time that `dataclasses.replace` takes; what a judge says comes afterwards."""
    return Candidate(
        c.passage, c.lanes, c.fused + more, c.late, c.ranked, c.cross, c.focus, useful=more, unhelped=place
    )  # fmt: skip
