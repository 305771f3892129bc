"""The elements of one long JSON array, one at a time with the bytes where each lies, in bounded memory.

Exports of chats are one array of hundreds of megabytes on one line. No library gives byte offsets of a stream (ijson
has none), so the structure is found here: per chunk the quotes, backslashes and brackets as arrays of positions, what
is inside strings by the parity of the quotes before it, depth by a running sum. No Python runs per character.

What is garbled costs itself only. An element that does not end, is too long or is no JSON is left, and reading goes on
at the next place that looks like an element (`opening`) and decodes as one. A file that is no array but one object, or
objects one after the other, is read alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Generic, TypeVar

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from recalld_daemon.ingest.formats.json_literals import NO_RECORD
from recalld_daemon.worker_wire import FileProblem

T = TypeVar("T")

MOST = 32 * 1024 * 1024  # bytes of an element; a person's longest chat has some 5 MB
CHUNK = 1024 * 1024  # bytes read at a time; the first ones after a seek are smaller
FIRST_CHUNK = 64 * 1024
BEGINS_WITHIN = 4096  # bytes before the array: a byte order mark and whitespace
PATIENCE = 16  # times the file's size that are read, at most, to find where a garbled file goes on
OPENING_BYTES = 256  # the longest match of an `opening`

_QUOTE, _SLASH = ord('"'), ord("\\")
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1
_any = msgspec.json.Decoder(Raw).decode


@dataclass(frozen=True, slots=True)
class Element(Generic[T]):
    """start: byte of the file where `raw` begins."""

    start: int
    raw: bytes
    value: T


@dataclass(frozen=True, slots=True)
class _Span:
    """raw: empty if `fault` says why there is none."""

    start: int
    raw: bytes
    fault: str = ""


class Elements(Generic[T]):
    """decode: an element's bytes to what they mean; raises one of NO_RECORD for what is none. opening: how an element
    begins, from the comma or bracket before it, with the element's own bytes in group `e`; OPENING_BYTES at most.
    noun: what an element is called in problems.
    """

    def __init__(
        self,
        file: BinaryIO,
        decode: Callable[[bytes], T],
        opening: re.Pattern[bytes],
        *,
        noun: str = "conversation",
        most: int = MOST,
    ) -> None:
        self._file = file
        self._decode = decode
        self._opening = opening
        self._noun = noun
        self._most = most
        self._size = file.seek(0, 2)
        self._patience = PATIENCE * (self._size + most)

    def read(self) -> Iterator[Element[T] | FileProblem]:
        """Every element, and a problem, with its byte, for each that is none."""
        at, is_array = array_start(self._file)
        while True:
            known = at  # up to here all is read; what is no element does not count, a stray quote may have made it
            broken: _Span | None = None
            for span in self._spans(at, is_array):
                if span.fault:
                    broken = span
                    break
                try:
                    yield Element(span.start, span.raw, self._decode(span.raw))
                    known = span.start + len(span.raw)
                except NO_RECORD as error:
                    if not _is_object(span.raw):
                        broken = _Span(span.start, b"", f"{error}")
                        break
                    yield FileProblem(line=0, text=f"{self._noun} at byte {span.start}: {error}: skipped")
            if broken is None:
                return
            following = self._next(known)
            yield self._problem(broken, following)
            if following is None:
                return
            at = following

    def _problem(self, broken: _Span, next_start: int | None) -> FileProblem:
        if next_start is not None:
            then = f"skipped, going on at byte {next_start}"
        elif self._patience > 0:
            then = "skipped to the end of the file"
        else:
            then = "too much of this file is garbled, the rest is not read; export it again"
        return FileProblem(line=0, text=f"{self._noun} at byte {broken.start}: {broken.fault}: {then}")

    def _next(self, after: int) -> int | None:
        """Where the next whole element begins that is not before `after`; None: there is none, or patience is over."""
        at = after
        while at < self._size and self._patience > 0:
            self._file.seek(at)
            chunk = self._file.read(CHUNK)
            self._patience -= len(chunk)
            for found in self._opening.finditer(chunk):
                start = at + found.start("e")
                if start >= after and self._is_element(start):
                    return start
            at += max(1, len(chunk) - OPENING_BYTES)
            if len(chunk) < CHUNK:
                return None
        return None

    def _is_element(self, start: int) -> bool:
        if self._patience <= 0:
            return False
        span = next(self._spans(start), None)
        if span is None or span.start != start or span.fault:
            return False
        try:
            self._decode(span.raw)
        except NO_RECORD:
            return False
        return True

    def _spans(self, at: int, is_array: bool = False) -> Iterator[_Span]:
        """The brackets' view of the elements from `at` on, where depth is 1; ends after the first with a fault.
        is_array: a bracket that closes it must come before the file's end."""
        structure = Structure(depth=1)
        known = at
        start = -1
        parts: list[bytes] = []
        length = 0
        for place, chunk in self._chunks(at):
            from_here = 0
            for position, opens, depth in structure.borders(chunk):
                if depth < 1:
                    if self._ends(place + position + 1):
                        return
                    yield _Span(place + position, b"", "the array ends before the file does")
                    return
                if opens:
                    start, from_here = place + position, position
                elif start >= 0:
                    parts.append(chunk[from_here : position + 1])
                    raw, parts, length = b"".join(parts), [], 0
                    yield _Span(start, raw) if len(raw) <= self._most else self._too_long(start)
                    start, known = -1, place + position + 1
            if start >= 0:
                parts.append(chunk[from_here:])
                length += len(parts[-1])
                if length > self._most:
                    yield self._too_long(start)
                    return
        if start >= 0:
            yield _Span(start, b"", "it is cut off or garbled")
        elif is_array or not structure.at_rest:
            yield _Span(known, b"", "the file is cut off or garbled")

    def _too_long(self, start: int) -> _Span:
        return _Span(start, b"", f"it is longer than {self._most >> 20} MB, or garbled")

    def _chunks(self, at: int) -> Iterator[tuple[int, bytes]]:
        size = FIRST_CHUNK
        while True:
            self._file.seek(at)
            chunk = self._file.read(size)
            if not chunk:
                return
            self._patience -= len(chunk)
            yield at, chunk
            at += len(chunk)
            size = min(CHUNK, 2 * size)

    def _ends(self, at: int) -> bool:
        """Whether nothing but whitespace follows."""
        self._file.seek(at)
        return not self._file.read(CHUNK).strip()


