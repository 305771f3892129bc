"""What a host's hook tells, in the protocol's words; and the small things that all translations need.

A host is a program in which agents live (Claude Code, Codex, ...). It runs a hook at certain events, hands it a JSON
payload, and takes text back where it lets context be added. A translation is pure: payload in, `Heard` out; lines in,
the host's bytes out. Whoever carries it out (the daemon's hook desk) owns every socket, clock and counter, so the
messages here name no session and no turn: these are filled in there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from recalld_client.arguments import as_text, limit_of
from recalld_protocol.messages import (
    ArgsText,
    Bye,
    Compacted,
    HeadText,
    Said,
    SessionId,
    ShortText,
    Text,
    ToolEnded,
    ToolStarted,
    Turn,
)
from recalld_protocol.wire import clip

SessionEvent = Turn | Said | ToolStarted | ToolEnded | Compacted | Bye
TEXT, ARGS, HEAD, SHORT, ID = map(limit_of, (Text, ArgsText, HeadText, ShortText, SessionId))
RAW_READ = 256 * 1024  # bytes of a JSON value that are read whole (a millisecond); of a longer one its head
HOST_MADE = re.compile(r"\s*<(?:task-notification|local-command-|command-name|system-reminder)")  # no user said these
T = TypeVar("T")


class PayloadError(ValueError):
    """A hook's payload that is not what this host is known to send; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One hook event. session "": it is none of ours. boundary: the host takes context at this event, now."""

    session: str = ""
    cwd: str = ""
    events: tuple[SessionEvent, ...] = ()
    boundary: bool = False
    event: str = ""  # the host's own name of it, which `Host.write` needs
    turn_id: str = ""  # the host's own id of the turn it belongs to, where it tells one


class Host(Protocol):
    """One host's translation. `name` is its name everywhere: in commands, in `Hello.host`, in the log."""

    name: str

    def read(self, event: str, payload: bytes) -> Heard:
        """`event`: as the hook was installed for, "" where the payload names it. Raises PayloadError."""
        ...

    def write(self, event: str, lines: Sequence[str]) -> bytes:
        """What the hook prints so that the agent reads `lines`; b"" for none."""
        ...


def decode(payload: bytes, kind: type[T]) -> T:
    """The payload as `kind`; unknown fields are skipped. Raises PayloadError.

    Hosts written in JavaScript may send halves of surrogate pairs, which no strict decoder takes: they are replaced.
    """
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem: Exception = error
    try:
        loose = json.loads(payload.decode("utf-8", "replace"))
        fit = json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace")
        return msgspec.json.decode(fit, type=kind)
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise PayloadError(f"a hook payload of {len(payload)} bytes is not what was expected: {problem}") from None


def session_key(session: str, agent: str = "") -> str:
    """The daemon's name for a host's session; a subagent, whose context is its own, is a session of its own.

    >>> session_key("fe8ed809", "a1"), session_key("")
    ('fe8ed809/a1', '')
    """
    key = f"{session}/{agent}" if session and agent else session
    return key if len(key) <= ID else hashlib.blake2s(key.encode("utf-8", "replace")).hexdigest()


def call_key(*parts: bytes | str) -> str:
    """An id for a tool call of a host that gives none: the same parts, the same id."""
    digest = hashlib.blake2s(digest_size=12)
    for part in parts:
        digest.update(part.encode("utf-8", "replace") if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()


def turn(text: str) -> tuple[SessionEvent, ...]:
    """The user's words; nothing where the host speaks in the user's name."""
    return () if HOST_MADE.match(text) else (Turn(turn=0, text=clip(text, TEXT)),)


def said(text: str | None) -> tuple[SessionEvent, ...]:
    return (Said(text=clip(text, TEXT)),) if text and text.strip() else ()


def started(call: str, name: str, args: msgspec.Raw) -> ToolStarted:
    return ToolStarted(call=clip(call, ID), name=clip(name, SHORT), args=head_of(args, ARGS))


def ended(call: str, result: msgspec.Raw | str, *, ok: bool = True) -> ToolEnded:
    size = len(result.encode("utf-8", "replace")) if isinstance(result, str) else len(memoryview(result))
    head = clip(result[: HEAD + 1], HEAD) if isinstance(result, str) else head_of(result)
    return ToolEnded(call=clip(call, ID), ok=ok, result=head, result_bytes=size)


def head_of(raw: msgspec.Raw, limit: int = HEAD) -> str:
    """The first characters of a JSON value, a string's without its quotes; large ones are not read to their end.

    >>> head_of(msgspec.Raw(b'{"command": "git push"}')), head_of(msgspec.Raw(b"null"))
    ('{"command":"git push"}', '')
    """
    view = memoryview(raw)
    if len(view) <= RAW_READ:
        try:
            value: Any = msgspec.json.decode(raw) if view else None
        except (msgspec.DecodeError, RecursionError):  # it was only skipped until now: a byte or a number is bad in it
            pass
        else:
            return "" if value is None else as_text(value, limit)
    text = bytes(view[: 4 * limit]).decode("utf-8", "ignore")
    if not text.startswith('"'):
        return clip(text, limit)
    whole = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?$", "", text)  # an escape that the cut went through
    try:
        return clip(str(json.loads(whole + '"', strict=False)), limit)
    except ValueError:
        return clip(text[1:], limit)


def hook_specific(event: str, lines: Sequence[str]) -> bytes:
    """The answer that Claude Code gave the other hosts as their model: context for one event, and no other key."""
    if not lines:
        return b""
    output = {"hookEventName": event, "additionalContext": "\n".join(lines)}
    return json.dumps({"hookSpecificOutput": output}, ensure_ascii=False).encode()
