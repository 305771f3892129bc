"""What a query says of who, when and how many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.recall.hints import HintReader, deictic, hints_of, names_of
from recalld_daemon.recall.types import Hints, Query, View

NOW = datetime(2023, 5, 11, 14, 0, tzinfo=UTC).timestamp()
KNOWN = {"Ana Silva": 1, "Ben": 2, "user": 3, "assistant": 4, "Ana Costa": 5}


def read(text: str, known: Mapping[str, int] = KNOWN) -> Hints:
    return hints_of(Query(text, (), ""), names_of(known), (), NOW, known=known, tz=UTC)


@pytest.mark.parametrize(
    ("text", "speakers"),
    [
        ("what did Ben say", ("Ben",)),
        ("Ben's dog", ("Ben",)),
        ("where is Ana Silva", ("Ana Silva",)),
        ("where is Ana", ("Ana Silva", "Ana Costa")),  # two bear that name
        ("did Ben meet Ana Costa", ("Ben", "Ana Costa")),
        ("the user table of the assistant", ()),
        ("what did I decide about the cache", ("user",)),
        ("what did you suggest", ("assistant",)),
        ("what is my favourite editor?", ("user",)),
        ("where did we put it?", ("user", "assistant")),
        ("can you fix this? I need it", ()),
        ("fix the bench", ()),
    ],
)
def test_speakers_are_those_named_or_meant(text: str, speakers: tuple[str, ...]) -> None:
    assert read(text).speakers == speakers


@pytest.mark.parametrize(
    ("text", "enumerates"),
    [
        ("how many dogs does Ben have", True), ("which places did Ben visit", True), ("list all the deploys", True),
        ("what books has Ana read", True), ("what are Ben's hobbies?", True), ("every time it failed", True),
        ("what kinds of music does Ben like", True), ("what is the process of it", False),
        ("which port does it listen on", False), ("where is the status page", False), ("fix the tests", False),
    ],
)  # fmt: skip
def test_questions_that_ask_for_all(text: str, enumerates: bool) -> None:
    assert read(text).enumerates is enumerates


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("when did Ben move", True), ("In which year was it?", True), ("how long ago did it fail", True),
        ("what date is the release", True), ("fix it when the test fails", False), ("where did Ben go", False),
    ],
)  # fmt: skip
def test_questions_whose_answer_is_a_time(text: str, asks: bool) -> None:
    assert read(text).asks_when is asks


def test_times_are_seen_from_the_query() -> None:
    (week,) = read("what did we decide last week").whens
    assert datetime.fromtimestamp(week.start, UTC).date().isoformat() == "2023-05-01"
    (since,) = read("what changed since March").whens
    assert (since.said, since.grain) == ("since March", "span")


@pytest.mark.parametrize(
    ("text", "speakers", "asked"),
    [
        ("When did Ana adopt a dog?", ("Ana",), "When did I adopt a dog?"),
        ("Who gave Ana the book?", ("Ana",), "Who gave me the book?"),
        ("Is it ana's?", ("Ana",), "Is it my?"),
        ("What did Ana tell Ben?", ("Ana", "Ben"), "What did I tell Ben?"),
        ("Where is Anaheim?", ("Ana",), "Where is Anaheim?"),
        ("What did I decide?", ("user",), "What did I decide?"),
        ("nothing", (), "nothing"),
    ],
)
def test_a_query_as_its_speaker_would_ask_it(text: str, speakers: tuple[str, ...], asked: str) -> None:
    assert deictic(text, Hints(speakers=speakers)) == asked


def test_the_reader_follows_what_the_memory_learns_and_the_view_moves_the_moment() -> None:
    class Cards:
        known: Mapping[str, int] = {}

        def speakers(self) -> Mapping[str, int]:
            return self.known

    class Names:
        def named(self, text: str) -> Sequence[int]:
            return [7] if "cache" in text else []

    cards = Cards()
    reader = HintReader(cards, Names(), user_names=["Ben"], tz=UTC, now=lambda: NOW)
    query = Query("what did I say of the cache yesterday", (), "")
    assert reader(query, View()).speakers == ()
    cards.known = {"user": 1, "Ben": 2}
    hints = reader(query, View())
    assert (hints.speakers, hints.subjects) == (("user", "Ben"), (7,))
    assert reader(query, View(as_of=NOW - 86_400)).whens[0].start == hints.whens[0].start - 86_400
    assert HintReader(None, now=lambda: NOW)(query, View()).speakers == ()


@given(st.text(max_size=80), st.lists(st.text(max_size=12), max_size=4))
def test_no_query_and_no_name_is_too_strange(text: str, names: list[str]) -> None:
    known = {name: n for n, name in enumerate(names, 1)}
    hints = read(text + " ".join(names), known)
    assert set(hints.speakers) <= set(known)
    deictic(text, Hints(speakers=tuple(name for name in names if name.split())))
