"""LangChain: a middleware for `create_agent`.

    agent = create_agent(model, tools, middleware=[recall()])

Turn and tool calls are told as they happen, sync or async. What comes to mind stands in the model's input as one human
message after the tool results; the agent's state, and so a checkpointer, never holds it. A conversation is a thread
(`thread_id`); a run without one, and an agent that is called within a tool, has a session of its own, which ends with
the run. Tried with LangChain 1.5.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired, TypeAlias, Unpack

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
    ToolCallRequest,
)
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.types import Command

from recalld_client.frameworks.conversations import WAIT_SECONDS, Conversation, Conversations, Place
from recalld_client.frameworks.placed import content_key
from recalld_client.injection import Injection
from recalld_client.quiet import quiet, quiet_async
from recalld_client.session import Call

RUN = "recalld_run"
ToolResult: TypeAlias = "ToolMessage | Command[Any]"
ModelCall: TypeAlias = "Callable[[ModelRequest[Any]], ModelResponse[Any]]"
AsyncModelCall: TypeAlias = "Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]"


class RecallState(AgentState[Any]):
    """The agent's state with the run's name, which no checkpoint keeps and no result shows."""

    recalld_run: NotRequired[Annotated[str, UntrackedValue, PrivateStateAttr]]  # type: ignore[valid-type]  # not installed


def _no_update() -> dict[str, Any] | None:
    return None


def _no_request() -> ModelRequest[Any] | None:
    return None


def recall(*, wait_seconds: float = WAIT_SECONDS, **place: Unpack[Place]) -> RecallMiddleware:
    """The middleware. `place`: `cwd`, `project`, `all_scopes`, `endpoints`, as in `Session`.

    `wait_seconds`: what a model request may be held back for a recall that is nearly there.
    """
    return RecallMiddleware(Conversations("langchain", place, wait_seconds))


class RecallMiddleware(AgentMiddleware[RecallState, Any, Any]):
    """Made by `recall`. Agents, threads and event loops may share it."""

    state_schema = RecallState

    def __init__(self, conversations: Conversations) -> None:
        super().__init__()
        self.conversations = conversations

    # ------------------------------------------------------------ the run

    def before_agent(self, state: RecallState, runtime: Any) -> dict[str, Any] | None:
        return self._began(state, runtime)

    async def abefore_agent(self, state: RecallState, runtime: Any) -> dict[str, Any] | None:
        return self._began(state, runtime)

    def after_agent(self, state: RecallState, runtime: Any) -> dict[str, Any] | None:
        self._over(state, runtime)
        return None

    async def aafter_agent(self, state: RecallState, runtime: Any) -> dict[str, Any] | None:
        self._over(state, runtime)
        return None

    # ------------------------------------------------------------ what is wrapped

    def wrap_model_call(self, request: ModelRequest[Any], handler: ModelCall) -> ModelResponse[Any]:
        found = self._boundary(request)
        response = handler(self._woven(request, found) or request)
        self._said(request, response)
        return response

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncModelCall) -> ModelResponse[Any]:
        found = await self._aboundary(request)
        response = await handler(self._woven(request, found) or request)
        self._said(request, response)
        return response

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        call = self._started(request)
        try:
            result = handler(request)
        except BaseException as error:
            self._ended(request, call, repr(error), ok=False)
            raise
        self._ended(request, call, result)
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        call = self._started(request)
        try:
            result = await handler(request)
        except BaseException as error:
            self._ended(request, call, repr(error), ok=False)
            raise
        self._ended(request, call, result)
        return result

    # ------------------------------------------------------------ ours, which never raise

    @quiet(_no_update)
    def _began(self, state: RecallState, runtime: Any) -> dict[str, Any] | None:
        named = {} if _lasts(runtime) else {RUN: uuid.uuid4().hex}
        asked = next((one for one in reversed(state["messages"]) if isinstance(one, HumanMessage)), None)
        if asked is not None:
            key = _key({**state, **named}, runtime)
            self.conversations.of(key).turn(_message_key(asked), str(asked.text))
        return named or None

    @quiet(lambda: None)
    def _over(self, state: RecallState, runtime: Any) -> None:
        if not _lasts(runtime):
            self.conversations.forget(_key(state, runtime))

    def _of(self, request: ModelRequest[Any] | ToolCallRequest) -> Conversation:
        return self.conversations.of(_key(request.state, request.runtime))

    @quiet(list[Injection])
    def _boundary(self, request: ModelRequest[Any]) -> list[Injection]:
        return self._of(request).boundary()

    @quiet_async(list[Injection])
    async def _aboundary(self, request: ModelRequest[Any]) -> list[Injection]:
        return await self._of(request).aboundary()

    @quiet(_no_request)
    def _woven(self, request: ModelRequest[Any], found: Sequence[Injection]) -> ModelRequest[Any] | None:
        messages = self._of(request).woven(request.messages, _message_key, found, _message)
        return None if messages is None else request.override(messages=messages)

    @quiet(lambda: None)
    def _said(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
        if text := "\n".join(filter(None, (str(message.text) for message in response.result))):
            self._of(request).session.said(text)

    @quiet(Call)
    def _started(self, request: ToolCallRequest) -> Call:
        return self._of(request).session.tool_started(request.tool_call["name"], request.tool_call["args"])

    @quiet(lambda: None)
    def _ended(self, request: ToolCallRequest, call: Call, result: object, ok: bool = True) -> None:
        told = result.content if isinstance(result, ToolMessage) else result if isinstance(result, str) else ""
        failed = isinstance(result, ToolMessage) and result.status == "error"
        self._of(request).session.tool_ended(call, told, ok and not failed)


def _place_of(runtime: Any) -> tuple[str, str]:
    """The thread, and the agent within it: "" for the outermost, else the tool call that runs it."""
    info = runtime.execution_info
    return info.thread_id or "", info.checkpoint_ns.rpartition("|")[0]


def _lasts(runtime: Any) -> bool:
    """Whether the conversation may go on after this run: the thread's outermost agent's may."""
    thread, within = _place_of(runtime)
    return bool(thread) and not within


def _key(state: Any, runtime: Any) -> tuple[str, str, str]:
    return (*_place_of(runtime), state.get(RUN, "") if not _lasts(runtime) else "")


def _message_key(message: AnyMessage) -> str:
    return message.id or content_key(message.type, message.content, getattr(message, "tool_call_id", ""))


def _message(lines: Sequence[str]) -> AnyMessage:
    return HumanMessage(content="\n".join(lines))
