"""The online step: it learns, it can't be run away with, and what it was resumed from is what it was."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from lessons_made import DIMS, MEMORIES, lesson, mrr, one_shift, two_shifts, units
from recalld_daemon.adapters.fitting import fit
from recalld_daemon.adapters.online import BadPair, OnlineLearner, StateUnusable, Step
from recalld_daemon.adapters.pairs import Pair, PairSet
from recalld_daemon.adapters.settings import FitSettings, LossSettings, OnlineSettings, ShapeSettings
from recalld_daemon.adapters.state import notes_of
from recalld_daemon.recall.adapter import Adapter

SETTINGS = OnlineSettings(ShapeSettings(hidden=16), LossSettings(near_weight=0.05), learning_rate=5e-3)
NEVER_HELD = replace(SETTINGS, held_every=0)


def born() -> Adapter:
    return Adapter.born(DIMS, hidden=16, alpha=1.0)


def learner(settings: OnlineSettings = SETTINGS, promoted: Adapter | None = None, key: str = "k") -> OnlineLearner:
    return OnlineLearner(promoted or born(), settings, key)


def taught(one: OnlineLearner, pairs: PairSet, first: int = 0, last: int | None = None) -> list[Step]:
    return [one.learn(lesson(pairs, row)) for row in range(first, len(pairs) if last is None else last)]


def good_version() -> Adapter:
    """A version that was worth promoting: what is learned on from in the tests of poison."""
    settings = FitSettings(
        ShapeSettings(hidden=16, alpha=1.0), LossSettings(near_weight=0.05), learning_rate=5e-3, sampled=64, epochs=8
    )
    return fit(one_shift(300, 1), one_shift(60, 2), settings=settings).query


def content(state: bytes) -> tuple[dict[str, str], dict[str, bytes]]:
    """Notes and tensors: the file itself may hold them in any order."""
    tensors = safetensors.numpy.load(state)
    return notes_of(state), {name: array.tobytes() for name, array in tensors.items()}


def equal(one: Adapter, other: Adapter) -> bool:
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("w1", "b1", "w2", "b2"))


# ---------------------------------------------------------------- it learns


@pytest.mark.parametrize("made", [one_shift, two_shifts])
def test_it_learns_what_carries_over_and_more_than_a_bias(made: type[PairSet]) -> None:
    pairs, judged = made(250, 1), made(100, 3)  # type: ignore[arg-type]
    one = learner()
    steps = taught(one, pairs)
    plain, now = mrr(born(), judged), mrr(one.adapter, judged)
    assert now > plain + 0.15
    assert mrr(one.adapter.without("b2"), judged) > plain + 0.5 * (now - plain)
    w2, b2 = one.adapter.norms
    assert w2 > b2 > 0
    assert not any(step.reverted for step in steps)
    assert steps[-1].held_mrr > steps[-1].promoted_mrr


def test_on_day_one_it_is_the_identity() -> None:
    x = units(np.random.default_rng(0), 5, DIMS)
    np.testing.assert_allclose(learner().adapter.apply(x), x, atol=1e-6)


def test_the_next_recall_has_what_the_step_learned() -> None:
    one, pairs = learner(NEVER_HELD), one_shift(3, 1)
    step = one.learn(lesson(pairs, 0))
    assert step.adapter is one.adapter
    assert not step.adapter.is_identity
    assert step.loss > 0
    assert step.steps == 1
    before, after = (
        adapter.apply(pairs.queries[0]) @ pairs.memories[pairs.gold[0][0]] for adapter in (born(), step.adapter)
    )
    assert after > before


# ---------------------------------------------------------------- it can't be run away with


def test_the_same_pair_a_thousand_times_is_one_step() -> None:
    one, pairs = learner(NEVER_HELD), one_shift(20, 1)
    taught(one, pairs)
    wrong = lesson(pairs, 0, gold=(int(pairs.gold[0][0]) + 1) % MEMORIES)
    first = one.learn(wrong)
    for _ in range(999):
        last = one.learn(wrong)
    assert (first.steps, last.steps) == (21, 21)
    assert equal(first.adapter, last.adapter)
    assert math.isnan(last.loss)
    assert one.pairs == 21


def test_one_wrong_gold_for_a_thousand_questions_takes_over_nothing() -> None:
    """It counts once in the slice, and crowds out only itself in the buffer."""
    promoted, pairs, judged = good_version(), one_shift(1200, 5), one_shift(100, 3)
    one = learner(promoted=promoted)
    taught(one, pairs, 0, 300)
    others = {key for key in one._buffer.keys if not key.endswith("/7")}
    for row in range(300, 1200):
        step = one.learn(lesson(pairs, row, gold=7))
        assert step.drift <= SETTINGS.most_drift + 1e-6
        if row % 100 == 0:
            assert mrr(step.adapter, judged) > mrr(promoted, judged) - 0.03
    assert step.reverted or len(others & set(one._buffer.keys)) > 0.8 * len(others)


@pytest.mark.parametrize("seed", [0, 1])
def test_golds_by_chance_neither_run_away_nor_degrade_it_unseen(seed: int) -> None:
    """At each step either the slice is no worse than under the promoted version, beyond its own chance, or all that was
    learned is thrown away; and nothing drifts beyond its bound."""
    promoted, pairs, rng = good_version(), one_shift(900, 5), np.random.default_rng(seed)
    one = learner(promoted=promoted)
    taught(one, pairs, 0, 150)
    reverts = 0
    for row in range(150, 900):
        step = one.learn(lesson(pairs, row, gold=int(rng.integers(MEMORIES))))
        assert step.drift <= SETTINGS.most_drift + 1e-6
        assert all(np.isfinite(part).all() for part in (step.adapter.w1, step.adapter.w2, step.adapter.b2))
        if step.reverted:
            reverts += 1
            assert equal(step.adapter, promoted)
            assert step.held_mrr < step.promoted_mrr
            assert "held out" in step.reverted
            assert one.pairs == 0
    assert reverts


def test_after_a_return_the_optimiser_remembers_nothing() -> None:
    promoted, pairs, rng = good_version(), one_shift(1200, 5), np.random.default_rng(0)
    one = learner(promoted=promoted)
    taught(one, pairs, 0, 150)
    by_chance = (lesson(pairs, row, gold=int(rng.integers(MEMORIES))) for row in range(150, 1150))
    at = next(150 + n for n, pair in enumerate(by_chance) if one.learn(pair).reverted)
    fresh = learner(promoted=promoted)
    row = next(row for row in range(at + 1, 1200) if not fresh.learn(lesson(pairs, row)).held)
    fresh = learner(promoted=promoted)
    one.learn(lesson(pairs, row))
    fresh.learn(lesson(pairs, row))
    assert equal(one.adapter, fresh.adapter)


def test_drift_is_from_the_promoted_version_and_not_from_the_step_before() -> None:
    """Drift was compared with the previous step, so it stayed small while the weights went anywhere."""
    pairs, promoted = one_shift(120, 1), good_version()
    one = learner(replace(NEVER_HELD, most_drift=10.0), promoted)
    before, between, drifts = promoted, [], []
    for row in range(len(pairs)):
        step = one.learn(lesson(pairs, row, gold=7))
        latest = pairs.queries[max(0, row - 15) : row + 1]
        between.append(float(np.linalg.norm(step.adapter.apply(latest) - before.apply(latest), axis=1).mean()))
        drifts.append(float(np.linalg.norm(step.adapter.apply(latest) - promoted.apply(latest), axis=1).mean()))
        assert step.drift == pytest.approx(drifts[-1], abs=2e-3)  # the buffer holds half precision
        before = step.adapter
    assert drifts[-1] > 5 * between[-1]


@pytest.mark.parametrize("bound", [0.0, 0.05, 0.2])
def test_drift_stays_within_its_bound(bound: float) -> None:
    one = learner(replace(NEVER_HELD, most_drift=bound, learning_rate=0.5))
    assert max(step.drift for step in taught(one, one_shift(60, 1))) <= bound + 1e-6
    assert one.adapter.is_identity == (bound == 0.0)


def test_held_pairs_are_never_learned_from() -> None:
    """A challenger was judged on its training pairs."""
    pairs = one_shift(400, 1)
    one = learner()
    before = one.adapter
    held = 0
    for row in range(len(pairs)):
        step = one.learn(lesson(pairs, row))
        if step.held:
            held += 1
            assert equal(step.adapter, before)
            assert math.isnan(step.loss)
        before = step.adapter
    assert 25 < held < 80  # every eighth
    assert one.held_pairs == min(held, SETTINGS.held_kept)
    again = learner()
    sides = [again.learn(lesson(pairs, row)).held for row in range(50)]
    assert sides == [learner().learn(lesson(pairs, row)).held for row in range(50)]  # by the key alone


def broken(pair: Pair) -> list[Pair]:
    nothing, far = np.full(DIMS, np.nan, np.float32), np.full(DIMS, 1e30, np.float32)
    return [
        replace(pair, query=nothing), replace(pair, gold=nothing), replace(pair, negatives=nothing[None]),
        replace(pair, subject=nothing), replace(pair, query=np.zeros(DIMS, np.float32)), replace(pair, gold=far),
        replace(pair, gold=np.full(DIMS, np.inf, np.float32)), replace(pair, query=np.ones(DIMS + 1, np.float32)),
        replace(pair, weight=math.nan), replace(pair, weight=0.0), replace(pair, weight=math.inf),
    ]  # fmt: skip


def test_what_is_no_pair_is_refused_and_changes_nothing() -> None:
    one, pairs = learner(), one_shift(40, 1)
    taught(one, pairs, 0, 30)
    before = content(one.state())
    for bad in broken(lesson(pairs, 31)):
        with pytest.raises(BadPair):
            one.learn(bad)
    assert content(one.state()) == before
    assert np.isfinite(taught(one, pairs, 30, 40)[-1].drift)


def test_a_weight_beyond_all_others_is_cut() -> None:
    pairs = one_shift(12, 1)
    adapters = []
    for weight in (5.0, 1e9):
        one = learner(NEVER_HELD)
        taught(one, pairs, 0, 10)
        adapters.append(one.learn(replace(lesson(pairs, 10), weight=weight)).adapter)
    assert equal(*adapters)


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 9)), min_size=1, max_size=25))
def test_whatever_comes_it_stays_within_its_bounds(said: list[tuple[int, int]]) -> None:
    """Any questions with any golds, repeated or not."""
    pairs, one = one_shift(12, 1), learner(replace(SETTINGS, kept=5, held_kept=3, least_held=2, most_drift=0.1))
    for row, gold in said:
        step = one.learn(lesson(pairs, row, gold=gold))
        assert step.drift <= 0.1 + 1e-6
        assert one.pairs <= 5
        assert one.held_pairs <= 3
        assert not step.reverted or equal(step.adapter, one.promoted)


def test_negatives_as_near_as_the_gold_are_left_out() -> None:
    pairs = one_shift(4, 1)
    one, other = learner(NEVER_HELD), learner(NEVER_HELD)
    pair = lesson(pairs, 0)
    beyond = replace(
        pair, negatives=np.concatenate([pair.negatives, pair.query[None]])
    )  # nothing is nearer than itself
    assert equal(one.learn(pair).adapter, other.learn(beyond).adapter)


# ---------------------------------------------------------------- kept


@pytest.mark.parametrize("stopped_at", [1, 40, 90])
def test_a_restart_goes_on_as_if_there_had_been_none(stopped_at: int) -> None:
    pairs, settings = one_shift(120, 1), replace(SETTINGS, kept=50, held_kept=10)
    whole, first = learner(settings), learner(settings)
    taught(whole, pairs)
    taught(first, pairs, 0, stopped_at)
    second = OnlineLearner(born(), settings, "k", first.state())
    assert second.resumed
    assert equal(second.adapter, first.adapter)
    steps = taught(second, pairs, stopped_at)
    assert equal(second.adapter, whole.adapter)
    assert content(second.state()) == content(whole.state())
    assert steps[-1].steps == whole.steps


@pytest.mark.parametrize(
    "other",
    [
        replace(SETTINGS, learning_rate=1e-3), replace(SETTINGS, loss=LossSettings(temperature=0.1)),
        replace(SETTINGS, loss=LossSettings(subject_weight=0.0)), replace(SETTINGS, replay=3),
        replace(SETTINGS, most_drift=0.1), replace(SETTINGS, shape=ShapeSettings(hidden=16, alpha=0.2)),
    ],
)  # fmt: skip
def test_a_state_is_not_resumed_under_other_settings(other: OnlineSettings) -> None:
    one = learner()
    taught(one, one_shift(20, 1))
    with pytest.raises(StateUnusable, match="other settings"):
        OnlineLearner(born(), other, "k", one.state())


def test_nor_under_another_key_or_over_another_version() -> None:
    one = learner()
    taught(one, one_shift(20, 1))
    for promoted, key in ((born(), "another recipe"), (Adapter.born(DIMS, 16, 1.0, seed=5), "k")):
        with pytest.raises(StateUnusable, match="another version"):
            OnlineLearner(promoted, SETTINGS, key, one.state())


def test_a_broken_state_is_refused() -> None:
    one = learner()
    taught(one, one_shift(20, 1))
    state = one.state()
    for broken_state in (b"x", state[:-40], state[: len(state) // 2], Adapter.born(DIMS).to_bytes()):
        with pytest.raises(StateUnusable):
            OnlineLearner(born(), SETTINGS, "k", broken_state)
    tensors, notes = safetensors.numpy.load(state), notes_of(state)
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and tensor.size:
            spoiled = {**tensors, name: np.full_like(tensor, np.nan)}
            with pytest.raises(StateUnusable):
                OnlineLearner(born(), SETTINGS, "k", safetensors.numpy.save(spoiled, notes))
        with pytest.raises(StateUnusable):
            OnlineLearner(born(), SETTINGS, "k", safetensors.numpy.save({**tensors, name: tensor[:-1]}, notes))


def test_the_state_is_safetensors_and_small() -> None:
    one = OnlineLearner(Adapter.born(384), OnlineSettings(), "k")
    assert one.state()[8:9] == b"{"  # a JSON header, no pickle
    assert len(one.state()) < 1_300_000
