"""Codex: Claude-shaped hooks with a strict schema; context lands as a developer message.

Taken at `UserPromptSubmit` and `PostToolUse`, which also tells of commands that failed. An unknown key in the answer,
or any answer at `Stop`, loses the context, so there is exactly one key and nothing elsewhere. Payloads as seen with
0.171.0.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct

from recalld_client.hosts.heard import (
    Heard,
    SessionEvent,
    decode,
    ended,
    hook_specific,
    said,
    session_key,
    started,
    turn,
)
from recalld_protocol.messages import Bye

NULL = Raw(b"null")
TAKES_CONTEXT = ("UserPromptSubmit", "PostToolUse")


class _Payload(Struct):
    session_id: str = ""
    cwd: str = ""
    hook_event_name: str = ""
    prompt: str | None = None
    turn_id: str | None = None
    tool_name: str = ""
    tool_input: Raw = NULL
    tool_use_id: str = ""
    tool_response: Raw = NULL
    last_assistant_message: str | None = None


class Codex:
    name = "codex"

    def read(self, event: str, payload: bytes) -> Heard:
        """Raises PayloadError."""
        told = decode(payload, _Payload)
        event = told.hook_event_name or event
        return Heard(
            session=session_key(told.session_id),
            cwd=told.cwd,
            events=_events(event, told),
            boundary=event in TAKES_CONTEXT,
            event=event,
            turn_id=told.turn_id or "",
        )

    def write(self, event: str, lines: Sequence[str]) -> bytes:
        return hook_specific(event, lines) if event in TAKES_CONTEXT else b""


def _events(event: str, told: _Payload) -> tuple[SessionEvent, ...]:
    match event:
        case "UserPromptSubmit":
            return turn(told.prompt or "")
        case "PreToolUse" if told.tool_use_id:
            return (started(told.tool_use_id, told.tool_name, told.tool_input),)
        case "PostToolUse" if told.tool_use_id:
            return (
                started(told.tool_use_id, told.tool_name, told.tool_input),
                ended(told.tool_use_id, told.tool_response),
            )
        case "Stop":
            return said(told.last_assistant_message)
        case "SessionEnd":
            return (Bye(),)
    return ()
