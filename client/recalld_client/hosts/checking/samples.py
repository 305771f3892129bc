"""Payloads as each host sends them to a hook, for a short session of our own: a question, some tools, the end.

The shapes are those recorded from the programs themselves (Claude Code 2.1.332, Codex 0.171.0, Copilot CLI 1.0.102,
Gemini CLI 0.61.0); OpenCode's are what its plugin is called with.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

TURNS = {
    "claude-code": "UserPromptSubmit",
    "codex": "UserPromptSubmit",
    "copilot": "userPromptSubmitted",
    "gemini": "BeforeAgent",
    "opencode": "chat.message",
}
TOOLS = {
    "claude-code": "PostToolBatch",
    "codex": "PostToolUse",
    "copilot": "postToolUse",
    "gemini": "AfterTool",
    "opencode": "tool.execute.after",
}
ENDS = {
    "claude-code": "SessionEnd",
    "codex": "SessionEnd",
    "copilot": "sessionEnd",
    "gemini": "SessionEnd",
    "opencode": "session.deleted",
}
COMMAND = {"command": "true"}
MOMENT = "2026-11-30T09:00:00.000Z"


@dataclass(frozen=True, slots=True)
class Step:
    """One event of the session: what the host would send."""

    event: str
    payload: dict[str, Any]


def steps(host: str, session: str, cwd: str, question: str, tools: int, events: Collection[str]) -> list[Step]:
    """The question, `tools` calls that have nothing to do with it, each a boundary of this host's.

    `events`: those that our hooks are installed for; a Claude Code of before 2.1.100 has its tools told one by one.
    """
    told = TOOLS[host]
    if host == "claude-code" and told not in events:
        told = "PostToolUse"
    calls = [Step(told, _tool(host, told, session, cwd, f"recalld-{number}")) for number in range(tools)]
    return [Step(TURNS[host], _turn(host, session, cwd, question)), *calls]


def end(host: str, session: str, cwd: str) -> Step:
    """What tells the daemon that the session is over."""
    event = ENDS[host]
    match host:
        case "copilot":
            payload: dict[str, Any] = {
                "sessionId": session,
                "timestamp": 1_795_989_709_000,
                "cwd": cwd,
                "reason": "complete",
            }
        case "opencode":
            payload = {"directory": cwd, "input": {"event": {"type": event, "properties": {"info": {"id": session}}}}}
        case _:
            payload = _base(host, event, session, cwd) | {"reason": "other"}
    return Step(event, payload)


def _turn(host: str, session: str, cwd: str, question: str) -> dict[str, Any]:
    match host:
        case "copilot":
            return {"sessionId": session, "timestamp": 1_795_989_708_000, "cwd": cwd, "prompt": question}
        case "opencode":
            parts = [{"type": "text", "text": question}]
            return {
                "directory": cwd,
                "input": {"sessionID": session},
                "output": {"message": {"id": "m"}, "parts": parts},
            }
    return _base(host, TURNS[host], session, cwd) | {"prompt": question}


def _tool(host: str, event: str, session: str, cwd: str, call: str) -> dict[str, Any]:
    match host:
        case "copilot":
            result = {"resultType": "success", "textResultForLlm": "done"}
            moment = {"sessionId": session, "timestamp": 1_795_989_708_100 + len(call), "cwd": cwd}
            return moment | {"toolName": "bash", "toolArgs": {**COMMAND, "description": call}, "toolResult": result}
        case "opencode":
            given = {"tool": "bash", "sessionID": session, "callID": call, "args": COMMAND}
            return {"directory": cwd, "input": given, "output": {"output": "done"}}
        case "gemini":
            given = {"tool_name": "run_shell_command", "tool_input": {**COMMAND, "description": call}}
            answer = {"llmContent": "done", "returnDisplay": "done"}
            return _base(host, event, session, cwd) | given | {"tool_response": answer}
    told = {"tool_name": "Bash", "tool_input": COMMAND, "tool_use_id": call, "tool_response": "done"}
    return _base(host, event, session, cwd) | ({"tool_calls": [told]} if event == "PostToolBatch" else told)


def _base(host: str, event: str, session: str, cwd: str) -> dict[str, Any]:
    base: dict[str, Any] = {"session_id": session, "transcript_path": None, "cwd": cwd, "hook_event_name": event}
    match host:
        case "claude-code":
            return base | {"permission_mode": "default"}
        case "codex":
            return base | {"turn_id": "1", "model": "none", "permission_mode": "default"}
    return base | {"timestamp": MOMENT}
