"""Gemini CLI chats: session-*.jsonl, and the session-*.json of older versions.

The lines are a log of changes, not of messages: the first one tells of the session, a message that comes again under
its id replaces the earlier one, `{"$set": {"messages": [...]}}` brings many at once, `{"$rewindTo": id}` takes back
that one and all after it. So a file is read twice and anew each time it changed: first to learn which record of a
message counts, then to make passages of these. Unlike Gemini we keep what a `$set` leaves out (it does so when it
compresses the history), and messages of different types under one id apart, as it writes them on resuming; of a message
that a `$set` repeats the earlier record counts, since the repetition has neither its time nor what the user saw of it.

The project's directory is told by its hash only; which directory has that hash, files beside the chats tell
(`.project_root`, `projects.json`), else the context that Gemini wrote at the session's beginning.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct, field

from recalld_daemon.ingest.formats.json_literals import NO_RECORD, is_string, offset_in, sound
from recalld_daemon.ingest.formats.records import Found, Line, Progress, Said, is_complete, line_of, spoken, told
from recalld_daemon.ingest.frontmatter import parse_moment
from recalld_daemon.ingest.lines import Record, read_records
from recalld_daemon.worker_wire import FileProblem

NULL = Raw(b"null")
HEAD = 8192  # bytes in which a chat tells its session and its project
MOST = 32 * 1024 * 1024  # bytes of a chat of one JSON object, which is read whole
CONTEXT = 64 * 1024  # bytes of a record in which the opening context names its directories
MOST_BESIDE = 1024 * 1024  # bytes that are read of a file beside the chats

_CHAT = re.compile(rb'\{\s*"sessionId"\s*:\s*"[^"]{1,200}"\s*,\s*"projectHash"\s*:\s*"')
_NOT_SAID = re.compile(
    rb"(?:\s|\\n)*<(?:session_context|hook_context|state_snapshot|environment_context|untrusted_context)\b"
)
_FILES = (b'--- Content from referenced files ---"', b'--- Content from referenced context ---"')
_END_OF_FILES = b'--- End of content ---"'
_DIRECTORY = re.compile(rb"- (/[^\"\\\n]+)\\n")  # of the workspace, in the context that opens a session
_SPEAKERS = {"user": "user", "gemini": "assistant", "assistant": "assistant", "model": "assistant"}

Places = dict[tuple[str, str], int]  # (id, type) of a message -> byte where what counts of it begins


class _Message(Struct):
    id: str | None = None
    type: str | None = None
    timestamp: str | None = None
    content: Raw = NULL
    displayContent: Raw = NULL  # of a user's message: as it was typed, without what Gemini put in for `@file`


class _Set(Struct):
    messages: Raw = NULL


class _Record(Struct):
    id: str | None = None
    projectHash: str | None = None
    directories: list[str] | None = None
    kind: str | None = None
    messages: Raw = NULL
    set: _Set | None = field(default=None, name="$set")
    rewind: str | None = field(default=None, name="$rewindTo")


class _Part(Struct):
    text: Raw = NULL


_record = msgspec.json.Decoder(_Record, strict=False).decode
_message = msgspec.json.Decoder(_Message, strict=False).decode
_raws = msgspec.json.Decoder(list[Raw] | None).decode
_part = msgspec.json.Decoder(_Part).decode
_any = msgspec.json.Decoder(Raw).decode


def is_gemini(head: bytes) -> bool:
    """Whether a file that begins so is a chat of Gemini CLI, in lines or as one object."""
    return bool(_CHAT.match(head[:HEAD]))


def parse_chat(file: BinaryIO, progress: Progress) -> Found:
    """Passages of the messages that count, in the file's order."""
    counts, meta = _survey(file, progress)
    speech = partial(_said, meta.kind == "subagent")
    for record, line in _records(file):
        if line is None:
            yield told(record, f"{record.length} bytes in one record are too many: skipped")
            continue
        try:
            messages = list(_messages(line))
        except NO_RECORD as error:
            yield told(record, f"not a record: {error}: skipped")
            continue
        for key, message in messages:
            if counts.get(key) == message.start:
                try:
                    yield from spoken(message, speech, progress)
                except NO_RECORD as error:
                    yield FileProblem(line=0, text=f"message at byte {message.start}: {error}: skipped")


