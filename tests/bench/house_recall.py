"""One recall without a loop, and what may be left out of it.

This is the only file of the benches that knows how the cascade goes from lanes to an answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from recalld_daemon.recall import fusion
from recalld_daemon.recall.cascade import Recaller
from recalld_daemon.recall.types import Answer, LaneHits, Query, QueryEncoding, View


@dataclass(frozen=True, slots=True)
class Setting:
    """How to recall. without: names of lanes and of deepeners' stages that are left out; shares: how lanes are fused."""

    name: str = "shipped"
    without: frozenset[str] = frozenset()
    shares: fusion.Shares = fusion.weighted_score


PLAIN = Setting()


def parts_of(recaller: Recaller) -> list[str]:
    """What an ablation can leave out: lanes, then deepeners."""
    return [*(lane.name for lane in recaller.lanes), *(deepener.stage for deepener in recaller.deepeners)]


def recall_once(
    recaller: Recaller, query: Query, encoding: QueryEncoding, view: View, hidden: frozenset[int], setting: Setting
) -> tuple[Query, Answer]:
    """The last answer of a recall that is given all the time it wants, and the query it went by.

    hidden: passages that must not be found; lanes are asked for as many more.
    """
    began = time.perf_counter()
    limit = fusion.LANE_LIMIT + len(hidden)
    hits: dict[str, LaneHits] = {}
    for lane in recaller.lanes:
        if lane.name not in setting.without:
            hits[lane.name] = lane.search(query, encoding if lane.needs_encoding else None, view, limit)
    candidates = fusion.fuse(hits, hidden, setting.shares)
    stage = "fused"
    for deepener in recaller.deepeners:
        if deepener.stage not in setting.without and candidates:
            candidates = list(deepener.deepen(query, encoding, candidates))
            stage = deepener.stage
    done = partial(Answer, candidates=candidates, ms=(time.perf_counter() - began) * 1000)
    return query, done(stage)  # type: ignore[arg-type]
