"""The bench of learning: its splits do not leak, its stream never looks ahead, and its rule ships what it may."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import learning
import learning_fits
import learning_splits
import learning_stream
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_fits import PLAIN, Judgement
from learning_sets import fold, mined
from learning_splits import Fold
from learning_stream import Now

import bench_samples
from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.adapters.settings import FitSettings, OnlineSettings
from recalld_daemon.recall.adapter import unit

DIMS = 16
BRIEF = FitSettings(epochs=2, batch=16, sampled=16)


def made_pairs(n: int, seed: int = 0, texts: Sequence[str] | None = None, conversations: int = 4) -> PairSet:
    """n questions in so many conversations, each with turns of its own; a question is a shifted, blurred turn."""
    rng = np.random.default_rng(seed)
    groups = np.arange(n) % conversations
    memories = unit(rng.normal(size=(2 * n, DIMS)).astype(np.float32))
    pools = [np.flatnonzero(np.arange(2 * n) % conversations == group) for group in range(conversations)]
    gold = [np.array([row]) for row in range(n)]
    shift = rng.normal(size=DIMS).astype(np.float32)
    queries = unit(memories[:n] + 0.4 * shift + 0.1 * rng.normal(size=(n, DIMS)).astype(np.float32))
    names = list(texts) if texts is not None else [f"question {row}" for row in range(n)]
    negatives = [mined(queries[row], memories, gold[row], pools[groups[row]]) for row in range(n)]
    return PairSet(
        queries, memories, gold, negatives, np.arange(n, dtype=float) // 3, np.ones(n, np.float32),
        unit(rng.normal(size=(2, DIMS)).astype(np.float32)), groups % 2, groups.astype(np.int64), names,
        [pools[group] for group in groups],
    )  # fmt: skip


def check_apart(folds: Sequence[Fold], names: Sequence[str]) -> None:
    """No row and no text stands on two sides, outside or inside, and nothing of the training part is lost."""
    for each in folds:
        inside = [each.fitted, each.stops, each.judges]
        assert sorted(np.concatenate(inside).tolist()) == each.train.tolist()
        texts = [{names[row] for row in part.tolist()} for part in (each.train, each.held)]
        assert not texts[0] & texts[1]
        assert not np.intersect1d(each.train, each.held).size
        assert len(each.held)


@given(st.lists(st.integers(0, 60), min_size=80, max_size=120), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_a_text_never_stands_on_both_sides_however_often_it_is_asked(texts: list[int], seed: int) -> None:
    texts = [*texts, *range(100, 140)]
    names = [f"text {text}" for text in texts]
    groups = np.random.default_rng(seed).integers(0, 5, len(names)).astype(np.int64)
    at = np.random.default_rng(seed + 1).integers(0, 20, len(names)).astype(float)
    drawn = learning_splits.random_folds(names, range(10), seed)
    check_apart(drawn, names)
    check_apart(learning_splits.chrono_folds(names, at, groups), names)
    check_apart(learning_splits.conversation_folds(names, groups), names)
    for each in drawn:  # inside as well: what judges was not learned from, under no number
        inside = [{names[row] for row in part.tolist()} for part in (each.fitted, each.stops, each.judges)]
        assert not inside[0] & inside[1] | inside[0] & inside[2] | inside[1] & inside[2]


def test_tenths_cover_every_question_once_and_hold_out_a_tenth() -> None:
    names = [f"text {row}" for row in range(200)]
    folds = learning_splits.random_folds(names, range(10))
    assert sorted(np.concatenate([each.held for each in folds]).tolist()) == list(range(200))
    assert {len(each.held) for each in folds} == {20}
    assert all(len(each.judges) == 36 and len(each.stops) == 18 for each in folds)


def test_by_time_the_held_ones_are_each_conversations_newest_and_judges_come_after_what_is_learned() -> None:
    pairs = made_pairs(80)
    (only,) = learning_splits.chrono_folds(pairs.names, pairs.at, pairs.groups)
    for group in range(4):
        parts = [
            pairs.at[part[pairs.groups[part] == group]] for part in (only.fitted, only.stops, only.judges, only.held)
        ]
        assert all(before.max() <= after.min() for before, after in pairwise(parts))
    assert len(only.held) == 16


def test_a_held_conversation_is_held_whole() -> None:
    pairs = made_pairs(80)
    folds = learning_splits.conversation_folds(pairs.names, pairs.groups)
    assert [set(pairs.groups[each.held].tolist()) for each in folds] == [{0}, {1}, {2}, {3}]
    for each in folds:
        sides = [set(pairs.groups[part].tolist()) for part in (each.fitted, each.stops, each.judges, each.held)]
        assert sum(map(len, sides)) == len(set.union(*sides))


def test_one_text_in_another_case_is_the_same_question() -> None:
    assert fold("Who is  Ilse?") == fold("who is ilse")


def test_what_is_nearly_as_near_as_the_gold_is_not_mined() -> None:
    memories = np.eye(3, dtype=np.float32)
    query = unit(np.array([1.0, 0.98, 0.5], np.float32))
    assert mined(query, memories, np.array([0]), np.arange(3)).tolist() == [2]


# ------------------------------------------------------------ the stream


def asked_in(pairs: PairSet, order: np.ndarray, **more: object) -> tuple[list[int], list[Now]]:
    """The rows in the order in which they were asked, and what was known then."""
    rows, moments = [], []

    def ask(row: int, now: Now) -> learning_fits.Figures:
        rows.append(row)
        moments.append(now)
        return learning_stream.by_cosine(pairs, BRIEF)(row, now)

    learning_stream.stream(pairs, order, ask, "qk", BRIEF, OnlineSettings(), night=20, least=20)
    return rows, moments


def test_a_question_is_asked_before_it_is_learned_from_and_nothing_later_is_known() -> None:
    pairs = made_pairs(60)
    order = learning_splits.time_order(pairs.at, pairs.groups)
    rows, moments = asked_in(pairs, order)
    assert rows == order.tolist()
    for n, now in enumerate(moments):
        assert now.known.tolist() == rows[:n]
    assert moments[0].query.is_identity
    assert not moments[-1].query.is_identity
    assert [now.by is None for now in moments] == [True] * 20 + [False] * 40
    assert moments[20].by is moments[39].by is not moments[40].by


def test_what_comes_later_changes_nothing_of_what_was_said_before() -> None:
    pairs = made_pairs(60)
    order = np.arange(60)
    other = made_pairs(60, seed=9)
    late = order >= 45
    changed = replace(
        pairs,
        queries=np.where(late[:, None], other.queries, pairs.queries),
        gold=[other.gold[row] + 60 if late[row] else pairs.gold[row] for row in order],
    )
    for parts in (None, "q", "qkv"):
        told = [
            learning_stream.stream(
                own, order, learning_stream.by_cosine(own, BRIEF), parts, BRIEF, OnlineSettings(), night=20, least=20
            )
            for own in (pairs, changed)
        ]
        assert told[0]["mrr"][:45].tolist() == told[1]["mrr"][:45].tolist()


def test_the_rule_decides_by_the_first_half_and_tells_of_the_second() -> None:
    rng = np.random.default_rng(1)
    names = ("r1", "r5", "r10", "r20", "mrr")
    plain = {name: rng.uniform(0.2, 0.4, 100) for name in names}
    early = {name: values + np.where(np.arange(100) < 50, 0.2, -0.1) for name, values in plain.items()}
    told = learning_stream.told_in_order({PLAIN: plain, "fq": early, "fk": plain}, np.arange(100))
    assert told["promoted"]["ships"] == "fq"
    assert told["promoted"]["gain"] == pytest.approx(-0.1)
    assert (told["promoted"]["judged_on"], told["promoted"]["reported_on"]) == (50, 50)


# ------------------------------------------------------------ fits, interests, the rule


def test_interests_are_moved_by_earlier_training_questions_alone() -> None:
    pairs = made_pairs(30)
    learned, held = np.arange(20), np.arange(20, 30)
    before = learning_fits.interests_at(pairs, learned, np.array([0]))
    assert not before.slow.any()
    swapped = replace(pairs, gold=[pairs.gold[row] if row < 20 else np.array([59]) for row in range(30)])
    for asked in (learned, held):
        one, two = (learning_fits.interests_at(own, learned, asked) for own in (pairs, swapped))
        assert np.array_equal(one.fast, two.fast)
    assert len(learning_fits.interests_at(pairs, learned, held[:0]).slow) == 0


def test_a_fold_is_judged_on_what_it_was_not_fitted_on() -> None:
    pairs = made_pairs(200)
    (only,) = learning_splits.random_folds(pairs.names, [0])
    judged = learning_fits.judged_fold(pairs, only, replace(BRIEF, epochs=8))
    assert judged.rows.tolist() == only.held.tolist()
    assert set(judged.told) == {PLAIN, "fq", "fk", "fv"}
    assert judged.told["fq"]["mrr"].mean() > judged.told[PLAIN]["mrr"].mean()  # the shift is learned
    assert judged.chosen == "fq"  # the simplest


def test_after_no_epoch_it_is_plain_search() -> None:
    pairs = made_pairs(40)
    rows = np.arange(40)
    assert learning_fits.refitted(pairs, rows, "q", BRIEF, 0) is None
    assert learning_fits.figures_by(pairs, rows, None)["mrr"].tolist() == (
        learning_fits.figures_by(pairs, rows)["mrr"].tolist()
    )


def test_what_is_promoted_is_each_folds_own_choice() -> None:
    names = ("r1", "r5", "r10", "r20", "mrr")
    low, high = ({name: np.full(5, value) for name in names} for value in (0.2, 0.8))
    told = {PLAIN: low, "fq": high, "fk": high, "fv": high}
    folds = [Judgement(np.arange(5), told, "fq", {}), Judgement(np.arange(5, 10), told, PLAIN, {})]
    summed = learning_fits.summed(folds, None)
    assert summed["promoted"]["mrr"] == pytest.approx(0.5)
    assert summed["promoted"]["by_fold"] == ["fq", PLAIN]
    assert summed["fq"]["gain"] == pytest.approx(0.6)
    assert summed["fq"]["relative"] == pytest.approx(3.0)


def test_none_is_chosen_where_nothing_is_better() -> None:
    same = {"mrr": np.linspace(0.1, 0.9, 40)}
    worse = {"mrr": same["mrr"] - 0.05}
    assert learning_fits.chosen_of({PLAIN: same, "fq": worse, "fk": same}) == PLAIN


# ------------------------------------------------------------ from end to end


@pytest.mark.models
def test_the_bench_tells_every_split_by_cosine_and_by_recall(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bench_samples.write_locomo(tmp_path / "locomo").parent.parent
    arguments = ["--data", str(data), "--work", str(tmp_path / "work"), "--models", str(model_cache)]
    monkeypatch.setattr(sys, "argv", ["learning", *arguments, "--quick", "--cascade", "--json", "-"])
    learning.main()
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert "gain of mrr" in err
    assert (result["n"], result["adversarial_left_out"]) == (15, 3)
    for found, more in ((result, set()), (result["cascade"], {"ranker"})):
        assert set(found["splits"]) == set(found["promoted"]) == {"random", "chrono", "conversation", "prequential"}
        for split in found["splits"].values():
            for name in {"plain", "fq", "fk", "fv", *more}:
                assert all(0.0 <= split[name][metric] <= 1.0 for metric in ("r1", "r5", "r10", "r20", "mrr"))
                assert name == "plain" or split[name]["low"] <= split[name]["gain"] <= split[name]["high"]
