"""The neighbours lane against the sum written down; only turns inherit, and only what the view may show."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue_samples import Known, batch_of
from recalld_daemon.index.cards import CardTable
from recalld_daemon.recall.lanes.neighbours import FROM_AFTER, FROM_BEFORE, NeighbourLane
from recalld_daemon.recall.types import Candidate, LaneHits, Query, SpreadingLane, View

QUERY = Query("anything", ("anything",), "")


def lane_over(passages: dict[int, Known]) -> NeighbourLane:
    table = CardTable()
    table.add(batch_of(passages))
    return NeighbourLane(table)


def spread(lane: SpreadingLane, fused: dict[int, float], view: View = View(), limit: int = 50) -> LaneHits:  # noqa: B008
    found = [Candidate(id, fused=score) for id, score in fused.items()]
    return lane.spread(QUERY, sorted(found, key=lambda c: -c.fused), view, limit)


def talk(n: int, source: int = 1, speaker: str = "Ada") -> dict[int, Known]:
    return {
        source * 100 + k: Known(f"turn {k}", speaker=speaker, source=source, ordinal=k, written_at=float(k))
        for k in range(n)
    }


def test_the_turn_after_inherits_more_than_the_turn_before() -> None:
    hits = spread(lane_over(talk(5)), {102: 1.0})
    assert hits.ids.tolist() == [103, 101]
    assert hits.scores.tolist() == pytest.approx([FROM_BEFORE, FROM_AFTER])


def test_nothing_is_inherited_across_sources_or_in_documents() -> None:
    notes = talk(3, source=2, speaker="")
    lane = lane_over({**talk(2), **notes, **talk(2, source=3)})
    assert spread(lane, {101: 1.0}).ids.tolist() == [100]
    assert spread(lane, {201: 1.0}).ids.tolist() == []


def test_a_note_between_turns_neither_gives_nor_inherits() -> None:
    lane = lane_over({**talk(3), 101: Known("a note", source=1, ordinal=1)})
    assert spread(lane, {100: 1.0, 101: 1.0}).ids.tolist() == []


def test_p014_what_was_written_later_than_the_view_ends_inherits_nothing() -> None:
    lane = lane_over(talk(5))
    assert spread(lane, {102: 1.0}, View(as_of=3.0)).ids.tolist() == [101]


def test_unknown_passages_and_none_at_all_give_nothing() -> None:
    lane = lane_over(talk(3))
    assert spread(lane, {999: 1.0}).ids.tolist() == []
    empty = spread(lane, {})
    assert (empty.ids.shape, empty.scores.shape) == ((0,), (0,))


@given(st.dictionaries(st.integers(100, 111), st.floats(0, 2), max_size=8), st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_shares_add_up(fused: dict[int, float], limit: int) -> None:
    lane = lane_over(talk(12))
    wanted: dict[int, float] = {}
    for id, score in fused.items():
        for heir, share in ((id + 1, FROM_BEFORE), (id - 1, FROM_AFTER)):
            if score > 0 and 100 <= heir < 112:
                wanted[heir] = wanted.get(heir, 0.0) + share * score
    hits = spread(lane, fused, limit=limit)
    assert hits.scores.tolist() == pytest.approx(sorted(wanted.values(), reverse=True)[:limit], rel=1e-5)
    assert all(wanted[id] == pytest.approx(s, rel=1e-5) for id, s in zip(hits.ids.tolist(), hits.scores, strict=True))
