"""Cards against what one would read off a list of passages; and what a text's traits are."""

from __future__ import annotations

import doctest
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue_samples import Known, batch_of
from recalld_daemon.index.cards import CardTable
from recalld_daemon.recall import traits
from recalld_daemon.recall.traits import traits_of
from recalld_daemon.recall.types import CardReader, Trait
from recalld_daemon.recall.words import words_of
from recalld_daemon.store.passage_reads import PassageFacts

known = st.builds(
    Known,
    text=st.sampled_from(["", "Did you?", "I met Ada in May.", "one two three"]),
    speaker=st.sampled_from(["", "Ada", "Grace"]),
    scope=st.integers(1, 3),
    written_at=st.integers(0, 5).map(float),
    source=st.integers(1, 4),
    ordinal=st.integers(0, 9),
)
ids = st.integers(1, 25)
change = st.one_of(
    st.tuples(st.just("add"), st.dictionaries(ids, known, min_size=1, max_size=10)),
    st.tuples(st.just("remove"), st.lists(ids, max_size=6)),
    st.tuples(st.just("place"), st.dictionaries(ids, known, min_size=1, max_size=10)),
)


def facts_of(passages: dict[int, Known]) -> PassageFacts:
    batch = batch_of(dict(sorted(passages.items())))
    return PassageFacts(batch.ids, batch.scopes, batch.written_at, batch.marks, batch.sources, batch.ordinals)


def changed(changes: Sequence[tuple[str, object]]) -> tuple[CardTable, dict[int, Known]]:
    table, there = CardTable(), dict[int, Known]()
    for what, value in changes:
        if what == "remove":
            assert isinstance(value, list)
            table.remove(value)
            there = {id: row for id, row in there.items() if id not in value}
            continue
        assert isinstance(value, dict)
        if what == "add":
            table.add(batch_of(value))
            there.update(value)
        else:
            table.place(facts_of(value))
            for id in value.keys() & there.keys():
                now = value[id]
                there[id] = replace(
                    there[id], source=now.source, ordinal=now.ordinal, scope=now.scope, written_at=now.written_at
                )
    return table, there


def check(table: CardReader, there: dict[int, Known], asked: Sequence[int]) -> None:
    """Cards equal what the list of passages says."""
    cards = table.cards(np.array(asked, np.int64))
    numbers = table.speakers()
    for n, id in enumerate(asked):
        row = there.get(id)
        if row is None:
            blank = (cards.sources[n], cards.places[n], cards.speakers[n], cards.words[n], cards.traits[n])
            assert (blank, cards.written_at[n], cards.around[n].tolist()) == ((0,) * 5, 0.0, [0] * 4)
            continue
        order = sorted((other.ordinal, key) for key, other in there.items() if other.source == row.source)
        own = [key for _, key in order]
        place = own.index(id)
        around = [own[at] if 0 <= (at := place + step) < len(own) else 0 for step in (-2, -1, 1, 2)]
        assert (cards.sources[n], cards.places[n], cards.around[n].tolist()) == (row.source, place, around)
        assert cards.speakers[n] == numbers.get(row.speaker, 0)
        assert (cards.written_at[n], cards.words[n]) == (row.written_at, len(words_of(row.text)))
        assert cards.traits[n] == traits_of(row.text)


@given(st.lists(change, max_size=8), st.lists(st.integers(0, 30), max_size=40))
@settings(max_examples=100, deadline=None)
def test_after_any_changes_cards_are_what_the_passages_say(changes: list[tuple[str, object]], asked: list[int]) -> None:
    table, there = changed(changes)
    check(table, there, asked)
    assert len(table) == len(there)
    assert table.scopes(np.array(asked, np.int64)).tolist() == [there[id].scope if id in there else 0 for id in asked]


