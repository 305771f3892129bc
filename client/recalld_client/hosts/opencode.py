"""OpenCode: a plugin in its own process tells what happens and appends what comes back.

OpenCode runs no hook commands; its plugins are JavaScript. Ours (`plugin/recalld.js` beside this file) speaks to the
daemon's hook socket itself, so this host's payload is our own: `event` is "turn", "tool_started", "tool_ended",
"tool_failed", "said", "compacted" or "ended", and the answer is the text alone, one line each. To the result of a tool
that threw OpenCode lets nothing be added, so that is no boundary.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct

from recalld_client.hosts.heard import Heard, SessionEvent, decode, ended, said, session_key, started, turn
from recalld_protocol.messages import Bye, Compacted

NULL = Raw(b"null")
TAKES_CONTEXT = ("turn", "tool_ended")


class _Payload(Struct):
    session: str = ""
    cwd: str = ""
    event: str = ""
    text: str | None = None
    call: str = ""
    tool: str = ""
    args: Raw = NULL
    result: Raw = NULL
    ok: bool = True


class OpenCode:
    name = "opencode"

    def read(self, event: str, payload: bytes) -> Heard:
        """Raises PayloadError."""
        told = decode(payload, _Payload)
        event = told.event or event
        return Heard(
            session=session_key(told.session),
            cwd=told.cwd,
            events=_events(event, told),
            boundary=event in TAKES_CONTEXT,
            event=event,
        )

    def write(self, event: str, lines: Sequence[str]) -> bytes:
        return "\n".join(lines).encode() if event in TAKES_CONTEXT else b""


def _events(event: str, told: _Payload) -> tuple[SessionEvent, ...]:
    match event:
        case "turn":
            return turn(told.text or "")
        case "tool_started" if told.call:
            return (started(told.call, told.tool, told.args),)
        case "tool_ended" | "tool_failed" if told.call:
            return started(told.call, told.tool, told.args), ended(told.call, told.result, ok=told.ok)
        case "said":
            return said(told.text)
        case "compacted":
            return (Compacted(),)
        case "ended":
            return (Bye(),)
    return ()
