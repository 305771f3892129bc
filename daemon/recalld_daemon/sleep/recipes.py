"""What is put up against the champion each night, simplest first: of those that win, the first is promoted.

What leaves stored vectors alone is simpler than what projects all of them again (f_K, and f_V over it); within either,
fewer learned parts are simpler than more; and of equally many, what only orders what was found (the ranker, then
usefulness) is simpler than what moves queries (f_Q). A night climbs only as far as it must: tomorrow today's winner is
the champion, and the next step has to beat that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Parts = Literal["q", "qk", "qkv"]
FITS: tuple[Parts, ...] = ("q", "qk", "qkv")
CHAMPION = "champion"
_NAMES = {"": "", "q": "f_Q", "qk": "f_Q + f_K", "qkv": "f_Q + f_K + f_V"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """parts: the adapters it has; "": none. Each is fitted anew from nothing, always on the frozen vectors."""

    parts: Literal["", "q", "qk", "qkv"]
    ranker: bool = False
    usefulness: bool = False

    @property
    def name(self) -> str:
        """E.g. "f_Q + ranker"."""
        more = [name for name in ("ranker", "usefulness") if getattr(self, name)]
        return " + ".join(filter(None, [_NAMES[self.parts], *more]))

    @property
    def below(self) -> Recipe:
        """The same without usefulness: whose ranker it has, since weights belong to the ranker they are fitted over."""
        return replace(self, usefulness=False)

    @property
    def size(self) -> int:
        """How many parts are learned."""
        return len(self.parts) + self.ranker + self.usefulness


RECIPES: tuple[Recipe, ...] = (
    Recipe("", ranker=True),
    Recipe("", usefulness=True),
    Recipe("q"),
    Recipe("", ranker=True, usefulness=True),
    Recipe("q", ranker=True),
    Recipe("q", ranker=True, usefulness=True),
    Recipe("qk"),
    Recipe("qk", ranker=True),
    Recipe("qkv", usefulness=True),  # f_V speaks through usefulness alone
    Recipe("qkv", ranker=True, usefulness=True),
)
