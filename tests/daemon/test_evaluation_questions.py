"""From a log to questions: which verdicts are labels, what they weigh, and that no text is on both sides of a split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_house import NOON, LogHouse
from recalld_daemon.evaluation.questions import (
    Place,
    Question,
    folds,
    labels_of,
    log_of,
    name_of,
    read_log,
    split_at_random,
    split_by_time,
)
from recalld_daemon.recall.types import GLOBAL_SCOPE
from recalld_daemon.store.rows import JudgedRecord

HERE = {id: Place(GLOBAL_SCOPE, NOON - 1.0) for id in range(1, 100)}
SHOWN = JudgedRecord("i1", "r1", "s1", GLOBAL_SCOPE, "what is the port", NOON, 1, 1, 0.5, "won", 1.0, NOON)


def record(passage: int, *verdicts: str, judged_at: float = NOON, **changes: object) -> JudgedRecord:
    changes = {"impression": f"i{passage}-{'-'.join(verdicts)}-{judged_at}", **changes}
    return replace(SHOWN, passage=passage, verdicts=verdicts, judged_at=judged_at, **changes)  # type: ignore[arg-type]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path) as house:
        yield house


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("verdicts", "label"),
    [
        (("used",), True), (("acted",), True), (("good",), True), (("bad",), False), (("ignored",), False),
        (("unknown",), None), ((), None), (("used", "bad"), False), (("ignored", "good"), True),
        (("good", "bad"), False), (("ignored", "used"), True), (("unknown", "used"), True),
    ],
)  # fmt: skip
def test_a_verdict_is_a_label_or_none(verdicts: tuple[str, ...], label: bool | None) -> None:
    assert labels_of([record(1, *verdicts)]) == ({} if label is None else {1: label})


def test_over_several_showings_a_person_outweighs_what_was_seen() -> None:
    assert labels_of([record(1, "bad", judged_at=1.0), record(1, "used", judged_at=2.0)]) == {1: False}
    assert labels_of([record(1, "used", judged_at=1.0), record(1, "ignored", judged_at=2.0)]) == {1: True}
    assert labels_of([record(1, "bad", judged_at=1.0), record(1, "good", judged_at=2.0)]) == {1: True}
    assert labels_of([record(1, "unknown", judged_at=1.0), record(1, "ignored", judged_at=2.0)]) == {1: False}


def test_one_question_per_text_and_scope() -> None:
    asked = [
        record(1, "used"),
        record(2, "good", query="What is the port?", recall="r2", asked_at=NOON + 5, session="s2"),
        record(3, "used", scope=7),
        record(4, "ignored"),
    ]
    places = HERE | {3: Place(7, 0.0)}
    first, second = log_of(asked, places).questions
    assert (first.text, first.gold, first.negatives) == ("what is the port", {1, 2}, (4,))
    assert (first.at, first.group, second.scope, second.gold) == (NOON, "s1", 7, {3})
    assert first.key != second.key
    assert first.name == second.name == name_of("What is the PORT?")


def test_what_a_person_was_asked_about_is_no_conversation() -> None:
    """Drawn together, a hundred answers to `recallctl train` would tell as much as one question."""
    rows = [
        record(1, "good", query="a", recall="r1", session="train-1", outcome="asked"),
        record(1, "good", query="b", recall="r2", session="train-1", outcome="asked"),
        record(1, "used", query="c", recall="r3"),
        record(1, "used", query="d", recall="r4"),
    ]
    groups = {question.text: question.group for question in log_of(rows, HERE).questions}
    assert len({groups["a"], groups["b"], groups["c"]}) == 3
    assert groups["c"] == groups["d"]


def test_goldless_questions_stand_apart() -> None:
    log = log_of(
        [record(1, "used"), record(2, "ignored", query="nothing helped"), record(3, query="nobody knows")], HERE
    )
    assert [question.text for question in log.questions] == ["what is the port"]
    assert [(asked.text, asked.negatives) for asked in log.unanswered] == [("nothing helped", (2,))]
    assert log.unlabelled == 1


def test_what_is_gone_is_left_out_and_counted() -> None:
    log = log_of([record(1, "used"), record(500, "used"), record(501, "used", query="only what is gone helped"),
                  record(2, "bad", query="only what is gone helped")], HERE)  # fmt: skip
    assert [question.gold for question in log.questions] == [{1}]
    assert log.gone == 2
    assert not log.unanswered  # something did help


def test_what_was_withheld_tells_of_showing_alone() -> None:
    records = [record(1, "ignored", outcome="withheld"), record(2, "used"), record(3, "used", outcome="withheld")]
    log = log_of([*records, record(4, "unknown", outcome="withheld"), record(5, "good", outcome="withheld")], HERE)
    (question,) = log.questions
    assert question.gold == {2, 5}  # what a person said counts wherever
    assert question.negatives == ()
    assert (log.effect.shown.tolist(), log.effect.withheld.tolist()) == ([1.0], [0.0, 1.0])
    assert len(log.probabilities) == 1
    assert log.counts == {"withheld": 4, "won": 1}


def test_a_verdict_counts_by_the_chance_to_be_seen() -> None:
    """What is shown third and used nevertheless says more than what is shown first: rank is not usefulness."""
    weights = [
        log_of([record(1, "used", rank=rank, propensity=propensity)], HERE).questions[0].weight
        for rank, propensity in ((1, 1.0), (3, 1.0), (1, 0.5), (400, 0.01))
    ]
    assert weights == pytest.approx([1.0, 3**0.5, 2.0, 5.0])  # the last is clipped
    assert log_of([record(1, "good", rank=9, outcome="asked")], HERE).questions[0].weight == 1.0


def test_weights_undo_that_the_first_is_looked_at_first() -> None:
    """Passages equally useful at ranks 1 and 3, the third less looked at: by weight they come out even."""
    rng, seen = np.random.default_rng(1), {1: 0.0, 3: 0.0}
    plain = dict(seen)
    for n in range(6_000):
        rank = (1, 3)[n % 2]
        used = rng.random() < 0.5 and rng.random() < rank**-0.5
        log = log_of([record(1, "used" if used else "ignored", rank=rank)], HERE)
        for question in log.questions:
            plain[rank] += 1.0
            seen[rank] += question.weight
    assert plain[1] > 1.5 * plain[3]
    assert seen[1] == pytest.approx(seen[3], rel=0.1)


def test_a_question_sees_what_could_be_seen_then() -> None:
    (plain,) = log_of([record(1, "used")], HERE).questions
    assert (plain.view.scopes, plain.view.as_of) == ((GLOBAL_SCOPE,), NOON)
    (touched,) = log_of([record(1, "used")], {1: Place(GLOBAL_SCOPE, NOON + 50)}).questions
    assert touched.view.as_of is not None
    assert touched.view.as_of > NOON + 50  # its file was changed since: it must be findable all the same
    (project,) = log_of([record(1, "used", scope=7)], {1: Place(7, 0.0)}).questions
    assert project.view.scopes == (7, GLOBAL_SCOPE)
    (wide,) = log_of([record(1, "used", scope=7)], {1: Place(8, 0.0)}).questions
    assert wide.view.scopes is None


def test_the_log_as_the_store_has_it(house: LogHouse) -> None:
    port, deploy = house.remember("/n.md", ["the port is 9090", "we deploy on fridays"])
    house.asked("what is the port", [(port, "used"), (deploy, "ignored")])
    house.asked("when do we deploy", [(deploy, "used bad"), (port, "unknown")], at=NOON + 1)
    house.asked("how is the weather", [(9_999, "good")], at=NOON + 2)
    log = read_log(house.reader)
    assert [(question.text, question.gold, question.negatives) for question in log.questions] == [
        ("what is the port", {port}, (deploy,))
    ]
    assert [asked.text for asked in log.unanswered] == ["when do we deploy"]
    assert (log.gone, log.unlabelled, len(log.probabilities)) == (1, 1, 4)
    assert not read_log(house.reader, since=NOON + 1).questions


def test_the_last_word_of_a_person_counts_however_often_it_changed(house: LogHouse) -> None:
    (port,) = house.remember("/n.md", ["the port is 9090"])
    (impression,) = house.asked("what is the port", [(port, "used")])
    for number, (word, golds) in enumerate((("good", [{port}]), ("bad", []), ("good", [{port}]), ("bad", []))):
        house.writer.record_feedback(impression, word, at=NOON + 2 + number, key=f"said {number}")
        assert [question.gold for question in read_log(house.reader).questions] == golds


# ---------------------------------------------------------------- splits

texts = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 3), st.integers(0, 50)), max_size=30)


def questions_of(rows: list[tuple[str, int, int]]) -> list[Question]:
    distinct = {(text, scope): at for text, scope, at in rows}
    return [Question(text, scope, float(at), "s", gold=frozenset({1})) for (text, scope), at in distinct.items()]


@given(texts, st.floats(0.1, 0.9), st.integers(0, 9))
def test_no_text_is_on_both_sides_and_none_is_lost(rows: list[tuple[str, int, int]], share: float, seed: int) -> None:
    questions = questions_of(rows)
    splits = [split_by_time(questions, share), split_at_random(questions, share, seed), *folds(questions, 4, seed)]
    for learned, held in splits:
        assert not {question.name for question in learned} & {question.name for question in held}
        assert sorted(q.key for q in [*learned, *held]) == sorted(q.key for q in questions)


@given(texts)
def test_the_newest_are_held_out(rows: list[tuple[str, int, int]]) -> None:
    questions = questions_of(rows)
    learned, held = split_by_time(questions, 0.3)
    first = {question.name: min(q.at for q in questions if q.name == question.name) for question in questions}
    assert max((first[q.name] for q in learned), default=0.0) <= min((first[q.name] for q in held), default=99.0)


def test_folds_hold_each_question_out_once() -> None:
    questions = questions_of([(text, 1, 0) for text in "abcdefgh"])
    held = [question.key for _, own in folds(questions, 3) for question in own]
    assert sorted(held) == sorted(question.key for question in questions)
    assert list(folds([], 3)) == []


def test_a_random_split_is_the_same_for_the_same_seed() -> None:
    questions = questions_of([(text, 1, 0) for text in "abcdefgh"])
    assert split_at_random(questions, 0.5, 1) == split_at_random(questions[::-1], 0.5, 1)
    assert split_at_random(questions, 0.5, 1) != split_at_random(questions, 0.5, 2)
