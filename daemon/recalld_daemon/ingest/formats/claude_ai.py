"""Claude.ai's export (`conversations.json`): what the human and the assistant said, and the texts that were attached.

A message's `text` says once more what the text blocks of its `content` say, with notices in place of what could not be
shown; the blocks are read, `text` only where there are none. An attachment's extracted text stands under its file's
name and is nobody's words. Thinking, tool calls and their results are left out. The same export's `projects.json` and
`users.json` hold no conversations and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from recalld_daemon.ingest.formats.conversations import (
    ASSISTANT,
    USER,
    Said,
    earliest,
    moment,
    opening_of,
    read_conversations,
)
from recalld_daemon.ingest.formats.json_elements import element_keys
from recalld_daemon.ingest.formats.json_literals import NO_RECORD, is_string, title_of
from recalld_daemon.ingest.formats.records import Progress
from recalld_daemon.ingest.formats.tally import Tally
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

ATTACHMENT = 1024 * 1024  # bytes of an attached text that are read: some 300 pages

_NULL = Raw(b"null")
_SPEAKERS = {"human": USER, "user": USER, "assistant": ASSISTANT}
_OPENING = opening_of("uuid", "name", "summary", "created_at", "updated_at", "account", "chat_messages", "project")


class _Conversation(Struct, kw_only=True):
    chat_messages: list[Raw] | None
    name: Raw = _NULL
    created_at: Any = None


class _Message(Struct):
    sender: Any = None
    text: Raw = _NULL
    content: Raw = _NULL
    attachments: Raw = _NULL
    created_at: Any = None


class _Block(Struct):
    type: Any = None
    text: Raw = _NULL


class _Attachment(Struct):
    file_name: Raw = _NULL
    extracted_content: Raw = _NULL


_decode = msgspec.json.Decoder(_Conversation).decode
_message = msgspec.json.Decoder(_Message).decode
_list = msgspec.json.Decoder(list[Raw]).decode
_block = msgspec.json.Decoder(_Block).decode
_attachment = msgspec.json.Decoder(_Attachment).decode


def is_claude_ai(head: bytes) -> bool:
    """Whether a file that begins so is an export of Claude.ai, in whatever order its keys come."""
    return b'"chat_messages"' in head and b"chat_messages" in element_keys(head)


def parse_claude_ai(file: BinaryIO, progress: Progress) -> Iterator[ParsedPassage | FileProblem]:
    """Passages of all conversations, each under its name."""
    return read_conversations(file, _decode, _OPENING, lambda conversation: _said(conversation, progress.tally))


def _said(conversation: _Conversation, tally: Tally) -> Iterator[Said | FileProblem]:
    tally.conversations += 1
    heading, begun = title_of(conversation.name), moment(conversation.created_at)
    garbled = 0
    for raw in conversation.chat_messages or ():
        try:
            message = _message(raw)
        except NO_RECORD:
            garbled += 1
            continue
        speaker = _SPEAKERS.get(message.sender) if isinstance(message.sender, str) else None
        if speaker is None:
            continue
        written_at = earliest(moment(message.created_at), begun)
        tally.message(speaker, written_at)
        for literal in _words(message):
            yield Said(literal, heading, speaker, written_at)
        yield from _attached(message, heading, written_at)
    if garbled:
        yield FileProblem(line=0, text=f"{garbled} messages are garbled: left out")


def _words(message: _Message) -> list[Raw]:
    """The literals of the text blocks; where there are none, `text`."""
    blocks = [_block(raw) for raw in _objects(message.content)]
    words = [block.text for block in blocks if block.type == "text" and _says(block.text)]
    return words or ([message.text] if _says(message.text) else [])


def _attached(message: _Message, heading: str, written_at: float | None) -> Iterator[Said | FileProblem]:
    for raw in _objects(message.attachments):
        attachment = _attachment(raw)
        if not _says(attachment.extracted_content):
            continue
        name = title_of(attachment.file_name)
        length = len(memoryview(attachment.extracted_content)) - 2
        if length > ATTACHMENT:
            text = f"attachment {name or 'without a name'}: the first {ATTACHMENT} of its {length} bytes are read"
            yield FileProblem(line=0, text=text)
        above = " > ".join(part for part in (heading, name) if part)
        yield Said(attachment.extracted_content, above, "", written_at, most=ATTACHMENT)


def _objects(raw: Raw) -> list[Raw]:
    """The objects of a list; none of what is no list."""
    try:
        return [one for one in _list(raw) if bytes(memoryview(one)[:1]) == b"{"]
    except NO_RECORD:
        return []


def _says(literal: Raw) -> bool:
    return is_string(literal) and len(memoryview(literal)) > 2
