"""Max-sim equals the loop that defines it, and re-orders without touching what it was given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_made import block, found
from recalld_daemon.recall.late import LATE_WEIGHT, PEAK_REACH, deepen, max_sim, peak
from recalld_daemon.recall.types import TOKEN_SCALE, TokenBlock


def unit(rng: np.random.Generator, n: int, dims: int = 64) -> np.ndarray:
    rows = rng.normal(size=(n, dims)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def naive(query: np.ndarray, made: TokenBlock) -> list[float]:
    """The definition, spelled out."""
    scores, at = [], 0
    for length in made.lengths:
        rows = made.vectors[at : at + length].astype(np.float32) / TOKEN_SCALE
        total = sum(max((float(token @ row) for row in rows), default=0.0) for token in query)
        scores.append(total / len(query) if length else math.nan)
        at += int(length)
    return scores


def naive_peak(query: np.ndarray, vectors: np.ndarray) -> list[float]:
    """Each row's relevance: its similarity to the whole query twice, its neighbours' once."""
    own = [sum(float(token @ row) for token in query) for row in vectors.astype(np.float32) / TOKEN_SCALE]
    return [own[i] + sum(own[max(0, i - PEAK_REACH) : i + PEAK_REACH + 1]) for i in range(len(own))]


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 8))
def test_equals_the_naive_loop(seed: int, lengths: list[int], asked: int) -> None:
    rng = np.random.default_rng(seed)
    made = block(*[unit(rng, n) for n in lengths])
    query = unit(rng, asked)
    np.testing.assert_allclose(max_sim(query, made), naive(query, made), atol=1e-4)


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 8))
def test_the_peak_is_the_most_relevant_row(seed: int, rows: int, asked: int) -> None:
    rng = np.random.default_rng(seed)
    made, query = block(unit(rng, rows)), unit(rng, asked)
    relevance = naive_peak(query, made.vectors)
    assert relevance[peak(query, made.vectors)] == pytest.approx(max(relevance), abs=1e-4)


def test_focus_is_the_most_relevant_token_of_the_text() -> None:
    eye = np.eye(4, dtype=np.float32)
    made = block(0.5 * eye[[3, 3, 3, 3, 0, 1]], 0.5 * eye[[2, 2]])
    query = eye[[0, 0, 1]]  # two of three query tokens match e0
    first, second = deepen([found(1), found(2)], query, made)
    assert (first.passage, first.focus) == (1, (40, 45))
    assert first.late == pytest.approx(0.5, abs=0.01)
    assert second.late == pytest.approx(0.0)


def test_a_passage_without_tokens_counts_as_the_middle_one() -> None:
    eye = np.eye(4, dtype=np.float32)
    made = block(np.zeros((0, 4), np.float32), 0.5 * eye[:1], 0.1 * eye[:1], 0.3 * eye[:1])
    candidates = [found(i) for i in (1, 2, 3, 4)]
    result = deepen(candidates, eye[:1], made)
    assert [c.passage for c in result] == [2, 1, 4, 3]
    bare = result[1]
    assert (bare.late, bare.focus) == (None, None)
    assert bare.fused == pytest.approx(1.0 + LATE_WEIGHT * 0.3, abs=0.01)


def test_no_tokens_at_all_leave_the_order() -> None:
    candidates = [found(1), found(2)]
    assert deepen(candidates, np.eye(4, dtype=np.float32), block(np.zeros((0, 4)), np.zeros((0, 4)))) == candidates


def test_the_given_candidates_stay_as_they_are_and_the_rest_stays_below() -> None:
    candidates = [found(1, rank=1), found(2, rank=2), found(3, rank=3)]
    candidates[0].gates["known"] = "passed: new"
    before = [(c.passage, c.fused, c.late) for c in candidates]
    eye = np.eye(4, dtype=np.float32)
    result = deepen(candidates, eye[:1], block(0.1 * eye[:1], 0.5 * eye[:1]))
    assert [(c.passage, c.fused, c.late) for c in candidates] == before
    assert candidates[0].gates == {"known": "passed: new"}
    assert result[-1] is candidates[2]
    assert all(not c.gates for c in result)


def test_a_headings_token_counts_but_is_no_focus() -> None:
    eye = np.eye(4, dtype=np.float32)
    made = block(0.5 * eye[[0, 1, 2]])
    made.starts[0] = made.ends[0] = 0  # the first token stands in the heading
    (candidate,) = deepen([found(1)], eye[[0, 0, 1]], made)
    assert candidate.late == pytest.approx(0.5, abs=0.01)
    assert candidate.focus == (10, 15)  # not the first, though it matches best


def test_only_a_heading_gives_no_focus() -> None:
    eye = np.eye(4, dtype=np.float32)
    made = block(0.5 * eye[:1])
    made.ends[0] = 0
    (candidate,) = deepen([found(1)], eye[:1], made)
    assert (candidate.late is None, candidate.focus) == (False, None)
