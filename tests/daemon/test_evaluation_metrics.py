"""Figures per question and the paired bootstrap: hand-made examples, and properties that hold for all."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.evaluation import bootstrap, metrics
from recalld_daemon.evaluation.bootstrap import LEAST_MOVED, Verdict, better, of_difference, of_mean, of_share
from recalld_daemon.evaluation.metrics import dense_figures, figures_of, joined, means
from recalld_daemon.recall.adapter import Adapter, unit

rankings = st.lists(st.integers(0, 30), max_size=30, unique=True)
golds = st.frozensets(st.integers(0, 30), min_size=1, max_size=5)
figures = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 5)), min_size=2, max_size=40)


@pytest.mark.parametrize("module", [metrics, bootstrap])
def test_the_examples_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def check(ranked: list[int], gold: set[int], **wanted: float) -> None:
    found = {name: float(values[0]) for name, values in figures_of([ranked], [gold]).items()}
    assert found == pytest.approx({"r1": 0.0, "r5": 0.0, "r10": 0.0, "r20": 0.0, "mrr": 0.0} | wanted)


def test_recall_is_the_share_of_the_gold_found() -> None:
    check([1, 2, 3], {1}, r1=1, r5=1, r10=1, r20=1, mrr=1)
    check([1, 2, 3], {1, 9}, r1=0.5, r5=0.5, r10=0.5, r20=0.5, mrr=1)
    check([5, 6, 7, 8, 9, 1], {1}, r10=1, r20=1, mrr=1 / 6)
    check([], {1})
    check([2, 2, 1], {1}, r5=1, r10=1, r20=1, mrr=0.5)  # what stands there twice takes one place


@given(st.lists(st.tuples(rankings, golds), min_size=1, max_size=8))
def test_deeper_never_finds_less_and_all_lie_between_0_and_1(cases: list[tuple[list[int], frozenset[int]]]) -> None:
    found = figures_of([ranked for ranked, _ in cases], [gold for _, gold in cases])
    assert (found["r1"] <= found["r5"]).all()
    assert (found["r5"] <= found["r10"]).all()
    assert (found["r10"] <= found["r20"]).all()
    assert all(((values >= 0) & (values <= 1)).all() for values in found.values())


def test_a_question_without_gold_is_refused_not_averaged_in() -> None:
    with pytest.raises(ValueError, match="without gold"):
        figures_of([[1], [2]], [{1}, set()])
    assert means({"mrr": np.empty(0)}) == {}


def test_weights_say_how_much_a_question_counts() -> None:
    found = figures_of([[1], [2]], [{1}, {9}])
    assert means(found)["mrr"] == 0.5
    assert means(found, np.array([3.0, 1.0]))["mrr"] == 0.75
    assert len(joined([found, found])["mrr"]) == 4


# ---------------------------------------------------------------- by vectors alone


def pairs_of(queries: np.ndarray, memories: np.ndarray, gold: list[list[int]], pools: object = None) -> PairSet:
    n = len(queries)
    return PairSet(
        unit(queries.astype(np.float32)), unit(memories.astype(np.float32)),
        [np.array(own, np.int64) for own in gold], [np.empty(0, np.int64)] * n, np.arange(n, dtype=np.float64),
        np.ones(n, np.float32), np.empty((0, queries.shape[1]), np.float32), np.full(n, -1, np.int64),
        np.arange(n, dtype=np.int64), pools=pools,  # type: ignore[arg-type]
    )  # fmt: skip


@given(st.integers(0, 1_000))
def test_dense_figures_are_those_of_the_sorted_list(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, memories = rng.normal(size=(5, 4)), rng.normal(size=(30, 4))
    gold = [sorted(rng.choice(30, rng.integers(1, 4), replace=False).tolist()) for _ in range(5)]
    pairs = pairs_of(queries, memories, gold)
    order = np.argsort(-(pairs.queries @ pairs.memories.T), axis=1, kind="stable")
    wanted = figures_of(order.tolist(), gold)
    found = dense_figures(pairs)
    assert all(found[name] == pytest.approx(wanted[name]) for name in metrics.NAMES)


def test_dense_figures_obey_pools_and_adapters() -> None:
    pairs = pairs_of(np.array([[1.0, 0.1]]), np.array([[1.0, 0.0], [0.0, 1.0]]), [[1]])
    assert dense_figures(pairs)["mrr"].tolist() == [0.5]
    alone = pairs_of(np.array([[1.0, 0.1]]), np.array([[1.0, 0.0], [0.0, 1.0]]), [[1]], [np.array([1])])
    assert dense_figures(alone)["mrr"].tolist() == [1.0]
    gone = pairs_of(np.array([[1.0, 0.1]]), np.array([[1.0, 0.0], [0.0, 1.0]]), [[1]], [np.array([0])])
    assert dense_figures(gone)["mrr"].tolist() == [0.0]  # what can't be found was not found
    born = Adapter.born(2, hidden=3)
    turned = Adapter(born.w1, born.b1, born.w2, np.array([-9.0, 9.0], np.float32), 1.0)
    assert dense_figures(pairs, query=turned)["mrr"].tolist() == [1.0]
    assert dense_figures(pairs, bonus=np.array([0.0, 9.0], np.float32))["mrr"].tolist() == [1.0]


def test_a_tie_counts_against_the_gold() -> None:
    pairs = pairs_of(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]]), [[0]])
    assert dense_figures(pairs)["mrr"].tolist() == [0.5]


# ---------------------------------------------------------------- how sure


@given(figures)
def test_an_interval_holds_the_gain_and_is_the_same_again(rows: list[tuple[float, float, int]]) -> None:
    a, b, groups = (np.array(column) for column in zip(*rows, strict=True))
    for own in (None, groups):
        verdict = better(a, b, own, draws=200)
        assert verdict == better(a, b, own, draws=200)
        assert -1.0 <= verdict.low <= verdict.high <= 1.0
        assert verdict.gain == pytest.approx(float((b - a).mean()))
        assert verdict.n == len(rows)
    turned, straight = better(b, a, draws=200), better(a, b, draws=200)
    assert (turned.gain, turned.low) == pytest.approx((-straight.gain, -straight.high))


def test_a_handful_of_questions_that_moved_promotes_nothing() -> None:
    """No draw of them falls below zero, were it a single one."""
    champion, challenger = np.zeros(24), np.zeros(24)
    for moved in range(1, 9):
        challenger[moved] = 0.5
        verdict = better(champion, challenger)
        assert verdict.low >= 0.0
        assert verdict.moved == moved
        assert verdict.is_better is (moved >= LEAST_MOVED)


def test_a_clear_gain_is_better_and_none_is_not() -> None:
    champion = np.random.default_rng(1).uniform(0, 0.5, 200)
    assert better(champion, champion + 0.1).is_better
    assert not better(champion, champion).is_better  # as good is not better
    assert not better(champion, champion - 0.1).is_better
    noise = np.random.default_rng(2).normal(0.0, 0.3, 200)
    assert not better(champion, champion + noise - noise.mean() + 0.001).is_better


def test_of_too_few_nothing_can_be_said() -> None:
    assert better(np.zeros(1), np.ones(1)) == Verdict(1.0, -1.0, 1.0, 1)
    assert better(np.zeros(0), np.zeros(0)) == Verdict(0.0, -1.0, 1.0, 0)
    assert not better(np.zeros(1), np.ones(1)).is_better
    assert of_difference(of_share(np.ones(0)), of_share(np.zeros(50))) == Verdict(0.0, -1.0, 1.0, 0)


def test_questions_of_one_conversation_are_drawn_together() -> None:
    """Ten conversations of twenty equal questions tell as much as ten questions: the interval is that wide."""
    per_group = np.random.default_rng(3).choice([0.0, 1.0], 10)
    values, groups = np.repeat(per_group, 20), np.repeat(np.arange(10), 20)
    apart, together = of_mean(values), of_mean(values, groups)
    ten = of_mean(per_group)
    assert together.high - together.low == pytest.approx(ten.high - ten.low, abs=0.05)
    assert together.high - together.low > 3 * (apart.high - apart.low)
    one = of_mean(values, np.zeros(200))
    assert one.low < one.high  # of a single conversation, its questions


def test_weights_count_in_the_interval_too() -> None:
    values = np.r_[np.ones(50), np.zeros(50)]
    verdict = of_mean(values, weights=np.r_[np.full(50, 3.0), np.ones(50)])
    assert verdict.gain == 0.75
    assert 0.65 < verdict.low < 0.75 < verdict.high < 0.85


def test_champion_and_challenger_must_have_answered_the_same() -> None:
    with pytest.raises(ValueError, match="other questions"):
        better(np.zeros(3), np.zeros(4))


def test_shares_are_never_certain() -> None:
    """Of fifteen that were not used nobody may say that none ever is."""
    none, all_ = of_share(np.zeros(15)), of_share(np.ones(15), np.arange(15) // 3)
    assert (none.gain, none.low) == (0.0, 0.0)
    assert 0.15 < none.high < 0.25
    assert (all_.gain, all_.high) == (1.0, 1.0)
    assert 0.75 < all_.low < 0.85
    assert 0.1 < of_share(np.ones(1)).low < of_share(np.ones(1)).high == 1.0


def test_two_samples_that_are_not_paired() -> None:
    shown, withheld = of_share(np.r_[np.ones(60), np.zeros(40)]), of_share(np.r_[np.ones(10), np.zeros(40)])
    verdict = of_difference(shown, withheld)
    assert verdict.gain == pytest.approx(0.4)
    assert 0.2 < verdict.low < 0.4 < verdict.high < 0.6
    assert of_difference(withheld, shown).high == pytest.approx(-verdict.low)
    few = of_difference(of_share(np.ones(2)), of_share(np.zeros(2)))
    assert few.low < 0.5 < few.high == 1.0
