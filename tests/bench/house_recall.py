"""What a recall in a house is made of, and what may be left out of it or put in: for ablations and for fitted parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

from recalld_daemon.ranking.ranker import Ranking
from recalld_daemon.recall.stages import Deepener, Parts


@dataclass(frozen=True, slots=True)
class Setting:
    """How to recall. without: names of lanes and stages that are left out; change: what is done to the rest."""

    name: str = "shipped"
    without: frozenset[str] = frozenset()
    change: Callable[[Parts], Parts] | None = None

    def of(self, parts: Parts) -> Parts:
        left = reduce(Parts.without, sorted(self.without), parts)
        left = replace(left, deepeners=[self._without_scorers(deepener) for deepener in left.deepeners])
        return left if self.change is None else self.change(left)

    def _without_scorers(self, deepener: Deepener) -> Deepener:
        """A ranker asks lanes for scores, too: not those that are left out."""
        if not isinstance(deepener, Ranking):
            return deepener
        scorers = [scorer for scorer in deepener.gatherer.scorers if scorer.name not in self.without]
        return replace(deepener, gatherer=replace(deepener.gatherer, scorers=scorers))


PLAIN = Setting()


def names_of(parts: Parts) -> list[str]:
    """What an ablation can leave out: lanes, spreading lanes, then deeper stages."""
    return [part.name for part in (*parts.lanes, *parts.spreading, *parts.deepeners)]
