"""Bytes and messages: one msgpack map per frame, measured before it is read, read into types that hold the limits.

Each check comes before what it saves: the frame's size before a byte is looked at, depth and number of values before
anything is built, lengths by the headers while decoding. So whatever a peer sends, decoding ends in a message or a
`WireError`, and takes at most MEMORY_FACTOR times the frame plus MEMORY_FLOOR bytes.

A sender cuts its texts with `clip` before it makes a message (a session its turns and arguments, the daemon its
snippets and reasons); `encode` only sees to it that no frame leaves that the other side would hang up on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from .errors import (
    FrameTooLarge,
    LimitExceeded,
    Malformed,
    Side,
    UnknownKind,
    VersionMismatch,
    WireError,
    printable,
)
from .messages import (
    PROTOCOL_VERSIONS,
    AnyMessage,
    Count,
    Event,
    FromAgent,
    FromDaemon,
    Message,
    Problem,
    ProblemCode,
)
from .shape import check_shape

AGENT_FRAME_LIMIT = 256 * 1024  # bytes; the longest message, a `remember` of 32,768 four-byte characters, has 150 KiB
DAEMON_FRAME_LIMIT = 1024 * 1024  # bytes; 100 hits with their passages take 100 KiB, 1,000 sessions 500 KiB
AGENT_VALUE_LIMIT = 4_096  # values in a frame; the richest kind has 40. Bounds the walk of check_shape to 2 ms
DAEMON_VALUE_LIMIT = 65_536  # 1,000 session rows have 28,000
MEMORY_FACTOR = 4  # peak bytes per byte of frame: its copy, one decoded string, and that string in an error's text
MEMORY_FLOOR = 4 * 1024 * 1024  # the most that bounded lists and tables of tiny values may take above that

_Frame = bytes | memoryview
_M = TypeVar("_M")
_encode = msgspec.msgpack.Encoder().encode
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_from_daemon: msgspec.msgpack.Decoder[FromDaemon] = msgspec.msgpack.Decoder(FromDaemon)
_event = msgspec.msgpack.Decoder(Event)


class _Envelope(Struct):
    """What can be told of a message whose kind is not known."""

    kind: Annotated[str, Meta(max_length=256)]
    id: Count = 0
    session: Annotated[str, Meta(max_length=128)] = ""


_envelope = msgspec.msgpack.Decoder(_Envelope)


class _Told(TypedDict):
    kind: str
    id: int
    session: str


def _kind(cls: type[Message]) -> str:
    return str(cls.__struct_config__.tag)


_AGENT_TYPES: frozenset[type[Message]] = frozenset(get_args(FromAgent))
AGENT_KINDS = frozenset(map(_kind, _AGENT_TYPES))
DAEMON_KINDS = frozenset(map(_kind, get_args(FromDaemon)))
EVENT_KINDS = frozenset({_kind(Event)})


def encode(message: AnyMessage) -> bytes:
    """One frame. Raises FrameTooLarge past the receiver's limit, Malformed for what msgpack can't hold (a lone
    surrogate, an integer past 64 bits)."""
    try:
        frame = _encode(message)
    except (UnicodeEncodeError, OverflowError) as error:
        raise Malformed(f"can't be sent: {error}", **_told(message)) from error
    limit = AGENT_FRAME_LIMIT if type(message) in _AGENT_TYPES else DAEMON_FRAME_LIMIT
    if len(frame) > limit:
        raise FrameTooLarge(len(frame), limit, **_told(message))
    return frame


def decode_from_agent(frame: _Frame) -> FromAgent:
    """What an agent or recallctl sent. Raises WireError."""
    return _decode(frame, _from_agent, AGENT_KINDS, AGENT_FRAME_LIMIT, AGENT_VALUE_LIMIT)


def decode_from_daemon(frame: _Frame) -> FromDaemon:
    """What the daemon sent over its request socket. Raises WireError."""
    return _decode(frame, _from_daemon, DAEMON_KINDS, DAEMON_FRAME_LIMIT, DAEMON_VALUE_LIMIT)


def decode_event(frame: _Frame) -> Event:
    """The body of what the daemon published. Raises WireError."""
    return _decode(frame, _event, EVENT_KINDS, DAEMON_FRAME_LIMIT, DAEMON_VALUE_LIMIT)


def negotiate(theirs: Sequence[int], ours: Sequence[int] = PROTOCOL_VERSIONS, here: Side = "daemon") -> int:
    """The highest version both sides speak. `here`: which side asks.

    Raises: VersionMismatch, whose text names both sides and the remedy.

    >>> negotiate([1, 2, 3], ours=[1, 2])
    2
    """
    common = set(theirs) & set(ours)
    if not common:
        raise VersionMismatch(theirs, ours, here)
    return max(common)


def problem_for(error: WireError, asked: Message | None = None) -> Problem:
    """The answer to a message that was refused; `asked` is that message, where it could be read."""
    told = _told(asked) if asked else _Told(kind=error.kind, id=error.id, session=error.session)
    return Problem(
        session=told["session"], re=told["id"], of=printable(told["kind"], 256), code=_code(error), text=str(error)
    )


def clip(text: str, limit: int) -> str:
    """`text` made fit to send: at most `limit` characters, lone surrogates (undecodable file names) as U+FFFD.

    >>> clip("abc\\udcff", 8), clip("abcdef", 4)
    ('abc\ufffd', 'abc…')
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def _decode(
    frame: _Frame, decoder: msgspec.msgpack.Decoder[_M], kinds: frozenset[str], size_limit: int, value_limit: int
) -> _M:
    if len(frame) > size_limit:
        raise FrameTooLarge(len(frame), size_limit)
    frame = bytes(frame)  # no copy where it is bytes already
    check_shape(frame, value_limit)
    try:
        return decoder.decode(frame)
    except msgspec.DecodeError as error:
        raise _refusal(frame, kinds, str(error)) from error


def _refusal(frame: bytes, kinds: frozenset[str], why: str) -> WireError:
    """Why `frame` can't be taken, told as well as it can be: a second, tolerant look reads its envelope."""
    try:
        envelope = _envelope.decode(frame)
    except msgspec.DecodeError:
        envelope = None
    if envelope and envelope.kind not in kinds:
        return UnknownKind(envelope.kind, id=envelope.id, session=envelope.session)
    refused = LimitExceeded if " of length <= " in why else Malformed
    if not envelope:
        return refused(why)
    return refused(why, kind=envelope.kind, id=envelope.id, session=envelope.session)


def _code(error: WireError) -> ProblemCode:
    match error:
        case VersionMismatch():
            return "version"
        case UnknownKind():
            return "unknown_kind"
        case LimitExceeded():
            return "limit"
        case _:
            return "malformed"


def _told(message: Message) -> _Told:
    return _Told(kind=_kind(type(message)), id=message.id, session=message.session)
