"""What was shown again and again and never used must be more certain each time: habituation, as animals have it.

Pure. Each earlier session in which a passage was shown, and neither used nor found good since, raises the log-odds that
it needs; each verdict "bad" raises them more; use, or a "good", forgives all that was before. What says nearly the same
as such a passage is treated as the passage itself. One session costs little: what was worth a word last week may well
be worth one today. Log, since the tenth time tells little that the ninth did not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

IGNORED_LOG_ODDS = 0.4  # times log(1 + sessions): 0.28 after one, 0.96 after ten; p .50 must then be .57, .72
BAD_LOG_ODDS = 1.0
MOST_LOG_ODDS = 3.0  # p .50 must be .95: never quite out of the question
ALIKE = 0.75  # share of the smaller one's words


@dataclass(frozen=True, slots=True)
class Ignored:
    """sessions: how many, other than the present one, showed it in vain; bad: verdicts."""

    sessions: int
    bad: int = 0

    @property
    def log_odds(self) -> float:
        """
        >>> round(Ignored(1).log_odds, 2), round(Ignored(10).log_odds, 2), Ignored(0, bad=9).log_odds
        (0.28, 0.96, 3.0)
        """
        return min(MOST_LOG_ODDS, IGNORED_LOG_ODDS * math.log1p(self.sessions) + BAD_LOG_ODDS * self.bad)


@dataclass(frozen=True, slots=True)
class Habits:
    """passages: id -> how it was ignored; words: of the most ignored, what they say (stems) and how it was ignored."""

    passages: Mapping[int, Ignored] = field(default_factory=dict)
    words: Sequence[tuple[frozenset[str], Ignored]] = ()

    def log_odds(self, passage: int) -> float:
        """What this passage itself must have more. A look-up."""
        known = self.passages.get(passage)
        return known.log_odds if known else 0.0

    def log_odds_alike(self, stems: frozenset[str]) -> float:
        """What it must have more for being nearly the same as another. A walk: ask for the few that would pass."""
        return max((ignored.log_odds for words, ignored in self.words if alike(stems, words)), default=0.0)


NO_HABITS = Habits()


def alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two texts say nearly the same, numbers included: 8080 is not 9090, and a correction is news.

    >>> alike(frozenset("the port is 8080".split()), frozenset("port is 8080 now".split()))
    True
    >>> alike(frozenset("the port is 9090".split()), frozenset("port is 8080 now".split()))
    False
    """
    small, large = sorted((len(one), len(other)))
    if small < 2 or large > 3 * small or len(one & other) < ALIKE * small:
        return False
    return all(word in other for word in one if any(letter.isdigit() for letter in word))
