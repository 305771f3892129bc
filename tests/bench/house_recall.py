"""What a recall in a house is made of, and what may be left out of it or put in: for ablations and for fitted parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from recalld_daemon.recall.stages import Parts


@dataclass(frozen=True, slots=True)
class Setting:
    """How to recall. without: names of lanes and stages that are left out; change: what is done to the rest."""

    name: str = "shipped"
    without: frozenset[str] = frozenset()
    change: Callable[[Parts], Parts] | None = None

    def of(self, parts: Parts) -> Parts:
        left = reduce(Parts.without, sorted(self.without), parts)
        return left if self.change is None else self.change(left)


PLAIN = Setting()


def names_of(parts: Parts) -> list[str]:
    """What an ablation can leave out: lanes, spreading lanes, then deeper stages."""
    return [part.name for part in (*parts.lanes, *parts.spreading, *parts.deepeners)]
