"""Letta's agent files (`.af`): the memory blocks of the agents, and what they and their users said.

Two shapes exist: `{agents: [{messages}], blocks}`, and the older one in which the file is one agent with `core_memory`.
Left out are system prompts, tool returns, thoughts, and events that Letta writes in the user's name (logins, alerts,
heartbeats), which are JSON inside the message. A user's message may be wrapped so too, and the assistant's answer may
be the argument of a call of `send_message`: then the words inside are read, and the text beside the call, which is a
monologue, is not. An agent file is read as a whole: it is bounded by MOST.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from recalld_daemon.ingest.formats.conversations import ASSISTANT, USER, Said, earliest, moment, passages_of
from recalld_daemon.ingest.formats.json_elements import element_keys
from recalld_daemon.ingest.formats.json_literals import NO_RECORD, is_string, sound, title_of
from recalld_daemon.ingest.formats.records import Progress
from recalld_daemon.ingest.formats.tally import Tally
from recalld_daemon.ingest.offsets import char_starts, plain_text
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

MOST = 64 * 1024 * 1024  # bytes of a file; the largest published ones have 1 MB

_NULL = Raw(b"null")
_ROLES = {"user": USER, "assistant": ASSISTANT}
_EVENT = re.compile(r'\s*\{\s*"type"\s*:\s*"(?P<type>\w+)"')
_WRAPPED = re.compile(r'"message"\s*:\s*"(?P<words>(?:[^"\\]|\\.)*)"', re.DOTALL)


class _File(Struct, kw_only=True):
    agents: Raw = _NULL
    blocks: Raw = _NULL
    created_at: Any = None
    name: Raw = _NULL  # this and the following: the older shape
    core_memory: Raw = _NULL
    messages: Raw = _NULL


class _Agent(Struct):
    name: Raw = _NULL
    messages: Raw = _NULL
    memory_blocks: Raw = _NULL


class _Block(Struct):
    label: Raw = _NULL
    value: Raw = _NULL
    updated_at: Any = None


class _Message(Struct):
    role: Any = None
    content: Raw = _NULL
    tool_calls: Raw = _NULL
    created_at: Any = None


class _Text(Struct):
    type: Any = None
    text: Raw = _NULL


class _Function(Struct):
    name: Any = None
    arguments: Raw = _NULL


class _Call(Struct):
    function: _Function | None = None


_file = msgspec.json.Decoder(_File).decode
_list = msgspec.json.Decoder(list[Raw]).decode
_agent = msgspec.json.Decoder(_Agent).decode
_block = msgspec.json.Decoder(_Block).decode
_message = msgspec.json.Decoder(_Message).decode
_text = msgspec.json.Decoder(_Text).decode
_call = msgspec.json.Decoder(_Call).decode


def is_letta(head: bytes) -> bool:
    """Whether a file that begins so is an agent file."""
    return head.startswith(b"{") and not element_keys(head).isdisjoint({b"agents", b"blocks", b"core_memory"})


def parse_letta(file: BinaryIO, progress: Progress) -> Iterator[ParsedPassage | FileProblem]:
    """Passages of the blocks, each under its label, and of the messages, under their agent's name."""
    file.seek(0)
    raw = file.read(MOST + 1)
    if len(raw) > MOST:
        yield FileProblem(line=0, text=f"an agent file of more than {MOST >> 20} MB: nothing of it is read")
        return
    whole = sound(raw)
    try:
        found = list(_said(_file(whole), progress.tally))
    except NO_RECORD as error:
        yield FileProblem(line=0, text=f"not an agent file: {error}: nothing of it is read; export the agent again")
        return
    yield from passages_of(0, raw, whole, found)


def _said(file: _File, tally: Tally) -> Iterator[Said | FileProblem]:
    written = moment(file.created_at)
    garbled = 0
    for raw in [*_objects(file.blocks), *_objects(file.core_memory)]:
        yield from _block_text(_block(raw), written)
    agents = [_agent(raw) for raw in _objects(file.agents)]
    if _is_list(file.messages):
        agents.append(_Agent(file.name, file.messages))
    for agent in agents:
        tally.conversations += 1
        for raw in _objects(agent.memory_blocks):
            yield from _block_text(_block(raw), written)
        for raw in _objects(agent.messages):
            try:
                yield from _spoken(_message(raw), title_of(agent.name), written, tally)
            except NO_RECORD:
                garbled += 1
    if garbled:
        yield FileProblem(line=0, text=f"{garbled} messages are garbled: left out")


def _block_text(block: _Block, written: float | None) -> Iterator[Said]:
    if is_string(block.value):
        yield Said(block.value, title_of(block.label), "", earliest(moment(block.updated_at), written), least_words=1)


def _spoken(message: _Message, heading: str, written: float | None, tally: Tally) -> Iterator[Said]:
    speaker = _ROLES.get(message.role) if isinstance(message.role, str) else None
    if speaker is None:
        return
    literals = _sent(message) if speaker == ASSISTANT else []
    wrapped = bool(literals)
    written_at = earliest(moment(message.created_at), written)
    told = False
    for literal in literals or _texts(message.content):
        within = _words(literal, wrapped)
        if within is not None:
            told = True
            yield Said(literal, heading, speaker, written_at, within=within, host=True)
    if told:
        tally.message(speaker, written_at)


def _sent(message: _Message) -> list[Raw]:
    """The arguments of calls of `send_message`, each a JSON object in a string."""
    calls = [_call(raw).function for raw in _objects(message.tool_calls)]
    return [call.arguments for call in calls if call and call.name == "send_message" and is_string(call.arguments)]


def _texts(content: Raw) -> list[Raw]:
    if is_string(content):
        return [content]
    texts = [_text(raw) for raw in _objects(content)]
    return [one.text for one in texts if one.type == "text" and is_string(one.text)]


def _words(literal: Raw, wrapped: bool) -> tuple[int, int] | None:
    """Which bytes between a literal's quotes are words that were said; None: none. wrapped: it is JSON in any case."""
    raw = bytes(memoryview(literal)[1:-1])
    text = plain_text(raw, "json")
    event = _EVENT.match(text)
    if not wrapped and not event:
        return 0, len(raw)
    if event and event["type"] != "user_message":
        return None
    match = _WRAPPED.search(text)
    if not match:
        return None
    starts = char_starts(raw, "json")
    return int(starts[match.start("words")]), int(starts[match.end("words")])


def _is_list(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"["


def _objects(raw: Raw) -> list[Raw]:
    """The objects of a list; none of what is no list."""
    if not _is_list(raw):
        return []
    return [one for one in _list(raw) if bytes(memoryview(one)[:1]) == b"{"]
