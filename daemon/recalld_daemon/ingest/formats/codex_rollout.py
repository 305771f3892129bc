"""Codex sessions (rollout-*.jsonl): the messages of user and assistant, and nothing else of them.

Each message stands in it twice, as `response_item` and as `event_msg`: only the former is read. In the user's name
Codex also writes what no user said (AGENTS.md, the environment, notifications); newer versions name each part's kind,
older ones are known by how such a part begins. A forked session's file begins where the fork begins, but a
subagent's copies its parent's history first and says how far: that part is the parent's. Older versions did not say:
there what the file begins with is compared with its parent's file, if that is still there. The file's own
`session_meta`, its first line, names the directory; further ones are copies. Rollbacks take turns back.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct, field

from recalld_daemon.ingest.formats.json_literals import NO_RECORD, without_lone_surrogates
from recalld_daemon.ingest.formats.records import Found, Line, Progress, Said, Withdrawn, line_of, parse_records
from recalld_daemon.ingest.frontmatter import parse_moment
from recalld_daemon.ingest.lines import read_records

NULL = Raw(b"null")
HEAD = 400  # bytes in which a rollout's first line names its type: the payload, which is long, comes last

PLACES = ("sessions", "archived_sessions")  # below Codex' home

_UUID = re.compile(r"[0-9a-fA-F-]{4,64}")
_ROLLOUT = re.compile(rb'\{[^{}]{0,200}"type"\s*:\s*"session_meta"\s*,\s*"payload"\s*:')
_NOT_SAID = re.compile(  # beginnings of parts that Codex writes in the user's name, as JSON escapes them
    rb"(?:\s|\\n)*(?:# AGENTS\.md instructions\b|<(?:environment_context|user_instructions|turn_aborted|skill"
    rb"|subagent_notification|user_shell_command|permissions|collaboration_mode|model_switch|hook_context"
    rb"|codex_internal_context)\b)",
    re.IGNORECASE,
)


class _Line(Struct):
    timestamp: str | None = None
    ordinal: int | None = None
    type: str | None = None
    payload: Raw = NULL


class _Meta(Struct):
    cwd: str | None = None
    source: Raw = NULL
    forked_from_id: str | None = None
    subagent_history_start_ordinal: int | None = None
    history_base: Raw = NULL  # a fork that copies nothing tells where its parent's history ends


class _Marks(Struct):
    content_item_kinds: list[str | None] | None = None


class _Item(Struct):
    id: str | None = None
    type: str | None = None
    role: str | None = None
    content: Raw = NULL
    marks: _Marks | None = field(default=None, name="internal_chat_message_metadata_passthrough")


class _Part(Struct):
    type: str | None = None
    text: Raw = NULL


class _Event(Struct):
    type: str | None = None
    num_turns: int = 0


_line = msgspec.json.Decoder(_Line, strict=False).decode
_meta = msgspec.json.Decoder(_Meta, strict=False).decode
_item = msgspec.json.Decoder(_Item, strict=False).decode
_parts = msgspec.json.Decoder(list[_Part]).decode
_event = msgspec.json.Decoder(_Event, strict=False).decode


def is_codex(head: bytes) -> bool:
    """Whether a file that begins so is a session of Codex."""
    return bool(_ROLLOUT.match(head[:HEAD]))


def parse_rollout(file: BinaryIO, progress: Progress) -> Found:
    """Passages of the records from `progress.cursor` on; moves the cursor past each line that is complete."""
    meta = _own_meta(file)
    progress.project = progress.project or meta.cwd or ""
    copied = _history(file, meta) if progress.cursor == 0 else deque[int]()
    return parse_records(file, progress, partial(_said, meta, copied, progress), rolled_back(file, progress.cursor))


def rolled_back(file: BinaryIO, cursor: int) -> Withdrawn:
    """What was taken back of the records from byte `cursor` on, and whether anything of those before it was."""
    turns: list[int] = []
    spans: list[tuple[int, int]] = []
    for record in read_records(file, cursor):
        turned, back = _turning(line_of(record).whole)
        if turned:
            turns.append(record.start)
        if back > len(turns) and cursor:
            return Withdrawn(tuple(spans), record.start)
        if back and turns:
            start = turns[-back] if back <= len(turns) else turns[0]
            del turns[-back:]
            spans = [span for span in spans if span[1] <= start] + [(start, record.start)]
    return Withdrawn(tuple(spans))


def _turning(whole: bytes) -> tuple[bool, int]:
    """Whether a record is a user's turn, and how many turns it takes back."""
    if b'"thread_rolled_back"' not in whole and b'"role"' not in whole:
        return False, 0
    try:
        line = _line(whole)
        if line.type == "event_msg":
            event = _event(line.payload)
            return False, max(0, event.num_turns) if event.type == "thread_rolled_back" else 0
        if line.type == "response_item":
            item = _item(line.payload)
            return item.role == "user" and any(True for _ in _texts(item)), 0
    except NO_RECORD:
        pass
    return False, 0