def _survey(file: BinaryIO, progress: Progress) -> tuple[Places, _Record]:
    """Where the last record of each message stands, and what the session's first record tells."""
    counts: Places = {}
    meta = _Record()
    for _, line in _records(file):
        if line is None:
            continue
        with suppress(*NO_RECORD):
            record = _record(line.whole)
            if meta.projectHash is None and record.projectHash:
                meta = record
            if not progress.project and meta.projectHash:
                progress.project = project_of_chat(file, meta.projectHash, meta.directories or [], line.whole)
            if record.rewind is not None:
                _rewind(counts, record.rewind)
            for key, message in _messages(line):
                if record.set is None or key not in counts:
                    counts[key] = message.start
    return counts, meta


def _records(file: BinaryIO) -> Iterator[tuple[Record, Line | None]]:
    """The records of a chat, None for one that is too long; one object on many lines is one record.

    A last one that is not whole is left out: the file will change.
    """
    first = next(read_records(file, 0), None)
    if first is not None and not is_complete(first.raw):
        yield _whole(file)
        return
    for record in read_records(file, 0):
        if record.raw.strip() and (record.ended or is_complete(record.raw)):
            yield record, line_of(record)
        elif not record.raw and record.length > 2:
            yield record, None


def _whole(file: BinaryIO) -> tuple[Record, Line | None]:
    file.seek(0)
    raw = file.read(MOST + 1)
    if len(raw) > MOST:
        return Record(0, b"", 1, file.seek(0, os.SEEK_END), True), None
    return Record(0, raw, 1, len(raw), True), Line(0, raw, sound(raw))


def _messages(line: Line) -> Iterator[tuple[tuple[str, str], Line]]:
    """The messages of a record, each as a line of its own, by id and type. Raises one of NO_RECORD."""
    record = _record(line.whole)
    held = record.set.messages if record.set is not None else record.messages
    wholes = _raws(held) or []
    if not wholes and record.id and not record.projectHash:
        wholes = [_any(line.whole)]
    for whole in wholes:
        message = _message(whole)
        if message.id and message.type:
            at = offset_in(line.whole, whole)
            end = at + len(memoryview(whole))
            yield (message.id, message.type), Line(line.start + at, line.raw[at:end], line.whole[at:end])


def _rewind(counts: Places, id: str) -> None:
    """Forget that message and all that came after it first; all where it is not known, as Gemini does."""
    keys = list(counts)
    first = next((n for n, (known, _) in enumerate(keys) if known == id), 0)
    for key in keys[first:]:
        del counts[key]


def _said(is_subagent: bool, line: Line) -> Said | None:
    message = _message(line.whole)
    speaker = _SPEAKERS.get(message.type or "")
    if speaker is None:
        return None
    moment = parse_moment(message.timestamp) if message.timestamp else None
    typed = message.displayContent if bytes(message.displayContent) not in (b"null", b"[]") else message.content
    return Said("assistant" if is_subagent else speaker, _texts(typed), moment)


def _texts(content: Raw) -> Iterator[Raw]:
    """A message's content is a string, or parts: strings, or objects of which some have a text."""
    literals = [content]
    if bytes(memoryview(content)[:1]) == b"[":
        literals = [_part(raw).text if bytes(memoryview(raw)[:1]) == b"{" else raw for raw in _raws(content) or []]
    in_files = False
    for literal in literals:
        head = bytes(memoryview(literal)[1:200])
        in_files = in_files or head.endswith(_FILES)
        if is_string(literal) and not in_files and not _NOT_SAID.match(head):
            yield literal
        in_files = in_files and not head.endswith(_END_OF_FILES)


def project_of_chat(file: BinaryIO, hashed: str, directories: Sequence[str], context: bytes) -> str:
    """The directory whose hash a chat tells; "" if none that is named beside it or in its opening context has it."""
    named = [*directories, *_named_beside(Path(os.fsdecode(file.name)))]
    named += [match[1].decode("utf-8", "replace") for match in _DIRECTORY.finditer(context[:CONTEXT])]
    return next((path for path in named if hashlib.sha256(path.encode()).hexdigest() == hashed), "")


def _named_beside(chat: Path) -> list[str]:
    """What `tmp/<project>/.project_root` and `projects.json`, beside `tmp`, name."""
    names: list[str] = []
    for above in list(chat.parents)[1:3]:  # a subagent's chat lies one directory deeper
        names += [line for line in _beside(above / ".project_root").splitlines()[:1] if line]
    for above in list(chat.parents)[3:5]:
        with suppress(ValueError, RecursionError, AttributeError):
            names += [str(path) for path in json.loads(_beside(above / "projects.json") or "{}").get("projects", {})]
    return names


def _beside(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BESIDE).decode("utf-8", "replace")
    except OSError:
        return ""
