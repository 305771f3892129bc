"""Lines keep their places: by examples, and by properties over any history."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from recalld_client.frameworks.placed import MAX_PLACES, Placed, content_key

ITEMS = st.lists(st.sampled_from(["user", "ok", "call", "result"]), min_size=1, max_size=12)


def woven(placed: Placed, items: Sequence[str], *new: str) -> list[str]:
    return placed.woven(items, lambda item: item, new, lambda lines: "/".join(lines))


def test_a_line_stays_after_the_item_it_came_with() -> None:
    placed = Placed()
    assert woven(placed, ["u", "r1"], "A") == ["u", "r1", "A"]
    assert woven(placed, ["u", "r1", "c", "r2"]) == ["u", "r1", "A", "c", "r2"]
    assert woven(placed, ["u", "r1", "c", "r2"], "B") == ["u", "r1", "A", "c", "r2", "B"]


def test_a_request_that_is_retried_is_the_same_again() -> None:
    placed = Placed()
    assert woven(placed, ["u", "r1"], "A") == woven(placed, ["u", "r1"])
    assert woven(placed, ["u", "r1"], "B") == ["u", "r1", "A/B"]


def test_what_the_history_lost_is_gone_for_good() -> None:
    placed = Placed()
    woven(placed, ["u", "r1"], "A")
    assert placed.all_gone(["summary"])
    assert woven(placed, ["summary"]) == ["summary"]
    assert not placed.all_gone(["summary"]), "it is told once"
    assert woven(placed, ["u", "r1"]) == ["u", "r1"]


def test_equal_items_are_told_apart_by_their_number() -> None:
    placed = Placed()
    woven(placed, ["ok"], "A")
    assert woven(placed, ["ok", "x", "ok"], "B") == ["ok", "A", "x", "ok", "B"]


def test_an_empty_input_takes_the_lines_alone() -> None:
    assert woven(Placed(), [], "A", "B") == ["A/B"]
    assert woven(Placed(), []) == []


def test_the_oldest_places_go_when_there_are_too_many() -> None:
    placed, items = Placed(), []
    for number in range(MAX_PLACES + 10):
        items.append(f"r{number}")
        woven(placed, items, f"L{number}")
    shown = woven(placed, items)
    assert len(placed) == MAX_PLACES
    assert "L9" not in shown
    assert "L10" in shown


def test_a_content_key_is_that_of_the_content() -> None:
    assert content_key("user", [{"b": 1, "a": 2}]) == content_key("user", [{"a": 2, "b": 1}])
    assert content_key("user", "a") != content_key("user", "b")
    assert content_key(object, "\ud800")


@given(st.lists(st.tuples(ITEMS, st.booleans()), max_size=8))
def test_over_a_growing_history_nothing_moves_and_nothing_is_lost(steps: list[tuple[list[str], bool]]) -> None:
    placed, items, before, shown = Placed(), list[str](), list[str](), list[str]()
    for number, (more, comes) in enumerate(steps):
        items += more
        new = [f"line {number}"] if comes else []
        shown += new
        now = woven(placed, items, *new)
        assert now[: len(before)] == before, "what the model saw is a beginning of what it sees"
        assert [item for item in now if not item.startswith("line ")] == items
        assert [item for item in now if item.startswith("line ")] == shown
        before = now