@given(st.lists(change, min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_restored_table_says_the_same(changes: list[tuple[str, object]]) -> None:
    table, there = changed(changes)
    other = CardTable()
    other.restore(table.rows().copy(), list(table.speakers()))
    check(other, there, range(30))
    assert other.speakers() == table.speakers()


def test_a_conversation_that_goes_on_has_its_new_turns_around_its_last() -> None:
    table, _ = changed([("add", {n: Known("x", speaker="Ada", ordinal=n) for n in (1, 2, 3)})])
    assert table.cards(np.array([3])).around.tolist() == [[1, 2, 0, 0]]
    table.add(batch_of({9: Known("y", speaker="Grace", ordinal=4)}))
    assert table.cards(np.array([3, 9])).around.tolist() == [[1, 2, 9, 0], [2, 3, 0, 0]]
    table.remove([3])
    assert table.cards(np.array([9])).around.tolist() == [[1, 2, 0, 0]]


def test_speakers_keep_their_numbers() -> None:
    table, _ = changed([("add", {1: Known("x", speaker="Ada"), 2: Known("y", speaker="Grace")})])
    held = table.speakers()
    table.remove([1])
    table.add(batch_of({3: Known("z", speaker="Zoë"), 4: Known("x", speaker="Ada")}))
    assert table.speakers() == {"Ada": 1, "Grace": 2, "Zoë": 3}
    assert held == {"Ada": 1, "Grace": 2}  # what a reader took stays as it was


def test_cards_are_read_while_they_change() -> None:
    table, _ = changed([("add", {n: Known("x", speaker="Ada", ordinal=n, source=7) for n in (1, 2, 3)})])
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            cards = table.cards(np.array([2, 999_999]))
            if cards.around.tolist() != [[0, 1, 3, 0], [0] * 4] or cards.sources.tolist() != [7, 0]:
                wrong.append(cards)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for at in range(10, 2_000, 50):
        table.add(batch_of({id: Known("y", ordinal=id % 9, source=id % 5 + 10) for id in range(at, at + 50)}))
        table.remove(range(at, at + 20))
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


# ------------------------------------------------------------ traits


@pytest.mark.parametrize(
    ("text", "has", "has_not"),
    [
        ("Where did you put it?", Trait.QUESTION | Trait.SECOND_PERSON, Trait.FIRST_PERSON | Trait.TIME),
        ("Is it done? Yes, since Monday.", Trait.TIME, Trait.QUESTION),
        ('He asked "why?" 😀', Trait.QUESTION, Trait.SECOND_PERSON),
        ("where is it ??  ", Trait.QUESTION, Trait.TIME),
        ("你在哪里？", Trait.QUESTION, Trait.CODE),
        ("I’ve moved to Oslo with Grace", Trait.FIRST_PERSON | Trait.NAMES, Trait.DIGITS | Trait.QUESTION),
        ("for i in range(3): pass", Trait.DIGITS | Trait.CODE, Trait.FIRST_PERSON),
        ("Ship it. Then rest.", Trait(0), Trait.NAMES | Trait.TIME | Trait.QUESTION),
        ("we went there last week", Trait.TIME | Trait.FIRST_PERSON, Trait.NAMES),
        ("the last one may fail", Trait(0), Trait.TIME),
        ("released on 2024-05-17", Trait.TIME | Trait.DIGITS, Trait.CODE),
        ("it was in the spring of 2021, in May", Trait.TIME, Trait.QUESTION),
        ("run `make ship` first", Trait.CODE, Trait.PICTURE),
        ("[image: a red boat at the pier]", Trait.PICTURE, Trait.QUESTION),
        ("see this [a photo of a red boat]", Trait.PICTURE, Trait.CODE),
        ("look ![boat](boat.png)", Trait.PICTURE, Trait.TIME),
        ("", Trait(0), Trait(255)),
    ],
)
def test_traits_are_read_off_the_text(text: str, has: Trait, has_not: Trait) -> None:
    found = traits_of(text)
    assert found & has == has
    assert not found & has_not


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_has_traits(text: str) -> None:
    assert 0 <= traits_of(text) <= sum(Trait)


def test_the_examples_in_the_docs_hold() -> None:
    assert doctest.testmod(traits).failed == 0
