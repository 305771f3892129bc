"""The extractors that need no model, and the registry by kind in which another one is named to take over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo

from recalld_daemon.extract.interface import FactExtractor, Piece, Recipe, SubjectExtractor, TimeExtractor
from recalld_daemon.extract.propositions import RuleFacts
from recalld_daemon.extract.subjects import RuleSubjects
from recalld_daemon.extract.times import whens
from recalld_daemon.recall.types import When


class RuleTimes:
    """`tz`: the zone in which days begin for those who wrote; None: this machine's."""

    name = "rules-1"

    def __init__(self, tz: tzinfo | None = None) -> None:
        self._tz = tz

    def whens(self, piece: Piece) -> list[When]:
        return whens(piece.text, piece.written_at, self._tz)


FACTS: Mapping[str, FactExtractor] = {"rules": RuleFacts()}
SUBJECTS: Mapping[str, SubjectExtractor] = {"rules": RuleSubjects()}
WHENS: Mapping[str, TimeExtractor] = {"rules": RuleTimes()}


def recipe_of(facts: str = "rules", subjects: str = "rules", whens: str = "rules") -> Recipe:
    """The recipe of the extractors that are named, one per kind. Raises KeyError for a name nobody registered."""
    return Recipe(FACTS[facts], SUBJECTS[subjects], WHENS[whens])


RULES = recipe_of()
