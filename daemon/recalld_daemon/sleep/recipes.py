"""What is put up against the champion each night, simplest first: of those that win, the first is promoted.

Simple is what has fewer learned parts; of equally many, what only orders what was found (the ranker) comes before what
moves queries (f_Q), and that before what moves everything stored (f_K, f_V), which costs a re-projection. A night only
ever climbs as far as it must: tomorrow today's winner is the champion, and the next step has to beat that.
"""

from __future__ import annotations

from dataclasses import dataclass
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
        more = [name for name in ("usefulness", "ranker") if getattr(self, name)]
        return " + ".join(filter(None, [_NAMES[self.parts], *more]))

    @property
    def size(self) -> int:
        """How many parts are learned."""
        return len(self.parts) + self.ranker + self.usefulness


RECIPES: tuple[Recipe, ...] = (
    Recipe("", ranker=True),
    Recipe("q"),
    Recipe("q", ranker=True),
    Recipe("qk"),
    Recipe("qk", ranker=True),
    Recipe("qkv"),
    Recipe("qkv", ranker=True),
)
