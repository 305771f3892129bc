"""ChatGPT's export (`conversations.json`): what the user and the assistant said on the path that was seen last.

A conversation is a tree: each edit and each further answer is a branch. Read is the path from `current_node` up to
the root. Where that is missing, the path that ends in the message written last; where no time is told, the longest,
of equally long ones the last in the file. Left out: system and tool messages, calls of tools (another recipient than
"all"), thoughts, custom instructions, and what ChatGPT marks as hidden.
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

_NULL = Raw(b"null")
_SPOKEN = (None, "text", "multimodal_text")  # content types; the others are tools', thoughts and instructions
_SPOKEN_PARTS = (None, "text", "audio_transcription")
_OPENING = opening_of(
    "title", "id", "conversation_id", "create_time", "update_time", "current_node", "mapping", "moderation_results",
    "async_status", "atlas_mode_enabled", "blocked_urls", "conversation_origin", "conversation_template_id",
    "default_model_slug", "disabled_tool_ids", "gizmo_id", "gizmo_type", "is_archived", "is_starred", "memory_scope",
    "plugin_ids", "safe_urls", "voice", "workspace_id",
)  # fmt: skip


class _Conversation(Struct, kw_only=True):
    mapping: dict[str, Raw] | None
    title: Raw = _NULL
    create_time: Any = None
    current_node: Any = None


class _Node(Struct):
    parent: Any = None
    message: Raw = _NULL


class _Author(Struct):
    role: Any = None


class _Metadata(Struct):
    is_visually_hidden_from_conversation: Any = None
    is_user_system_message: Any = None


class _Content(Struct):
    content_type: Any = None
    parts: list[Raw] | None = None


class _Message(Struct):
    author: _Author | None = None
    create_time: Any = None
    content: _Content | None = None
    metadata: _Metadata | None = None
    recipient: Any = None
    channel: Any = None


class _Part(Struct):
    content_type: Any = None
    text: Raw = _NULL


_decode = msgspec.json.Decoder(_Conversation).decode
_node = msgspec.json.Decoder(_Node).decode
_message = msgspec.json.Decoder(_Message | None).decode
_part = msgspec.json.Decoder(_Part).decode


def is_chatgpt(head: bytes) -> bool:
    """Whether a file that begins so is an export of ChatGPT, in whatever order its keys come."""
    if b'"mapping"' not in head:
        return False
    keys = element_keys(head)
    return b"mapping" in keys and not keys.isdisjoint({b"title", b"current_node", b"create_time", b"conversation_id"})


def parse_chatgpt(file: BinaryIO, progress: Progress) -> Iterator[ParsedPassage | FileProblem]:
    """Passages of all conversations, each under its title."""
    return read_conversations(file, _decode, _OPENING, lambda conversation: _said(conversation, progress.tally))


def _said(conversation: _Conversation, tally: Tally) -> Iterator[Said | FileProblem]:
    tally.conversations += 1
    nodes, garbled = _nodes(conversation.mapping or {})
    heading, begun = title_of(conversation.title), moment(conversation.create_time)
    for id in reversed(_path(nodes, conversation.current_node)):
        try:
            message = _message(nodes[id].message)
        except NO_RECORD:
            garbled += 1
            continue
        literals = list(_literals(message)) if message is not None and _is_shown(message) else []
        if message is None or message.author is None or not literals:
            continue
        written_at = earliest(moment(message.create_time), begun)
        speaker = USER if message.author.role == "user" else ASSISTANT
        tally.message(speaker, written_at)
        for literal in literals:
            yield Said(literal, heading, speaker, written_at)
    if garbled:
        yield FileProblem(line=0, text=f"{garbled} messages are garbled: left out")


def _nodes(mapping: dict[str, Raw]) -> tuple[dict[str, _Node], int]:
    """The nodes by id, and how many were none."""
    nodes: dict[str, _Node] = {}
    for id, raw in mapping.items():
        try:
            nodes[id] = _node(raw)
        except NO_RECORD:
            continue
    return nodes, len(mapping) - len(nodes)


def _path(nodes: dict[str, _Node], current: object) -> list[str]:
    """Ids from the last message that was seen up to the root; a circle is gone round once."""
    at = current if isinstance(current, str) and current in nodes else _last_leaf(nodes)
    path: dict[str, None] = {}
    while isinstance(at, str) and at in nodes and at not in path:
        path[at] = None
        at = nodes[at].parent
    return list(path)


def _last_leaf(nodes: dict[str, _Node]) -> str | None:
    """The leaf written last; of those without a time the deepest, of equals the last in the file."""
    parents = {node.parent for node in nodes.values() if isinstance(node.parent, str)}
    leaves = [id for id in nodes if id not in parents] or list(nodes)[-1:]
    depths: dict[str, int] = {}
    ranked = ((_time_of(nodes[id]) or 0.0, _depth(nodes, id, depths), order, id) for order, id in enumerate(leaves))
    return max(ranked, default=(0.0, 0, 0, None))[3]


def _depth(nodes: dict[str, _Node], id: str, known: dict[str, int]) -> int:
    """How many nodes lie above and at `id`; remembered in `known`, so that all leaves together cost one walk."""
    above: dict[str, None] = {}
    at: object = id
    while isinstance(at, str) and at in nodes and at not in known and at not in above:
        above[at] = None
        at = nodes[at].parent
    depth = known.get(at, 0) if isinstance(at, str) else 0
    for one in reversed(above):
        depth += 1
        known[one] = depth
    return known.get(id, 0)


def _time_of(node: _Node) -> float | None:
    try:
        message = _message(node.message)
    except NO_RECORD:
        return None
    return moment(message.create_time) if message is not None else None


def _is_shown(message: _Message) -> bool:
    """Whether the user or the assistant said it to the other."""
    hidden = message.metadata
    return (
        message.author is not None
        and message.author.role in ("user", "assistant")
        and message.recipient in (None, "", "all")
        and message.channel != "analysis"
        and not (hidden and (hidden.is_visually_hidden_from_conversation or hidden.is_user_system_message))
    )


def _literals(message: _Message) -> Iterator[Raw]:
    """The string literals of its text: parts that are strings, or objects with a text."""
    content = message.content
    if content is None or content.content_type not in _SPOKEN:
        return
    for part in content.parts or ():
        if is_string(part):
            if len(memoryview(part)) > 2:
                yield part
            continue
        try:
            held = _part(part)
        except NO_RECORD:  # an image's pointer, a null
            continue
        if held.content_type in _SPOKEN_PARTS and is_string(held.text):
            yield held.text
