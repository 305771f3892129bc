"""What is fitted on other conversations before one is judged. Nothing of it ships.

A lesson is one question's candidates as the ranker sees them, and which of them answer it. Lessons are made once per
setting and shared by all folds: a fold's ranker has seen none of its own conversation's. Where the ranker is left out,
nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from eval_pools import ADVERSARIAL
from house_recall import Setting
from judging import Court, tell
from training.lessons import lesson_of, unranked

from recalld_daemon.assembly import gatherer_of
from recalld_daemon.ranking.fit import Lesson, fitted
from recalld_daemon.ranking.forest import Forest
from recalld_daemon.ranking.ranker import Ranking
from recalld_daemon.recall.stages import Parts

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
    parts = setting.of(court.house.parts)
    asks = [ask for ask in court.judged.pool.asks if ask.gold and ask.kind != ADVERSARIAL]
    lessons = [lesson for ask in asks if (lesson := lesson_of(court.house, ask, parts)) is not None]
    taught = sum(lesson.teaches for lesson in lessons)
    tell(f"{court.name}, {setting.name}: {taught} of {len(lessons)} questions teach an order")
    return lessons


def _with_ranker(court: Court, setting: Setting, forest: Forest) -> Setting:
    """The setting with this forest as its ranker, in the place where a ranker stands."""
    catalogue = court.house.memory.catalogue
    assert catalogue is not None

    def change(parts: Parts) -> Parts:
        before = unranked(parts)
        ranking = Ranking(gatherer_of(parts.lanes, catalogue), forest)
        deeper = [deepener for deepener in parts.deepeners if deepener.name in AFTER]
        return replace(before, deepeners=[*before.deepeners, ranking, *deeper])

    return replace(setting, name=f"adapted, {setting.name}", change=change)