def _own_meta(file: BinaryIO) -> _Meta:
    """The first record's payload: also when reading goes on after it."""
    first = next(read_records(file, 0), None)
    try:
        line = _line(without_lone_surrogates(first.raw)) if first else _Line()
        return _meta(line.payload) if line.type == "session_meta" else _Meta()
    except NO_RECORD:
        return _Meta()


def _history(file: BinaryIO, meta: _Meta) -> deque[int]:
    """Marks of the messages of the parent's file, in order, of a fork by an older version; else none."""
    says_how_far = meta.subagent_history_start_ordinal is not None or bytes(meta.history_base) != b"null"
    marks: deque[int] = deque()
    if not meta.forked_from_id or says_how_far or not _UUID.fullmatch(meta.forked_from_id):
        return marks
    with suppress(OSError, StopIteration), next(_rollouts(file, meta.forked_from_id)).open("rb") as parent:
        for record in read_records(parent, 0):
            with suppress(*NO_RECORD):
                line = _line(line_of(record).whole)
                item = _item(line.payload) if line.type == "response_item" else _Item()
                if mark := _mark(item):
                    marks.append(mark)
    return marks


def _rollouts(file: BinaryIO, id: str) -> Iterator[Path]:
    """Files of that session: where Codex keeps them, if this one lies there, else beside it."""
    here = Path(os.fsdecode(file.name)).absolute()
    home = next((place.parent for place in here.parents if place.name in PLACES), None)
    pattern = f"rollout-*-{id}.jsonl"
    return chain.from_iterable((home / name).rglob(pattern) for name in PLACES) if home else here.parent.glob(pattern)


def _mark(item: _Item) -> int:
    """What tells a message from others without its id; 0: it says nothing."""
    texts = b"".join(bytes(text) for text in _texts(item)) if item.role in ("user", "assistant") else b""
    return hash((item.role, texts)) if texts else 0


def _said(meta: _Meta, copied: deque[int], progress: Progress, line: Line) -> Said | None:
    record = _line(line.whole)
    if record.type != "response_item" or _is_copy(meta, record):
        return None
    item = _item(record.payload)
    if item.type != "message" or item.role not in ("user", "assistant") or not progress.first_time(item.id):
        return None
    if copied:
        if _mark(item) == copied.popleft():
            return None
        copied.clear()
    is_user = item.role == "user" and b'"subagent"' not in bytes(meta.source)
    moment = parse_moment(record.timestamp) if record.timestamp else None
    return Said("user" if is_user else "assistant", _texts(item), moment)


def _is_copy(meta: _Meta, record: _Line) -> bool:
    """Whether it is of the history that a subagent's file copies."""
    start = meta.subagent_history_start_ordinal
    return start is not None and record.ordinal is not None and record.ordinal < start


def _texts(item: _Item) -> Iterator[Raw]:
    """The parts of a message that were said."""
    if bytes(memoryview(item.content)[:1]) != b"[":
        return
    parts = _parts(item.content)
    kinds = (item.marks.content_item_kinds if item.marks else None) or []
    for part, kind in zip(parts, kinds if len(kinds) == len(parts) else [None] * len(parts), strict=True):
        if part.type not in ("input_text", "output_text"):
            continue
        if item.role == "user" and kind not in (None, "unknown", "user.text"):
            continue
        if not _NOT_SAID.match(bytes(memoryview(part.text)[1:200])):
            yield part.text