class Structure:
    """Where brackets stand outside strings, chunk after chunk of one text that begins outside strings."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self._inside = 0  # 1: the chunk before ended inside a string
        self._escapes = False  # the chunk before ended with a backslash that escapes what follows

    @property
    def at_rest(self) -> bool:
        """Whether nothing is open."""
        return self.depth == 1 and not self._inside

    def borders(self, chunk: bytes, level: int = 1) -> Iterator[tuple[int, bool, int]]:
        """(position, whether it opens, depth after it) of the brackets that open what lies at depth `level`, close it,
        or end what holds it."""
        units = np.frombuffer(chunk, dtype=np.uint8)
        places, steps, depths = self.brackets(units, self.quotes(units))
        told = ((steps > 0) & (depths == level + 1)) | ((steps < 0) & (depths <= level))
        for i in np.flatnonzero(told):
            yield int(places[i]), bool(steps[i] > 0), int(depths[i])

    def quotes(self, units: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Positions of the quotes that begin or end a string."""
        quotes = np.flatnonzero(units == _QUOTE)
        slashes = np.flatnonzero(units == _SLASH)
        first_escaped, self._escapes = self._escapes, False
        if not len(slashes):
            return quotes[1:] if first_escaped and len(quotes) and quotes[0] == 0 else quotes
        begins = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)  # of each run of backslashes
        ends = np.append(begins[1:], len(slashes)) - 1
        lengths = ends - begins + 1
        escaped = np.zeros(len(units) + 1, dtype=np.bool_)
        if first_escaped:
            if slashes[0] == 0:
                lengths[0] -= 1
            else:
                escaped[0] = True
        escaped[slashes[ends[lengths % 2 == 1]] + 1] = True
        self._escapes = bool(escaped[-1])
        real: NDArray[np.int64] = quotes[~escaped[quotes]]
        return real

    def brackets(
        self, units: NDArray[np.uint8], quotes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64]]:
        """Of the brackets outside strings: positions, +1 or -1, depth after each."""
        steps = _STEPS[units]
        places = np.flatnonzero(steps)
        outside = (np.searchsorted(quotes, places) + self._inside) % 2 == 0
        places = places[outside]
        steps = steps[places]
        depths = self.depth + np.cumsum(steps, dtype=np.int64)
        self._inside = (self._inside + len(quotes)) % 2
        if len(depths):
            self.depth = int(depths[-1])
        return places, steps, depths


def array_start(file: BinaryIO) -> tuple[int, bool]:
    """The byte after the bracket that opens the array; where there is no array, the first element's, and False."""
    file.seek(0)
    head = file.read(BEGINS_WITHIN)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    skipped = len(head) - len(text)
    is_array = text.startswith(b"[")
    return skipped + is_array, is_array


def element_keys(head: bytes) -> set[bytes]:
    """The keys, as they are written, of the elements of an array (or of the objects that stand for one) whose first
    bytes are `head`; of them, those that begin in it."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head.startswith((b"[", b"{")):
        return set()
    units = np.frombuffer(head, dtype=np.uint8)
    structure = Structure(depth=0 if head.startswith(b"[") else 1)
    quotes = structure.quotes(units)
    places, _, depths = structure.brackets(units, quotes)
    opens, ends = quotes[0 : len(quotes) // 2 * 2 : 2], quotes[1::2]
    before = np.searchsorted(places, opens) - 1  # the last bracket before each string
    at_level = np.flatnonzero((before >= 0) & (depths[before] == 2))
    return {head[opens[i] + 1 : ends[i]] for i in at_level if head[ends[i] + 1 : ends[i] + 9].lstrip().startswith(b":")}


def _is_object(raw: bytes) -> bool:
    """Whether it is whole, and holds no elements itself, as an array does that a stray bracket opened."""
    if not raw.startswith(b"{"):
        return False
    try:
        _any(raw)
    except NO_RECORD:
        return False
    return True
