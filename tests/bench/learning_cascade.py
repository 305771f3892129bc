"""The same splits by the whole recall: lanes, late interaction, ranker, over the product's own passages.

Each conversation is a house; what is learned is searched with by `evaluation.ground`, as the nightly cycle judges it.
Adapters are fitted on the house's own vectors (texts with speaker and date), f_K projects all of them, facts and names
too. As in that cycle, what judges inside is not learned from afterwards either. f_V speaks through usefulness alone:
its weights are fitted on at most USEFUL training questions. `ranker` goes on from the shipped forest on the training
questions' lessons (`ranking.refit`), queries and keys as they ship; `ranker_scratch` is fitted on the same lessons with
nothing to go on from; `fq_ranker` asks with f_Q and ranks so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from house import open_house
from house_encoders import Encoders
from learning_fits import PARTS, PLAIN, Figures, Judgement, Told, chosen_of, fitted
from learning_sets import Talks, mined
from learning_splits import Fold
from learning_stream import RUNS, Ask, Now, stream, told_in_order

from recalld_daemon.adapters.fitting import Fitted
from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.adapters.settings import FitSettings, OnlineSettings
from recalld_daemon.config import Config
from recalld_daemon.evaluation.ground import Ground, KeyedReader, ground_of
from recalld_daemon.evaluation.metrics import figures_of, joined
from recalld_daemon.evaluation.questions import Question
from recalld_daemon.evaluation.useful import choice_of, known_before
from recalld_daemon.learned import PLAIN as NOTHING
from recalld_daemon.learned import Learned
from recalld_daemon.ranking.features import FEATURES
from recalld_daemon.ranking.fit import Lesson
from recalld_daemon.ranking.fit import fitted as fitted_ranker
from recalld_daemon.ranking.forest import Forest, read_forest
from recalld_daemon.ranking.refit import TooFewLessons, refit
from recalld_daemon.recall.types import Int64
from recalld_daemon.recall.usefulness_fit import TooFewQuestions, fit_weights

RANKER, SCRATCH, BOTH = "ranker", "ranker_scratch", "fq_ranker"
USEFUL = 200  # training questions on which the weights of usefulness are fitted: each is a whole recall
RULED = (PLAIN, *PARTS, RANKER)  # what the promotion rule chooses among, simplest first


@dataclass(slots=True)
class Cascade:
    """Row for row the questions of `Talks`. pairs: the same over the houses' vectors."""

    grounds: Sequence[Ground]
    homes: Sequence[int]  # row -> ground
    questions: Sequence[Question]
    pairs: PairSet
    _plain: dict[int, list[int]] = field(default_factory=dict)
    _lessons: dict[int, Lesson | None] = field(default_factory=dict)

    def figures(self, rows: Int64, learned: Learned = NOTHING) -> Figures:
        """Asked conversation by conversation, told in the order of `rows`."""
        found: dict[int, list[int]] = {}
        for row in sorted(rows.tolist(), key=lambda row: self.homes[row]):
            found[row] = self.ranked(row, learned)
        own = [found[row] for row in rows.tolist()]
        return figures_of(own, [self.questions[row].gold for row in rows.tolist()])

    def ranked(self, row: int, learned: Learned) -> list[int]:
        ground, question = self.grounds[self.homes[row]], self.questions[row]
        if learned is not NOTHING:
            return ground.ranked(question, learned)
        if row not in self._plain:
            self._plain[row] = ground.ranked(question)
        return self._plain[row]

    def lessons(self, rows: Int64) -> list[Lesson]:
        """What the ranker sees where nothing is learned; made once."""
        for row in rows.tolist():
            if row not in self._lessons:
                self._lessons[row] = self.grounds[self.homes[row]].lesson(self.questions[row])
        return [lesson for row in rows.tolist() if (lesson := self._lessons[row]) is not None]


@contextmanager
def opened(talks: Talks, encoders: Encoders, tell: Callable[[str], None]) -> Iterator[Cascade]:
    """All houses, remembered and opened for recalls."""
    with ExitStack() as open_ones:
        grounds, ids = [], []
        for judged in talks.judged:
            house = open_ones.enter_context(open_house(judged.pool, encoders))
            reader = open_ones.enter_context(KeyedReader(house.memory.home.database))
            number = reader.encoder_named(encoders.live.fingerprint)
            record = None if number is None else reader.encoder(number)
            assert record is not None
            grounds.append(ground_of(reader, record, encoders.live, Config(), lambda phase, done, total: None))
            ids.append(house.ids)
            tell(f"{judged.pool.name}: remembered")
        yield _cascade(talks, grounds, ids)


