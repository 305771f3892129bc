"""Gemini CLI: hooks in settings.json, timeouts in milliseconds; context arrives wrapped in <hook_context>.

The turn is `BeforeAgent`, a tool's end `AfterTool`. Context given with a tool result that is an error is lost, so
there the boundary is let pass. `BeforeAgent`'s prompt carries what other hooks added: that is no user's word, and is
taken out. `PreCompress` comes with every turn, so it tells nothing. Payloads as seen with 0.61.0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Raw, Struct

from recalld_client.hosts.heard import (
    Heard,
    SessionEvent,
    call_key,
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
TAKES_CONTEXT = ("BeforeAgent", "AfterTool")
_HOOK_CONTEXT = re.compile(r"<hook_context>.*?</hook_context>\s*", re.DOTALL)


class _Response(Struct):
    llmContent: Raw = NULL
    error: Raw = NULL

    @property
    def failed(self) -> bool:
        return bytes(self.error) != b"null"


class _Payload(Struct):
    session_id: str = ""
    cwd: str = ""
    hook_event_name: str = ""
    timestamp: str = ""
    prompt: str | None = None
    prompt_response: str | None = None
    tool_name: str = ""
    tool_input: Raw = NULL
    tool_response: _Response | None = None


class Gemini:
    name = "gemini"

    def read(self, event: str, payload: bytes) -> Heard:
        """Raises PayloadError."""
        told = decode(payload, _Payload)
        event = told.hook_event_name or event
        failed = told.tool_response is not None and told.tool_response.failed
        return Heard(
            session=session_key(told.session_id),
            cwd=told.cwd,
            events=_events(event, told),
            boundary=event in TAKES_CONTEXT and not failed,
            event=event,
        )

    def write(self, event: str, lines: Sequence[str]) -> bytes:
        return hook_specific(event, lines) if event in TAKES_CONTEXT else b""


def _events(event: str, told: _Payload) -> tuple[SessionEvent, ...]:
    match event:
        case "BeforeAgent":
            return turn(_HOOK_CONTEXT.sub("", told.prompt or ""))
        case "AfterTool" if told.tool_name:
            call = call_key(told.timestamp, told.tool_name, bytes(told.tool_input))
            response = told.tool_response or _Response()
            return (
                started(call, told.tool_name, told.tool_input),
                ended(call, response.llmContent, ok=not response.failed),
            )
        case "AfterAgent":
            return said(told.prompt_response)
        case "SessionEnd":
            return (Bye(),)
    return ()
