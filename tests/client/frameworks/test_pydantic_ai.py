"""Pydantic AI's real agent graph with its own function model: what the model is sent, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install 'recalld[pydantic-ai]'")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from recalld_client.frameworks.conversations import Conversations
from recalld_client.frameworks.pydantic_ai import Recall, recall
from recalld_protocol.endpoints import Endpoints
from recalld_protocol.messages import Compacted, Hello, Said, ToolEnded, ToolStarted, Turn
from scripted_recalls import PATIENCE_SECONDS, Recalls, line_of, remembering

Seen = list[tuple[str, str]]
Run = Callable[..., Any]


class Scripted:
    """Answers by how many tools have answered, and keeps what it was sent: for each request its parts."""

    def __init__(self, *answers: str | list[str]) -> None:
        self.answers = answers
        self.seen: list[Seen] = []
        self.instructions: list[str | None] = []
        self.model = FunctionModel(self._respond, stream_function=self._stream)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> str | list[str]:
        self.seen.append([_shown(part) for message in messages for part in message.parts])
        self.instructions.append(info.instructions)
        step = sum(isinstance(message, ModelResponse) for message in messages)
        return self.answers[min(step, len(self.answers) - 1)]

    def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = self._answer(messages, info)
        if isinstance(answer, str):
            return ModelResponse(parts=[TextPart(answer)])
        return ModelResponse(parts=[ToolCallPart(name, {"path": "x"}, tool_call_id=f"call-{name}") for name in answer])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        answer = self._answer(messages, info)
        if isinstance(answer, str):
            yield answer
        else:
            for place, name in enumerate(answer):
                yield {place: DeltaToolCall(name=name, json_args='{"path":"x"}', tool_call_id=f"call-{name}")}


def _shown(part: Any) -> tuple[str, str]:
    match part:
        case UserPromptPart() | TextPart():
            return (part.part_kind, str(part.content))
        case ToolCallPart() | ToolReturnPart():
            return (part.part_kind, part.tool_name)
    return (part.part_kind, "")


TWO_CALLS: tuple[str | list[str], ...] = (["first"], ["second"], "done")


def agent_of(script: Scripted, *capabilities: Any) -> Agent[None, str]:
    agent = Agent(script.model, instructions="be brief", capabilities=list(capabilities))

    @agent.tool_plain
    def first(path: str) -> str:
        return f"first of {path}"

    @agent.tool_plain
    def second(path: str) -> str:
        return f"second of {path}"

    @agent.tool_plain
    def broken(path: str) -> str:
        raise ZeroDivisionError("the user's own")

    return agent


def run_awaited(agent: Agent[None, str], text: str, **options: Any) -> list[ModelMessage]:
    return asyncio.run(agent.run(text, **options)).all_messages()


def run_streamed(agent: Agent[None, str], text: str, **options: Any) -> list[ModelMessage]:
    async def streamed() -> list[ModelMessage]:
        async with agent.run_stream(text, **options) as result:
            await result.get_output()
            return result.all_messages()

    return asyncio.run(streamed())


@pytest.fixture(params=[run_awaited, run_streamed], ids=["awaited", "streamed"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


@pytest.fixture
def here() -> Iterator[Callable[[Endpoints], Recall]]:
    made: list[Recall] = []

    def make(where: Endpoints) -> Recall:
        made.append(recall(wait_seconds=PATIENCE_SECONDS, endpoints=where))
        return made[-1]

    yield make
    for capability in made:
        capability.conversations.close()


Here = Callable[[Endpoints], Recall]


def test_what_comes_to_mind_stands_in_the_next_request_and_keeps_its_place(run: Run, here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"], "first": ["of-first"]})
    model = Scripted(*TWO_CALLS)
    with remembering(script) as where:
        history = run(agent_of(model, here(where)), "deploy")
    begun = [("user-prompt", "deploy"), ("user-prompt", line_of("of-turn"))]
    gone_on = [*begun, ("tool-call", "first"), ("tool-return", "first"), ("user-prompt", line_of("of-first"))]
    assert model.seen == [begun, gone_on, [*gone_on, ("tool-call", "second"), ("tool-return", "second")]]
    assert model.instructions == ["be brief"] * 3
    assert "recalled" not in str(history)


def test_a_slipped_snippet_stands_in_the_request_after(run: Run, here: Here) -> None:
    script = Recalls({"first": ["slipped"]}, slow={"first": "second"})
    model = Scripted(*TWO_CALLS)
    with remembering(script) as where:
        run(agent_of(model, here(where)), "deploy")
    assert [sum(text == line_of("slipped") for _, text in request) for request in model.seen] == [0, 0, 1]
    assert model.seen[-1][-1] == ("user-prompt", line_of("slipped"))


def test_all_that_happens_is_told(run: Run, here: Here) -> None:
    script = Recalls({})
    with remembering(script) as where:
        run(agent_of(Scripted(*TWO_CALLS), here(where)), "deploy")
        assert [one.text for one in script.all_of(Said, 1)] == ["done"]
    assert [one.text for one in script.all_of(Turn)] == ["deploy"]
    assert [(one.name, one.args) for one in script.all_of(ToolStarted)] == [
        ("first", '{"path":"x"}'),
        ("second", '{"path":"x"}'),
    ]
    assert [(one.ok, one.result) for one in script.all_of(ToolEnded)] == [(True, "first of x"), (True, "second of x")]
    assert [one.host for one in script.all_of(Hello)] == ["pydantic-ai"]


def test_it_works_without_a_loop_of_the_users(here: Here) -> None:
    model = Scripted("done")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with remembering(Recalls({"deploy": ["of-turn"]})) as where:
            agent_of(model, here(where)).run_sync("deploy")
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert model.seen == [[("user-prompt", "deploy"), ("user-prompt", line_of("of-turn"))]]


def test_without_a_daemon_the_requests_are_what_they_are_without_us(run: Run, here: Here) -> None:
    alone, absent = Scripted(*TWO_CALLS), Scripted(*TWO_CALLS)
    run(agent_of(alone), "deploy")
    with remembering(None) as where:
        run(agent_of(absent, here(where)), "deploy")
    assert (absent.seen, absent.instructions) == (alone.seen, alone.instructions)
    assert len(absent.seen) == 3


def test_what_breaks_in_here_never_reaches_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_of(self: Conversations, key: object) -> None:
        raise OSError("ours")

    monkeypatch.setattr(Conversations, "of", broken_of)
    alone, ours = Scripted(*TWO_CALLS), Scripted(*TWO_CALLS)
    run(agent_of(alone), "deploy")
    run(agent_of(ours, recall()), "deploy")
    assert ours.seen == alone.seen


def test_what_the_users_tool_raises_is_the_users(run: Run, here: Here) -> None:
    script = Recalls({})
    with remembering(script) as where:
        with pytest.raises(ZeroDivisionError, match="the user's own"):
            run(agent_of(Scripted(["broken"]), here(where)), "deploy")
        assert [one.ok for one in script.all_of(ToolEnded, 1)] == [False]


def test_a_conversation_goes_on_in_its_session_and_its_lines_stay(run: Run, here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"], "and now?": ["of-second"]})
    model = Scripted("done")
    with remembering(script) as where:
        agent = agent_of(model, here(where))
        history = run(agent, "deploy")
        history = run(agent, "and now?", message_history=history)
    assert model.seen[-1] == [
        ("user-prompt", "deploy"),
        ("user-prompt", line_of("of-turn")),
        ("text", "done"),
        ("user-prompt", "and now?"),
        ("user-prompt", line_of("of-second")),
    ]
    assert "recalled" not in str(history)
    assert len({one.session for one in script.all_of(Turn)}) == 1


def test_a_history_that_was_cut_is_told_as_a_compaction(here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"]})
    model = Scripted("done")
    with remembering(script) as where:
        agent = agent_of(model, here(where))
        history = run_awaited(agent, "deploy")
        run_awaited(agent, "and now?", message_history=history[1:])
        assert len(script.all_of(Compacted, 1)) == 1
    assert model.seen[-1] == [("text", "done"), ("user-prompt", "and now?")]


@pytest.mark.parametrize("conversation", [None, "the same"], ids=["conversations", "one conversation"])
def test_two_runs_at_once_have_a_session_each(conversation: str | None, here: Here) -> None:
    script = Recalls({"one": ["of-one"], "two": ["of-two"]})
    model = Scripted(*TWO_CALLS)

    async def both(agent: Agent[None, str]) -> None:
        await asyncio.gather(*(agent.run(text, conversation_id=conversation) for text in ("one", "two")))

    with remembering(script) as where:
        capability = here(where)
        asyncio.run(both(agent_of(model, capability)))
        assert len(capability.conversations) == (2 if conversation is None else 1)
    assert len(model.seen) == 6
    assert len({one.session for one in script.all_of(Turn)}) == 2
    for request in model.seen:
        texts = [text for _, text in request]
        assert (line_of("of-one") in texts, line_of("of-two") in texts) == ("one" in texts, "two" in texts)
