"""From verdicts in a log to lessons: what makes one, what is in it, and what is left out of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from log_house import DIMS, NOON, LogHouse
from recalld_daemon.adapters.pairs import NEAR_GOLD, Pair, inverse_propensity
from recalld_daemon.learned import Learned
from recalld_daemon.lessons import NEGATIVES, Asked, Ground, pair_of, read_asked
from recalld_daemon.recall.types import Float32, Int64, View

QUERY = "where is the staging key"
TEXTS = ["The staging key is in the vault", "The harbour office opens at nine", "Soup is on Thursdays", "Crane four"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path) as house:
        yield house


def nobody(vector: Float32, view: View, limit: int) -> Int64:
    return np.empty(0, np.int64)


def ground_of(house: LogHouse, vectors: int = 0) -> Ground:
    return Ground(house.encoder, house.live.fingerprint, DIMS, Learned(version=vectors, vectors=vectors))


def lesson(house: LogHouse, impression: str, nearest: Any = nobody, vectors: int = 0) -> Pair | None:
    asked = read_asked(house.reader, impression)
    assert asked is not None
    query, _ = house.live.encode_query(asked.query)
    return pair_of(house.reader, asked, query, query, ground_of(house, vectors), nearest)


def vector_of(house: LogHouse, passage: int, snapshot: int = 0) -> Float32:
    _, rows = house.reader.plain_vectors([passage], house.encoder, snapshot)
    return rows[0] / np.linalg.norm(rows[0])


def is_among(vector: Float32, rows: Float32) -> bool:
    return bool(len(rows)) and bool((np.abs(rows - vector).max(axis=1) < 1e-3).any())


@pytest.mark.parametrize(
    ("verdicts", "is_one"),
    [
        ("good", True), ("used", True), ("acted", True), ("ignored", False), ("unknown", False), ("bad", False),
        ("", False), ("used bad", False), ("ignored used", True), ("bad good", True),
    ],
)  # fmt: skip
def test_what_makes_a_lesson(house: LogHouse, verdicts: str, is_one: bool) -> None:
    passage, *_ = house.remember("/notes/a.md", TEXTS)
    (impression,) = house.asked(QUERY, [(passage, verdicts)])
    assert (read_asked(house.reader, impression) is not None) == is_one


def test_what_was_withheld_makes_one_only_if_a_person_said_so(house: LogHouse) -> None:
    a, b, *_ = house.remember("/notes/a.md", TEXTS)
    seen, said = house.asked(QUERY, [(a, "used", "withheld"), (b, "good", "withheld")])
    assert read_asked(house.reader, seen) is None
    assert read_asked(house.reader, said) is not None


def test_nobody_knows_an_impression_that_was_never_shown(house: LogHouse) -> None:
    assert read_asked(house.reader, "never") is None


def test_the_lesson_holds_the_query_as_a_query_and_the_passage_as_it_is_searched(house: LogHouse) -> None:
    passage, other, *_ = house.remember("/notes/a.md", TEXTS)
    house.live.shift = 0.5  # queries lie apart from passages
    _, impression = house.asked(QUERY, [(other, ""), (passage, "good")], propensity=0.5)
    pair = lesson(house, impression)
    assert pair is not None
    np.testing.assert_allclose(pair.query, house.live.encode_query(QUERY)[0])
    np.testing.assert_allclose(pair.gold, vector_of(house, passage), atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(pair.gold), 1.0, atol=1e-5)
    assert pair.weight == pytest.approx(inverse_propensity(2, 0.5))
    assert pair.at == NOON + 1
    assert QUERY in house.live.as_query


def test_what_a_person_was_asked_about_has_no_position(house: LogHouse) -> None:
    a, b, *_ = house.remember("/notes/a.md", TEXTS)
    _, impression = house.asked(QUERY, [(a, "", "asked"), (b, "good", "asked")])
    pair = lesson(house, impression)
    assert pair is not None
    assert pair.weight == 1.0


def test_the_same_question_about_the_same_passage_is_one_lesson(house: LogHouse) -> None:
    a, b, *_ = house.remember("/notes/a.md", TEXTS)
    first = house.asked(QUERY, [(a, "good"), (b, "good")])
    (again,) = house.asked(QUERY.upper() + "?", [(a, "used")], at=NOON + 99, session="s2")
    (other,) = house.asked("is there soup", [(a, "good")])
    keys = [asked.key for asked in (read_asked(house.reader, i) for i in [*first, again, other]) if asked]
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3


def test_negatives_are_what_did_not_help_for_the_same_question(house: LogHouse) -> None:
    a, b, c, d = house.remember("/notes/a.md", TEXTS)
    house.asked(QUERY, [(b, "bad")], at=NOON - 50)  # another day
    house.asked("is there soup", [(d, "bad")])  # another question
    impression, *_ = house.asked(QUERY, [(a, "good"), (c, "ignored")])
    pair = lesson(house, impression)
    assert pair is not None
    found = [is_among(vector_of(house, id), pair.negatives) for id in (a, b, c, d)]
    assert found == [False, True, True, False]


def test_negatives_have_a_subject_in_common_and_stand_near(house: LogHouse) -> None:
    files = [
        "The limit is in `harbour/berths.py`",
        "`harbour/berths.py` was renamed twice",
        "Tea is in the tin",
        "Crane",
    ]
    a, beside, near, far = house.remember("/notes/a.md", files)
    (impression,) = house.asked("what is the limit", [(a, "good")])
    asked: list[tuple[View, int]] = []

    def nearest(vector: Float32, view: View, limit: int) -> Int64:
        asked.append((view, limit))
        return np.array([a, near], np.int64)

    pair = lesson(house, impression, nearest)
    assert pair is not None
    assert [is_among(vector_of(house, id), pair.negatives) for id in (a, beside, near, far)] == [
        False,
        True,
        True,
        False,
    ]
    assert asked[0][0].as_of == NOON  # what was there when it was asked
    assert pair.subject is not None
    name = house.reader.subjects_of(house.reader.links_of([a]).subjects.tolist())
    vectors = house.reader.line_vectors([row.hash for row in name], house.encoder, 0)
    assert any(np.allclose(pair.subject, v / np.linalg.norm(v), atol=1e-3) for v in vectors.values())


def test_what_is_as_near_as_the_gold_one_is_no_negative(house: LogHouse) -> None:
    twin = TEXTS[0] + " now"
    ids = house.remember("/notes/a.md", [TEXTS[0], twin, *(f"Soup number {n}" for n in range(20))])
    impression, *_ = house.asked(QUERY, [(ids[0], "good"), (ids[1], "ignored")])
    pair = lesson(house, impression, lambda *_: np.array(ids, np.int64))
    assert pair is not None
    assert len(pair.negatives) == NEGATIVES
    assert (pair.negatives @ pair.query < NEAR_GOLD * (pair.gold @ pair.query)).all()
    assert not is_among(vector_of(house, ids[1]), pair.negatives)
    cosines = pair.negatives @ pair.query
    assert (np.diff(cosines) <= 1e-6).all()  # the nearest of those that may be one


def test_a_passage_that_is_gone_or_not_projected_yet_gives_none(house: LogHouse) -> None:
    passage, *_ = house.remember("/notes/a.md", TEXTS)
    (impression,) = house.asked(QUERY, [(passage, "good")])
    assert lesson(house, impression, vectors=7) is None
    asked = read_asked(house.reader, impression)
    assert isinstance(asked, Asked)


def test_where_keys_were_projected_the_gold_is_what_is_searched(house: LogHouse) -> None:
    passage, *_ = house.remember("/notes/a.md", TEXTS)
    version = house.writer.begin_version(house.encoder, at=NOON, vectors=None, why="f_K")
    hashes, rows = next(iter(house.reader.walk_vectors(house.encoder)))
    turned = -rows  # as unlike the frozen ones as can be
    house.writer.put_projected(house.encoder, version, hashes, turned.astype(np.float16))
    (impression,) = house.asked(QUERY, [(passage, "good")])
    pair = lesson(house, impression, vectors=version)
    assert pair is not None
    np.testing.assert_allclose(pair.gold, -vector_of(house, passage), atol=1e-3)
