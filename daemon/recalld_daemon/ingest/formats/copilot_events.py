"""Copilot CLI sessions (session-state/<id>/events.jsonl): what the user typed and what the assistant wrote.

Of some hundred types of events two are read, and of these one field each: `hook.*`, tools' results and
`transformedContent` hold what we injected, or what the host wrapped around it. A subagent's events stand in the same
file under its `agentId`. What the user rewinds Copilot itself cuts off the file.
"""

from __future__ import annotations

import re
from functools import partial
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct

from recalld_daemon.ingest.formats.records import Found, Line, Progress, Said, parse_records
from recalld_daemon.ingest.frontmatter import parse_moment

NULL = Raw(b"null")
HEAD = 8192  # bytes in which a session's first event shows its frame

_EVENT = re.compile(rb'\{\s*"type"\s*:\s*"session\.(?:start|resume)"\s*,\s*"data"\s*:\s*\{')
_SPOKEN = {"user.message": "user", "assistant.message": "assistant"}


class _Event(Struct):
    type: str | None = None
    id: str | None = None
    timestamp: str | None = None
    agentId: str | None = None
    data: Raw = NULL


class _Message(Struct):
    content: Raw = NULL
    source: str | None = None
    isAutopilotContinuation: bool | None = None


class _Place(Struct):
    cwd: str | None = None


class _Start(Struct):
    context: _Place | None = None


_event = msgspec.json.Decoder(_Event, strict=False).decode
_message = msgspec.json.Decoder(_Message, strict=False).decode
_start = msgspec.json.Decoder(_Start, strict=False).decode


def is_copilot(head: bytes) -> bool:
    """Whether a file that begins so is a session of Copilot CLI."""
    return bool(_EVENT.match(head[:HEAD]))


def parse_events(file: BinaryIO, progress: Progress) -> Found:
    """Passages of the events from `progress.cursor` on; moves the cursor past each line that is complete."""
    return parse_records(file, progress, partial(_said, progress))


def _said(progress: Progress, line: Line) -> Said | None:
    event = _event(line.whole)
    if event.type in ("session.start", "session.resume") and not progress.project:
        place = _start(event.data).context
        progress.project = (place.cwd if place else "") or ""
    speaker = _SPOKEN.get(event.type or "")
    if speaker is None or not progress.first_time(event.id):
        return None
    message = _message(event.data)
    if speaker == "user" and (message.isAutopilotContinuation or message.source not in (None, "user")):
        return None
    moment = parse_moment(event.timestamp) if event.timestamp else None
    return Said("assistant" if event.agentId else speaker, (message.content,), moment)
