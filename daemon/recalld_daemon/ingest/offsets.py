"""Bytes of a file to a passage's text and back: the one place that knows how each codec's bytes become characters.

A passage's text is `decode_span` of its bytes: decoded, with NULs, lone surrogates and invalid bytes each replaced by
one U+FFFD, and secrets masked character for character. So every character has a first byte, `byte_span` is exact for
any codec, and whoever reads the file again gets the very text that was stored, or sees that it has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.ingest.redact import redact

Starts = NDArray[np.int64]

REPLACEMENT = "\ufffd"
WINDOW = 4096  # bytes looked at per decoding error, so that many errors don't cost the square of the length
_UNFIT = re.compile("[\x00\ud800-\udfff]")  # NUL ends FTS5's text; SQLite and msgpack take no lone surrogates
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[\"\\/bfnrt]")
_SHORT = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def decode_span(raw: bytes, codec: str) -> str:
    """The text of a passage whose bytes are `raw`; never raises for any bytes, ValueError for an unknown codec."""
    return redact(plain_text(raw, codec))


def byte_span(raw: bytes, codec: str, start_char: int, end_char: int) -> tuple[int, int]:
    """Where the characters [start_char, end_char) of `decode_span(raw, codec)` lie within `raw`, half open.

    IndexError if there are not that many characters.
    """
    starts = char_starts(raw, codec)
    return int(starts[start_char]), int(starts[end_char])


def plain_text(raw: bytes, codec: str) -> str:
    """`decode_span` without redaction: what `char_starts` counts the characters of."""
    text = _decode(raw, codec)
    if codec == "json":
        text = _ESCAPE.sub(_unescape, text)
    return _UNFIT.sub(REPLACEMENT, text)


def char_starts(raw: bytes, codec: str) -> Starts:
    """(n + 1,) for n characters: the first byte of each within `raw`, and at last len(raw)."""
    if codec == "json":
        text = _decode(raw, "utf-8")
        kept = np.ones(len(text) + 1, dtype=np.bool_)
        for escape in _ESCAPE.finditer(text):
            kept[escape.start() + 1 : escape.end()] = False
        return _utf8_starts(raw)[kept]
    if codec == "utf-8":
        return _utf8_starts(raw)
    if codec in ("utf-16-le", "utf-16-be"):
        return _utf16_starts(raw, codec)
    if codec == "cp1252":
        return np.arange(len(raw) + 1, dtype=np.int64)
    raise ValueError(f"unknown codec {codec!r}")


def _decode(raw: bytes, codec: str) -> str:
    if codec in ("utf-8", "json"):
        return raw.decode("utf-8", "replace")
    if codec in ("utf-16-le", "utf-16-be"):
        whole = len(raw) & ~1
        return raw[:whole].decode(codec, "surrogatepass") + REPLACEMENT * (len(raw) - whole)
    if codec == "cp1252":
        return raw.decode("cp1252", "replace")
    raise ValueError(f"unknown codec {codec!r}")


def _unescape(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[1] != "u":
        return _SHORT[escape[1]]
    if len(escape) == 6:
        return chr(int(escape[2:], 16))
    high, low = int(escape[2:6], 16), int(escape[8:], 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _utf8_starts(raw: bytes) -> Starts:
    """A character starts at each byte that continues none; where bytes are invalid, as the decoder says."""
    units = np.frombuffer(raw, dtype=np.uint8)
    begins = np.append((units & 0xC0) != 0x80, True)
    if not _is_utf8(raw):
        for start, end in _invalid_utf8(raw):
            begins[start] = True
            begins[start + 1 : end] = False
    return np.flatnonzero(begins).astype(np.int64)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _invalid_utf8(raw: bytes) -> Iterator[tuple[int, int]]:
    """The spans of bytes for which the decoder puts one replacement character each."""
    at = 0
    while at < len(raw):
        window = raw[at : at + WINDOW]
        try:
            window.decode("utf-8")
        except UnicodeDecodeError as error:
            if error.start >= WINDOW - 3 and at + len(window) < len(raw):
                at += error.start  # perhaps only cut by the window
            else:
                yield at + error.start, at + error.end
                at += error.end
        else:
            at += len(window)


def _utf16_starts(raw: bytes, codec: str) -> Starts:
    whole = len(raw) & ~1
    order: Any = "<u2" if codec == "utf-16-le" else ">u2"
    units = np.frombuffer(raw[:whole], dtype=order)
    high, low = (units & 0xFC00) == 0xD800, (units & 0xFC00) == 0xDC00
    begins = np.ones(len(units), dtype=np.bool_)
    begins[1:] = ~(low[1:] & high[:-1])
    ends = [whole, len(raw)] if len(raw) != whole else [whole]
    return np.concatenate([np.flatnonzero(begins).astype(np.int64) * 2, np.asarray(ends, dtype=np.int64)])
