"""What of a Claude Code session the user took back: turns rewound, prompts edited and sent again.

A session is a tree: each record names its parent. Going back never deletes: the next prompt merely hangs on an older
record. Tools that run side by side fork the tree too, so a fork alone says nothing; but when a prompt hangs on a record
after which another prompt already stands in the file, all that came after that record was taken back, like text
edited away in a note. Going back to what was taken back restores it. A prompt without a parent takes nothing back
(after a compaction there are such), nor does one whose parent stands in another file.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct

from recalld_daemon.ingest.formats.json_literals import NO_RECORD, without_lone_surrogates
from recalld_daemon.ingest.formats.records import Withdrawn
from recalld_daemon.ingest.lines import RECORD, read_records

SEARCHED = 64 * 1024 * 1024  # bytes before the place where reading begins in which a parent is looked for
CONTENT_HEAD = 4096  # bytes of a message within which its first block tells its type

Spans = list[tuple[int, int]]


class _Record(Struct):
    type: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None
    isMeta: bool | None = None
    isSidechain: bool | None = None
    message: Raw = Raw(b"null")

    @property
    def speaks(self) -> bool:
        """Whether it stands in the user's name, and is no tool's result."""
        if self.type != "user" or self.isSidechain:
            return False
        return b'"tool_result"' not in bytes(memoryview(self.message)[:CONTENT_HEAD])


_record = msgspec.json.Decoder(_Record, strict=False).decode


def rewound(file: BinaryIO, cursor: int) -> Withdrawn:
    """What was taken back of the records from byte `cursor` on, and whether anything of those before it was."""
    ends: dict[int, int] = {}  # hash of a record's id -> where its line ends
    prompts: list[int] = []
    spans: Spans = []
    for line in read_records(file, cursor):
        record = _read(line.raw)
        if record is None:
            continue
        if record.speaks and record.parentUuid:
            back_to = ends.get(hash(record.parentUuid))
            if back_to is None and cursor:
                after = _after(file, record.parentUuid, cursor)
                if after and (after.prompts or (after.answers and prompts)):
                    return Withdrawn(tuple(spans), line.start)
                back_to = cursor if after else None
            if back_to is not None and bisect_left(prompts, back_to) < len(prompts):
                spans = [(start, end) for start, end in spans if end < back_to] + [(back_to, line.start)]
        if record.uuid:
            ends.setdefault(hash(record.uuid), line.start + line.length)
        if record.speaks and not record.isMeta:
            prompts.append(line.start)
    return Withdrawn(tuple(spans))


def _read(raw: bytes) -> _Record | None:
    try:
        return _record(without_lone_surrogates(raw)) if raw else None
    except NO_RECORD:
        return None


@dataclass(slots=True)
class _After:
    """What stands between a record and the place where reading begins."""

    prompts: int = 0
    answers: int = 0  # and calls of tools


def _after(file: BinaryIO, parent: str, cursor: int) -> _After | None:
    """What stands between the record `parent` and byte `cursor`; None: that record is not there."""
    with mmap.mmap(file.fileno(), cursor, access=mmap.ACCESS_READ) as text:
        start = max(0, cursor - SEARCHED)
        at = text.rfind(quoted := f'"{parent}"'.encode(), start)
        while at >= 0:
            end = text.find(b"\n", at)
            record = _read(text[text.rfind(b"\n", 0, at) + 1 : end if end >= 0 else cursor])
            if record is not None and record.uuid == parent:
                return _count(text, end) if end >= 0 else _After()
            at = text.rfind(quoted, start, at)
    return None


def _count(text: mmap.mmap, at: int) -> _After:
    """Of the lines after the newline at `at`."""
    found = _After()
    while at + 1 < len(text):
        end = text.find(b"\n", at + 1)
        end = len(text) if end < 0 else end
        record = _read(text[at + 1 : end]) if end - at < RECORD else None
        if record is not None and not record.isSidechain:
            found.prompts += record.speaks and not record.isMeta
            found.answers += record.type == "assistant"
        at = end
    return found
