"""What is fitted on other conversations before one is judged. Nothing of it ships.

A lesson is one question's candidates as the ranker sees them, and which of them answer it. Lessons are made once per
setting and shared by all folds: a fold's ranker has seen none of its own conversation's. Where the ranker is left out,
nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from eval_pools import ADVERSARIAL
from house import SEEN
from house_recall import Setting
from judging import Court, tell

from recalld_daemon.ranking.features import features_of
from recalld_daemon.ranking.fit import Lesson, fitted
from recalld_daemon.ranking.forest import Forest
from recalld_daemon.ranking.ranker import RANK_LIMIT, Ranking
from recalld_daemon.ranking.sheet import Gatherer
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.stages import Parts, recall_now
from recalld_daemon.recall.types import View

RANKED = "ranked"  # the ranker's name among the stages
AFTER = ("cross",)  # stages that stand behind it

Settings = Callable[[Court], Setting]


def adapted_to(others: Sequence[Court], setting: Setting) -> Settings:
    """The setting with a ranker that was fitted on `others`."""
    if RANKED in setting.without:
        return lambda court: setting
    forest = fitted([lesson for court in others for lesson in lessons_of(court, setting)])
    return lambda court: _with_ranker(court, setting, forest)


def cross_adapted(courts: Sequence[Court], setting: Setting) -> Settings:
    """For each court the setting with a ranker that was fitted on all the others."""
    if RANKED in setting.without:
        return lambda court: setting
    lessons = {court.name: lessons_of(court, setting) for court in courts}
    forests = {
        court.name: fitted([lesson for name, own in lessons.items() if name != court.name for lesson in own])
        for court in courts
    }
    return lambda court: _with_ranker(court, setting, forests[court.name])


def lessons_of(court: Court, setting: Setting) -> list[Lesson]:
    """One of each question that has an answer: what the stages before the ranker make of it."""
    house, lessons = court.house, list[Lesson]()
    parts = _before_ranker(setting.of(house.parts))
    gatherer = _gatherer(court, parts)
    for ask, gold in zip(court.judged.pool.asks, court.judged.golds, strict=True):
        query = query_of(ask.focus)
        if ask.kind == ADVERSARIAL or not gold or not query.text:
            continue
        view = SEEN if ask.at is None else View(scopes=None, as_of=ask.at)
        if parts.hints is not None:
            query = replace(query, hints=parts.hints(query, view))
        encoding = house.encoders.query(query.text)
        hidden = frozenset(house.ids[row] for row in ask.hidden)
        found = recall_now(parts, query, encoding, view, hidden).candidates[:RANK_LIMIT]
        if found:
            features = features_of(gatherer.sheet(query, encoding, found))
            right = np.array([court.judged.units[house.row_of[c.passage]] in gold for c in found])
            lessons.append(Lesson(features, right, kind=ask.kind))
    taught = sum(lesson.teaches for lesson in lessons)
    tell(f"{court.name}, {setting.name}: {taught} of {len(lessons)} questions teach an order")
    return lessons


def _with_ranker(court: Court, setting: Setting, forest: Forest) -> Setting:
    """The setting with this forest as its ranker, in the place where a ranker stands."""

    def change(parts: Parts) -> Parts:
        before = _before_ranker(parts)
        ranking = Ranking(_gatherer(court, parts), forest)
        deeper = [deepener for deepener in parts.deepeners if deepener.name in AFTER]
        return replace(before, deepeners=[*before.deepeners, ranking, *deeper])

    return replace(setting, name=f"adapted, {setting.name}", change=change)


def _before_ranker(parts: Parts) -> Parts:
    return replace(parts, deepeners=[d for d in parts.deepeners if d.name not in (RANKED, *AFTER)])


def _gatherer(court: Court, parts: Parts) -> Gatherer:
    """Over the lanes that are there and can score any passage."""
    catalogue = court.house.memory.catalogue
    assert catalogue is not None
    return Gatherer([lane for lane in parts.lanes if hasattr(lane, "score")], catalogue.cards)
