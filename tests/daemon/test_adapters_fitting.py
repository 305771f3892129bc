"""The nightly fit. Faults that others made are tests here, each by its name."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lessons_made import DIMS, MEMORIES, chance, mrr, one_shift, two_shifts, units
from recalld_daemon.adapters.fitted import Epoch, Fitted, FittedUnreadable
from recalld_daemon.adapters.fitting import Interests, NothingToLearn, Overlap, Parts, Progress, fit, shared
from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.adapters.settings import FitSettings, LossSettings, ShapeSettings
from recalld_daemon.recall.adapter import Adapter

SMALL = FitSettings(
    ShapeSettings(hidden=16, alpha=1.0), LossSettings(near_weight=0.05), learning_rate=5e-3, batch=32, sampled=64,
    epochs=25, patience=25,
)  # fmt: skip


def equal(one: Adapter | None, other: Adapter | None) -> bool:
    if one is None or other is None:
        return one is other
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("w1", "b1", "w2", "b2"))


def interests(pairs: PairSet, held: PairSet, seed: int = 0) -> tuple[Interests, Interests]:
    rng = np.random.default_rng(seed)
    one, other = (Interests(units(rng, len(each), DIMS), units(rng, len(each), DIMS)) for each in (pairs, held))
    return one, other


def test_it_learns_what_carries_over() -> None:
    born, judged = Adapter.born(DIMS), one_shift(80, seed=3)
    fitted = fit(one_shift(300, seed=1), one_shift(80, seed=2), settings=SMALL)
    assert mrr(fitted.query, judged) > mrr(born, judged) + 0.1
    assert fitted.best_mrr == max(epoch.mrr for epoch in fitted.curve) > fitted.start_mrr
    assert (fitted.key, fitted.value) == (None, None)


def test_the_output_layer_learns_more_than_its_bias() -> None:
    """Where no single direction helps, W2 must move, and without it the gain is gone; without b2 it is not."""
    judged = two_shifts(150, seed=3)
    fitted = fit(two_shifts(500, seed=1), two_shifts(120, seed=2), settings=SMALL)
    plain, whole = mrr(Adapter.born(DIMS), judged), mrr(fitted.query, judged)
    without_w2, without_b2 = mrr(fitted.query.without("w2"), judged), mrr(fitted.query.without("b2"), judged)
    w2, b2 = fitted.query.norms
    assert w2 > b2
    assert whole > plain + 0.1
    assert without_w2 < plain + 0.3 * (whole - plain)
    assert without_b2 > plain + 0.7 * (whole - plain)
    assert [epoch.w2 for epoch in fitted.curve][fitted.best - 1] == pytest.approx(w2)
    assert [epoch.b2 for epoch in fitted.curve][fitted.best - 1] == pytest.approx(b2)


def test_every_epoch_learns_from_every_pair() -> None:
    """Epochs were silently skipped, since pairs had been marked as used."""
    fitted = fit(one_shift(70, seed=1), one_shift(30, seed=2), settings=SMALL)
    assert [epoch.pairs for epoch in fitted.curve] == [70] * fitted.epochs
    assert fitted.epochs == SMALL.epochs
    norms = [(epoch.w2, epoch.b2) for epoch in fitted.curve]
    assert len(set(norms)) == len(norms)  # each of them moved something


def test_no_pairs_is_said_and_never_trained() -> None:
    with pytest.raises(NothingToLearn, match="no pair"):
        fit(one_shift(5).rows([]), one_shift(30, seed=2), settings=SMALL)


def test_what_is_held_out_is_never_learned_from() -> None:
    """A challenger was judged on the pairs it had been trained on."""
    pairs = one_shift(40, seed=1)
    with pytest.raises(Overlap, match="3 of the pairs"):
        fit(pairs, pairs.rows([4, 7, 9]), settings=SMALL)


def test_shared_pairs_are_found_by_name_or_by_vector() -> None:
    pairs = one_shift(6, seed=1)
    renamed = replace(pairs, names=[f"other {n}" for n in range(6)])
    assert shared(pairs, renamed.rows([2])).tolist() == [2]
    asked_anew = replace(pairs, queries=np.roll(pairs.queries, 1, axis=0))
    assert shared(pairs, asked_anew.rows([3])).tolist() == [3]
    other_gold = replace(pairs, gold=[(gold + 1) % MEMORIES for gold in pairs.gold])
    assert shared(pairs, other_gold).tolist() == []
    elsewhere = replace(
        pairs, memories=np.roll(pairs.memories, 5, axis=0), gold=[(g + 5) % MEMORIES for g in pairs.gold]
    )
    assert shared(pairs, elsewhere).tolist() == list(range(6))  # the same memories in another order
    assert shared(replace(pairs, names=()), replace(pairs, names=())).tolist() == list(range(6))


def test_what_is_learned_by_chance_is_not_kept() -> None:
    """Golds that have nothing to do with their questions: the best epoch on others is hardly better than none."""
    judged = one_shift(80, seed=4, size=0.0)
    fitted = fit(chance(200, seed=1), one_shift(80, seed=2, size=0.0), settings=replace(SMALL, patience=3))
    assert mrr(fitted.query, judged) >= mrr(Adapter.born(DIMS), judged) - 0.02
    assert fitted.why_stopped == "no better for 3 epochs"
    assert fitted.best_mrr >= fitted.start_mrr


def test_with_nothing_held_out_the_last_epoch_stands() -> None:
    fitted = fit(one_shift(60, seed=1), one_shift(5).rows([]), settings=replace(SMALL, epochs=4))
    assert (fitted.best, fitted.epochs, fitted.why_stopped) == (4, 4, "all 4 epochs")
    assert math.isnan(fitted.start_mrr)
    assert not fitted.query.is_identity


def test_the_same_seed_gives_the_same_adapter_and_another_another() -> None:
    def query(seed: int) -> Adapter:
        return fit(one_shift(60, 1), one_shift(20, 2), settings=replace(SMALL, epochs=3, seed=seed)).query

    assert equal(query(1), query(1))
    assert not equal(query(1), query(2))


@pytest.mark.parametrize("parts", ["q", "qk", "qkv"])
def test_a_fit_that_was_killed_goes_on_to_the_same_end(parts: Parts) -> None:
    pairs, held = one_shift(60, 1), one_shift(20, 2)
    settings, kept = replace(SMALL, epochs=6, patience=6), list[bytes]()
    between = interests(pairs, held)
    whole = fit(pairs, held, parts, settings, interests=between, checkpoint=lambda it: kept.append(it.to_bytes()))
    assert len(kept) == 6
    for done in (1, 4, 6):
        rest = list[Progress]()
        again = fit(pairs, held, parts, settings, rest.append, between, Fitted.from_bytes(kept[done - 1]))
        assert again.resumed == done
        assert [progress.epoch for progress in rest] == list(range(done + 1, 7))
        assert again.curve == whole.curve
        assert again.best == whole.best
        assert all(equal(a, b) for a, b in zip(again.adapters.values(), whole.adapters.values(), strict=True))
    assert set(whole.adapters) == {"q": {"query"}, "qk": {"query", "key"}, "qkv": {"query", "key", "value"}}[parts]


@pytest.mark.parametrize(
    "other",
    [
        replace(SMALL, learning_rate=6e-3), replace(SMALL, loss=LossSettings(temperature=0.1)),
        replace(SMALL, seed=1), replace(SMALL, dropout=0.2), replace(SMALL, mined=3),
    ],
)  # fmt: skip
def test_a_fit_is_not_gone_on_with_under_other_settings(other: FitSettings) -> None:
    pairs, held, kept = one_shift(60, 1), one_shift(20, 2), list[Fitted]()
    fit(pairs, held, settings=replace(SMALL, epochs=2), checkpoint=kept.append)
    short = replace(other, epochs=2)
    assert fit(pairs, held, settings=short, start=kept[0]).resumed == 0
    assert equal(fit(pairs, held, settings=short, start=kept[0]).query, fit(pairs, held, settings=short).query)


def test_nor_with_other_pairs_or_parts() -> None:
    pairs, held, kept = one_shift(60, 1), one_shift(20, 2), list[Fitted]()
    settings = replace(SMALL, epochs=2)
    fit(pairs, held, settings=settings, checkpoint=kept.append)
    assert fit(pairs, held, settings=settings, start=kept[0]).resumed == 1
    assert fit(one_shift(60, 5), held, settings=settings, start=kept[0]).resumed == 0
    assert fit(pairs, one_shift(20, 6), settings=settings, start=kept[0]).resumed == 0
    assert fit(pairs, held, "qk", settings, start=kept[0]).resumed == 0
    assert fit(pairs, held, settings=settings, start=kept[0], query=kept[0].query).resumed == 0


def test_what_is_broken_is_no_fit() -> None:
    data = Fitted(Adapter.born(DIMS), curve=(Epoch(1.0, 0.5, 0.1, 0.1, 7),), best=1).to_bytes()
    assert Fitted.from_bytes(data).curve[0].pairs == 7
    for broken in (b"", data[:-9], Adapter.born(DIMS).to_bytes()):
        with pytest.raises(FittedUnreadable):
            Fitted.from_bytes(broken)


def test_a_raise_in_progress_stops_it() -> None:
    def stop(progress: Progress) -> None:
        if progress.epoch == 2:
            raise InterruptedError

    kept = list[Fitted]()
    with pytest.raises(InterruptedError):
        fit(one_shift(60, 1), one_shift(20, 2), "q", SMALL, stop, checkpoint=kept.append)
    assert kept[-1].epochs == 2


def test_keys_and_values_are_learned_where_they_are_asked_for() -> None:
    pairs, held, judged = one_shift(300, 1), one_shift(80, 2), one_shift(80, 3)
    both = fit(pairs, held, "qk", SMALL)
    assert both.key is not None
    assert not both.key.is_identity
    assert mrr(both.query, judged, both.key) > mrr(Adapter.born(DIMS), judged) + 0.1


def test_f_v_learns_what_likeness_misses() -> None:
    """Queries say nothing; the gold is the one that goes with the interest, in another direction than likeness."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(DIMS, DIMS)))[0].astype(np.float32)

    def asked(n: int, seed: int) -> tuple[PairSet, Interests]:
        made = chance(n, seed)
        wanted = np.stack([made.memories[gold[0]] for gold in made.gold]) @ turn
        return made, Interests(wanted, np.zeros_like(wanted))

    settings = replace(SMALL, slow_weight=1.0, fast_weight=0.0)
    (pairs, before), (held, held_before) = asked(500, 1), asked(100, 2)
    fitted = fit(pairs, held, "qkv", settings, interests=(before, held_before))
    without = fit(pairs, held, "qk", settings)
    assert fitted.value is not None
    assert not fitted.value.is_identity
    assert fitted.best_mrr > max(fitted.start_mrr, without.best_mrr) + 0.1


