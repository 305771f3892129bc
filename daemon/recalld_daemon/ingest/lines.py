"""Lines of a file with their offsets, in bounded memory however long a line is.

A text's line longer than PIECE comes in pieces, cut at the last space (else at a character's border). A record's line
(JSONL) is whole or not at all: one longer than RECORD is read past and reported by its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

PIECE = 64 * 1024  # bytes; Markdown with 24 KB lines exists
RECORD = 4 * 1024 * 1024  # bytes; what a person or a model says in one message stays far below
SKIP = 1024 * 1024  # bytes read at a time of a line that is skipped


@dataclass(frozen=True, slots=True)
class Line:
    """raw: the bytes with their newline. number: from 1. continues: the line began in the piece before."""

    start: int
    raw: bytes
    number: int
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """raw: the bytes without newline; empty if the line was too long. ended: a newline followed."""

    start: int
    raw: bytes
    number: int
    length: int
    ended: bool


def read_lines(file: BinaryIO, codec: str, start: int) -> Iterator[Line]:
    """The lines of a text from byte `start` on."""
    file.seek(start)
    number, continues = 1, False
    while raw := _utf16_line(file, codec) if codec.startswith("utf-16") else file.readline(PIECE):
        ended = _ends_line(raw, codec)
        if not ended and len(raw) >= PIECE:
            raw = raw[: _border(raw, codec)]
            file.seek(start + len(raw))
        yield Line(start, raw, number, continues)
        start += len(raw)
        continues = not ended
        number += ended


def read_records(file: BinaryIO, start: int) -> Iterator[Record]:
    """The lines of a JSONL file from byte `start` on; their numbers count from there."""
    file.seek(start)
    number = 0
    while raw := file.readline(RECORD):
        number += 1
        length = len(raw)
        ended = raw.endswith(b"\n")
        if not ended and length >= RECORD:
            raw = b""
            while more := file.readline(SKIP):
                length += len(more)
                if ended := more.endswith(b"\n"):
                    break
        yield Record(start, raw.rstrip(b"\r\n"), number, length, ended)
        start += length


def _utf16_line(file: BinaryIO, codec: str) -> bytes:
    """As readline, for units of two bytes: a byte 0x0A ends a line only as the unit 0x000A."""
    raw = bytearray()
    while len(raw) < PIECE and (part := file.readline(PIECE - len(raw))):
        raw += part
        if len(raw) % 2:
            raw += file.read(1)
        if _ends_line(raw, codec):
            break
    return bytes(raw)


def _ends_line(raw: bytes | bytearray, codec: str) -> bool:
    if codec == "utf-16-le":
        return len(raw) % 2 == 0 and raw.endswith(b"\n\0")
    if codec == "utf-16-be":
        return len(raw) % 2 == 0 and raw.endswith(b"\0\n")
    return raw.endswith(b"\n")


def _border(raw: bytes, codec: str) -> int:
    """Where a piece of a long line may end: after its last space, else before its last, perhaps cut, character."""
    if codec.startswith("utf-16"):
        high = 1 if codec == "utf-16-le" else 0
        return len(raw) - 2 if raw[-2 + high] & 0xFC == 0xD8 else len(raw)
    space = raw.rfind(b" ")
    if space > len(raw) // 2:
        return space + 1
    if codec == "utf-8":
        for back in range(1, 4):
            if raw[-back] >= 0xC0:
                return len(raw) - back
    return len(raw)
