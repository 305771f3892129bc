"""The refitted ranker: it goes on from the shipped one, and refuses to where there is too little to learn from."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recalld_daemon.ranking.features import FEATURES
from recalld_daemon.ranking.fit import Lesson
from recalld_daemon.ranking.forest import read_forest
from recalld_daemon.ranking.refit import LEAST_LESSONS, REFIT, TooFewLessons, refit, shipped_text

CUE = FEATURES.index("is.CODE")  # what the shipped ranker hardly looks at, and this user's answers have


def lessons(count: int, seed: int, rows: int = 20) -> list[Lesson]:
    """Questions in which the one right candidate is the one that holds code, whatever else is said of it."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        features = rng.normal(size=(rows, len(FEATURES))).astype(np.float32)
        right = np.arange(rows) == rng.integers(rows)
        features[:, CUE] = right
        made.append(Lesson(features, right))
    return made


def mrr(text: str, judged: list[Lesson]) -> float:
    forest = read_forest(text, FEATURES)
    places = [int(np.flatnonzero(lesson.right[np.argsort(-forest.scores(lesson.features))])[0]) for lesson in judged]
    return float(np.mean([1 / (place + 1) for place in places]))


def test_a_refit_goes_on_from_the_shipped_trees_and_learns_what_they_miss() -> None:
    text = refit(lessons(120, seed=1), provenance={"why": "a test"})
    document, shipped = json.loads(text), json.loads(shipped_text())
    kept = len(shipped["trees"])
    assert document["trees"][:kept] == shipped["trees"]
    assert len(document["trees"]) == kept + REFIT.rounds
    assert document["provenance"]["continued"] == kept
    assert document["provenance"]["why"] == "a test"
    fresh = lessons(60, seed=2)
    assert mrr(text, fresh) > mrr(shipped_text(), fresh) + 0.3


def test_a_refit_is_the_same_each_time_since_it_never_goes_on_from_the_last_one() -> None:
    assert refit(lessons(80, seed=3)) == refit(lessons(80, seed=3))


def test_too_few_lessons_are_refused_and_those_that_teach_nothing_do_not_count() -> None:
    rows = np.zeros((5, len(FEATURES)), np.float32)
    nothing = [Lesson(rows, np.zeros(5, np.bool_)), Lesson(rows, np.ones(5, np.bool_))] * LEAST_LESSONS
    with pytest.raises(TooFewLessons, match=f"59 of {59 + len(nothing)} questions.*at least {LEAST_LESSONS}"):
        refit([*lessons(LEAST_LESSONS - 1, seed=4), *nothing])