def test_f_v_needs_interests() -> None:
    with pytest.raises(ValueError, match="interests"):
        fit(one_shift(10, 1), one_shift(10, 2), "qkv", SMALL)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    pairs = one_shift(10, 1)
    pairs.weights[3] = weight
    with pytest.raises(ValueError, match="weight"):
        fit(pairs, one_shift(10, 2), settings=SMALL)


def test_numbers_that_are_none_end_the_fit_and_the_best_stands() -> None:
    pairs = one_shift(40, 1)
    pairs.queries[5] = np.nan
    fitted = fit(pairs, one_shift(10, 2), settings=SMALL)
    assert fitted.why_stopped == "the loss of epoch 1 is no number"
    assert fitted.best == 0
    assert fitted.query.is_identity


def test_pools_and_subjects_and_mined_negatives_take_part() -> None:
    pairs, rng = one_shift(64, 1), np.random.default_rng(0)
    pools = [np.unique(np.append(rng.integers(0, MEMORIES, 20), gold)) for gold in pairs.gold]
    rich = replace(
        pairs, pools=pools, negatives=[rng.choice(pool, 12) for pool in pools], subjects=units(rng, 5, DIMS),
        subject=rng.integers(-1, 5, len(pairs)),
    )  # fmt: skip
    settings = replace(SMALL, epochs=2)
    plain = fit(pairs, one_shift(20, 2), settings=settings).curve[-1].loss
    assert fit(rich, one_shift(20, 2), settings=settings).curve[-1].loss != plain


def test_a_negative_as_near_as_the_gold_is_left_out_whoever_mined_it() -> None:
    pairs = one_shift(64, 1)
    cosines = pairs.queries @ pairs.memories.T
    near = [np.flatnonzero(own >= 0.95 * own[gold].max()) for own, gold in zip(cosines, pairs.gold, strict=True)]
    assert sum(len(rows) > 1 for rows in near) > 5  # others than the gold
    settings = replace(SMALL, epochs=2)
    plain = fit(pairs, one_shift(20, 2), settings=settings)
    assert equal(fit(replace(pairs, negatives=near), one_shift(20, 2), settings=settings).query, plain.query)
