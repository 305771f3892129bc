"""Payloads of hooks as hosts send them, and a hook desk over a desk with everything real but sockets and model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from desk_house import DeskHouse, NoPublisher
from recalld_daemon.events import EventFeed
from recalld_daemon.hooks.figures import Figures
from recalld_daemon.hooks.hook_desk import HookDesk
from recalld_daemon.hooks.request import Request

RECORDED = Path(__file__).parents[1] / "client" / "fixtures" / "payloads"
FILES = {
    "claude-code": "claude-code-2.1.332.jsonl",
    "codex": "codex-0.171.0.jsonl",
    "copilot": "copilot-cli-1.0.102.jsonl",
    "gemini": "gemini-cli-0.61.0.jsonl",
}


def recorded(host: str) -> list[tuple[str, bytes]]:
    """Event and standard input of each hook of a real session, in its order."""
    lines = (RECORDED / FILES[host]).read_text().splitlines()
    return [(one.get("event", ""), json.dumps(one["stdin"]).encode()) for one in map(json.loads, lines)]


def recorded_batch() -> bytes:
    """A PostToolBatch of Claude Code's, the event at which it is most often asked."""
    return next(payload for _, payload in recorded("claude-code") if b'"PostToolBatch"' in payload)


def claude(event: str, session: str = "s", **more: Any) -> bytes:
    return json.dumps({"session_id": session, "cwd": "/", "hook_event_name": event, **more}).encode()


def prompt(text: str, session: str = "s", **more: Any) -> bytes:
    return claude("UserPromptSubmit", session, prompt=text, **more)


def call(id: str, text: str) -> dict[str, Any]:
    return {"tool_name": "Bash", "tool_input": {"command": text}, "tool_use_id": id, "tool_response": "done"}


def batch(*calls: tuple[str, str], session: str = "s", **more: Any) -> bytes:
    return claude("PostToolBatch", session, tool_calls=[call(*one) for one in calls], **more)


def context_in(answer: bytes) -> str:
    """What the agent reads of an answer for Claude Code; "" for none."""
    return str(json.loads(answer)["hookSpecificOutput"]["additionalContext"]) if answer else ""


class HookHouse:
    """`desk` answers; `ask` is one hook that stays until it is answered."""

    def __init__(self, house: DeskHouse, wait_seconds: float = 60.0) -> None:
        self.house, self.ready = house, True
        self.figures = Figures(EventFeed(NoPublisher()))
        self.desk = HookDesk(house.desk, house.book, self.figures, wait_seconds, lambda: self.ready)

    async def ask(self, payload: bytes, host: str = "claude-code", event: str = "", *, gone: bool = False) -> str:
        answer = await self.desk.answer(Request(host, event, len(payload)), payload, lambda: gone)
        return context_in(answer) if host != "copilot" else answer.decode()
