"""Figures, the floor and the loaders of the benches: what can be told without a model."""

from __future__ import annotations

from pathlib import Path

import eval_documents
import eval_pools
import figures
import judging
import numpy as np
import plain_bm25
import pytest
import silence
import silence_sets
from hypothesis import given
from hypothesis import strategies as st
from silence_sets import Moment

import bench_samples


def value(scored: figures.Scored, name: str) -> float:
    return float(scored.values[figures.FIGURES.index(name)])


@given(st.lists(st.integers(0, 40), max_size=60), st.sets(st.integers(0, 40), min_size=1, max_size=5))
def test_figures_agree_with_their_definitions(units: list[int], gold: set[int]) -> None:
    scored = figures.score(units, frozenset(gold))
    order = list(dict.fromkeys(units))
    for depth in figures.DEPTHS:
        found = gold & set(order[:depth])
        assert value(scored, f"r{depth}") == len(found) / len(gold)
        assert value(scored, f"hit{depth}") == bool(found)
        assert value(scored, f"strict{depth}") == (found == gold)
    ranks = [order.index(unit) + 1 for unit in gold & set(order)]
    assert value(scored, "mrr") == (1 / min(ranks) if ranks else 0.0)


def test_a_question_without_gold_is_refused() -> None:
    with pytest.raises(ValueError, match="without gold"):
        figures.score([1, 2], frozenset())


def test_intervals_hold_the_mean_and_are_wider_when_conversations_are_drawn() -> None:
    rng = np.random.default_rng(1)
    rows = [
        figures.score([1] if rng.random() < share else [2], frozenset([1]), group=str(share))
        for share in (0.1, 0.9)
        for _ in range(200)
    ]
    mean = figures.means(rows, ["hit1"])["hit1"]
    low, high = figures.intervals(rows, ["hit1"])["hit1"]
    wide_low, wide_high = figures.intervals(rows, ["hit1"], by_group=True)["hit1"]
    assert low < mean < high
    assert wide_high - wide_low > 2 * (high - low)


def test_a_question_counts_for_all_its_kinds() -> None:
    rows = [figures.score([1], frozenset([1]), kind="a", also=("b",)), figures.score([2], frozenset([1]), kind="a")]
    assert {kind: len(own) for kind, own in figures.by_kind(rows).items()} == {"a": 2, "b": 1}


def test_plain_bm25_prefers_the_rarer_word_and_leaves_out_what_is_not_allowed() -> None:
    bm25 = plain_bm25.PlainBM25(["the cat sat", "the dog sat", "a zebra sat there"])
    assert bm25.ranking("zebras sat") == [2, 0, 1]
    assert bm25.ranking("zebras sat", [True, True, False]) == [0, 1]
    assert bm25.ranking("nothing shared") == []


def test_evidence_is_cleaned_and_questions_without_any_are_left_out(tmp_path: Path) -> None:
    file = bench_samples.write_locomo(tmp_path)
    first = eval_pools.locomo(file)[0]
    assert [sorted(gold) for gold in first.golds] == [[0, 2], [4], [2], [7], [6], [4]]
    assert [ask.kind for ask in first.pool.asks].count(eval_pools.ADVERSARIAL) == 1
    assert first.pool.rows[2].text.endswith("[a photo of a lighthouse]")
    assert first.pool.rows[4].source == "session_2"
    assert first.pool.rows[4].written_at == eval_pools.moment("4:02 pm on 2 May, 2024")


def test_labels_beside_the_file_are_believed_where_they_know_the_conversation(tmp_path: Path) -> None:
    bench_samples.write_locomo(tmp_path)
    row = {"qid": "x", "sample_id": "talk-1", "category": 4, "query": "q", "gold": ["D1:1"], "gold_audited": ["D2:2"]}
    bench_samples.write_lines(tmp_path / "labels.jsonl", [row])
    first, second, _ = eval_pools.locomo(tmp_path)
    assert [sorted(gold) for gold in first.golds] == [[5]]
    assert len(second.golds) == 6


def test_what_is_missing_is_said_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(eval_pools.DataMissing, match="--data"):
        eval_pools.locomo(tmp_path / "nowhere")
    with pytest.raises(eval_pools.DataMissing, match="--data"):
        eval_pools.locomo(tmp_path)
    with pytest.raises(eval_pools.DataMissing, match="--data"):
        list(eval_documents.load(tmp_path, list(eval_documents.MARKS)))
    with pytest.raises(eval_pools.DataMissing, match="two LoCoMo conversations"):
        silence_sets.load(tmp_path, 10)


def test_notes_lose_title_and_file_name_and_a_links_own_note_is_hidden(tmp_path: Path) -> None:
    bench_samples.write_notes(tmp_path / "any")
    ((name, (judged,)),) = eval_documents.load(tmp_path, ["til", "bukzor"])
    assert name == "til"
    assert not any("Sharpen" in row.text + row.heading + row.source for row in judged.pool.rows)
    link = next(place for place, ask in enumerate(judged.pool.asks) if ask.kind == "til.crosslink")
    assert judged.golds[link] == {"tools/prune-old-branches.md"}
    assert {judged.units[row] for row in judged.pool.asks[link].hidden} == {"kitchen/sharpen-a-knife.md"}
    kinds = set(figures.by_kind(judging.floor([judged])))
    assert kinds == {"til.commit", "til.commit_unlike", "til.crosslink", "til.title"}


def test_a_prompt_sees_earlier_sessions_only(tmp_path: Path) -> None:
    bench_samples.write_sessions(tmp_path)
    ((_, (judged,)),) = eval_documents.load(tmp_path, ["entire"])
    place = next(place for place, ask in enumerate(judged.pool.asks) if ask.kind == "entire.prompt")
    assert judged.golds[place] == {"s1"}
    assert judged.allowed[place] == {"s1", "s2"}
    assert judged.pool.asks[place].at == eval_pools.moment("2024-05-03T10:00:00+00:00")


def verdict(
    kind: str, *judged: tuple[float, bool, bool], passed: tuple[bool, ...] = (), known: bool = False
) -> silence.Verdict:
    return silence.Verdict(Moment(kind, "m", silence_sets.user("q")), passed, known, judged, "")


def test_silence_counts_what_fires_and_what_is_served() -> None:
    verdicts = [
        verdict("known", (0.9, True, True), passed=(True,), known=True),
        verdict("known", (0.2, True, True), known=True),
        verdict("known", (0.4, False, True)),
        verdict("cross", (0.9, False, True), passed=(False,)),
        verdict("cross", (0.1, False, True)),
        verdict("adversarial"),
        verdict("unrelated"),
        verdict("smalltalk"),
    ]
    result = silence.report(verdicts)
    assert result["false_fire"] == {"cross": 0.5, "adversarial": 0.0, "unrelated": 0.0, "smalltalk": 0.0}
    assert result["served_when_known"] == 0.5
    assert result["known"]["precision"] == 1.0
    assert result["reliability_ece"] == pytest.approx((2 * 0.4 + 0.8 + 0.4 + 0.1) / 5)


def test_the_curve_falls_with_the_cut_and_heeds_the_other_gates() -> None:
    verdicts = [
        verdict("known", (0.9, False, False), (0.6, True, True), (0.3, False, True)),
        verdict("cross", (0.5, False, True)),
    ]
    rows = silence.curve(verdicts)
    assert rows[0][1:] == (1.0, 0.5, 1.0)
    assert {row[1:3] for row in rows if 0.31 <= row[0] <= 0.59} == {(1.0, 1.0)}
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)
