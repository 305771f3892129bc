"""The three-part loss equals the formula spelled out in float64, and what is right as well is never pushed away."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lessons_made import DIMS, units
from recalld_daemon.adapters.loss import info_nce, masked, others, three_parts
from recalld_daemon.adapters.residual import tensor
from recalld_daemon.adapters.settings import LossSettings

SETTINGS = LossSettings()


def naive_info_nce(query: np.ndarray, right: np.ndarray, rivals: list[np.ndarray], temperature: float) -> float:
    own = float(query @ right) / temperature
    every = [own, *(float(query @ rival) / temperature for rival in rivals)]
    top = max(every)
    return top + math.log(sum(math.exp(score - top) for score in every)) - own


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(0, 5))
def test_equals_the_formula_spelled_out(seed: int, n: int, further: int) -> None:
    rng = np.random.default_rng(seed)
    plain, shifted = units(rng, n, DIMS), units(rng, n, DIMS)
    columns, subjects = units(rng, n + further, DIMS), units(rng, n, DIMS)
    weights = rng.uniform(0.5, 5.0, n).astype(np.float32)
    allowed = others(tensor(columns[:n]), tensor(columns), torch.arange(n), None, SETTINGS.same)
    scores = masked(tensor(shifted @ columns.T), allowed)
    found = three_parts(
        scores, torch.arange(n), tensor(shifted), tensor(plain), tensor(weights), SETTINGS,
        (torch.arange(n), tensor(subjects), torch.arange(n)),
    )  # fmt: skip
    expected = 0.0
    for at in range(n):
        kept = [c for c in range(n + further) if c != at and columns[at] @ columns[c] < 0.95]
        to_memory = naive_info_nce(shifted[at], columns[at], [columns[c] for c in kept], 0.05)
        to_subject = naive_info_nce(shifted[at], subjects[at], [s for c, s in enumerate(subjects) if c != at], 0.05)
        near = float(((shifted[at] - plain[at]) ** 2).sum())
        expected += float(weights[at]) * (to_memory + 0.2 * to_subject + 0.5 * near)
    assert float(found) == pytest.approx(expected / float(weights.sum()), rel=1e-3, abs=1e-3)


def test_known_golds_and_what_says_the_same_are_no_rivals() -> None:
    gold = torch.tensor([[1.0, 0.0]])
    columns = torch.tensor([[1.0, 0.0], [0.96, 0.28], [0.6, 0.8], [0.8, 0.6], [0.0, 1.0]])
    known = torch.tensor([[False, False, True, False, False]])
    allowed = others(gold, columns, torch.tensor([0]), known, 0.95)
    assert allowed.tolist() == [[True, False, False, True, True]]


def test_a_masked_rival_has_no_gradient() -> None:
    scores = torch.tensor([[0.5, 0.9, 0.1]], requires_grad=True)
    allowed = torch.tensor([[True, False, True]])
    info_nce(masked(scores, allowed), torch.tensor([0]), torch.ones(1), 0.05).backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad[0, 1] == 0
    assert scores.grad[0, 2] > 0


def test_a_heavier_pair_counts_more() -> None:
    scores, right = torch.tensor([[0.1, 0.9], [0.1, 0.9]]), torch.tensor([0, 1])
    light, heavy = (info_nce(scores, right, torch.tensor([w, 1.0]), 0.05) for w in (1.0, 5.0))
    assert heavy > light


def test_one_subject_alone_is_told_apart_from_nothing() -> None:
    rng = np.random.default_rng(0)
    rows, columns = tensor(units(rng, 2, DIMS)), tensor(units(rng, 2, DIMS))
    subjects = (torch.tensor([0, 1]), tensor(units(rng, 1, DIMS)), torch.tensor([0, 0]))
    scores, right, weights = rows @ columns.T, torch.arange(2), torch.ones(2)
    without = three_parts(scores, right, rows, rows, weights, SETTINGS)
    assert float(three_parts(scores, right, rows, rows, weights, SETTINGS, subjects)) == float(without)
