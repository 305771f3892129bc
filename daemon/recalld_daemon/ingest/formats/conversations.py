"""What the exports of chat services have in common: one array of conversations, each read for what was said in it.

A service's own module says how a conversation is decoded and which string literals of it hold words; here they become
passages whose bytes lie inside those literals (codec "json"). A conversation is in memory while it is read, no more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from msgspec import Raw

from recalld_daemon.ingest.formats.json_elements import Elements
from recalld_daemon.ingest.formats.json_literals import beginning, inner_span, is_string, pieces, sound
from recalld_daemon.ingest.formats.records import LEAST_WORDS
from recalld_daemon.ingest.frontmatter import parse_moment
from recalld_daemon.ingest.offsets import REPLACEMENT
from recalld_daemon.ingest.passages import Stretch, passages
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

T = TypeVar("T")

USER, ASSISTANT = "user", "assistant"
LATEST = 4e9  # epoch seconds, 2096; a number above is milliseconds


@dataclass(frozen=True, slots=True)
class Said:
    """A string literal that holds words. most: bytes of it that are read. within: bytes between its quotes, half open,
    that are the words; None: all. host: hosts' wrappers are holes."""

    literal: Raw
    heading: str
    speaker: str
    written_at: float | None
    most: int | None = None
    within: tuple[int, int] | None = None
    least_words: int = LEAST_WORDS
    host: bool = False


def opening_of(*keys: str) -> re.Pattern[bytes]:
    """How a conversation begins whose first key is one of these; see `Elements`."""
    names = "|".join(re.escape(key) for key in keys).encode()
    return re.compile(rb'(?:[\[,}\]]\s{0,64}|\A\s{0,64})(?P<e>\{\s{0,64}"(?:' + names + rb')"\s{0,16}:)')


def read_conversations(
    file: BinaryIO,
    decode: Callable[[bytes], T],
    opening: re.Pattern[bytes],
    said: Callable[[T], Iterable[Said | FileProblem]],
) -> Iterator[ParsedPassage | FileProblem]:
    """Passages of an export, in the order of the file. decode: the bytes of one conversation, mended where msgspec
    would refuse them, to what `said` understands."""

    def mended(raw: bytes) -> tuple[bytes, T]:
        whole = sound(raw)
        return whole, decode(whole)

    for element in Elements(file, mended, opening).read():
        if isinstance(element, FileProblem):
            yield element
            continue
        if bad := _invalid(element.raw, element.value[0]):
            yield FileProblem(line=0, text=f"conversation at byte {element.start}: {bad} invalid bytes replaced")
        whole, conversation = element.value
        yield from passages_of(element.start, element.raw, whole, said(conversation))


def passages_of(
    start: int, raw: bytes, whole: bytes, said: Iterable[Said | FileProblem]
) -> Iterator[ParsedPassage | FileProblem]:
    """What was said, in the order of the file, after the problems. start: byte of the file where `raw` begins; whole:
    as many bytes, of which the literals were cut."""
    found: list[tuple[int, int, Said]] = []
    for item in said:
        if isinstance(item, FileProblem):
            where = f"conversation at byte {start}: " if start else ""
            yield FileProblem(line=0, text=where + item.text)
        elif is_string(item.literal):
            first, last = inner_span(whole, item.literal)
            if item.within is not None:
                first, last = first + item.within[0], first + item.within[1]
            found.append((first, last, item))
    found.sort(key=lambda one: one[0])  # a tree's path may be written in any order
    for first, last, item in found:
        yield from _spoken(start + first, raw[first:last], item)


def _spoken(start: int, raw: bytes, item: Said) -> Iterator[ParsedPassage]:
    """The passages of words that begin at byte `start` of the file."""
    for first, last in pieces(raw if item.most is None else beginning(raw, item.most)):
        yield from passages(
            Stretch(
                start + first, raw[first:last], "json", item.heading, item.speaker, item.written_at,
                host=item.host, least_words=item.least_words,
            )
        )  # fmt: skip


def moment(value: object) -> float | None:
    """Epoch seconds of what an export gives as a time: a number (seconds, else milliseconds) or an ISO string."""
    if isinstance(value, str):
        return parse_moment(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LATEST * 1000:
        return None
    return float(value) if value < LATEST else value / 1000


def earliest(*moments: float | None) -> float | None:
    """The first of them that is told."""
    return next((one for one in moments if one is not None and math.isfinite(one)), None)


def _invalid(raw: bytes, whole: bytes) -> int:
    """How many invalid bytes were replaced in `whole`."""
    if raw == whole:
        return 0
    return raw.decode("utf-8", "replace").count(REPLACEMENT) - raw.count(REPLACEMENT.encode())
