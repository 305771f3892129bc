"""Pydantic AI: a capability.

    agent = Agent(model, capabilities=[recall()])

Turn and tool calls are told as they happen. What comes to mind is a user prompt part in a request of its own, after the
tool results; it is put into what the model is sent, never into the run's message history. A conversation is Pydantic
AI's own (`conversation_id`, which a passed `message_history` carries on); of two runs of one conversation at the same
time the second has a session of its own. Tried with Pydantic AI 2.68.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Unpack

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition

from recalld_client.frameworks.conversations import WAIT_SECONDS, Conversation, Conversations, Place
from recalld_client.injection import Injection
from recalld_client.quiet import quiet, quiet_async
from recalld_client.session import Call


def recall(*, wait_seconds: float = WAIT_SECONDS, **place: Unpack[Place]) -> Recall:
    """The capability. `place`: `cwd`, `project`, `all_scopes`, `endpoints`, as in `Session`.

    `wait_seconds`: what a model request may be held back for a recall that is nearly there.
    """
    return Recall(Conversations("pydantic-ai", place, wait_seconds))


class Recall(AbstractCapability[Any]):
    """Made by `recall`. Agents and runs may share it."""

    def __init__(self, conversations: Conversations) -> None:
        self.conversations = conversations

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        self._began(ctx)
        try:
            return await handler()
        finally:
            self._over(ctx)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self._insert(ctx, request_context, await self._boundary(ctx))
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        self._said(ctx, response)
        return response

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        told = self._started(ctx, call.tool_name, args)
        try:
            result = await handler(args)
        except BaseException as error:
            self._ended(ctx, told, repr(error), ok=False)
            raise
        self._ended(ctx, told, result)
        return result

    # ------------------------------------------------------------ ours, which never raise

    def _of(self, ctx: RunContext[Any]) -> Conversation:
        return self.conversations.of(self.conversations.claim(ctx.conversation_id, ctx.run_id))

    @quiet(lambda: None)
    def _began(self, ctx: RunContext[Any]) -> None:
        prompt = ctx.prompt if not isinstance(ctx.prompt, str) else [ctx.prompt]
        text = "\n".join(part for part in prompt or () if isinstance(part, str))
        self._of(ctx).turn(ctx.run_id, text)

    @quiet(lambda: None)
    def _over(self, ctx: RunContext[Any]) -> None:
        self.conversations.release(ctx.conversation_id, ctx.run_id)

    @quiet_async(list[Injection])
    async def _boundary(self, ctx: RunContext[Any]) -> list[Injection]:
        return await self._of(ctx).aboundary()

    @quiet(lambda: None)
    def _insert(self, ctx: RunContext[Any], request: ModelRequestContext, found: Sequence[Injection]) -> None:
        """A new list is this request's alone; what is appended to the old one would enter the history."""
        messages = self._of(ctx).woven(request.messages, _message_key, found, _message)
        if messages is not None:
            request.messages = messages

    @quiet(lambda: None)
    def _said(self, ctx: RunContext[Any], response: ModelResponse) -> None:
        if response.text:
            self._of(ctx).session.said(response.text)

    @quiet(Call)
    def _started(self, ctx: RunContext[Any], name: str, args: object) -> Call:
        return self._of(ctx).session.tool_started(name, args)

    @quiet(lambda: None)
    def _ended(self, ctx: RunContext[Any], call: Call, result: object, ok: bool = True) -> None:
        self._of(ctx).session.tool_ended(call, result, ok)


def _message_key(message: ModelMessage) -> Hashable:
    """A message has no id of its own; its parts have times, and the ids of calls."""
    parts = tuple((part.part_kind, getattr(part, "tool_call_id", ""), _moment(part)) for part in message.parts)
    return (message.kind, _moment(message) if isinstance(message, ModelResponse) else "", parts)


def _moment(of: object) -> str:
    return str(getattr(of, "timestamp", ""))


def _message(lines: Sequence[str]) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(content="\n".join(lines))])
