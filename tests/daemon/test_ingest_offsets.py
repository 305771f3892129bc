"""Characters of a passage against bytes of its file, for every codec and any bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.ingest.offsets import byte_span, char_starts, decode_span, plain_text

CODECS = ("utf-8", "utf-16-le", "utf-16-be", "cp1252", "json")
any_text = st.text(st.characters(codec="utf-8"), max_size=60)
json_bytes = st.one_of(
    any_text.map(lambda t: json.dumps(t, ensure_ascii=True)[1:-1].encode()),
    any_text.map(lambda t: json.dumps(t, ensure_ascii=False)[1:-1].encode()),
    st.lists(st.sampled_from(["\\ud83d", "\\ude00", "\\u0000", "\\n", "\\\\", "u0041", "é", "😀", '\\"', "\\/"])).map(
        lambda parts: "".join(parts).encode()
    ),
)


def check(raw: bytes, codec: str, start: int, end: int) -> None:
    text = plain_text(raw, codec)
    start, end = sorted((start % (len(text) + 1), end % (len(text) + 1)))
    first, last = byte_span(raw, codec, start, end)
    assert plain_text(raw[first:last], codec) == text[start:end]


@given(st.binary(max_size=80), st.sampled_from(CODECS), st.integers(0, 99), st.integers(0, 99))
def test_any_bytes_of_any_codec(raw: bytes, codec: str, start: int, end: int) -> None:
    check(raw, codec, start, end)
    assert len(char_starts(raw, codec)) == len(plain_text(raw, codec)) + 1


@given(json_bytes, st.integers(0, 99), st.integers(0, 99))
def test_any_json_string(raw: bytes, start: int, end: int) -> None:
    check(raw, "json", start, end)


@given(any_text, st.sampled_from(["utf-8", "utf-16-le", "utf-16-be"]), st.integers(0, 99), st.integers(0, 99))
def test_any_text(text: str, codec: str, start: int, end: int) -> None:
    check(text.encode(codec), codec, start, end)


@given(any_text, st.booleans())
def test_a_json_strings_inside_is_unescaped_as_json_does(text: str, ascii_only: bool) -> None:
    raw = json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode()
    assert plain_text(raw, "json") == text.replace("\0", "\ufffd")


def test_many_invalid_bytes_across_windows() -> None:
    raw = ("x😀é".encode() * 700 + b"\xff\xf0\x9f") * 9
    check(raw, "utf-8", 4000, 17000)
    check(raw, "utf-8", 1, 2**20)


@pytest.mark.parametrize(
    ("raw", "codec", "text"),
    [
        (b"a\0b", "utf-8", "a\ufffdb"),
        (b"a\\u0000b", "json", "a\ufffdb"),
        (b"a\\ud83db", "json", "a\ufffdb"),
        (b"\\ud83d\\ude00!", "json", "😀!"),
        (b"a\xf0\x9f\x98", "utf-8", "a\ufffd"),
        (b"a\x93b\x94", "cp1252", "a“b”"),
        (b"\x3d\xd8A\0", "utf-16-le", "\ufffdA"),
        (b"A\0B", "utf-16-le", "A\ufffd"),
    ],
)
def test_p031_what_cannot_be_stored_becomes_one_replacement_each(raw: bytes, codec: str, text: str) -> None:
    assert decode_span(raw, codec) == text


def test_secrets_are_masked_and_offsets_unmoved() -> None:
    raw = 'the key is ghp_0123456789abcdefghijABCDEFGHIJ012345, or was\\n"é"'.encode()
    text = decode_span(raw, "json")
    assert "ghp_" not in text
    assert len(text) == len(plain_text(raw, "json"))
    at = text.index("é")
    assert raw[slice(*byte_span(raw, "json", at, at + 1))] == "é".encode()


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(ValueError, match="klingon"):
        decode_span(b"", "klingon")
    with pytest.raises(ValueError, match="klingon"):
        byte_span(b"", "klingon", 0, 0)
