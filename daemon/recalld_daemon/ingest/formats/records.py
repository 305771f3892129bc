"""Transcripts in JSON lines: what all hosts' have in common, so that a parser only says what of a record was spoken.

A record is one line. What a parser finds in it are JSON string literals (`Said`); here they become passages with exact
bytes of the file, whatever the line's faults: a torn last line is left for later, a line that is no record is counted,
one that is too long is read past. What the user took back (a rewound turn) is given as spans of the file and left out.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import msgspec
from msgspec import Raw

from recalld_daemon.ingest.formats.json_literals import NO_RECORD, inner_span, is_string, without_lone_surrogates
from recalld_daemon.ingest.formats.tally import Tally
from recalld_daemon.ingest.lines import Record, read_records
from recalld_daemon.ingest.passages import Stretch, passages
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

LEAST_WORDS = 3  # "ok", "go on", "thanks a lot" say nothing later
Found = Iterator[ParsedPassage | FileProblem]

_any = msgspec.json.Decoder(Raw).decode


@dataclass(slots=True)
class Progress:
    """What is known of a source so far. cursor: the first byte not yet understood for good. tally: what was counted."""

    cursor: int
    project: str = ""
    seen: set[int] = field(default_factory=set)  # hashes of records' ids: a file may repeat some
    tally: Tally = field(default_factory=Tally)

    def first_time(self, id: str | None) -> bool:
        """Whether a record of this id comes for the first time; of one without an id: always."""
        if not id:
            return True
        known = hash(id) in self.seen
        self.seen.add(hash(id))
        return not known


@dataclass(frozen=True, slots=True)
class Line:
    """One record. start: byte of the file. raw: as it stands there. whole: as long, and fit for a JSON decoder."""

    start: int
    raw: bytes
    whole: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """What one record says. texts: string literals that msgspec cut out of `Line.whole` without copying."""

    speaker: str
    texts: Iterable[Raw]
    written_at: float | None = None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What the user took back. spans: bytes of the file, half open, in order, not overlapping. reach: where the first
    record stands that takes back something from before the place the reading begins at; None: none does."""

    spans: tuple[tuple[int, int], ...] = ()
    reach: int | None = None

    def __contains__(self, start: int) -> bool:
        """Whether the record that begins there was taken back."""
        at = bisect_right(self.spans, (start, sys.maxsize)) - 1
        return at >= 0 and start < self.spans[at][1]


NOTHING = Withdrawn()
Speech = Callable[[Line], Said | None]


def parse_records(file: BinaryIO, progress: Progress, speech: Speech, withdrawn: Withdrawn = NOTHING) -> Found:
    """Passages of the records from `progress.cursor` on; moves the cursor past each line that is complete.

    `speech` may raise any of NO_RECORD for what is none of its records. At `withdrawn.reach` reading ends: whoever
    reads on finds that it must begin anew (see `kinds.Kind.withdrawn`).
    """
    first = progress.cursor
    for record in read_records(file, first):
        if not record.ended and not is_complete(record.raw):
            break
        if withdrawn.reach is not None and record.start >= withdrawn.reach:
            break
        problem = ""
        if not record.raw and record.length > 2:
            problem = f"a record of {record.length} bytes is too long: skipped"
        elif record.raw.strip() and record.start not in withdrawn:
            try:
                yield from spoken(line_of(record), speech, progress)
            except NO_RECORD as error:
                problem = f"not a record: {error}: skipped"
        if problem:
            yield told(record, problem, from_start=first == 0)
        progress.cursor = record.start + record.length


def line_of(record: Record) -> Line:
    return Line(record.start, record.raw, without_lone_surrogates(record.raw))


def spoken(line: Line, speech: Speech, progress: Progress) -> Iterator[ParsedPassage]:
    """The passages of one record. Raises one of NO_RECORD."""
    said = speech(line)
    if said is None:
        return
    texts = [text for text in said.texts if is_string(text)]
    if not texts:
        return
    line.raw.decode("utf-8")
    progress.tally.message(said.speaker, said.written_at)
    for text in texts:
        yield from literal_passages(line, text, said)


def literal_passages(line: Line, text: Raw, said: Said) -> Iterator[ParsedPassage]:
    """The passages of one string literal of a record."""
    start, end = inner_span(line.whole, text)
    yield from passages(
        Stretch(
            line.start + start,
            line.raw[start:end],
            "json",
            speaker=said.speaker,
            written_at=said.written_at,
            host=True,
            least_words=LEAST_WORDS,
        )
    )


def told(record: Record, problem: str, *, from_start: bool = True) -> FileProblem:
    """A problem with its line; where lines were not counted from the file's start, with its byte."""
    if from_start:
        return FileProblem(line=record.number, text=problem)
    return FileProblem(line=0, text=f"line at byte {record.start}: {problem}")


def is_complete(raw: bytes) -> bool:
    """Whether a last line without newline is a whole record: nothing that may follow could change its meaning."""
    if not raw.endswith(b"}"):
        return False
    try:
        raw.decode("utf-8")
        _any(without_lone_surrogates(raw))
    except NO_RECORD:
        return False
    return True
