"""OpenAI Agents: run hooks that tell, and a filter of the model's input that inserts.

    recall = Recall()
    await Runner.run(agent, "deploy the new version", **recall(thread_id))

A call of `recall` gives the `hooks` and `run_config` of one run. Runs of the same thread share a session, one after the
other; a run without a thread, or beside another of its thread, has its own, which ends with it. What comes to mind
stands in the model's input as a developer message; the SDK's own `Session` never holds it. Your own hooks and run
configuration are given to `recall` and do what they did.
Tried with OpenAI Agents 0.24.
"""

from __future__ import annotations

import dataclasses
import inspect
import uuid
import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from agents import Agent, RunConfig, RunContextWrapper, RunHooks, Tool
from agents.items import ModelResponse, TResponseInputItem
from agents.run import CallModelData, ModelInputData

from recalld_client.frameworks.conversations import WAIT_SECONDS, Conversation, Conversations, Place
from recalld_client.frameworks.placed import content_key
from recalld_client.injection import Injection
from recalld_client.quiet import quiet, quiet_async


class RunOptions(TypedDict):
    """What `Runner.run`, `run_sync` and `run_streamed` take."""

    hooks: RunHooks[Any]
    run_config: RunConfig


class Recall:
    """Made once; called for each run. `place`: `cwd`, `project`, `all_scopes`, `endpoints`, as in `Session`.

    `wait_seconds`: what a model request may be held back for a recall that is nearly there.
    """

    def __init__(self, *, wait_seconds: float = WAIT_SECONDS, **place: Unpack[Place]) -> None:
        self.conversations = Conversations("openai-agents", place, wait_seconds)

    def __call__(
        self,
        thread: Hashable = None,
        hooks: RunHooks[Any] | None = None,
        run_config: RunConfig | None = None,
    ) -> RunOptions:
        run = _Run(self.conversations, thread)
        config = run_config or RunConfig()
        told = _Hooks(run, hooks or RunHooks())
        inserted = _Filter(run, config.call_model_input_filter)
        return RunOptions(hooks=told, run_config=dataclasses.replace(config, call_model_input_filter=inserted))


class _Run:
    """What hooks and filter of one run share. Nothing in here raises."""

    def __init__(self, conversations: Conversations, thread: Hashable) -> None:
        self._conversations = conversations
        self._thread = thread
        self._name = uuid.uuid4().hex
        self._key = ("thread", thread) if thread is not None else ("run", self._name)

    @property
    def conversation(self) -> Conversation:
        return self._conversations.of(self._conversations.claim(self._key, self._name))

    @quiet(lambda: None)
    def over(self) -> None:
        self._conversations.release(self._key, self._name)
        if self._thread is None:
            self._conversations.forget(self._key)

    @quiet_async(list[Injection])
    async def boundary(self, items: Sequence[TResponseInputItem]) -> list[Injection]:
        """The turn is told here, as the model is about to see it; then what came to mind."""
        conversation = self.conversation
        asked = [text for item in items if _field(item, "role") == "user" and (text := _text_of(item))]
        if asked:
            conversation.turn((len(asked), asked[-1]), asked[-1])
        return await conversation.aboundary()

    @quiet(lambda: None)
    def started(self, context: RunContextWrapper[Any], tool: Tool) -> None:
        args = getattr(context, "tool_arguments", "")
        self.conversation.started(_call_of(context, tool), tool.name, args)

    @quiet(lambda: None)
    def ended(self, context: RunContextWrapper[Any], tool: Tool, result: object) -> None:
        self.conversation.ended(_call_of(context, tool), result)

    @quiet(lambda: None)
    def said(self, response: ModelResponse) -> None:
        texts = [text for item in response.output if _field(item, "type") == "message" and (text := _text_of(item))]
        if texts:
            self.conversation.session.said("\n".join(texts))

    @quiet(lambda: None)
    def insert(self, data: ModelInputData, found: Sequence[Injection]) -> None:
        """`whole` is not claimed: where the server keeps the conversation, only what is new is sent."""
        items = self.conversation.woven(data.input, _item_key, found, _item, whole=False)
        if items is not None:
            data.input = items


class _Filter:
    def __init__(self, run: _Run, own: Any) -> None:
        self._run = run
        self._own = own

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        asked = list(data.model_data.input)
        filtered: ModelInputData = data.model_data
        if self._own is not None:
            given = self._own(data)
            filtered = await given if inspect.isawaitable(given) else given
        self._run.insert(filtered, await self._run.boundary(asked))
        return filtered


class _Hooks(RunHooks[Any]):
    """Ours first, then the user's own, whose exceptions are the user's."""

    def __init__(self, run: _Run, own: RunHooks[Any]) -> None:
        self._run = run
        self._own = own
        weakref.finalize(self, run.over).atexit = False  # a run that fails tells no end: then it is over with these

    async def on_llm_start(
        self, context: Any, agent: Agent[Any], system_prompt: str | None, input_items: list[TResponseInputItem]
    ) -> None:
        await self._own.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: ModelResponse) -> None:
        self._run.said(response)
        await self._own.on_llm_end(context, agent, response)

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        await self._own.on_agent_start(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self._run.over()
        await self._own.on_agent_end(context, agent, output)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        await self._own.on_handoff(context, from_agent, to_agent)

    async def on_tool_start(self, context: Any, agent: Any, tool: Tool) -> None:
        self._run.started(context, tool)
        await self._own.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Tool, result: Any) -> None:
        self._run.ended(context, tool, result)
        await self._own.on_tool_end(context, agent, tool, result)


def _call_of(context: RunContextWrapper[Any], tool: Tool) -> str:
    """Function tools tell the call's id; of the others at most one of a name runs at a time."""
    return str(getattr(context, "tool_call_id", "") or tool.name)


def _field(item: object, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _text_of(item: object) -> str:
    """The text of a message's content: a string, or parts some of which are text."""
    content = _field(item, "content")
    if isinstance(content, str):
        return content
    return "\n".join(str(text) for part in content or () if (text := _field(part, "text")))


def _item_key(item: TResponseInputItem) -> Hashable:
    if id := _field(item, "call_id") or _field(item, "id"):
        return (_field(item, "type"), id)
    return content_key(_field(item, "type"), _field(item, "role"), _field(item, "content"))


def _item(lines: Sequence[str]) -> TResponseInputItem:
    return {"role": "developer", "content": "\n".join(lines)}
