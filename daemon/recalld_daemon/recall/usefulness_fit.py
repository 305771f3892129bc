"""The weights of usefulness, fitted at night on questions whose answers are known, from what was known before each.

`replayed` goes through the past in its order: features of a question's candidates come from the uses before it, never
from its own, and u_slow moves between days as the nightly cycle moves it. A use counts by its inverse propensity (what
is shown first is looked at first), so the rank at which something stood is not learned as its worth.

`fit_weights` is a conditional logit over each question's candidates: log P(gold) = s * score + v . features, minus the
log of the sum over all. Convex in four numbers, all >= 0, solved by coordinate Newton steps. s makes it right for a
ranker of any scale: what counts for the order is w = v / s. A ridge on v keeps weights at 0 where little is known;
whether they help is for the judge to say, on questions that were not fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import Float32, Float64, Int64
from recalld_daemon.recall.usefulness import DAY_SECONDS, SLOW_SHARE, Interests, Weights

RIDGE = 2.0  # on v, features being at most 1 (n) or about a half (cosines): as strong as a few dozen questions
ROUNDS = 50  # over the four numbers; some ten are enough
CLOSE = 1e-6  # change in a round at which it ends
LEAST_SCALE = 1e-2  # of s: a ranker whose scores tell nothing must not make weights infinite
LEAST_QUESTIONS = 20  # below, there is nothing to fit on


class TooFewQuestions(ValueError):
    """Weights fitted on a handful of questions would be noise."""


@dataclass(frozen=True, slots=True)
class Past:
    """One question of the past. candidates: (c,) passages, first ones of the order; values: (c, d) f_V of them.

    used: (g,) passages that helped; used_vectors: (g, d) in the encoder's space; use_weights: (g,) inverse propensity.
    """

    at: float  # epoch seconds
    query: Float32  # (d,) frozen, unit length
    candidates: Int64
    values: Float32
    used: Int64
    used_vectors: Float32
    use_weights: Float64


@dataclass(frozen=True, slots=True)
class Choice:
    """What the fit sees of a question. scores: (c,) the ranker's; features: (c, 3); gold: (c,) bool."""

    scores: Float32
    features: Float32
    gold: NDArray[np.bool_]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class FittedWeights:
    """questions: learned from (with gold and more among the candidates); before, after: mean loss at w = 0 and w."""

    weights: Weights
    questions: int
    before: float
    after: float
    scale: float


def replayed(
    past: Sequence[Past], start: Interests, weights: Weights = Weights(), slow_share: float = SLOW_SHARE  # noqa: B008
) -> tuple[list[Float32], Interests]:  # fmt: skip
    """(features (c, 3) of each question's candidates as they were before it, the interests after the last).

    past: oldest first. weights: their half-lives are used. Raises ValueError where it is not in order.
    """
    now, night, found, last = start, _Night(), [], -np.inf
    for question in past:
        if question.at < last:
            raise ValueError("the past is gone through in its order: sort it by time")
        last = question.at
        now = night.passed(now, question.at, slow_share)
        found.append(now.features(question.candidates, question.values, question.at, weights))
        now = now.asked(question.query, question.at, weights.fast_days)
        if len(question.used):
            now = now.used(question.used, question.use_weights, question.at, weights.often_days)
            middle = question.used_vectors.mean(axis=0)
            now = now.asked(middle, question.at, weights.fast_days)
            night.day.append(middle)
    return found, now


@dataclass(slots=True)
class _Night:
    """What was used since the last one."""

    number: int = -1
    day: list[Float32] = field(default_factory=list)

    def passed(self, now: Interests, at: float, share: float) -> Interests:
        number = int(at // DAY_SECONDS)
        if number != self.number and self.day:
            now, self.day = now.slept(np.stack(self.day), share), []
        self.number = number
        return now


def fit_weights(choices: Sequence[Choice], born: Weights = Weights(), ridge: float = RIDGE) -> FittedWeights:  # noqa: B008
    """Raises TooFewQuestions: fewer than LEAST_QUESTIONS have gold and something else among their candidates."""
    told = [choice for choice in choices if choice.gold.any() and not choice.gold.all()]
    if len(told) < LEAST_QUESTIONS:
        raise TooFewQuestions(f"{len(told)} questions tell of usefulness, {LEAST_QUESTIONS} are needed")
    sheet = _Sheet.of(told)
    plain = sheet.descend(np.array([1.0, 0.0, 0.0, 0.0]), ridge, only=(0,))
    found = sheet.descend(plain, ridge, only=(0, 1, 2, 3))
    often, slow, fast = (found[1:] / found[0]).tolist()
    weights = Weights(often, slow, fast, born.often_days, born.fast_days)
    return FittedWeights(weights, len(told), sheet.loss(plain, 0.0), sheet.loss(found, 0.0), float(found[0]))


@dataclass(frozen=True, slots=True)
class _Sheet:
    """x: (q, c, 4) score and features, less each question's means; gold: (q, c) shares of the gold, summing to 1;
    there: (q, c) 0, or -inf where there is no candidate; weights: (q,) with mean 1."""

    x: Float64
    gold: Float64
    there: Float64
    weights: Float64

    @classmethod
    def of(cls, choices: Sequence[Choice]) -> _Sheet:
        most = max(len(choice.scores) for choice in choices)
        x, gold = np.zeros((len(choices), most, 4)), np.zeros((len(choices), most))
        there = np.full((len(choices), most), -np.inf)
        for n, choice in enumerate(choices):
            own = np.column_stack([choice.scores, choice.features])  # (c, 4)
            x[n, : len(own)] = own - own.mean(axis=0)
            gold[n, : len(own)] = choice.gold / choice.gold.sum()
            there[n, : len(own)] = 0.0
        weights = np.array([choice.weight for choice in choices], np.float64)
        return cls(x, gold, there, weights / weights.mean())

    def loss(self, v: Float64, ridge: float) -> float:
        """Mean of -log P(gold), with the ridge."""
        logits = self.x @ v + self.there
        top = logits.max(axis=1)
        total = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
        own = (self.gold * (self.x @ v)).sum(axis=1)
        return float(self.weights @ (total - own) / len(total) + ridge * (v[1:] @ v[1:]) / (2 * len(total)))

    def descend(self, start: Float64, ridge: float, only: Sequence[int]) -> Float64:
        """The least loss over these coordinates, each kept at or above its least."""
        v, least = start.copy(), np.array([LEAST_SCALE, 0.0, 0.0, 0.0])
        for _ in range(ROUNDS):
            before = v.copy()
            for k in only:
                v = self._stepped(v, k, ridge, float(least[k]))
            if np.abs(v - before).max() < CLOSE:
                break
        return v

    def _stepped(self, v: Float64, k: int, ridge: float, least: float) -> Float64:
        """A Newton step of one number, halved until the loss does not rise."""
        logits = self.x @ v + self.there
        chance = np.exp(logits - logits.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)  # (q, c)
        own = self.x[:, :, k]
        mean = (chance * own).sum(axis=1)
        ridge = ridge if k else 0.0
        slope = self.weights @ (mean - (self.gold * own).sum(axis=1)) + ridge * v[k]
        curve = self.weights @ ((chance * own * own).sum(axis=1) - mean * mean) + ridge
        step, here = slope / max(float(curve), 1e-12), self.loss(v, ridge)
        for _ in range(20):
            moved = v.copy()
            moved[k] = max(least, v[k] - step)
            if self.loss(moved, ridge) <= here:
                return moved
            step /= 2.0
        return v
