"""What an open-strix agent keeps beside its notes: the conversation, its journal, its memory blocks.

Logs are appended to, and now and then cut to their end (`tail > tmp && mv`): that is another file, read anew, in which
what is still there keeps its passages. The log of events is a machine's and not read; what was said stands in the chat
history as well. A block is YAML; what counts of it is the value of `text`, as it stands in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct

from recalld_daemon.ingest.formats.records import Found, Line, Progress, Said, parse_records
from recalld_daemon.ingest.frontmatter import parse_moment
from recalld_daemon.ingest.passages import Stretch, passages
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

NULL = Raw(b"null")
MOST_BYTES = 1024 * 1024  # of a block; they stand in every prompt, and are short

_FIRST = re.compile(rb"\{[^\n]*")
_CHAT = (b'"message_id"', b'"is_bot"', b'"channel_id"')
_JOURNAL = (b'"user_wanted"', b'"agent_did"')
_KEY = re.compile(rb"^(\w+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_BLOCK_STYLE = re.compile(rb"[|>][-+0-9]*")


class _Message(Struct):
    type: str | None = None
    timestamp: str | None = None
    message_id: str | None = None
    author: str | None = None
    is_bot: bool | None = None
    content: Raw = NULL


class _Entry(Struct):
    timestamp: str | None = None
    user_wanted: Raw = NULL
    agent_did: Raw = NULL
    predictions: Raw = NULL


_message = msgspec.json.Decoder(_Message, strict=False).decode
_entry = msgspec.json.Decoder(_Entry, strict=False).decode


def is_chat(head: bytes) -> bool:
    """Whether a file that begins so is a chat history; its first line may be a reaction."""
    return any(all(mark in line for mark in _CHAT) for line in head.splitlines()[:20] if line.startswith(b"{"))


def is_journal(head: bytes) -> bool:
    first = _FIRST.match(head)
    return first is not None and all(mark in first[0] for mark in _JOURNAL)


def is_block(head: bytes) -> bool:
    keys = {match[1] for match in _KEY.finditer(head)}
    return {b"name", b"text", b"sort_order"} <= keys


def parse_chat(file: BinaryIO, progress: Progress) -> Found:
    """Messages by who wrote them; the agent's own as the assistant's."""
    return parse_records(file, progress, partial(_spoken, progress))


def _spoken(progress: Progress, line: Line) -> Said | None:
    message = _message(line.whole)
    if message.type != "message" or not progress.first_time(message.message_id):
        return None
    speaker = "assistant" if message.is_bot else (message.author or "user").removesuffix("#0")
    return Said(speaker, (message.content,), _moment(message.timestamp))


def parse_journal(file: BinaryIO, progress: Progress) -> Found:
    """What the agent noted of each turn: what was wanted, what it did, what it expects."""
    return parse_records(file, progress, _noted)


def _noted(line: Line) -> Said | None:
    entry = _entry(line.whole)
    return Said("assistant", (entry.user_wanted, entry.agent_did, entry.predictions), _moment(entry.timestamp))


def parse_block(file: BinaryIO, progress: Progress) -> Iterator[ParsedPassage | FileProblem]:
    """The text of a memory block under its name."""
    raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        yield FileProblem(line=0, text=f"a block of more than {MOST_BYTES} bytes: only its beginning is read")
        raw = raw[:MOST_BYTES]
    keys = list(_KEY.finditer(raw))
    name = next((key[2].decode("utf-8", "replace").strip("\"'") for key in keys if key[1] == b"name"), "")
    for n, key in enumerate(keys):
        if key[1] != b"text":
            continue
        end = keys[n + 1].start() if n + 1 < len(keys) else len(raw)
        start = key.end() if _BLOCK_STYLE.fullmatch(key[2]) else key.start(2)
        yield from passages(Stretch(start, raw[start:end], "utf-8", heading=name))
        return


def _moment(timestamp: str | None) -> float | None:
    return parse_moment(timestamp) if timestamp else None
