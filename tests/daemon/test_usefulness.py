"""Usefulness: off it is plain search, bit for bit; on it orders and nothing else; and what it is told from."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_made import found, passage
from recalld_daemon.assembly import Wishes, useful_of
from recalld_daemon.learned import PLAIN
from recalld_daemon.recall import gate
from recalld_daemon.recall.adapter import Adapter, unit
from recalld_daemon.recall.query import query_from
from recalld_daemon.recall.types import Answer, Candidate, Float32, Int64, Query, QueryEncoding
from recalld_daemon.recall.usefulness import (
    DAY_SECONDS,
    Counts,
    Interests,
    Useful,
    UsefulnessUnreadable,
    Weights,
    usefulness,
    with_usefulness,
)

DIMS, NOW = 8, 1_700_000_000.0
ENCODING = QueryEncoding(np.eye(DIMS, dtype=np.float32)[0], np.empty((0, 4), np.float32))
ON = Weights(0.5, 0.3, 0.4)
numbers = st.floats(-10, 10, width=32)


class MadeIndex:
    """Vectors by id; ids of 900 and above have none."""

    def vectors_of(self, ids: Int64) -> Float32:
        rows = [np.random.default_rng(int(id)).normal(size=DIMS) for id in ids]
        vectors = unit(np.array(rows, np.float32).reshape(len(ids), DIMS))
        vectors[ids >= 900] = np.nan
        return vectors


def interests(uses: dict[int, float] | None = None) -> Interests:
    one = unit(np.arange(1, DIMS + 1, dtype=np.float32))
    ids = np.array(sorted(uses or {}), np.int64)
    counts = Counts(ids, np.array([(uses or {})[id] for id in ids.tolist()], np.float64), NOW)
    return Interests(one, one[::-1].copy(), NOW, counts)


def stage(weights: Weights, now: Interests | None = None, value: Adapter | None = None, limit: int = 100) -> Useful:
    return Useful(MadeIndex(), weights, value, lambda: now or interests({3: 5.0}), lambda: NOW, limit)


def deepened(useful: Useful, candidates: list[Candidate]) -> list[Candidate]:
    return list(useful.deepen(Query("q", (), "q"), ENCODING, candidates))


@given(st.lists(numbers, min_size=1, max_size=30))
def test_at_weight_zero_order_and_scores_are_what_they_were(scores: list[float]) -> None:
    before = [Candidate(n, fused=score) for n, score in enumerate(sorted(scores, reverse=True))]
    assert deepened(stage(Weights()), before) == before
    assert with_usefulness(before, np.zeros(len(before), np.float32)) == [
        replace(candidate, unhelped=n) for n, candidate in enumerate(before)
    ]


def test_on_day_one_there_is_no_such_stage() -> None:
    def stages(data: bytes | None) -> int:
        wishes = Wishes(learned=replace(PLAIN, usefulness=data))
        return len(useful_of(MadeIndex(), wishes))  # type: ignore[arg-type]

    assert [stages(None), stages(Weights().to_bytes()), stages(b"broken"), stages(ON.to_bytes())] == [0, 0, 0, 1]


def test_nothing_known_of_the_user_leaves_the_order() -> None:
    useful = replace(stage(ON), interests=lambda: None)
    before = [Candidate(n, fused=-float(n)) for n in range(5)]
    assert deepened(useful, before) == before


def test_what_was_used_goes_up_and_the_input_stays() -> None:
    before = [Candidate(n, fused=1.0 - n / 100) for n in range(1, 6)]
    copies = [replace(candidate) for candidate in before]
    after = deepened(stage(Weights(often=1.0)), before)
    assert [candidate.passage for candidate in after] == [3, 1, 2, 4, 5]
    assert before == copies


@given(st.lists(numbers, min_size=3, max_size=40), st.integers(1, 40))
def test_what_is_below_the_limit_stays_below_in_order(scores: list[float], limit: int) -> None:
    before = [Candidate(n, fused=score) for n, score in enumerate(sorted(scores, reverse=True))]
    after = deepened(stage(ON, limit=limit), before)
    assert [c.passage for c in after[limit:]] == [c.passage for c in before[limit:]]
    assert {c.passage for c in after} == {c.passage for c in before}
    assert all(above.fused >= below.fused for above, below in pairwise(after))


def test_a_passage_without_a_vector_neither_gains_nor_loses() -> None:
    now, ids = interests(), np.array([1, 2, 900], np.int64)
    features = now.features(ids, MadeIndex().vectors_of(ids), NOW, ON)
    assert features[2, 1:] == pytest.approx(features[:2, 1:].mean(axis=0))
    assert not now.features(ids[2:], MadeIndex().vectors_of(ids[2:]), NOW, ON).any()


def test_f_v_is_applied_and_its_identity_changes_nothing() -> None:
    before = [Candidate(n, fused=-n / 1000) for n in range(20)]
    plain = deepened(stage(ON), before)
    born = deepened(stage(ON, value=Adapter.born(DIMS, 4)), before)
    moved = replace(Adapter.born(DIMS, 4), b2=5 * np.eye(DIMS, dtype=np.float32)[1])
    assert [c.fused for c in born] == pytest.approx([c.fused for c in plain], abs=1e-6)
    assert [c.fused for c in deepened(stage(ON, value=moved), before)] != pytest.approx([c.fused for c in plain])


# ------------------------------------------------------------------------ it orders only


def test_no_signal_and_no_probability_changes_where_the_same_are_judged() -> None:
    """Four candidates, so that all are judged whatever their order; two equal in rank."""
    texts = {1: "the deploy key is in the vault", 2: "we deploy on Fridays", 3: "the vault of the bank", 4: "key lime"}
    rows = [found(n, 0.7 - n / 20, 9.0 - n, 0.6 - n / 20, rank=n) for n in texts]
    for candidate, score in zip(rows, (1.5, 1.0, 1.0, 0.2), strict=True):
        candidate.ranked = candidate.fused = score
    context = gate.Context(query_from("where is the deploy key in the vault?"))

    def judged(candidates: list[Candidate]) -> dict[int, tuple[float, dict[str, float]]]:
        gate.decide(Answer("late", candidates, 1.0), [passage(n, text) for n, text in texts.items()], context)
        return {c.passage: (c.probability, c.signals) for c in candidates}

    plain, useful = judged([replace(c) for c in rows]), deepened(stage(Weights(often=9.0)), rows)
    assert [c.passage for c in useful] == [3, 1, 2, 4]
    assert judged(useful) == plain
    assert all(probability > 0 for probability, _ in plain.values())


# ------------------------------------------------------------------------ what it is told from


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 4000))
def test_n_grows_with_uses_decays_with_time_and_is_bounded(few: float, more: float, days: float) -> None:
    few, more = sorted((few, more))
    ids = np.array([1, 2, 3], np.int64)
    counts = Counts(ids[:2], np.array([few, more]), NOW)
    now, later = counts.often(ids, NOW), counts.often(ids, NOW + days * DAY_SECONDS)
    assert 0.0 <= now[0] <= now[1] <= 1.0
    assert now[2] == 0.0
    assert (later <= now).all()


def test_a_month_later_a_use_counts_half() -> None:
    one = Counts.of(np.array([7, 7, 9]), np.array([NOW, NOW - 30 * DAY_SECONDS, NOW]), np.ones(3), NOW)
    assert one.ids.tolist() == [7, 9]
    assert one.amounts.tolist() == [1.5, 1.0]


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 40), st.floats(0.5, 5)), min_size=1, max_size=20))
def test_counting_one_by_one_is_counting_at_once(uses: list[tuple[int, float, float]]) -> None:
    uses.sort(key=lambda use: use[1])
    now = Interests.none(DIMS)
    for id, day, weight in uses:
        now = now.used(np.array([id]), np.array([weight]), NOW + day * DAY_SECONDS)
    at = NOW + 50 * DAY_SECONDS
    ids, days, weights = (np.array(column) for column in zip(*uses, strict=True))
    known = np.arange(6)
    at_once = Counts.of(ids, NOW + days * DAY_SECONDS, weights, at).often(known, at)
    assert now.counts.often(known, at) == pytest.approx(at_once, rel=1e-5)


@given(st.lists(st.integers(0, DIMS - 1), min_size=1, max_size=60))
def test_interests_stay_within_the_unit_ball(asked: list[int]) -> None:
    now, rows = Interests.none(DIMS), np.eye(DIMS, dtype=np.float32)
    for n, which in enumerate(asked):
        now = now.asked(rows[which], NOW + n).slept(rows[[which]])
    assert np.linalg.norm(now.fast) <= 1.0001
    assert np.linalg.norm(now.slow) <= 1.0001
    assert np.abs(usefulness(now.features(np.arange(DIMS), rows, NOW, ON), ON)).max() <= 0.5 + 0.3 + 0.4


def test_the_focus_follows_the_queries_and_fades_in_days_the_rest_stays() -> None:
    rows = np.eye(DIMS, dtype=np.float32)
    now = Interests.none(DIMS).slept(rows[[2]])
    for n in range(20):
        now = now.asked(rows[0], NOW + n)
    assert now.fast[0] > 0.85
    for n in range(20):
        now = now.asked(rows[1], NOW + 100 + n)
    assert now.fast[1] > 0.85 > 0.15 > now.fast[0]
    weekend = now.focus(NOW + 120 + 4 * DAY_SECONDS)
    assert weekend == pytest.approx(now.fast / 4, rel=0.01)
    assert now.slow[2] == pytest.approx(0.02)


def test_a_clock_set_back_fades_nothing_and_grows_nothing() -> None:
    now = Interests.none(DIMS).asked(np.eye(DIMS, dtype=np.float32)[0], NOW)
    assert now.focus(NOW - DAY_SECONDS).tolist() == now.fast.tolist()
    assert now.asked(now.fast, NOW - DAY_SECONDS).fast_at == NOW


# ------------------------------------------------------------------------ weights


def test_weights_are_read_as_they_were_written() -> None:
    weights = Weights(0.25, 0.0, 1.5, 20.0, 3.0)
    assert Weights.from_bytes(weights.to_bytes({"made by": "a test"})) == weights


@pytest.mark.parametrize("bad", [Weights(often=-1.0), Weights(slow=float("nan")), Weights(fast_days=0.0)])
def test_weights_out_of_bounds_are_refused(bad: Weights) -> None:
    with pytest.raises(UsefulnessUnreadable):
        Weights.from_bytes(bad.to_bytes())


def test_other_bytes_are_no_weights() -> None:
    with pytest.raises(UsefulnessUnreadable):
        Weights.from_bytes(Adapter.born(4, 2).to_bytes())
