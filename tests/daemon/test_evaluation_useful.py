"""Usefulness judged by what was known before each question: nothing of it, nothing later, the same as gone through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from log_house import DAY, DIMS, NOON, LogHouse
from recalld_daemon.config import Config
from recalld_daemon.evaluation.ground import Ground, open_ground
from recalld_daemon.evaluation.questions import Question, read_log
from recalld_daemon.evaluation.useful import choice_of, known_before, with_usefulness
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.recall.types import View
from recalld_daemon.recall.usefulness import Interests, Weights
from store_samples import passage

TEXTS = [f"the {thing} {fact}" for thing in ("server", "vault", "garden", "bus", "tower", "stable")
         for fact in ("opens at nine", "is painted blue", "needs a roof", "has two keys", "was sold")]  # fmt: skip


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path) as house:
        house.remember("/notes.md", [passage(text, 100 * n, at=NOON - DAY) for n, text in enumerate(TEXTS)])
        yield house


@pytest.fixture
def ground(house: LogHouse) -> Iterator[Ground]:
    with open_ground(house.home, Config(), live=house.live) as ground:
        yield ground


def question(text: str, *gold: int, at: float = NOON, weight: float = 1.0) -> Question:
    return Question(text, 1, at, "s", (), View(None, NOON + 99 * DAY), frozenset(gold), weight)


def test_it_is_what_going_through_the_past_gives(ground: Ground) -> None:
    asked = [question(f"question {n}", 1 + n % 5, at=NOON + n * 0.4 * DAY, weight=1.0 + n % 2) for n in range(12)]
    before = known_before(ground, asked[::-1])
    now, today, night = Interests.none(DIMS), [], None
    for each in asked:
        if today and int(each.at // DAY) != night:
            now, today = now.slept(np.stack(today)), []
        night = int(each.at // DAY)
        found = before.interests(each.key)
        assert found is not None
        ids = np.arange(1, 31)
        values = ground.vectors_of(ids, PLAIN)
        assert found.features(ids, values, each.at, Weights()) == pytest.approx(
            now.features(ids, values, each.at, Weights()), abs=1e-5
        )
        gold = np.array(sorted(each.gold))
        now = now.asked(ground.encoding(each.text).frozen, each.at).used(gold, np.array([each.weight]), each.at)
        today.append(ground.reader.plain_vectors(gold.tolist(), ground.encoder)[1][0])


def test_neither_its_own_answer_nor_anything_later_is_known(ground: Ground) -> None:
    asked = [question(f"question {n}", n + 1, at=NOON + 60 * n) for n in range(8)]
    changed = [*asked[:4], *(question(f"other {n}", 20 + n, at=NOON + 60 * n) for n in range(4, 8))]
    same = [known_before(ground, each).interests(asked[3].key) for each in (asked, changed)]
    assert same[0] is not None
    assert same[1] is not None
    assert same[0].counts.ids.tolist() == same[1].counts.ids.tolist() == [1, 2, 3]
    assert np.array_equal(same[0].fast, same[1].fast)
    first = known_before(ground, asked).interests(asked[0].key)
    assert first is not None
    assert not first.fast.any()
    assert not len(first.counts.ids)
    assert known_before(ground, asked).interests("unknown") is None


def test_unanswered_questions_move_the_focus_too(house: LogHouse, ground: Ground) -> None:
    house.asked("what about the vault", [(3, "ignored")], at=NOON)
    house.asked("is it blue", [(2, "used")], at=NOON + 60)
    log = read_log(house.reader)
    found = known_before(ground, [*log.questions, *log.unanswered]).interests(log.questions[0].key)
    assert found is not None
    assert found.fast.any()


def test_what_is_used_again_and_again_comes_first_by_learned_weights(house: LogHouse, ground: Ground) -> None:
    """One of five equally good passages is always the one that helps: weights are found, and recall orders by them."""
    things = [text.split()[1] for text in TEXTS[::5]]
    asked = [question(f"what of the {things[n % 6]}, {n}", 5 * (n % 6) + 4, at=NOON + 3_600 * n) for n in range(40)]
    asked.append(question("which of the server", 4, at=NOON + 9 * DAY))
    ground.before = known_before(ground, asked)
    learned = with_usefulness(ground, asked[:-1], PLAIN)
    assert learned is not None
    assert learned.usefulness is not None
    assert Weights.from_bytes(learned.usefulness).often > 0.1
    mean = {each: np.mean([ground.ranked(q, each).index(min(q.gold)) for q in asked[20:]]) for each in (PLAIN, learned)}
    assert mean[learned] < mean[PLAIN]
    strong = Learned(usefulness=Weights(often=50.0).to_bytes())
    plain, useful = ground.ranked(asked[-1]), ground.ranked(asked[-1], strong)
    used = {id for each in asked for id in each.gold}
    assert set(useful[:6]) == used != set(plain[:6])
    ground.before = None  # nothing is known: nothing is added
    assert ground.ranked(asked[-1], strong) == plain


def test_too_few_questions_give_no_weights(ground: Ground) -> None:
    asked = [question(f"what of the server, {n}", 1, at=NOON + n) for n in range(3)]
    ground.before = known_before(ground, asked)
    assert with_usefulness(ground, asked, PLAIN) is None
    assert choice_of(ground, question("not among them", 1), PLAIN) is None


def test_a_choice_is_what_the_stage_would_get(ground: Ground) -> None:
    asked = [question("what of the server", 4, weight=1.5), question("and the server again", 4, at=NOON + 60)]
    ground.before = known_before(ground, asked)
    choice = choice_of(ground, asked[1], PLAIN)
    assert choice is not None
    answer = ground.answer(asked[1])
    assert choice.scores.tolist() == pytest.approx([c.fused for c in answer.candidates[:100]])
    assert choice.gold.sum() == 1
    often = choice.features[:, 0]
    assert often.max() == often[choice.gold][0] > 0  # it was used before, for another question
    none = known_before(ground, [])
    assert none.interests(asked[0].key) is None
