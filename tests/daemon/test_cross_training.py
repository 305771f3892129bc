"""Lessons for the cross-encoder: what stands in one, how often which negative is drawn, and how often which kind."""

from __future__ import annotations

from collections import Counter

import numpy as np
from training.cross_encoder import EVEN, _chances
from training.cross_lessons import GOLDS, NEGATIVES, Lesson, _lesson, drawn
from training.pools import Ask, Pool, Row, user


def lesson(pool: str, gold: set[int], order: list[int], hidden: set[int] = frozenset()) -> Lesson:  # type: ignore[assignment]
    rows = [Row(f"text {at}", "s") for at in range(60)]
    ask = Ask("kind", user("q"), frozenset(gold), frozenset(hidden))
    return _lesson(Pool(pool, rows), [row.text for row in rows], ask, "q", order)


def numbers(texts: tuple[str, ...]) -> list[int]:
    return [int(text.split()[1]) for text in texts]


def test_answers_and_what_is_hidden_are_no_negatives() -> None:
    found = lesson("til", {7, 3}, [9, 3, 8, 7, 5, 4], hidden={8})
    assert numbers(found.golds) == [3, 7]
    assert numbers(found.negatives) == [9, 5, 4]


def test_of_a_long_answer_the_best_ranked_are_taken() -> None:
    found = lesson("qmsum a", set(range(10, 40)), [50, *range(39, 9, -1), *range(10)])
    assert numbers(found.golds) == [39, 38, 37][:GOLDS]
    assert numbers(found.negatives) == [50, *range(10)]


def test_in_a_conversation_the_answer_s_neighbours_are_negatives() -> None:
    found = lesson("chat-1", {20}, [20, 30, *range(20)])
    assert numbers(found.negatives)[:4] == [18, 19, 21, 30]
    at_the_edge = lesson("chat-1", {0}, [0, 30])
    assert numbers(at_the_edge.negatives) == [1, 30]


def test_better_ranked_negatives_are_drawn_more_often() -> None:
    of_many = Lesson("k", "q", ("gold",), tuple(f"text {at}" for at in range(NEGATIVES)))
    rng = np.random.default_rng(1)
    seen: Counter[str] = Counter()
    for _ in range(400):
        gold, *negatives = drawn(of_many, 5, rng)
        assert gold == "gold"
        assert len(set(negatives)) == 5
        seen.update(negatives)
    first, last = (sum(seen[f"text {at}"] for at in part) for part in (range(6), range(18, 24)))
    assert first > 2 * last
    assert drawn(Lesson("k", "q", ("gold",), ("only",)), 5, rng) == ("gold", "only")


def test_a_frequent_kind_is_drawn_more_often_but_not_in_proportion() -> None:
    taught = [Lesson("many", "q", ("a",), ("b",))] * 900 + [Lesson("few", "q", ("a",), ("b",))] * 9
    chances = _chances(taught)
    ratio = chances[:900].sum() / chances[900:].sum()
    np.testing.assert_allclose(ratio, 100.0**EVEN)
