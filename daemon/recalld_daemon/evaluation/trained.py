"""What is fitted for one split: f_Q, f_K, f_V, a ranker, on the training part alone and in memory alone.

Of the training part the newest questions stop the fits early, so what is held out is seen by nobody before the judge.
Each candidate stands on the ones before it (f_Q, then + f_K, then + f_V), as the nightly cycle would build them; the
ablations take f_Q and leave out one part of its output layer, since an adapter that only learned b2 moves all questions
in one direction, whatever they ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from recalld_daemon.adapters.interests import interests_before
from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.adapters.settings import FitSettings
from recalld_daemon.evaluation.ground import Ground
from recalld_daemon.evaluation.judge import Candidate, marks_of
from recalld_daemon.evaluation.pairset import pairset_of
from recalld_daemon.evaluation.questions import HELD_SHARE, Question, split_by_time
from recalld_daemon.evaluation.useful import with_usefulness
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.ranking.features import FEATURES
from recalld_daemon.ranking.forest import read_forest
from recalld_daemon.ranking.refit import TooFewLessons, refit
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32, Int64

ABLATED = "f_Q without "  # how the ablations' names begin
Parts = Literal["q", "qk", "qkv"]
Tell = Callable[[str], None]


class Fitted(Protocol):
    """What `adapters.fitting.fit` gives."""

    @property
    def query(self) -> Adapter: ...

    @property
    def key(self) -> Adapter | None: ...

    @property
    def value(self) -> Adapter | None: ...


Fit = Callable[["Lessons", Parts], Fitted]


@dataclass(frozen=True, slots=True)
class Lessons:
    """pairs: of the whole training part, in the order they were asked; fitted_on, stopped_by: rows of it, apart."""

    pairs: PairSet
    fitted_on: Int64
    stopped_by: Int64


def fit_adapters(lessons: Lessons, parts: Parts) -> Fitted:
    """As the nightly cycle fits them. Imports torch, which takes seconds. Raises fitting.NothingToLearn."""
    from recalld_daemon.adapters.fitting import fit

    pairs, held = lessons.pairs.rows(lessons.fitted_on), lessons.pairs.rows(lessons.stopped_by)
    before = interests_before(lessons.pairs)  # over all of them: what stops the fit comes after what it learns from
    interests = (before.rows(lessons.fitted_on), before.rows(lessons.stopped_by))
    return fit(pairs, held, parts, interests=interests)


def candidates_of(
    ground: Ground,
    training: Sequence[Question],
    tell: Tell = lambda text: None,
    fit: Fit = fit_adapters,
    wanted: Mapping[str, Float32] | None = None,
) -> list[Candidate]:
    """Simplest first: f_Q, its two ablations, + f_K, + f_V; with f_Q a refitted ranker, and usefulness, where
    there is enough to fit them on.

    wanted: what the user was after before each question (`wanted_before`); without it f_V is not judged by cosine.
    None where no question's gold has a vector: nothing can be trained on nothing.
    """
    trained, lessons, found = marks_of(training), lessons_of(ground, training), []

    def add(name: str, learned: Learned) -> None:
        found.append(Candidate(name, learned, trained))

    if not len(lessons.fitted_on):
        return []
    tell("f_Q")
    query = fit(lessons, "q").query
    f_q = replace(PLAIN, query=query)
    add("+f_Q", f_q)
    add(f"{ABLATED}W2", replace(f_q, query=query.without("w2")))
    add(f"{ABLATED}b2", replace(f_q, query=query.without("b2")))
    tell("f_Q + f_K")
    both = fit(lessons, "qk")
    add("+f_K", replace(PLAIN, query=both.query, key=both.key))
    tell("f_Q + f_K + f_V")
    three = fit(lessons, "qkv")
    valued = replace(PLAIN, query=three.query, key=three.key, value=three.value)
    valued = with_usefulness(ground, training, valued) or valued  # f_V speaks through usefulness alone
    found.append(Candidate("+f_V", valued, trained, wanted or {}))
    tell("ranker")
    ranked = with_ranker(ground, training, f_q)
    if ranked is not None:
        add("+ranker", ranked)
    tell("usefulness")
    useful = with_usefulness(ground, training, f_q)
    if useful is not None:
        add("+usefulness", useful)
    return found


def lessons_of(ground: Ground, training: Sequence[Question]) -> Lessons:
    """The newest HELD_SHARE of the training part say when to stop. Raises StoreError."""
    _, last = split_by_time(training, HELD_SHARE)
    pairs = pairset_of(training, ground.reader, ground.encode, ground.encoder)
    stops = np.isin(pairs.names, [question.key for question in last])
    learned = {row.tobytes() for row in pairs.queries[~stops]}  # a long text is cut: another one may be the same vector
    stops_apart = stops & np.array([row.tobytes() not in learned for row in pairs.queries], np.bool_)
    return Lessons(pairs, np.flatnonzero(~stops), np.flatnonzero(stops_apart))


def wanted_before(ground: Ground, questions: Sequence[Question]) -> dict[str, Float32]:
    """key -> (d,) w_s * u_slow + w_f * u_fast as they were before each question: from what helped earlier, in use and
    not in training, so a held-out question's own gold is never in it. Raises StoreError."""
    settings = FitSettings()
    pairs = pairset_of(questions, ground.reader, ground.encode, ground.encoder)
    if not len(pairs):
        return {}
    before = interests_before(pairs)
    rows = settings.slow_weight * before.slow + settings.fast_weight * before.fast
    return dict(zip(pairs.names, rows.astype(np.float32), strict=True))


def with_ranker(ground: Ground, training: Sequence[Question], learned: Learned) -> Learned | None:
    """The same with a ranker refitted on these questions, as searched with it; None where they are too few."""
    lessons = [ground.lesson(question, learned) for question in training]
    try:
        text = refit([lesson for lesson in lessons if lesson is not None])
    except TooFewLessons:
        return None
    return replace(learned, ranker=read_forest(text, FEATURES))
