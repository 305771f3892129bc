"""Claude Code: hooks in settings.json or a plugin; context is taken when the user speaks and after a batch of tools.

`PostToolBatch` comes once per batch, failed calls included, and what it prints stands before the next model call.
Versions before 2.1.100 know only `PostToolUse` and `PostToolUseFailure`, one per call. At `Stop` and `SubagentStop`
nothing may be printed: context there makes the agent go on for ever. Payloads as seen with 2.1.332.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct, field

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
from recalld_protocol.messages import Bye, Compacted

NULL = Raw(b"null")
MOST_CALLS = 256  # of a batch that are told, the last; a model asks for a dozen at once
TAKES_CONTEXT = ("UserPromptSubmit", "PostToolBatch", "PostToolUse", "PostToolUseFailure")


class _Call(Struct):
    tool_name: str = ""
    tool_input: Raw = NULL
    tool_use_id: str = ""
    tool_response: Raw = NULL


class _Payload(Struct):
    session_id: str = ""
    agent_id: str | None = None
    cwd: str = ""
    hook_event_name: str = ""
    source: str | None = None
    prompt: str | None = None
    prompt_id: str | None = None
    tool_name: str = ""
    tool_input: Raw = NULL
    tool_use_id: str = ""
    tool_response: Raw = NULL
    error: Raw = NULL
    tool_calls: list[_Call] = field(default_factory=list)
    last_assistant_message: str | None = None


class ClaudeCode:
    name = "claude-code"

    def read(self, event: str, payload: bytes) -> Heard:
        """Raises PayloadError."""
        told = decode(payload, _Payload)
        event = told.hook_event_name or event
        return Heard(
            session=session_key(told.session_id, told.agent_id or ""),
            cwd=told.cwd,
            events=_events(event, told),
            boundary=event in TAKES_CONTEXT,
            event=event,
            turn_id=told.prompt_id or "",
        )

    def write(self, event: str, lines: Sequence[str]) -> bytes:
        return hook_specific(event, lines) if event in TAKES_CONTEXT else b""


def _events(event: str, told: _Payload) -> tuple[SessionEvent, ...]:
    match event:
        case "UserPromptSubmit":
            return turn(told.prompt or "")
        case "PreToolUse":
            return (started(told.tool_use_id, told.tool_name, told.tool_input),) if told.tool_use_id else ()
        case "PostToolBatch":
            return tuple(one for call in told.tool_calls[-MOST_CALLS:] if call.tool_use_id for one in _both_ends(call))
        case "PostToolUse" if told.tool_use_id:
            return (
                started(told.tool_use_id, told.tool_name, told.tool_input),
                ended(told.tool_use_id, told.tool_response),
            )
        case "PostToolUseFailure" if told.tool_use_id:
            return (
                started(told.tool_use_id, told.tool_name, told.tool_input),
                ended(told.tool_use_id, told.error, ok=False),
            )
        case "Stop":
            return said(told.last_assistant_message)
        case "SubagentStop":
            return (*said(told.last_assistant_message), Bye()) if told.agent_id else ()
        case "PostCompact":
            return (Compacted(),)
        case "SessionStart" if told.source == "compact":
            return (Compacted(),)
        case "SessionEnd":
            return (Bye(),)
    return ()


def _both_ends(call: _Call) -> tuple[SessionEvent, SessionEvent]:
    """The start is told again: the daemon may not have heard of it, and counts a call once."""
    return started(call.tool_use_id, call.tool_name, call.tool_input), ended(call.tool_use_id, call.tool_response)
