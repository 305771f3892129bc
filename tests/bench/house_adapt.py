"""What is fitted on other conversations before one is judged. Nothing of it ships.

A lesson is one question's candidates as the ranker sees them, and which of them answer it. Lessons are made once per
setting and shared by all folds; a fold's ranker has seen none of its own conversation's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from house_recall import Setting
from judging import Court


def fitted(others: Sequence[Court], setting: Setting) -> Setting:
    """The setting with what was fitted on `others`."""
    raise SystemExit("this version has no learned ranker to fit: use --shipped-only")


def cross_fitted(courts: Sequence[Court], setting: Setting) -> Callable[[Court], Setting]:
    """For each court the setting with what was fitted on all the others."""
    raise SystemExit("this version has no learned ranker to fit: use --shipped-only")
