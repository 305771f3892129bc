"""LangChain's real agent loop with a scripted model: what the model is sent, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("langchain", reason="langchain is not installed: pip install 'recalld[langchain]'")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from pydantic import PrivateAttr

from recalld_client.frameworks.conversations import Conversations
from recalld_client.frameworks.langchain import RecallMiddleware, recall
from recalld_protocol.endpoints import Endpoints
from recalld_protocol.messages import Bye, Compacted, Hello, Said, ToolEnded, ToolStarted, Turn
from scripted_recalls import PATIENCE_SECONDS, Recalls, line_of, remembering

Seen = list[tuple[str, str]]
Run = Callable[[Any, dict[str, Any], dict[str, Any] | None], dict[str, Any]]


def said(text: str, *tools: str) -> AIMessage:
    return AIMessage(text, tool_calls=[{"name": name, "args": {"path": "x"}, "id": f"call-{name}"} for name in tools])


class Scripted(BaseChatModel):
    """Answers in order, one list per conversation begun, and keeps what it was sent."""

    answers: list[AIMessage]
    _requests: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self._requests.append(list(messages))
        step = sum(isinstance(message, AIMessage) for message in messages)
        answer = self.answers[step % len(self.answers)].model_copy(update={"id": None})
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def seen(self) -> list[Seen]:
        """What each request held: kind and text of its messages."""
        return [[(message.type, str(message.text)) for message in request] for request in self._requests]


@tool
def first(path: str) -> str:
    """The first tool."""
    return f"first of {path}"


@tool
def second(path: str) -> str:
    """The second tool."""
    return f"second of {path}"


@tool
def broken(path: str) -> str:
    """A tool that fails."""
    raise ZeroDivisionError("the user's own")


TOOLS = [first, second, broken]
TWO_CALLS = [said("I look", "first"), said("", "second"), said("done")]


def run_sync(agent: Any, given: dict[str, Any], config: dict[str, Any] | None) -> dict[str, Any]:
    result: dict[str, Any] = agent.invoke(given, config)
    return result


def run_async(agent: Any, given: dict[str, Any], config: dict[str, Any] | None) -> dict[str, Any]:
    result: dict[str, Any] = asyncio.run(agent.ainvoke(given, config))
    return result


@pytest.fixture(params=[run_sync, run_async], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def ask(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


@pytest.fixture
def here() -> Iterator[Callable[[Endpoints], RecallMiddleware]]:
    """Makes middlewares, and closes their sessions in the end."""
    made: list[RecallMiddleware] = []

    def make(where: Endpoints) -> RecallMiddleware:
        made.append(recall(wait_seconds=PATIENCE_SECONDS, endpoints=where))
        return made[-1]

    yield make
    for middleware in made:
        middleware.conversations.close()


Here = Callable[[Endpoints], RecallMiddleware]


def test_what_comes_to_mind_stands_in_the_next_request_and_keeps_its_place(run: Run, here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"], "first": ["of-first"]})
    model = Scripted(answers=TWO_CALLS)
    with remembering(script) as where:
        result = run(create_agent(model, TOOLS, middleware=[here(where)]), ask("deploy"), None)
    user, turn = ("human", "deploy"), ("human", line_of("of-turn"))
    call, answer = ("ai", "I look"), ("tool", "first of x")
    shown = ("human", line_of("of-first"))
    assert model.seen() == [
        [user, turn],
        [user, turn, call, answer, shown],
        [user, turn, call, answer, shown, ("ai", ""), ("tool", "second of x")],
    ]
    assert [message.type for message in result["messages"]] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert "recalled" not in str(result)


def test_a_slipped_snippet_stands_in_the_request_after(run: Run, here: Here) -> None:
    script = Recalls({"first": ["slipped"]}, slow={"first": "second"})
    model = Scripted(answers=TWO_CALLS)
    with remembering(script) as where:
        run(create_agent(model, TOOLS, middleware=[here(where)]), ask("deploy"), None)
    counts = [sum(text == line_of("slipped") for _, text in request) for request in model.seen()]
    assert counts == [0, 0, 1]
    assert model.seen()[-1][-1] == ("human", line_of("slipped"))


def test_all_that_happens_is_told(run: Run, here: Here) -> None:
    script = Recalls({})
    with remembering(script) as where:
        run(create_agent(Scripted(answers=TWO_CALLS), TOOLS, middleware=[here(where)]), ask("deploy"), None)
        script.all_of(Bye, 1)
    assert [one.text for one in script.all_of(Turn)] == ["deploy"]
    assert [(one.name, one.args) for one in script.all_of(ToolStarted)] == [
        ("first", '{"path":"x"}'),
        ("second", '{"path":"x"}'),
    ]
    assert [(one.ok, one.result) for one in script.all_of(ToolEnded)] == [(True, "first of x"), (True, "second of x")]
    assert [one.text for one in script.all_of(Said)] == ["I look", "done"]
    assert [one.host for one in script.all_of(Hello)] == ["langchain"]


def test_without_a_daemon_the_requests_are_what_they_are_without_us(run: Run, here: Here) -> None:
    alone, absent = Scripted(answers=TWO_CALLS), Scripted(answers=TWO_CALLS)
    run(create_agent(alone, TOOLS), ask("deploy"), None)
    with remembering(None) as where:
        run(create_agent(absent, TOOLS, middleware=[here(where)]), ask("deploy"), None)
    assert absent.seen() == alone.seen()
    assert len(absent.seen()) == 3


def test_what_breaks_in_here_never_reaches_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken_of(self: Conversations, key: object) -> None:
        raise OSError("ours")

    monkeypatch.setattr(Conversations, "of", broken_of)
    alone, ours = Scripted(answers=TWO_CALLS), Scripted(answers=TWO_CALLS)
    run(create_agent(alone, TOOLS), ask("deploy"), None)
    run(create_agent(ours, TOOLS, middleware=[recall()]), ask("deploy"), None)
    assert ours.seen() == alone.seen()


def test_what_the_users_tool_raises_is_the_users(run: Run, here: Here) -> None:
    script = Recalls({})
    with remembering(script) as where:
        agent = create_agent(Scripted(answers=[said("", "broken"), said("done")]), TOOLS, middleware=[here(where)])
        with pytest.raises(ZeroDivisionError, match="the user's own"):
            run(agent, ask("deploy"), None)
        assert [one.ok for one in script.all_of(ToolEnded, 1)] == [False]


def test_a_thread_goes_on_in_its_session_and_its_lines_stay(run: Run, here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"], "and now?": ["of-second"]})
    model = Scripted(answers=[said("done")])
    thread = {"configurable": {"thread_id": "t1"}}
    with remembering(script) as where:
        agent = create_agent(model, TOOLS, middleware=[here(where)], checkpointer=InMemorySaver())
        run(agent, ask("deploy"), thread)
        run(agent, ask("and now?"), thread)
        state = str(agent.get_state(thread))
    assert model.seen()[-1] == [
        ("human", "deploy"),
        ("human", line_of("of-turn")),
        ("ai", "done"),
        ("human", "and now?"),
        ("human", line_of("of-second")),
    ]
    assert "recalled" not in state
    assert len({one.session for one in script.all_of(Turn)}) == 1
    assert [one.text for one in script.all_of(Turn)] == ["deploy", "and now?"]


@pytest.mark.parametrize("threads", [("t1", "t2"), (None, None)], ids=["threads", "runs without one"])
def test_two_runs_at_once_have_a_session_each(threads: tuple[str | None, str | None], here: Here) -> None:
    script = Recalls({"one": ["of-one"], "two": ["of-two"]})
    model = Scripted(answers=TWO_CALLS)
    with remembering(script) as where, ThreadPoolExecutor(2) as pool:
        middleware = here(where)
        kept = InMemorySaver() if threads[0] else None
        agent = create_agent(model, TOOLS, middleware=[middleware], checkpointer=kept)
        configs = [{"configurable": {"thread_id": thread}} if thread else {} for thread in threads]
        jobs = [
            pool.submit(agent.invoke, ask(text), config) for text, config in zip(("one", "two"), configs, strict=True)
        ]
        for job in jobs:
            job.result()
        open_now = len(middleware.conversations)
    assert len({one.session for one in script.all_of(Turn)}) == 2
    for request in model.seen():
        texts = [text for _, text in request]
        assert (line_of("of-one") in texts) == ("one" in texts)
        assert (line_of("of-two") in texts) == ("two" in texts)
    assert open_now == (2 if threads[0] else 0), "a run without a thread closes its session"


def test_two_runs_at_once_on_one_event_loop(here: Here) -> None:
    script = Recalls({"one": ["of-one"], "two": ["of-two"]})
    model = Scripted(answers=TWO_CALLS)

    async def both(agent: Any) -> None:
        await asyncio.gather(agent.ainvoke(ask("one")), agent.ainvoke(ask("two")))

    with remembering(script) as where:
        asyncio.run(both(create_agent(model, TOOLS, middleware=[here(where)])))
    for request in model.seen():
        texts = [text for _, text in request]
        assert (line_of("of-one") in texts, line_of("of-two") in texts) == ("one" in texts, "two" in texts)


def test_parallel_calls_are_told_apart_and_answered_together(run: Run, here: Here) -> None:
    script = Recalls({"first": ["of-first"], "second": ["of-second"]})
    model = Scripted(answers=[said("", "first", "second"), said("done")])
    with remembering(script) as where:
        run(create_agent(model, TOOLS, middleware=[here(where)]), ask("deploy"), None)
        assert len({one.call for one in script.all_of(ToolEnded, 2)}) == 2
    lines = model.seen()[-1][-1][1].splitlines()
    assert lines
    assert set(lines) <= {line_of("of-first"), line_of("of-second")}


def test_an_agent_within_a_tool_has_a_session_of_its_own(here: Here) -> None:
    script = Recalls({"outer": ["of-outer"], "inner": ["of-inner"]})
    inner_model, outer_model = Scripted(answers=[said("found")]), Scripted(answers=[said("", "delegate"), said("done")])
    with remembering(script) as where:
        middleware = here(where)
        inner = create_agent(inner_model, [], middleware=[middleware])

        @tool
        def delegate(path: str) -> str:
            """Asks another agent."""
            return str(inner.invoke(ask("inner"))["messages"][-1].text)

        agent = create_agent(outer_model, [delegate], middleware=[middleware], checkpointer=InMemorySaver())
        agent.invoke(ask("outer"), {"configurable": {"thread_id": "t"}})
        open_now = len(middleware.conversations)
    assert inner_model.seen() == [[("human", "inner"), ("human", line_of("of-inner"))]]
    assert ("human", line_of("of-inner")) not in outer_model.seen()[-1]
    assert len({one.session for one in script.all_of(Turn)}) == 2
    assert open_now == 1


class Summary(AgentMiddleware):  # type: ignore[type-arg]
    """Replaces the whole history once a tool has answered, as a summarising middleware does."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if not isinstance(state["messages"][-1], ToolMessage):
            return None
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("a summary", id="s")]}


def test_a_summarised_history_is_told_as_a_compaction(here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"]})
    model = Scripted(answers=[said("", "first")])  # for ever: a summary holds no answer to count
    with remembering(script) as where:
        agent = create_agent(model, TOOLS, middleware=[Summary(), here(where)])
        with pytest.raises(Exception, match="ecursion"):
            agent.invoke(ask("deploy"), {"recursion_limit": 8})
        assert len(script.all_of(Compacted, 1)) == 1
    assert model.seen()[0] == [("human", "deploy"), ("human", line_of("of-turn"))]
    assert model.seen()[1] == [("human", "a summary")]
