"""One list out of several lanes' lists.

Each lane scores on a scale of its own. The weighted sum puts each lane's scores on 0..1 between the worst and the
best of its own list and adds them by weight; reciprocal rank fusion looks at ranks alone, and is there for lanes whose
scores mean nothing. A passage that a lane did not return gets that lane's worst, 0. Either way the result only orders:
how good an answer is in itself is the gate's question, so the lanes' raw scores stay on the candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from recalld_daemon.recall.types import Candidate, Float32, LaneHits

RRF_K = 60  # Cormack, Clarke, Büttcher 2009; the design's choice
LANE_LIMIT = 100  # candidates per lane: what late interaction is affordable for
LANE_WEIGHTS: Mapping[str, float] = {  # flat around these on LoCoMo and REALTALK dev; facts tell dense's part better
    "dense": 0.5,
    "lexical": 0.5,
    "facts": 0.7,
    "fact_words": 0.7,
    "temporal": 0.4,
    "subjects": 0.1,  # the design's lambda 0.4 of a cosine is no more on this scale
    "speaker": 0.3,  # the prototype's 0.15 of a cosine, on our scale
    "neighbours": 0.5,  # the best heir inherits 0.3 of a score that reaches 1.7
}
OTHER_LANE_WEIGHT = 0.3  # entities, a graph: they add, and never decide alone

Shares = Callable[[str, LaneHits], Float32]  # (lane, hits) -> (n,) what each hit adds to its passage's score


def reciprocal_rank(lane: str, hits: LaneHits) -> Float32:
    """1 / (RRF_K + rank), ranks from 1. Shape (n,). The lane's scores do not matter.

    >>> hits = LaneHits(np.array([7, 3]), np.array([0.9, 0.1], np.float32))
    >>> reciprocal_rank("dense", hits).astype(float).round(4).tolist()
    [0.0164, 0.0161]
    """
    return (1.0 / (RRF_K + 1 + np.arange(len(hits.ids), dtype=np.float32))).astype(np.float32)


def weighted_score(lane: str, hits: LaneHits) -> Float32:
    """The lane's weight times its scores, on 0..1 between the list's worst and best; all 1 where all are equal.

    >>> hits = LaneHits(np.array([7, 3, 5]), np.array([0.9, 0.5, 0.1], np.float32))
    >>> (weighted_score("dense", hits) / LANE_WEIGHTS["dense"]).round(2).tolist()
    [1.0, 0.5, 0.0]
    """
    scores = hits.scores.astype(np.float32)
    low, high = float(scores.min()), float(scores.max())
    shares = (scores - low) / (high - low) if high > low else np.ones_like(scores)
    return (LANE_WEIGHTS.get(lane, OTHER_LANE_WEIGHT) * shares).astype(np.float32)


def fuse(
    lanes: Mapping[str, LaneHits],
    exclude: Collection[int] = frozenset(),
    shares: Shares = weighted_score,
    limit: int = LANE_LIMIT,
) -> list[Candidate]:
    """The union of the lanes' first `limit` hits, best first; equal scores go by passage id, lower first.

    Excluded passages are dropped before ranks are given, so they do not push others down. A passage that a lane
    returned twice counts at its better place.
    """
    found: dict[int, Candidate] = {}
    for lane, whole in lanes.items():
        hits = _kept(whole, exclude, limit)
        if not len(hits.ids):
            continue
        rows = zip(hits.ids.tolist(), hits.scores.tolist(), shares(lane, hits).tolist(), strict=True)
        for rank, (passage, score, share) in enumerate(rows, start=1):
            candidate = found.setdefault(passage, Candidate(passage))
            if lane not in candidate.lanes:
                candidate.lanes[lane] = (rank, score)
                candidate.fused += share
    return sorted(found.values(), key=lambda candidate: (-candidate.fused, candidate.passage))


def _kept(hits: LaneHits, exclude: Collection[int], limit: int) -> LaneHits:
    if not exclude:
        return LaneHits(hits.ids[:limit], hits.scores[:limit])
    keep = np.array([passage not in exclude for passage in hits.ids.tolist()], dtype=bool)
    return LaneHits(hits.ids[keep][:limit], hits.scores[keep][:limit])
