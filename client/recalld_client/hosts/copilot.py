"""GitHub Copilot CLI: hooks in ~/.copilot/hooks; context is taken with the prompt and after each tool, failed or not.

The payload does not name its event, so the installed command does. Calls have no id: one is made from what the payload
tells. `preToolUse` is never used: a failure there would stop the tool. What is added stands in the prompt's message in
`<system_reminder>`, at the end of a tool's result, or, where the tool failed, in a user message after it. A call that
the user did not allow has no hook at all. Payloads as seen with 1.0.102.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Raw, Struct

from recalld_client.hosts.heard import (
    Heard,
    SessionEvent,
    call_key,
    decode,
    ended,
    session_key,
    started,
    turn,
)
from recalld_protocol.messages import Bye, Compacted

NULL = Raw(b"null")
TAKES_CONTEXT = ("userPromptSubmitted", "postToolUse", "postToolUseFailure")


class _Result(Struct):
    resultType: str | None = None
    textResultForLlm: str | None = None


class _Payload(Struct):
    sessionId: str = ""
    timestamp: float = 0.0
    cwd: str = ""
    prompt: str | None = None
    toolName: str = ""
    toolArgs: Raw = NULL
    toolResult: _Result | None = None
    error: Raw = NULL
    reason: str | None = None


class Copilot:
    name = "copilot"

    def read(self, event: str, payload: bytes) -> Heard:
        """Raises PayloadError."""
        told = decode(payload, _Payload)
        return Heard(
            session=session_key(told.sessionId),
            cwd=told.cwd,
            events=_events(event, told),
            boundary=event in TAKES_CONTEXT,
            event=event,
        )

    def write(self, event: str, lines: Sequence[str]) -> bytes:
        if not lines or event not in TAKES_CONTEXT:
            return b""
        return json.dumps({"additionalContext": "\n".join(lines)}, ensure_ascii=False).encode()


def _events(event: str, told: _Payload) -> tuple[SessionEvent, ...]:
    call = call_key(str(told.timestamp), told.toolName, bytes(told.toolArgs)) if told.toolName else ""
    match event:
        case "userPromptSubmitted":
            return turn(told.prompt or "")
        case "postToolUse" if call:
            result = told.toolResult or _Result()
            return (
                started(call, told.toolName, told.toolArgs),
                ended(call, result.textResultForLlm or "", ok=result.resultType in (None, "success")),
            )
        case "postToolUseFailure" if call:
            return started(call, told.toolName, told.toolArgs), ended(call, told.error, ok=False)
        case "preCompact":
            return (Compacted(),)
        case "sessionEnd":
            return (Bye(),)
    return ()
