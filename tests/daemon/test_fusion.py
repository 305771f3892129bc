"""Fusion orders a union; it does not care which lane came first, and excluded passages leave no gap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_made import hits
from recalld_daemon.recall.fusion import RRF_K, Shares, fuse, reciprocal_rank, weighted_score
from recalld_daemon.recall.types import LaneHits

SHARES = [reciprocal_rank, weighted_score]


@st.composite
def ranked(draw: st.DrawFn) -> LaneHits:
    ids = draw(st.lists(st.integers(1, 60), unique=True, max_size=30))
    scores = sorted(draw(st.lists(st.integers(-64, 2560), min_size=len(ids), max_size=len(ids))), reverse=True)
    return LaneHits(np.array(ids, np.int64), np.array(scores, np.float32) / 64)


def order(
    lanes: dict[str, LaneHits], exclude: frozenset[int] = frozenset(), shares: Shares = weighted_score
) -> list[int]:
    return [candidate.passage for candidate in fuse(lanes, exclude, shares)]


@pytest.mark.parametrize("shares", SHARES)
@given(dense=ranked(), lexical=ranked())
def test_the_order_of_lanes_does_not_matter(shares: Shares, dense: LaneHits, lexical: LaneHits) -> None:
    one = order({"dense": dense, "lexical": lexical}, shares=shares)
    assert one == order({"lexical": lexical, "dense": dense}, shares=shares)
    assert set(one) == {*dense.ids.tolist(), *lexical.ids.tolist()}


@pytest.mark.parametrize("shares", SHARES)
@given(lane=ranked(), exclude=st.frozensets(st.integers(1, 60)))
def test_one_lane_alone_keeps_its_order_without_the_excluded(
    shares: Shares, lane: LaneHits, exclude: frozenset[int]
) -> None:
    candidates = fuse({"dense": lane}, exclude, shares)
    kept = [i for i in lane.ids.tolist() if i not in exclude]
    assert {c.passage for c in candidates} == set(kept)
    assert [c.lanes["dense"][0] for c in sorted(candidates, key=lambda c: c.lanes["dense"][0])] == [
        *range(1, len(kept) + 1)
    ]
    scores = [c.lanes["dense"][1] for c in candidates]
    assert scores == sorted(scores, reverse=True)


@given(dense=ranked(), lexical=ranked(), scale=st.floats(0.1, 50))
def test_a_lanes_scale_does_not_matter(dense: LaneHits, lexical: LaneHits, scale: float) -> None:
    stretched = LaneHits(lexical.ids, (lexical.scores.astype(np.float64) * scale).astype(np.float32))
    before = {c.passage: c.fused for c in fuse({"dense": dense, "lexical": lexical})}
    after = {c.passage: c.fused for c in fuse({"dense": dense, "lexical": stretched})}
    if len(lexical.ids) == 0 or np.ptp(lexical.scores) > 1e-3:
        assert after == pytest.approx(before, abs=2e-2)


def test_reciprocal_rank_fusion_by_hand() -> None:
    lanes = {"dense": hits((1, 0.9), (2, 0.8)), "lexical": hits((2, 7.0), (3, 1.0))}
    found = {c.passage: c.fused for c in fuse(lanes, shares=reciprocal_rank)}
    assert found == pytest.approx({1: 1 / (RRF_K + 1), 2: 1 / (RRF_K + 2) + 1 / (RRF_K + 1), 3: 1 / (RRF_K + 2)})


def test_raw_scores_and_ranks_stay_on_the_candidate() -> None:
    both = fuse({"dense": hits((1, 0.5), (2, 0.25)), "lexical": hits((2, 7.0))})
    assert {c.passage: c.lanes for c in both} == {
        1: {"dense": (1, 0.5)},
        2: {"dense": (2, 0.25), "lexical": (1, 7.0)},
    }


def test_no_lane_and_no_hits_give_nothing() -> None:
    assert fuse({}) == []
    assert fuse({"dense": hits()}) == []
