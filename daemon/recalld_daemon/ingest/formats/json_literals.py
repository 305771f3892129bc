"""JSON string literals inside a file's bytes: which are strings, where they lie, how a long one is cut.

msgspec cuts a `Raw` out of what it decodes without copying, so the literal's place in the file is its address. For
that, what msgspec refuses (halves of surrogate pairs, invalid bytes) is replaced in a copy that is as long as the
original; passages are then made of the original's bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import msgspec
import numpy as np
from msgspec import Raw

from recalld_daemon.ingest.offsets import plain_text

NO_RECORD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # the last: nested a thousand levels deep
PIECE = 256 * 1024  # bytes of a literal made into passages at a time: what is pasted into a chat may be a whole log
HEADING = 200  # characters of a title

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
_ONE_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
_LONGEST_ESCAPE = 12  # bytes: a surrogate pair
_SAME_LENGTH = "recalld-same-length"


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "?" * (error.end - error.start), error.end


codecs.register_error(_SAME_LENGTH, _question_marks)


def sound(raw: bytes) -> bytes:
    """As many bytes, which a JSON decoder takes as far as characters go: halves of surrogate pairs are escaped U+FFFD,
    invalid bytes question marks."""
    if not is_utf8(raw):
        raw = raw.decode("utf-8", _SAME_LENGTH).encode()
    return without_lone_surrogates(raw)


def without_lone_surrogates(raw: bytes) -> bytes:
    if not _SURROGATE.search(raw):
        return raw
    return _ESCAPE.sub(lambda match: match[0] if match["pair"] or not match["lone"] else b"\\ufffd", raw)


def is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def offset_in(whole: bytes, part: Raw) -> int:
    """Where `part`, which msgspec cut out of `whole` without copying, begins in it."""
    outer, inner = np.frombuffer(whole, np.uint8), np.frombuffer(memoryview(part), np.uint8)
    return int(inner.__array_interface__["data"][0] - outer.__array_interface__["data"][0])


def is_string(part: Raw) -> bool:
    return bytes(memoryview(part)[:1]) == b'"'


def inner_span(whole: bytes, literal: Raw) -> tuple[int, int]:
    """What lies between the quotes of a string literal, as bytes of `whole`, half open."""
    at = offset_in(whole, literal) + 1
    return at, at + len(memoryview(literal)) - 2


def title_of(literal: Raw) -> str:
    """A literal as a heading: one line, HEADING characters at most; "" for what is no string."""
    if not is_string(literal):
        return ""
    return " ".join(plain_text(bytes(memoryview(literal)[1:-1]), "json").split())[:HEADING]


def pieces(raw: bytes, most: int = PIECE) -> Iterator[tuple[int, int]]:
    """What is between a literal's quotes in spans of at most `most` bytes, cut after a line or a word, never in an
    escape."""
    at = 0
    while len(raw) - at > most:
        end = _border(raw, at, at + most)
        yield at, end
        at = end
    if at < len(raw):
        yield at, len(raw)


def beginning(raw: bytes, most: int) -> bytes:
    """The first `most` bytes of what is between a literal's quotes, cut as `pieces` cuts."""
    return raw if len(raw) <= most else raw[: _border(raw, 0, most)]


def _border(raw: bytes, start: int, end: int) -> int:
    line = raw.rfind(b"\\n", (start + end) // 2, end)
    if line > 0 and not _escaped(raw, line):
        return line + 2
    space = raw.rfind(b" ", (start + end) // 2, end)
    return space + 1 if space > 0 else _whole(raw, start, end)


def _escaped(raw: bytes, at: int) -> bool:
    """Whether the backslash at `at` is itself escaped."""
    first = at
    while first > 0 and raw[first - 1 : first] == b"\\":
        first -= 1
    return (at - first) % 2 == 1


def _whole(raw: bytes, start: int, end: int) -> int:
    """The last border of a character or an escape that is not after `end`."""
    back = max(start + 1, end - _LONGEST_ESCAPE)
    while back > start + 1 and (raw[back - 1 : back] == b"\\" or raw[back] & 0xC0 == 0x80):
        back -= 1
    for slash in range(back, end):
        if raw[slash : slash + 1] == b"\\" and not _escaped(raw, slash):
            match = _ONE_ESCAPE.match(raw, slash)
            if match and match.end() > end:
                return slash
    while end > start + 1 and raw[end] & 0xC0 == 0x80:
        end -= 1
    return end
