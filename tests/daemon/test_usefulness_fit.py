"""The weights of usefulness: found where there is something to find, zero where there is not, not fooled by rank."""

from __future__ import annotations

import numpy as np
import pytest

from recalld_daemon.adapters.pairs import inverse_propensity
from recalld_daemon.recall.types import Float32
from recalld_daemon.recall.usefulness import DAY_SECONDS, Counts, Interests, Weights
from recalld_daemon.recall.usefulness_fit import Choice, Past, TooFewQuestions, fit_weights, replayed

DIMS, NOW = 4, 1_700_000_000.0
ROWS = np.eye(DIMS, dtype=np.float32)


def choices(
    rng: np.random.Generator, truth: tuple[float, float, float], n: int = 600, scale: float = 1.0
) -> list[Choice]:
    """Questions whose gold is drawn by score + truth . features; scores are then told on another scale."""
    made = []
    for _ in range(n):
        scores, features = rng.normal(size=12), rng.uniform(size=(12, 3))
        odds = np.exp(scores + features @ np.array(truth))
        gold = np.zeros(12, bool)
        gold[rng.choice(12, p=odds / odds.sum())] = True
        made.append(Choice((scores * scale).astype(np.float32), features.astype(np.float32), gold))
    return made


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_weights_are_found_on_the_scale_of_the_scores(scale: float) -> None:
    fitted = fit_weights(choices(np.random.default_rng(1), (2.0, 0.0, 3.0), 2_000, scale))
    assert fitted.weights.row / scale == pytest.approx([2.0, 0.0, 3.0], abs=0.4)
    assert fitted.after < fitted.before


def test_what_hurts_or_tells_nothing_gets_no_weight() -> None:
    weights = fit_weights(choices(np.random.default_rng(2), (-2.0, -1.0, 0.0), 1_000)).weights
    assert weights.often == weights.slow == 0.0
    assert weights.fast < 0.3


def test_a_handful_of_questions_is_refused() -> None:
    few = choices(np.random.default_rng(3), (1.0, 1.0, 1.0), 19)
    nothing = [Choice(np.zeros(3, np.float32), np.zeros((3, 3), np.float32), np.zeros(3, bool))] * 100
    with pytest.raises(TooFewQuestions):
        fit_weights(few + nothing)


def test_rank_shown_is_not_confounded_with_usefulness() -> None:
    """Two equally useful memories are shown 4000 times, one always first, one always third."""
    rng, uses = np.random.default_rng(4), 4_000
    used = {rank: rng.random(uses) < 0.5 * rank**-0.5 for rank in (1, 3)}  # looked at, and then useful half the time
    passages = np.repeat(np.array([1, 3]), [used[1].sum(), used[3].sum()])
    weights = np.array([inverse_propensity(rank) for rank in passages.tolist()])
    corrected = Counts.of(passages, np.full(len(passages), NOW), weights, NOW).amounts
    naive = Counts.of(passages, np.full(len(passages), NOW), np.ones(len(passages)), NOW).amounts
    assert corrected[1] / corrected[0] == pytest.approx(1.0, abs=0.08)
    assert naive[1] / naive[0] < 0.65  # what would be learned of it without


def past(day: float, used: list[int], query: Float32 = ROWS[0]) -> Past:
    ids = np.arange(DIMS)
    gold = np.array(used, np.int64)
    return Past(NOW + day * DAY_SECONDS, query, ids, ROWS, gold, ROWS[gold], np.ones(len(gold)))


def test_features_come_from_what_was_before_never_from_the_question_itself() -> None:
    questions = [past(0.0, [2]), past(0.05, [2]), past(2.0, [3])]
    (first, second, third), now = replayed(questions, Interests.none(DIMS), Weights())
    assert not first.any()
    assert second[2, 0] > 0
    assert second[0, 2] > 0  # the focus: the first query
    assert not second[:, 1].any()  # no night since
    assert third[2, 1] > 0
    assert third[3, 0] == 0.0
    assert now.counts.ids.tolist() == [2, 3]
    changed, _ = replayed([*questions[:2], past(2.0, [1])], Interests.none(DIMS), Weights())
    assert (changed[2] == third).all()


def test_the_long_term_interests_are_moved_and_never_reset() -> None:
    _, before = replayed([past(n, [1]) for n in range(60)], Interests.none(DIMS), Weights())
    _, after = replayed([past(n, [2]) for n in range(60, 70)], before, Weights())
    assert after.slow[1] > 0.5 > after.slow[2] > 0.1


def test_a_past_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="order"):
        replayed([past(1.0, [1]), past(0.0, [1])], Interests.none(DIMS), Weights())
