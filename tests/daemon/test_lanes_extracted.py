"""The lanes over what was extracted, each on a small memory made for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from extract_house import ExtractHouse, encoding_of, extract_house
from recalld_daemon.index import Extracts, fact_table
from recalld_daemon.recall.lanes.entity import EntityLane
from recalld_daemon.recall.lanes.facts import FactLane, FactWordsLane
from recalld_daemon.recall.lanes.graph import GraphLane
from recalld_daemon.recall.lanes.lexical import LexicalLane
from recalld_daemon.recall.lanes.subjects import LAMBDA, SubjectLane
from recalld_daemon.recall.lanes.temporal import TemporalLane
from recalld_daemon.recall.types import Candidate, LaneHits, Query, View
from recalld_daemon.store.lane import LexicalLane as FullText


def at(day: str) -> float:
    return datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()


MAY_8, MAY_20, JUNE_3, NOW = at("2023-05-08"), at("2023-05-20"), at("2023-06-03"), at("2023-07-10")
CHAT = [
    ("Ben", "Nice pictures! Where did you go?", MAY_8),  # 1
    ("Ana", "To the Dolomites.", MAY_8),  # 2
    ("Ana", "I bought a red kayak yesterday.", MAY_8),  # 3
    ("Ben", "My sister Ottoline moved to Bergen last month.", MAY_20),  # 4
    ("Ana", "I planted two olive trees, and Ottoline watered them.", JUNE_3),  # 5
    ("Ben", "Wow, great!", JUNE_3),  # 6
]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[ExtractHouse]:
    with extract_house(tmp_path) as house:
        house.told("/chat", CHAT)
        yield house


def found(hits: LaneHits) -> list[int]:
    return [int(id) for id in hits.ids]


# ------------------------------------------------------------ facts


def test_a_fact_is_found_by_its_words_and_its_passage_returned(house: ExtractHouse) -> None:
    lane = FactWordsLane(house.extracts.facts)
    query = house.query("where did Ana go", NOW)
    assert found(lane.search(query, None, View(), 10))[0] == 2  # it says neither "Ana" nor "go"
    assert lane.search(query, None, View(scopes=(99,)), 10).ids.tolist() == []
    assert 2 not in found(lane.search(query, None, View(as_of=MAY_8), 10))
    scores = lane.score(query, None, np.array([2, 6, 999]))
    assert scores[0] > 0
    assert np.isnan(scores[1:]).all()  # a reaction states nothing


def test_a_fact_is_found_by_its_meaning_once_it_is_embedded(house: ExtractHouse) -> None:
    lane = FactLane(house.extracts.facts)
    fact = "Ana bought a red kayak yesterday (7 May 2023)."
    query, encoding = house.query("?", NOW), encoding_of(fact)
    assert found(lane.search(query, encoding, View(), 10)) == []
    house.extracts.attach(house.encoder, 0)
    house.embed()
    hits = lane.search(query, encoding, View(), 10)
    assert (found(hits)[0], hits.scores[0]) == (3, pytest.approx(1.0, abs=1e-3))
    assert len(set(found(hits))) == len(hits.ids)
    scores = lane.score(query, encoding, np.array([6, 3]))
    assert np.isnan(scores[0])
    assert scores[1] == pytest.approx(hits.scores[0])
    assert 3 not in found(lane.search(query, encoding, View(as_of=MAY_8), 10))
    assert found(lane.search(query, encoding, View(scopes=(99,)), 10)) == []
    with pytest.raises(ValueError, match="encoding"):
        lane.search(query, None, View(), 10)


def test_too_many_facts_in_view_are_only_scored(house: ExtractHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    house.extracts.attach(house.encoder, 0)
    house.embed()
    monkeypatch.setattr(fact_table, "MOST_SEARCHED", 2)
    lane, encoding = FactLane(house.extracts.facts), encoding_of("x")
    assert found(lane.search(house.query("x", NOW), encoding, View(), 10)) == []
    assert not np.isnan(lane.score(house.query("x", NOW), encoding, np.array([3]))).any()


def test_what_is_gone_is_not_found_and_what_was_said_anew_is(house: ExtractHouse) -> None:
    house.extracts.attach(house.encoder, 0)
    house.embed()
    ids = house.told("/chat", [*CHAT[:2], ("Ana", "I sold my yellow tent.", MAY_8)])
    house.embed()
    lane = FactLane(house.extracts.facts)
    hits = lane.search(house.query("?", NOW), encoding_of("Ana sold Ana's yellow tent (8 May 2023)"), View(), 10)
    assert found(hits)[0] == ids[2]
    assert set(found(hits)) <= set(ids)
    house.forget("/chat")
    state = house.extracts.state()
    assert (state.facts, state.fact_vectors, state.subjects, state.times) == (0, 0, 0, 0)


def test_filled_from_the_store_it_is_what_it_became_by_announcements(house: ExtractHouse) -> None:
    house.extracts.attach(house.encoder, 0)
    house.embed()
    anew = Extracts(house.reader)
    anew.fill()
    anew.attach(house.encoder, 0)
    old, new = house.extracts.state(), anew.state()
    assert (old.facts, old.fact_vectors, old.subjects, old.times) == (
        new.facts,
        new.fact_vectors,
        new.subjects,
        new.times,
    )
    assert old.facts == old.fact_vectors > 3
    links = anew.subjects.links
    assert np.array_equal(links.passages, house.extracts.subjects.links.passages)
    encoding = encoding_of("Ottoline")
    assert anew.subjects.near(encoding.vector, 1)[0] == house.extracts.subjects.near(encoding.vector, 1)[0]


# ------------------------------------------------------------ subjects


def test_a_named_subject_brings_its_passages(house: ExtractHouse) -> None:
    lane = SubjectLane(house.extracts.subjects)
    query = house.query("how is Ottoline", NOW)
    hits = lane.search(query, None, View(), 10)
    assert sorted(found(hits)) == [4, 5]
    assert hits.scores.tolist() == pytest.approx([LAMBDA, LAMBDA])
    assert lane.score(query, None, np.array([4, 3])).tolist() == pytest.approx([LAMBDA, 0.0])
    assert found(lane.search(query, None, View(as_of=MAY_20 + 1), 10)) == [4]
    assert found(lane.search(query, None, View(scopes=(99,)), 10)) == []


def test_a_subject_near_in_meaning_brings_its_passages_for_less(house: ExtractHouse) -> None:
    house.extracts.attach(house.encoder, 0)
    house.embed()
    lane = SubjectLane(house.extracts.subjects)
    query = house.query("who moved away", NOW)
    mixed = encoding_of("Ottoline").vector + 0.5 * encoding_of("something else").vector
    encoding = encoding_of("x")
    encoding = type(encoding)((mixed / np.linalg.norm(mixed)).astype(np.float32), encoding.tokens)
    hits = lane.search(query, encoding, View(), 10)
    scores = dict(zip(found(hits), hits.scores.tolist(), strict=True))
    assert 0 < scores[4] < LAMBDA
    assert scores[4] == pytest.approx(lane.score(query, encoding, np.array([4]))[0])


def test_a_subject_that_one_passage_has_leads_nowhere(house: ExtractHouse) -> None:
    assert house.extracts.subjects.named("the Dolomites") == []
    house.told("/more", [("Ana", "We loved the Dolomites and Bergen.", NOW)])
    named = house.extracts.subjects.named("the Dolomites")
    assert len(named) == 1
    assert sorted(
        found(SubjectLane(house.extracts.subjects).search(house.query("Dolomites", NOW), None, View(), 9))
    ) == [2, 7]
    house.forget("/more")
    house.forget("/chat")
    assert house.extracts.subjects.named("the Dolomites, Ottoline") == []


def test_identifiers_and_files_are_named_however_they_are_written(house: ExtractHouse) -> None:
    house.told(
        "/code",
        [
            ("user", "getUserName in src/auth/session_store.py fails with a StoreError.", NOW),
            ("user", "I moved get_user_name() out of session_store.py again.", NOW),
        ],
    )
    subjects = house.extracts.subjects
    for text in ("fix GetUserName", "what about `get_user_name`", "open src/auth/session_store.py", "session_store.py"):
        assert subjects.named(text), text
    assert subjects.named("the store of users") == []


# ------------------------------------------------------------ times


def test_a_time_finds_what_was_spoken_of_then_before_what_was_written_then(house: ExtractHouse) -> None:
    lane = TemporalLane(house.extracts.whens)
    april = lane.search(house.query("what happened in April 2023", NOW), None, View(), 10)
    assert (found(april)[0], april.scores[0]) == (4, 1.0)  # "last month", said in May
    day = lane.search(house.query("what did Ana do on 7 May 2023", NOW), None, View(), 10)
    assert (found(day)[0], day.scores[0]) == (3, 1.0)
    june = lane.search(house.query("and in June", NOW), None, View(), 10)
    assert set(found(june)[:2]) == {5, 6}
    assert 0 < june.scores[0] < 1


def test_without_a_time_it_is_silent(house: ExtractHouse) -> None:
    lane = TemporalLane(house.extracts.whens)
    query = house.query("what did Ana plant", NOW)
    assert found(lane.search(query, None, View(), 10)) == []
    assert np.isnan(lane.score(query, None, np.array([1, 2]))).all()
    assert lane.within(query, np.array([1, 2])).all()


def test_the_view_bounds_it(house: ExtractHouse) -> None:
    lane = TemporalLane(house.extracts.whens)
    query = house.query("what happened in June 2023", NOW)
    assert not {5, 6} & set(found(lane.search(query, None, View(as_of=JUNE_3), 10)))
    assert found(lane.search(query, None, View(scopes=(99,)), 10)) == []


def test_since_and_before_leave_the_rest_out(house: ExtractHouse) -> None:
    lane = TemporalLane(house.extracts.whens)
    ids = np.array([1, 3, 4, 5, 999])
    since = house.query("what changed since 15 May 2023", NOW)
    assert lane.within(since, ids).tolist() == [False, False, True, True, True]
    assert set(found(lane.search(since, None, View(), 10))) <= {4, 5, 6}
    before = house.query("what was done before 15 May 2023", NOW)
    assert lane.within(before, ids).tolist() == [True, True, True, False, True]  # 4 speaks of April


def test_scores_agree_with_the_search(house: ExtractHouse) -> None:
    lane = TemporalLane(house.extracts.whens)
    query = house.query("in May 2023", NOW)
    hits = lane.search(query, None, View(), 10)
    assert lane.score(query, None, hits.ids).tolist() == hits.scores.tolist()
    assert np.isnan(lane.score(query, None, np.array([999]))[0])


# ------------------------------------------------------------ entities


def entity_lane(house: ExtractHouse) -> EntityLane:
    lexical = LexicalLane(house.catalogue.words, FullText(house.reader))
    extracts = house.extracts
    return EntityLane(extracts.subjects, house.catalogue.cards, extracts.whens, [lexical], house.reader)


def test_a_question_for_all_gets_all_of_a_speaker_best_first(house: ExtractHouse) -> None:
    lane = entity_lane(house)
    hits = lane.search(house.query("how many trees has Ana planted?", NOW), None, View(), 1)
    assert found(hits)[0] == 5
    assert set(found(hits)) == {2, 3, 5}
    assert found(lane.search(house.query("did Ana plant trees?", NOW), None, View(), 9)) == []
    assert found(lane.search(house.query("how many trees are there?", NOW), None, View(), 9)) == []
    assert set(found(lane.search(house.query("how often did Ana go?", NOW), None, View(as_of=JUNE_3), 9))) == {2, 3}
    assert found(lane.search(house.query("how often did Ana go?", NOW), None, View(scopes=(99,)), 9)) == []


def test_a_question_for_all_gets_all_of_a_subject(house: ExtractHouse) -> None:
    hits = entity_lane(house).search(house.query("list all about Ottoline", NOW), None, View(), 9)
    assert set(found(hits)) >= {4, 5}


def test_one_event_told_twice_is_returned_once(house: ExtractHouse) -> None:
    more = [
        ("Ana", "I ran the Bergen marathon on 4 June.", at("2023-06-05")),
        ("Ana", "I ran the Bergen marathon on 4 June!", at("2023-06-06")),
        ("Ana", "I ran the Bergen marathon again on 4 July.", at("2023-07-05")),
    ]
    ids = house.told("/more", more)
    hits = found(entity_lane(house).search(house.query("how many marathons did Ana run?", NOW), None, View(), 9))
    assert len({ids[0], ids[1]} & set(hits)) == 1
    assert ids[2] in hits


def test_never_fewer_than_forty(house: ExtractHouse) -> None:
    house.told("/long", [("Cleo", f"I read book number {n} about ferns.", NOW + n * 86_400) for n in range(60)])
    hits = entity_lane(house).search(house.query("how many books has Cleo read?", NOW + 1e8), None, View(), 10)
    assert len(hits.ids) == 40


# ------------------------------------------------------------ the graph


@pytest.mark.parametrize("walks", [False, True])
def test_what_shares_a_subject_with_a_find_inherits(house: ExtractHouse, walks: bool) -> None:
    lane = GraphLane(house.extracts.subjects, walks)
    query = Query("x", (), "x")
    hits = lane.spread(query, [Candidate(4, fused=1.0)], View(), 10)
    assert 5 in found(hits)
    assert all(hits.scores > 0)
    assert found(lane.spread(query, [], View(), 10)) == []
    assert found(lane.spread(query, [Candidate(4, fused=0.0)], View(), 10)) == []
    assert 5 not in found(lane.spread(query, [Candidate(4, fused=1.0)], View(as_of=JUNE_3), 10))
