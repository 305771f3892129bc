"""A long JSON array read element by element: every one, where it lies, however the bytes come, whatever is broken."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recalld_daemon.ingest.formats import json_elements
from recalld_daemon.ingest.formats.json_elements import Element, Elements, Structure, element_keys
from recalld_daemon.ingest.formats.json_literals import pieces, sound
from recalld_daemon.ingest.offsets import plain_text
from recalld_daemon.worker_wire import FileProblem

OPENING = re.compile(rb'(?:[\[,}\]]\s{0,64}|\A\s{0,64})(?P<e>\{\s{0,64}"(?:title|id|map)"\s{0,16}:)')
TEXTS = st.text(st.sampled_from('ab"\\{}[],: \n\u00e9\U0001f9a2'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
CONVERSATIONS = st.lists(st.fixed_dictionaries({"title": TEXTS, "map": VALUES, "id": TEXTS}), max_size=6)


class _Conversation(msgspec.Struct, kw_only=True):
    map: Any


def decode(raw: bytes) -> Any:
    msgspec.json.decode(raw, type=_Conversation)
    return msgspec.json.decode(raw)


@contextmanager
def chunks_of(first: int, most: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_elements, "FIRST_CHUNK", first)
        patch.setattr(json_elements, "CHUNK", most)
        yield


def read(raw: bytes, most: int = json_elements.MOST) -> tuple[list[Element[Any]], list[FileProblem]]:
    found = list(Elements(io.BytesIO(raw), decode, OPENING, most=most).read())
    elements = [one for one in found if isinstance(one, Element)]
    for one in elements:
        assert raw[one.start : one.start + len(one.raw)] == one.raw
    return elements, [one for one in found if isinstance(one, FileProblem)]


def values(raw: bytes, most: int = json_elements.MOST) -> list[Any]:
    return [one.value for one in read(raw, most)[0]]


@given(CONVERSATIONS, st.booleans(), st.sampled_from([None, 1]), st.integers(1, 40), st.integers(1, 80))
def test_every_element_comes_with_its_bytes(
    told: list[Any], ascii_only: bool, indent: int | None, first: int, most: int
) -> None:
    raw = json.dumps(told, ensure_ascii=ascii_only, indent=indent).encode()
    with chunks_of(first, most):
        elements, problems = read(raw)
    assert ([one.value for one in elements], problems) == (told, [])


@given(CONVERSATIONS, st.lists(st.integers(0, 400), max_size=8))
def test_any_split_of_the_bytes_shows_the_same_brackets(told: list[Any], cuts: list[int]) -> None:
    raw = json.dumps(told).encode()
    whole = list(Structure().borders(raw))
    structure, seen = Structure(), []
    borders = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    for start, end in pairwise(borders):
        if start < end:
            seen += [(start + at, opens, depth) for at, opens, depth in structure.borders(raw[start:end])]
    assert seen == whole
    assert structure.depth == 0


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"x", b"\\").replace(b"y", b'"')))
def test_a_quote_counts_if_no_backslash_escapes_it(raw: bytes) -> None:
    real = [match.end() - 1 for match in re.finditer(rb'(?:[^"\\]|\\.)*"', raw, re.DOTALL)]
    assert Structure().quotes(np.frombuffer(raw, np.uint8)).tolist() == real


@settings(max_examples=200)
@given(
    st.lists(st.fixed_dictionaries({"title": TEXTS, "map": VALUES, "id": TEXTS}), min_size=3, max_size=6),
    st.data(),
)
def test_one_garbled_conversation_never_stops_the_rest(told: list[dict[str, Any]], data: st.DataObject) -> None:
    for n, one in enumerate(told):
        one["id"] = f"number {n}"
    parts = [json.dumps(one).encode() for one in told]
    n = data.draw(st.integers(0, len(parts) - 1))
    at = data.draw(st.integers(0, len(parts[n]) - 1))
    put = data.draw(st.sampled_from([b"", b'"', b"{", b"}", b"[", b"]", b"\\", b"\0", b"\xff", b"nul"]))
    end = at + data.draw(st.integers(0, 1))
    parts[n] = parts[n][:at] + put + parts[n][end:]
    found = values(b"[" + b", ".join(parts) + b"]")
    others = [one for one in told if one["id"] != f"number {n}"]
    assert [one for one in found if one in others] == others


@pytest.mark.parametrize("stray", [b'"', b"[", b"{", b"}", b"]", b'\\"', b'{"a": '])
def test_what_strays_before_a_conversation_costs_that_one_at_most(stray: bytes) -> None:
    told = [{"title": "{} [] }{", "map": n, "id": "]["} for n in range(5)]
    parts = [json.dumps(one).encode() for one in told]
    for n in range(5):
        found = values(b"[" + b", ".join((stray if n == at else b"") + part for at, part in enumerate(parts)) + b"]")
        assert [one for one in found if one in told and one != told[n]] == [one for one in told if one != told[n]]


def test_the_problem_names_the_byte() -> None:
    good = json.dumps({"title": "a", "map": {}}).encode()
    raw = b"[" + good + b', {"title": "b", "map": {"c": }, ' + good + b"]"
    elements, problems = read(raw)
    assert [one.start for one in elements] == [1, raw.rindex(good)]
    assert problems == [FileProblem(line=0, text=problems[0].text)]
    assert f"conversation at byte {len(good) + 3}: " in problems[0].text
    assert f"going on at byte {raw.rindex(good)}" in problems[0].text


@pytest.mark.parametrize(("cut", "whole"), [(1, 3), (2, 2), (20, 2), (25, 2), (28, 1), (50, 1)])
def test_a_file_that_is_cut_off_gives_what_is_whole(cut: int, whole: int) -> None:
    raw = json.dumps([{"title": "a", "map": 1}, {"title": "b", "map": 2}, {"title": "c", "map": 3}]).encode()
    found, problems = read(raw[:-cut])
    assert [one.value["map"] for one in found] == [1, 2, 3][:whole]
    assert len(problems) == 1
    assert "cut off" in problems[0].text


def test_what_is_too_long_is_skipped_and_told() -> None:
    told = [{"title": "a", "map": 1}, {"title": "b", "map": "x" * 5000}, {"title": "c", "map": 3}]
    raw = json.dumps(told).encode()
    with chunks_of(100, 300):
        found, problems = read(raw, most=1000)
    assert [one.value["title"] for one in found] == ["a", "c"]
    assert [one.text.split(":")[0] for one in problems] == [f"conversation at byte {raw.index(b'{', 3)}"]


def test_json_that_is_no_conversation_is_passed_over() -> None:
    found, problems = read(b'[{"title": "a"}, 7, "x{", null, [1, {}], {"map": 2}]')
    assert [one.value for one in found] == [{"map": 2}]
    assert len(problems) == 2


@pytest.mark.parametrize("raw", [b"", b" ", b"[]", b"\xef\xbb\xbf[ ]\n", b"null"])
def test_nothing_in_it(raw: bytes) -> None:
    assert read(raw) == ([], [])


@pytest.mark.parametrize("raw", [b'{"map": 1}', b'{"map": 1}\n{"map": 1}\n', b'\xef\xbb\xbf [{"map": 1}]'])
def test_an_object_alone_is_read_alike(raw: bytes) -> None:
    assert {one["map"] for one in values(raw)} == {1}


def test_endless_garbage_ends() -> None:
    raw = b"[" + b'{"title": {"title": [' * 20_000
    found, problems = read(raw)
    assert found == []
    assert len(problems) == 1


@given(CONVERSATIONS.filter(bool), st.sampled_from([None, 2]))
def test_keys_of_the_elements_and_no_others(told: list[Any], indent: int | None) -> None:
    raw = json.dumps(told, indent=indent, ensure_ascii=False).encode()
    assert element_keys(raw) == {b"title", b"map", b"id"}
    assert element_keys(b"\xef\xbb\xbf" + json.dumps(told[0]).encode()) == {b"title", b"map", b"id"}


@given(
    st.lists(
        st.sampled_from(["word ", "\\n", "\\\\", '\\"', "\\ud83e\\udda2", "\u00e9", "\U0001f9a2", "\\u00e9", "x"])
    ),
    st.integers(14, 40),
)
@example(["x"] * 30 + ["\\ud83e\\udda2"] * 30, 14)
def test_pieces_of_a_literal_cut_no_character_and_no_escape(tokens: list[str], most: int) -> None:
    raw = "".join(tokens).encode()
    spans = list(pieces(raw, most))
    assert b"".join(raw[a:b] for a, b in spans) == raw
    assert all(0 < b - a <= most for a, b in spans)
    assert "".join(plain_text(raw[a:b], "json") for a, b in spans) == plain_text(raw, "json")


@given(st.binary(max_size=80), st.lists(st.sampled_from([b"\\ud83e", b"\\udda2", b"\\ud83e\\udda2", b"\\\\", b"a"])))
def test_a_mended_copy_is_as_long(raw: bytes, escapes: list[bytes]) -> None:
    mended = sound(raw + b"".join(escapes))
    assert len(mended) == len(raw) + sum(map(len, escapes))
    mended.decode("utf-8")
