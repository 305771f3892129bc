"""Pairs from questions: queries encoded as queries, negatives from what was ignored and from the subject graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from log_house import NOON, LogHouse
from recalld_daemon.adapters.pairs import NEAR_GOLD
from recalld_daemon.evaluation.pairset import MOST_NEGATIVES, pairset_of
from recalld_daemon.evaluation.questions import read_log
from store_samples import passage

TEXTS = [
    "Marta Kolb moved the Zephyr server to port 9090", "Zephyr crashed on Friday and Marta Kolb mended it",
    "Marta Kolb likes tea", "the garden needs water", "blue paint for the door", "the bus leaves at nine",
]  # fmt: skip


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path) as house:
        yield house


def pairs_in(house: LogHouse, **options: int):  # type: ignore[no-untyped-def]
    encode = lambda texts: np.stack([house.live.encode_query(text)[0] for text in texts])  # noqa: E731
    return pairset_of(read_log(house.reader).questions, house.reader, encode, house.encoder, **options)


def texts_of(house: LogHouse, ids: list[int], pairs: object, rows: np.ndarray) -> set[str]:
    """The texts of rows of the memories, by their vectors."""
    found = set()
    for row in rows:
        cosines = [float(pairs.memories[row] @ house.live.encode_passages([text]).vectors[0]) for text in TEXTS]  # type: ignore[attr-defined]
        found.add(TEXTS[int(np.argmax(cosines))])
    return found


def test_gold_negatives_subjects_and_weights(house: LogHouse) -> None:
    port, _, tea, garden, *_ = ids = house.remember("/n.md", TEXTS)
    house.asked("where is Zephyr", [(garden, "ignored"), (port, "used")], session="a")
    house.asked("what does Marta drink", [(tea, "good")], session="b", at=NOON + 1)
    house.asked("who knows", [(garden, "ignored")], session="b", at=NOON + 2)
    house.live.as_query.clear()
    pairs = pairs_in(house)
    assert len(pairs) == 2  # the one without gold is no pair
    assert house.live.as_query == ["where is Zephyr", "what does Marta drink"]
    assert texts_of(house, ids, pairs, pairs.gold[0]) == {TEXTS[0]}
    negatives = texts_of(house, ids, pairs, pairs.negatives[0])
    assert TEXTS[3] in negatives  # ignored
    assert TEXTS[2] in negatives  # about the same person, another memory
    assert TEXTS[1] not in negatives  # too, but as near to the question as the gold
    assert TEXTS[0] not in negatives
    assert TEXTS[4] not in negatives
    assert pairs.weights.tolist() == pytest.approx([2**0.5, 1.0])
    assert pairs.at.tolist() == [NOON, NOON + 1]
    assert len(set(pairs.groups.tolist())) == 2
    assert len(set(pairs.names)) == 2
    assert pairs.subject[0] >= 0
    assert np.linalg.norm(pairs.subjects[pairs.subject[0]]) == pytest.approx(1.0, abs=1e-2)
    assert len(pairs.memories) == len(TEXTS)


def test_a_negative_as_near_as_the_gold_is_dropped(house: LogHouse) -> None:
    gold, twin, far = house.remember(
        "/n.md", ["port of Zephyr is 9090", "port of Zephyr is 9091", "tea and Zephyr milk"]
    )
    house.asked("port of Zephyr", [(gold, "used"), (twin, "ignored"), (far, "ignored")])
    pairs = pairs_in(house)
    (negatives,) = pairs.negatives
    best = float(pairs.memories[pairs.gold[0][0]] @ pairs.queries[0])
    assert len(negatives) == 1
    assert float(pairs.memories[negatives[0]] @ pairs.queries[0]) < NEAR_GOLD * best


def test_pools_end_at_the_question_s_own_time_and_scope(house: LogHouse) -> None:
    rows = [passage("early word", at=NOON - 50), passage("later word", 20, at=NOON + 50)]
    early, later = house.remember("/n.md", rows)
    (other,) = house.remember("/p.md", ["project word"], scope="project")
    house.asked("the word", [(early, "used")])
    house.asked("which word", [(later, "used")], at=NOON + 100)
    first, second = pairs_in(house).pools
    assert len(first) == 1
    assert len(second) == 2
    assert first.base is not None  # a view of what both share: no memory of its own
    house.asked("project", [(other, "used")], at=NOON + 200, session="p", scope=house.reader.scopes()["project"])
    assert len(pairs_in(house).pools[-1]) == 3


def test_a_large_store_is_sampled_around_what_is_needed(house: LogHouse) -> None:
    ids = house.remember("/n.md", [f"passage about thing {n}" for n in range(60)])
    house.asked("thing 7", [(ids[7], "used"), (ids[9], "ignored")])
    pairs = pairs_in(house, most_memories=10)
    assert 12 <= len(pairs.memories) <= 12 + MOST_NEGATIVES
    again = pairs_in(house, most_memories=10)
    assert np.array_equal(pairs.memories, again.memories)
    assert len(pairs.gold[0]) == 1


def test_no_questions_no_pairs(house: LogHouse) -> None:
    house.remember("/n.md", ["one"])
    assert len(pairs_in(house)) == 0