def _cascade(talks: Talks, grounds: Sequence[Ground], ids: Sequence[Sequence[int]]) -> Cascade:
    homes, questions = [place for place, _ in talks.asks], []
    for row, (place, ask) in enumerate(talks.asks):
        gold = frozenset(ids[place][turn] for turn in ask.gold)
        at, group = float(talks.pairs.at[row]), f"asked of {talks.judged[place].pool.name}"
        questions.append(Question(ask.focus.user_text, 1, at, group, gold=gold))
    for place, ground in enumerate(grounds):
        ground.before = known_before(ground, [q for q, home in zip(questions, homes, strict=True) if home == place])
    memories = np.concatenate(
        [ground.frozen.vectors_of(np.array(own, np.int64)) for ground, own in zip(grounds, ids, strict=True)]
    )
    assert not np.isnan(memories).any()
    pairs = replace(talks.pairs, memories=memories)
    assert pairs.pools is not None
    negatives = [mined(pairs.queries[row], memories, pairs.gold[row], pairs.pools[row]) for row in range(len(pairs))]
    return Cascade(grounds, homes, questions, replace(pairs, negatives=negatives))


# ------------------------------------------------------------ held out


def judged_fold(cascade: Cascade, fold: Fold, settings: FitSettings) -> Judgement:
    """Chosen on the part of the training that judges, and asked as it is: what judges is learned from by nobody."""
    inside: Told = {PLAIN: cascade.figures(fold.judges)}
    told: Told = {PLAIN: cascade.figures(fold.held)}
    epochs, query, taught = {}, NOTHING, np.union1d(fold.fitted, fold.stops)
    for name, parts in PARTS.items():
        by = fitted(cascade.pairs, fold.fitted, fold.stops, parts, settings)
        learned = learned_of(cascade, by, fold.fitted) if by.best else NOTHING
        inside[name], told[name] = cascade.figures(fold.judges, learned), cascade.figures(fold.held, learned)
        epochs[name] = by.best
        query = learned if name == "fq" else query
    lessons = cascade.lessons(taught)
    forest = refitted_on(lessons)
    inside[RANKER] = cascade.figures(fold.judges, _ranking(forest))
    told[RANKER] = cascade.figures(fold.held, _ranking(forest))
    told[SCRATCH] = cascade.figures(fold.held, _ranking(_scratch(lessons)))
    told[BOTH] = cascade.figures(fold.held, replace(query, ranker=forest))
    return Judgement(fold.held, told, chosen_of({name: inside[name] for name in RULED}), epochs)


def learned_of(cascade: Cascade, by: Fitted, trained: Int64) -> Learned:
    """As a version would hold it; f_V with the weights of usefulness that the training questions give."""
    learned = Learned(query=by.query, key=by.key, value=by.value)
    if by.value is None:
        return learned
    drawn = trained if len(trained) <= USEFUL else np.random.default_rng(0).choice(trained, USEFUL, replace=False)
    choices = []
    for row in sorted(drawn.tolist(), key=lambda row: cascade.homes[row]):
        choice = choice_of(cascade.grounds[cascade.homes[row]], cascade.questions[row], learned)
        choices += [] if choice is None else [choice]
    try:
        weights = fit_weights(choices).weights
    except TooFewQuestions:
        return learned
    return learned if weights.are_off else replace(learned, usefulness=weights.to_bytes())


def refitted_on(lessons: Sequence[Lesson]) -> Forest | None:
    """The shipped ranker, gone on from; None where there are too few lessons for it."""
    try:
        return read_forest(refit(lessons), FEATURES)
    except TooFewLessons:
        return None


def _scratch(lessons: Sequence[Lesson]) -> Forest | None:
    return fitted_ranker(lessons) if any(lesson.teaches for lesson in lessons) else None


def _ranking(forest: Forest | None) -> Learned:
    return NOTHING if forest is None else Learned(ranker=forest)


# ------------------------------------------------------------ in the order of time


def prequential(
    cascade: Cascade, order: Int64, groups: Int64, settings: FitSettings, online: OnlineSettings, night: int
) -> dict[str, Any]:
    """As by cosine, each question by a whole recall. f_V's weights of usefulness are fitted each night as well."""
    told: Told = {PLAIN: cascade.figures(order)}
    for name in ("fq", "fk", "fv"):
        told[name] = stream(cascade.pairs, order, _asking(cascade), RUNS[name], settings, online, night)
    told[RANKER] = _ranker_stream(cascade, order, night)
    return {"night": night} | told_in_order(told, groups[order])


def _asking(cascade: Cascade) -> Ask:
    last: list[tuple[Fitted, Learned]] = []  # of the last night

    def ask(row: int, now: Now) -> Figures:
        learned = Learned(query=now.query)
        if now.by is not None:
            if not last or last[0][0] is not now.by:
                last[:] = [(now.by, learned_of(cascade, now.by, now.known))]
            learned = replace(last[0][1], query=now.query)
        return figures_of([cascade.ranked(row, learned)], [cascade.questions[row].gold])

    return ask


def _ranker_stream(cascade: Cascade, order: Int64, night: int) -> Figures:
    """Refitted each night on all that was asked before, from the shipped forest; the first day is plain."""
    found = []
    for start in range(0, len(order), night):
        forest = refitted_on(cascade.lessons(order[:start]))
        found.append(cascade.figures(order[start : start + night], _ranking(forest)))
    return joined(found)
