"""Where a snippet stands in its file now: read again at answer time, because files change behind an index.

If the passage's bytes still decode to its text, the snippet's offsets are exact. If not, the passage is looked for in
the neighbourhood of its old place, then the snippet's own words there, then both in the file's first SEARCH_LIMIT.
What is not found was edited away, and is never shown. Nothing here raises for a missing, unreadable or strange file.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

from recalld_daemon.ingest.offsets import byte_span, decode_span, plain_text
from recalld_daemon.ingest.redact import MASK
from recalld_daemon.recall.types import Passage
from recalld_daemon.store import opencode

NEAR_BYTES = 64 * 1024  # before and after the old place; most edits move text by less
SEARCH_LIMIT = 4 * 1024 * 1024  # bytes of a changed file that are searched: some 20 ms
LEAST_OWN = 24  # characters of a snippet that is looked for without its passage; a shorter one could be anyone's
MEMORY_PREFIX = "memory:"
IN_DATABASE = f"{opencode.KIND}:"  # how the codec of a passage begins that stands in a database


@dataclass(frozen=True, slots=True)
class Located:
    """start, end: bytes of the file on disk now, half open. moved: the passage is no longer where it was indexed."""

    start: int
    end: int
    moved: bool = False


def locate(passage: Passage, start_char: int, end_char: int) -> Located | None:
    """The bytes of the passage's characters [start_char, end_char) in its file as it is now; None: it is gone.

    A memory has no file: its offsets are those of its own UTF-8 text.
    """
    if passage.path.startswith(MEMORY_PREFIX):
        start = passage.start + len(passage.text[:start_char].encode())
        return Located(start, start + len(passage.text[start_char:end_char].encode()))
    try:
        if passage.codec.startswith(IN_DATABASE):
            return _in_database(passage, start_char, end_char)
        return _in_file(passage, start_char, end_char)
    except (OSError, ValueError, IndexError):
        return None


def _in_file(passage: Passage, start_char: int, end_char: int) -> Located | None:
    fd = os.open(passage.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not block a recall
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return None
        raw = os.pread(fd, passage.end - passage.start, passage.start)
        if decode_span(raw, passage.codec) == passage.text:
            start, end = byte_span(raw, passage.codec, start_char, end_char)
            return Located(passage.start + start, passage.start + end)
        return _moved(fd, info.st_size, passage, start_char, end_char)
    finally:
        os.close(fd)


def _in_database(passage: Passage, start_char: int, end_char: int) -> Located | None:
    """In the part that its codec names, at its place or elsewhere in that part. Offsets are the session's."""
    _, part, base = passage.codec.split(":")
    text = opencode.part_text(os.path.dirname(passage.path), part)
    if text is None:
        return None
    raw, at = opencode.as_bytes(text), passage.start - int(base)
    moved = decode_span(raw[at : passage.end - int(base)], "utf-8") != passage.text
    if moved:
        found = _nearest(plain_text(raw, "utf-8"), passage.text, at)
        if found < 0:
            return None
        at = byte_span(raw, "utf-8", 0, found)[1]
    start, end = byte_span(raw[at:], "utf-8", start_char, end_char)
    return Located(int(base) + at + start, int(base) + at + end, moved)


def _moved(fd: int, size: int, passage: Passage, start_char: int, end_char: int) -> Located | None:
    snippet = passage.text[start_char:end_char]
    near = _even(max(0, passage.start - NEAR_BYTES))
    windows = [(near, passage.end + NEAR_BYTES - near)]
    if near > 0 or size > windows[0][1]:
        windows.append((0, SEARCH_LIMIT))
    for at, length in windows:
        raw = os.pread(fd, min(length, SEARCH_LIMIT), at)
        text = plain_text(raw, passage.codec)
        for wanted, offset in ((passage.text, start_char), (snippet, 0)):
            if wanted is snippet and len(snippet) < LEAST_OWN:
                continue
            found = _nearest(text, wanted, passage.start - at)
            if found >= 0:
                start, end = byte_span(raw, passage.codec, found + offset, found + offset + len(snippet))
                return Located(at + start, at + end, moved=True)
    return None


def _nearest(text: str, wanted: str, around: int) -> int:
    """Where `wanted` begins in `text`, of several places the one nearest to `around`; -1: nowhere.

    A masked character of `wanted` stands for any: the file holds the secret that was there.
    """
    pattern = re.compile("".join("." if letter == MASK else re.escape(letter) for letter in wanted), re.DOTALL)
    places = (match.start() for match in pattern.finditer(text))
    return min(places, key=lambda place: abs(place - around), default=-1)


def _even(offset: int) -> int:
    return offset & ~1  # UTF-16 counts in pairs
