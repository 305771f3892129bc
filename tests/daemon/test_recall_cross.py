"""The cross-encoder's stage: what it moves, what it leaves where it was, and what happens when the worker is late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from recall_made import encoding, found, passage
from recalld_daemon.memory import Memory
from recalld_daemon.paths import home_under
from recalld_daemon.recall.cross import GRACE_SECONDS, CrossEncoding, blended, from_thread
from recalld_daemon.recall.explain import rows_of
from recalld_daemon.recall.types import Candidate, EncoderUnavailable, Passage, Query

ASKED = Query(text="how is the ledger deployed", terms=("ledger", "deployed"), key="k")


@dataclass
class MadeReader:
    """Has all passages but those that are gone."""

    gone: tuple[int, ...] = ()

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        return [passage(id, f"text {id}", heading="Ledger") for id in ids if id not in self.gone]


@dataclass
class MadeScorer:
    """Scores passages by their number, those it knows; `asked` holds what it was asked."""

    scores: dict[int, float]
    asked: list[tuple[str, list[str], float]] = field(default_factory=list)

    def __call__(self, query: str, texts: Sequence[str], budget_seconds: float) -> np.ndarray:
        self.asked.append((query, list(texts), budget_seconds))
        return np.array([self.scores.get(int(text.split()[-1]), math.nan) for text in texts], np.float32)


def deepen(
    scores: dict[int, float], candidates: Sequence[Candidate], gone: tuple[int, ...] = (), limit: int = 4
) -> tuple[list[Candidate], MadeScorer]:
    scorer = MadeScorer(scores)
    stage = CrossEncoding(
        scorer, MadeReader(gone), lambda each: f"{each.heading}: {each.text}", 0.01, weight=0.1, limit=limit
    )
    assert stage.stage == "full"
    return list(stage.deepen(ASKED, encoding(), candidates)), scorer


def in_order(count: int) -> list[Candidate]:
    """Passages 1 to `count`, each 0.1 below the one before."""
    return [Candidate(at, fused=5.0 - 0.1 * at, late=0.5) for at in range(1, count + 1)]


def test_the_best_answer_rises_and_carries_its_score() -> None:
    deeper, scorer = deepen({1: -2.0, 2: -0.5, 3: 6.0, 4: -2.0}, in_order(6))
    assert [each.passage for each in deeper] == [3, 2, 1, 4, 5, 6]
    assert [each.cross for each in deeper] == [6.0, -0.5, -2.0, -2.0, None, None]
    assert all(each.late == 0.5 for each in deeper)
    assert scorer.asked == [(ASKED.text, [f"Ledger: text {at}" for at in (1, 2, 3, 4)], 0.01)]


def test_what_time_did_not_reach_keeps_its_place_among_the_middling() -> None:
    deeper, _ = deepen({1: 4.0, 2: 0.0, 3: -9.0}, in_order(6))
    assert [each.passage for each in deeper] == [1, 2, 4, 5, 6, 3]
    assert [round(each.fused, 6) for each in deeper] == [5.3, 4.8, 4.6, 4.5, 4.4, 3.8]


def test_when_nothing_was_reached_the_order_stands() -> None:
    before = in_order(6)
    deeper, _ = deepen({}, before)
    assert deeper == before


def test_a_passage_that_is_gone_is_not_scored() -> None:
    deeper, scorer = deepen({1: 0.0, 2: 9.0, 3: 1.0}, in_order(3), gone=(2,))
    assert scorer.asked[0][1] == ["Ledger: text 1", "Ledger: text 3"]
    assert {each.passage: each.cross for each in deeper} == {1: 0.0, 2: None, 3: 1.0}


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=12),
    st.dictionaries(st.integers(0, 11), st.floats(-20, 20), max_size=12),
)
def test_blending_keeps_all_and_orders_by_the_sum(fused: list[float], scores: dict[int, float]) -> None:
    candidates = [Candidate(at, fused=value) for at, value in enumerate(sorted(fused, reverse=True))]
    copies = [Candidate(each.passage, fused=each.fused) for each in candidates]
    known = {at: score for at, score in scores.items() if at < len(candidates)}
    deeper = blended(candidates, known, 0.3)
    assert candidates == copies  # they may be being judged
    assert sorted(each.passage for each in deeper) == list(range(len(candidates)))
    assert [each.fused for each in deeper] == sorted((each.fused for each in deeper), reverse=True)
    rest = [each.passage for each in deeper if each.passage not in known]
    assert rest == sorted(rest)


def test_why_lists_the_score_as_a_lane() -> None:
    candidate = found(1, late=0.4)
    candidate.cross = 2.5
    (row,) = rows_of([candidate], [passage(1, "text")])
    assert row.lanes["cross"] == (1, 2.5)
    (bare,) = rows_of([found(1)], [passage(1, "text")])
    assert "cross" not in bare.lanes


class MadeWorker:
    """Answers after `takes` seconds, or raises."""

    def __init__(self, takes: float, error: Exception | None = None) -> None:
        self.takes, self.error, self.cancelled = takes, error, False

    async def rerank(self, query: str, texts: Sequence[str], budget_seconds: float) -> np.ndarray:
        try:
            await trio.sleep(self.takes)
        except trio.Cancelled:
            self.cancelled = True
            raise
        if self.error:
            raise self.error
        return np.arange(len(texts), dtype=np.float32)


def in_a_thread(worker: MadeWorker) -> np.ndarray:
    """What a recall's thread gets from the worker, on a quick clock."""
    result: list[np.ndarray] = []

    async def main() -> None:
        scorer = from_thread(worker)

        def work() -> None:
            result.append(scorer("q", ["a", "b", "c"], 0.01))

        await trio.to_thread.run_sync(work, abandon_on_cancel=True)

    trio.run(main, clock=trio.testing.MockClock(rate=100.0))
    return result[0]


def test_a_thread_gets_the_scores() -> None:
    assert in_a_thread(MadeWorker(0.0)).tolist() == [0.0, 1.0, 2.0]


def test_a_late_worker_is_unavailable_and_its_request_given_up() -> None:
    worker = MadeWorker(100.0 * (0.01 + GRACE_SECONDS))
    with pytest.raises(EncoderUnavailable, match="late"):
        in_a_thread(worker)
    assert worker.cancelled


def test_a_dead_worker_is_unavailable() -> None:
    with pytest.raises(EncoderUnavailable, match="the worker ended"):
        in_a_thread(MadeWorker(0.0, EncoderUnavailable("the worker ended")))


@pytest.mark.parametrize(
    ("seconds", "loaded", "there"), [(0.0, True, False), (0.015, False, False), (0.015, True, True)]
)
def test_the_stage_is_there_where_one_is_configured_and_loaded(
    tmp_path: Path, seconds: float, loaded: bool, there: bool
) -> None:
    class Live:
        has_cross_encoder = loaded

    home = home_under(tmp_path)
    home.make()
    memory = Memory.open(home)
    try:
        memory.cross_seconds = seconds
        parts = memory.recaller(Live(), True).parts  # type: ignore[arg-type]
        assert [stage.stage for stage in parts.deepeners if stage.name == "cross"] == (["full"] if there else [])
    finally:
        memory.close()
