"""Champion and challengers on the same held-out questions, and the rule by which one of them is chosen.

Each answers every question by the whole recall, and by dense search alone for the record. A challenger that was trained
on a question is not judged on it: that is checked by the questions' keys and texts, and refused. The choice is the
simplest challenger whose gain over the champion has a lower bound of zero or more; where there is none, the champion
stays. Simplest first is the order in which they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recalld_daemon.evaluation.bootstrap import Verdict, better
from recalld_daemon.evaluation.ground import Ground
from recalld_daemon.evaluation.metrics import MAIN, NAMES, figures_of, means
from recalld_daemon.evaluation.pairset import groups_of
from recalld_daemon.evaluation.questions import Question
from recalld_daemon.learned import Learned
from recalld_daemon.recall.types import Float32, Float64, Int64

Tick = Callable[[int, int], None]  # questions that the present candidate has answered, of how many


class TrainedOn(Exception):
    """A challenger was trained on what it would be judged on."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """name: e.g. "f_Q"; learned: as a recall would use it; trained: `marks_of` the questions it was fitted on.

    wanted: question's key -> (d,) what the user was after before it, for an f_V judged by cosine.
    """

    name: str
    learned: Learned
    trained: frozenset[str] = frozenset()
    wanted: Mapping[str, Float32] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """recall, dense: each metric's values, (n,) one per question, of the whole recall and of cosine alone."""

    name: str
    recall: Mapping[str, Float64]
    dense: Mapping[str, Float64]


@dataclass(frozen=True, slots=True)
class Report:
    """results: the champion's first; gains: challenger -> metric -> verdict against the champion, by whole recall.

    chosen: the challenger to promote, or None: the champion stays. weights, groups: (n,) of the questions.
    """

    results: Sequence[Result]
    gains: Mapping[str, Mapping[str, Verdict]]
    dense_gains: Mapping[str, Mapping[str, Verdict]]
    chosen: str | None
    weights: Float64
    groups: Int64
    notes: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Of numbers and texts alone."""
        return {
            "n": len(self.weights),
            "groups": len(np.unique(self.groups)),
            "chosen": self.chosen,
            "candidates": {
                result.name: {
                    **_rounded(means(result.recall, self.weights)),
                    "dense": _rounded(means(result.dense, self.weights)),
                    "gain": {metric: gain.to_json() for metric, gain in self.gains.get(result.name, {}).items()},
                    "dense_gain": {metric: g.to_json() for metric, g in self.dense_gains.get(result.name, {}).items()},
                }
                for result in self.results
            },
            "notes": list(self.notes),
        }


def marks_of(questions: Sequence[Question]) -> frozenset[str]:
    """What `Candidate.trained` holds of questions: their keys, and their texts' names in whatever scope."""
    return frozenset(mark for question in questions for mark in (question.key, question.name))


def judge(
    ground: Ground,
    champion: Candidate,
    challengers: Sequence[Candidate],
    questions: Sequence[Question],
    tick: Tick = lambda done, total: None,
) -> Report:
    """challengers: simplest first. Raises TrainedOn, StoreError.

    A champion that was trained on some of the questions is harder to beat, not easier: that is noted, not refused.
    """
    every = [champion, *challengers]
    for candidate in challengers:
        refuse_trained(candidate, questions)
    results = [answered(ground, candidate, questions, tick) for candidate in every]
    known = len(trained_among(champion, questions))
    notes = [f"the champion was trained on {known} of these questions, which flatters it"] if known else []
    return replace(report_of(results, questions), notes=notes)


def answered(
    ground: Ground, candidate: Candidate, questions: Sequence[Question], tick: Tick = lambda done, total: None
) -> Result:
    """One candidate's figures. The final order is the recall's own, by score: nothing is sorted afterwards."""
    whole, dense = [], []
    for n, question in enumerate(questions, 1):
        whole.append(ground.ranked(question, candidate.learned))
        dense.append(ground.dense(question, candidate.learned, wanted=candidate.wanted.get(question.key)))
        tick(n, len(questions))
    golds = [question.gold for question in questions]
    return Result(candidate.name, figures_of(whole, golds), figures_of(dense, golds))


def refuse_trained(candidate: Candidate, questions: Sequence[Question]) -> None:
    """Raises TrainedOn where it was fitted on one of the questions, or on the same text in another scope."""
    seen = trained_among(candidate, questions)
    if seen:
        text = f"{candidate.name} was trained on {len(seen)} of the {len(questions)} questions it would be judged on"
        raise TrainedOn(f"{text}, such as {seen[0].text[:60]!r}")


def trained_among(candidate: Candidate, questions: Sequence[Question]) -> list[Question]:
    """Those of the questions that it was fitted on."""
    return [question for question in questions if {question.key, question.name} & candidate.trained]


def report_of(results: Sequence[Result], questions: Sequence[Question]) -> Report:
    """results: the champion's first, challengers simplest first, all of the same questions."""
    weights = np.array([question.weight for question in questions], np.float64)
    groups = groups_of(questions)
    champion, *challengers = results
    gains = {each.name: gains_of(champion.recall, each.recall, groups, weights) for each in challengers}
    dense = {each.name: gains_of(champion.dense, each.dense, groups, weights) for each in challengers}
    chosen = next((name for name, gain in gains.items() if gain[MAIN].is_better), None)
    return Report(results, gains, dense, chosen, weights, groups)


def gains_of(
    champion: Mapping[str, Float64], challenger: Mapping[str, Float64], groups: Int64, weights: Float64
) -> dict[str, Verdict]:
    """metric -> verdict."""
    return {name: better(champion[name], challenger[name], groups, weights) for name in NAMES}


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
