"""What each host's settings must say so that it runs our hook: events, the form of an entry, the unit of its timeout.

A hook of ours ends within 150 ms by itself; the timeout is the host's last resort, 1 to 5 s in the host's own unit
(seconds, but milliseconds for Gemini). The lines hold nothing that changes from version to version of recalld, since
Codex asks its user anew to trust a hook whose line has changed.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recalld_client.hosts.hook_command import hook_command
from recalld_protocol.hook_http import HttpHook

HTTP_SECONDS = 2  # no process to start: what lasts longer hangs
COMMAND_SECONDS = 3  # a busy machine may be slow to start a process; above 3 Codex warns about SessionEnd's
MARK_HEADER, MARK = "X-Recalld-Hook", "1"  # tells our entry from another program's on the same path
OFF_HEADER, OFF = "X-Recalld-Off", "RECALLD_OFF"  # the host's variable, which a hook by HTTP has no other way to know
Version = tuple[int, ...]

# The releases of Claude Code that first took what we use. Older ones refuse a settings file with an unknown event.
SINCE_HTTP: Version = (2, 1, 63)
SINCE_POST_COMPACT: Version = (2, 1, 76)
SINCE_TOOL_BATCH: Version = (2, 1, 100)
SINCE_EXEC_FORM: Version = (2, 1, 139)

NOT_WAITED_FOR = ("PreToolUse",)  # nothing comes of it: the tool need not wait for a process to start
CODEX_EVENTS = ("UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
COPILOT_EVENTS = ("userPromptSubmitted", "postToolUse", "postToolUseFailure", "preCompact", "sessionEnd")
GEMINI_EVENTS = ("BeforeAgent", "AfterTool", "AfterAgent", "SessionEnd")


@dataclass(frozen=True, slots=True)
class Way:
    """How the hook is to be run. `http`: by HTTP (Claude Code), else as a process. `version`: the host's, if known."""

    http: HttpHook | None = None
    python: str = sys.executable
    version: Version | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """One host's settings. `grouped`: hooks stand in groups with a matcher, `{"hooks": [hook]}`; else bare.

    `fresh`: what a file of our own begins with. `handlers`: event -> the hook's entry.
    """

    host: str
    handlers: Callable[[Way], Mapping[str, dict[str, Any]]]
    grouped: bool = True
    comments: bool = False  # the host reads its settings with comments in them
    fresh: Mapping[str, Any] | None = None

    def entries(self, way: Way) -> Mapping[str, Any]:
        """event -> the item that goes into that event's list."""
        return {
            event: {"hooks": [handler]} if self.grouped else handler for event, handler in self.handlers(way).items()
        }


def claude_events(version: Version | None) -> Sequence[str]:
    """What is listened to; an unknown version is taken to be a present one."""
    batch = version is None or version >= SINCE_TOOL_BATCH
    compact = version is None or version >= SINCE_POST_COMPACT
    return (
        "UserPromptSubmit", "PreToolUse",
        *(("PostToolBatch",) if batch else ("PostToolUse", "PostToolUseFailure")),
        *(("PostCompact",) if compact else ()),
        "Stop", "SubagentStop", "SessionEnd",
    )  # fmt: skip


def _claude_code(way: Way) -> dict[str, dict[str, Any]]:
    return {event: _http(way.http) if way.http else _process(way, event) for event in claude_events(way.version)}


def _http(hook: HttpHook) -> dict[str, Any]:
    return {
        "type": "http",
        "url": hook.url("claude-code"),
        "timeout": HTTP_SECONDS,
        "headers": {"Authorization": f"Bearer {hook.token}", MARK_HEADER: MARK, OFF_HEADER: f"${OFF}"},
        "allowedEnvVars": [OFF],
    }


def _process(way: Way, event: str) -> dict[str, Any]:
    """Without a shell where that is understood; else `args` would be ignored, and Python would run the payload."""
    program, *args = hook_command("claude-code", python=way.python)
    if way.version is not None and way.version < SINCE_EXEC_FORM:
        return {"type": "command", "command": shlex.join([program, *args]), "timeout": COMMAND_SECONDS}
    handler = {"type": "command", "command": program, "args": args, "timeout": COMMAND_SECONDS}
    return handler | ({"async": True} if event in NOT_WAITED_FOR else {})


def _codex(way: Way) -> dict[str, dict[str, Any]]:
    line = shlex.join(hook_command("codex", python=way.python))
    return {event: {"type": "command", "command": line, "timeout": COMMAND_SECONDS} for event in CODEX_EVENTS}


def _copilot(way: Way) -> dict[str, dict[str, Any]]:
    """Copilot's payload does not name its event, so the line does."""
    return {
        event: {
            "type": "command",
            "bash": shlex.join(hook_command("copilot", event, python=way.python)),
            "timeoutSec": COMMAND_SECONDS,
        }
        for event in COPILOT_EVENTS
    }


def _gemini(way: Way) -> dict[str, dict[str, Any]]:
    line = shlex.join(hook_command("gemini", python=way.python))
    handler = {"name": "recalld", "type": "command", "command": line, "timeout": COMMAND_SECONDS * 1000}
    return {event: dict(handler) for event in GEMINI_EVENTS}


FORMS: Mapping[str, Form] = {
    "claude-code": Form("claude-code", _claude_code),
    "codex": Form("codex", _codex),
    "copilot": Form("copilot", _copilot, grouped=False, fresh={"version": 1}),
    "gemini": Form("gemini", _gemini, comments=True),
}
