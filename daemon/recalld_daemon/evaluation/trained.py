"""What is fitted for one split: f_Q, f_K, f_V, a ranker, on the training part alone and in memory alone.

Of the training part the newest questions stop the fits early, so what is held out is seen by nobody before the judge.
Each candidate stands on the ones before it (f_Q, then + f_K, then + f_V), as the nightly cycle would build them; the
ablations take f_Q and leave out one part of its output layer, since an adapter that only learned b2 moves all questions
in one direction, whatever they ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.evaluation.ground import Ground
from recalld_daemon.evaluation.judge import Candidate, marks_of
from recalld_daemon.evaluation.pairset import pairset_of
from recalld_daemon.evaluation.questions import HELD_SHARE, Question, split_by_time
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.ranking.features import FEATURES
from recalld_daemon.ranking.forest import read_forest
from recalld_daemon.ranking.refit import TooFewLessons, refit
from recalld_daemon.recall.adapter import Adapter

if TYPE_CHECKING:
    from recalld_daemon.adapters.settings import FitSettings

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


Fit = Callable[[PairSet, PairSet, Parts], Fitted]


def fit_adapters(pairs: PairSet, held: PairSet, parts: Parts, settings: FitSettings | None = None) -> Fitted:
    """As the nightly cycle fits them. Imports torch, which takes seconds."""
    from recalld_daemon.adapters.fitting import fit
    from recalld_daemon.adapters.settings import FitSettings

    fitted: Fitted = fit(pairs, held, parts, settings or FitSettings(), lambda progress: None)
    return fitted


def candidates_of(
    ground: Ground, training: Sequence[Question], tell: Tell = lambda text: None, fit: Fit = fit_adapters
) -> list[Candidate]:
    """Simplest first: f_Q, its two ablations, + f_K, + f_V, and a refitted ranker where there are lessons enough."""
    trained = marks_of(training)
    pairs, held = pairs_of(ground, training)
    found = []
    tell("f_Q")
    query = fit(pairs, held, "q").query
    f_q = replace(PLAIN, query=query)
    found.append(Candidate("+f_Q", f_q, trained))
    found.append(Candidate("f_Q without W2", replace(f_q, query=query.without("w2")), trained))
    found.append(Candidate("f_Q without b2", replace(f_q, query=query.without("b2")), trained))
    tell("f_Q + f_K")
    both = fit(pairs, held, "qk")
    found.append(Candidate("+f_K", replace(PLAIN, query=both.query, key=both.key), trained))
    tell("f_Q + f_K + f_V")
    three = fit(pairs, held, "qkv")
    found.append(Candidate("+f_V", replace(PLAIN, query=three.query, key=three.key, value=three.value), trained))
    tell("ranker")
    ranked = with_ranker(ground, training, f_q)
    return found if ranked is None else [*found, Candidate("+ranker", ranked, trained)]


def pairs_of(ground: Ground, training: Sequence[Question]) -> tuple[PairSet, PairSet]:
    """(to fit on, to stop early by): the newest HELD_SHARE of the training part is the latter."""
    fitted_on, stopped_by = split_by_time(training, HELD_SHARE)
    return tuple(pairset_of(part, ground.reader, ground.encode, ground.encoder) for part in (fitted_on, stopped_by))  # type: ignore[return-value]


def with_ranker(ground: Ground, training: Sequence[Question], learned: Learned) -> Learned | None:
    """The same with a ranker refitted on these questions, as searched with it; None where they are too few."""
    lessons = [ground.lesson(question, learned) for question in training]
    try:
        text = refit([lesson for lesson in lessons if lesson is not None])
    except TooFewLessons:
        return None
    return replace(learned, ranker=read_forest(text, FEATURES))
