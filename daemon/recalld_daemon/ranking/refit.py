"""The ranker, refitted on a user's own pairs: it goes on from the shipped one, so little feedback can do little harm.

New trees are grown on what the shipped ones still get wrong (boosting from their scores), not in their place: on 100
questions of one's own that gained 1.4 MRR points where a forest grown from nothing gained 0.1, on 200 1.5 against 1.3,
on 400 both 1.9 (docs/benchmarks.md). Always from the shipped forest, never from last night's: a ranker that is refitted
on the same pairs each night would otherwise learn them by heart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from recalld_daemon.ranking.fit import Lesson, Settings, fit
from recalld_daemon.ranking.ranker import SHIPPED

REFIT = Settings(rounds=80)  # half of the shipped ones: 40 gain less, 160 no more (three splits)
LEAST_LESSONS = 60  # of which any teaches: below that no tree of REFIT can split


class TooFewLessons(Exception):
    """There is not enough to refit a ranker on."""


def refit(lessons: Sequence[Lesson], settings: Settings = REFIT, provenance: Mapping[str, Any] | None = None) -> str:
    """The text of a ranker, for `forest.read_forest`: the shipped one and what these lessons add.

    Raises TooFewLessons.
    """
    teaching = sum(lesson.teaches for lesson in lessons)
    if teaching < LEAST_LESSONS:
        raise TooFewLessons(
            f"{teaching} of {len(lessons)} questions found what helped among other passages; at least {LEAST_LESSONS} "
            "are needed to refit the ranker"
        )
    return fit(lessons, settings, provenance, shipped_text())


def shipped_text() -> str:
    """Of the package's own ranker."""
    return resources.files(__package__).joinpath(SHIPPED).read_text(encoding="utf-8")
