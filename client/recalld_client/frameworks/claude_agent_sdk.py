"""Claude Agent SDK: hooks in the agent's own process.

    options = ClaudeAgentOptions(hooks=recall())

The payloads are Claude Code's, so its translation (`hosts.claude_code`) reads them and writes the answers. Context is
given with the user's prompt and with each tool's result, and stays in the transcript. The SDK waits for its hooks, so
ours answer within their own time, and a tool's start is told without waiting: there a hook that is late would stop the
tool.

A program whose `setting_sources` load the user's settings runs recalld's hooks of those settings too. Both name the
session as Claude Code does, and the daemon leaves a session to the client in the agent's own process: the settings'
hooks are given nothing for it. Tried with Claude Agent SDK 0.2.189.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from claude_agent_sdk import HookMatcher

from recalld_client.frameworks.conversations import WAIT_SECONDS, Conversation, Conversations, Place
from recalld_client.hosts import Heard
from recalld_client.hosts.claude_code import ClaudeCode
from recalld_client.quiet import quiet_async
from recalld_protocol.messages import Bye, Said, ToolEnded, ToolStarted, Turn

EVENTS = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PreCompact", "Stop", "SubagentStop")
HOOK_SECONDS = 5.0  # the SDK's own limit; a callback of ours takes `wait_seconds`
Hooks = dict[Any, list[HookMatcher]]


def recall(
    hooks: Mapping[Any, Sequence[HookMatcher]] | None = None,
    *,
    wait_seconds: float = WAIT_SECONDS,
    **place: Unpack[Place],
) -> Hooks:
    """The hooks, after your own `hooks`. `place`: `cwd`, `project`, `all_scopes`, `endpoints`, as in `Session`.

    Without a `cwd` it is the session's own, as Claude Code tells it. `wait_seconds`: what a prompt or a tool's result
    may be held back for a recall that is nearly there.
    """
    return Recall(Conversations("claude-code", place, wait_seconds)).hooks(hooks or {})


def _no_effect() -> Any:
    return {}


class Recall:
    """Hooks over some conversations, which are those of Claude Code's sessions and their subagents."""

    def __init__(self, conversations: Conversations) -> None:
        self.conversations = conversations
        self._host = ClaudeCode()

    def hooks(self, own: Mapping[Any, Sequence[HookMatcher]]) -> Hooks:
        merged: Hooks = {event: list(matchers) for event, matchers in own.items()}
        for event in EVENTS:
            merged.setdefault(event, []).append(HookMatcher(hooks=[self.hook], timeout=HOOK_SECONDS))
        return merged

    @quiet_async(_no_effect)
    async def hook(self, payload: Any, tool_use_id: str | None, context: Any) -> Any:
        """What Claude Code is answered; {} has no effect. Never raises."""
        heard = self._host.read("", json.dumps(payload, default=str).encode())
        if not heard.session:
            return {}
        if all(isinstance(event, Bye) for event in heard.events) and heard.events:
            self.conversations.forget(heard.session)
            return {}
        conversation = self.conversations.of(heard.session, session_id=heard.session, cwd=heard.cwd)
        _tell(conversation, heard)
        if not heard.boundary:
            return {}
        lines = [found.render() for found in await conversation.aboundary()]
        answer: dict[str, Any] = json.loads(self._host.write(heard.event, lines) or b"{}")
        return answer


def _tell(conversation: Conversation, heard: Heard) -> None:
    for event in heard.events:
        match event:
            case Turn():
                conversation.session.turn(event.text)
            case Said():
                conversation.session.said(event.text)
            case ToolStarted():
                conversation.started(event.call, event.name, event.args)
            case ToolEnded():
                conversation.ended(event.call, event.result, event.ok)
    if heard.event == "PreCompact":  # the SDK has no hook for after it
        conversation.session.compacted()
