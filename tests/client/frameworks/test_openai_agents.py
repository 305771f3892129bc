"""The OpenAI Agents SDK's real run loop with a scripted model: what the model is sent, request by request."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed: pip install 'recalld[openai-agents]'")

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    RunHooks,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.run import CallModelData, ModelInputData
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from recalld_client.frameworks.conversations import Conversations
from recalld_client.frameworks.openai_agents import Recall
from recalld_protocol.endpoints import Endpoints
from recalld_protocol.messages import Hello, Said, ToolEnded, ToolStarted, Turn
from scripted_recalls import PATIENCE_SECONDS, Recalls, line_of, remembering

Seen = list[tuple[str, str]]
Run = Callable[..., Any]


def says(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(annotations=[], text=text, type="output_text", logprobs=[])
    return ResponseOutputMessage(id="m", content=[content], role="assistant", status="completed", type="message")


def calls(*tools: str) -> list[ResponseFunctionToolCall]:
    return [
        ResponseFunctionToolCall(arguments='{"path":"x"}', call_id=f"call-{name}", name=name, type="function_call")
        for name in tools
    ]


class Scripted(Model):
    """Answers by how many tools have answered, and keeps what it was sent."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.requests: list[list[Any]] = []

    def _answer(self, input: Any) -> list[Any]:
        items = list(input) if not isinstance(input, str) else [{"role": "user", "content": input}]
        self.requests.append(items)
        step = sum(item.get("type") == "function_call" for item in items)
        answer = self.answers[min(step, len(self.answers) - 1)]
        return answer if isinstance(answer, list) else [answer]

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(output=self._answer(input), usage=Usage(), response_id=None)

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        response = Response(
            id="r", created_at=0, model="m", object="response", output=self._answer(input), tool_choice="auto",
            tools=[], parallel_tool_calls=True,
        )  # fmt: skip
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)

    def seen(self) -> list[Seen]:
        return [[_shown(item) for item in request] for request in self.requests]


def _shown(item: Any) -> tuple[str, str]:
    match item.get("type", "message"):
        case "function_call":
            return ("call", item["name"])
        case "function_call_output":
            return ("output", str(item["output"]))
    content = item["content"]
    return (item["role"], content if isinstance(content, str) else content[0]["text"])


@function_tool
def first(path: str) -> str:
    """The first tool."""
    return f"first of {path}"


@function_tool
def second(path: str) -> str:
    """The second tool."""
    return f"second of {path}"


@function_tool(failure_error_function=None)
def broken(path: str) -> str:
    """A tool that fails."""
    raise ZeroDivisionError("the user's own")


TWO_CALLS = (calls("first"), calls("second"), says("done"))


@pytest.fixture(autouse=True)
def untraced() -> None:
    set_tracing_disabled(True)


def agent_of(model: Model) -> Agent[Any]:
    return Agent("tester", model=model, tools=[first, second, broken])


def run_awaited(agent: Agent[Any], input: Any, **options: Any) -> Any:
    return asyncio.run(Runner.run(agent, input, **options))


def run_streamed(agent: Agent[Any], input: Any, **options: Any) -> Any:
    async def streamed() -> Any:
        result = Runner.run_streamed(agent, input, **options)
        async for _ in result.stream_events():
            pass
        return result

    return asyncio.run(streamed())


def run_sync(agent: Agent[Any], input: Any, **options: Any) -> Any:
    """`run_sync` takes the thread's loop and leaves it open, which is the thread's to close."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return Runner.run_sync(agent, input, **options)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.fixture(params=[run_awaited, run_streamed], ids=["awaited", "streamed"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


@pytest.fixture
def here() -> Iterator[Callable[[Endpoints], Recall]]:
    made: list[Recall] = []

    def make(where: Endpoints) -> Recall:
        made.append(Recall(wait_seconds=PATIENCE_SECONDS, endpoints=where))
        return made[-1]

    yield make
    for recall in made:
        recall.conversations.close()


Here = Callable[[Endpoints], Recall]


def test_what_comes_to_mind_stands_in_the_next_request_and_keeps_its_place(run: Run, here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"], "first": ["of-first"]})
    model = Scripted(*TWO_CALLS)
    with remembering(script) as where:
        result = run(agent_of(model), "deploy", **here(where)())
    begun = [("user", "deploy"), ("developer", line_of("of-turn"))]
    gone_on = [*begun, ("call", "first"), ("output", "first of x"), ("developer", line_of("of-first"))]
    assert model.seen() == [begun, gone_on, [*gone_on, ("call", "second"), ("output", "second of x")]]
    assert "recalled" not in str(result.to_input_list())


def test_a_slipped_snippet_stands_in_the_request_after(run: Run, here: Here) -> None:
    script = Recalls({"first": ["slipped"]}, slow={"first": "second"})
    model = Scripted(*TWO_CALLS)
    with remembering(script) as where:
        run(agent_of(model), "deploy", **here(where)())
    counts = [sum(text == line_of("slipped") for _, text in request) for request in model.seen()]
    assert counts == [0, 0, 1]
    assert model.seen()[-1][-1] == ("developer", line_of("slipped"))


def test_all_that_happens_is_told(run: Run, here: Here) -> None:
    script = Recalls({})
    with remembering(script) as where:
        run(agent_of(Scripted(*TWO_CALLS)), "deploy", **here(where)())
        assert [one.text for one in script.all_of(Said, 1)] == ["done"]
    assert [one.text for one in script.all_of(Turn)] == ["deploy"]
    assert [(one.name, one.args) for one in script.all_of(ToolStarted)] == [
        ("first", '{"path":"x"}'),
        ("second", '{"path":"x"}'),
    ]
    assert [(one.ok, one.result) for one in script.all_of(ToolEnded)] == [(True, "first of x"), (True, "second of x")]
    assert [one.host for one in script.all_of(Hello)] == ["openai-agents"]


def test_it_works_without_a_loop_of_the_users(here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"]})
    model = Scripted(says("done"))
    with remembering(script) as where:
        run_sync(agent_of(model), "deploy", **here(where)())
    assert model.seen() == [[("user", "deploy"), ("developer", line_of("of-turn"))]]


def test_without_a_daemon_the_requests_are_what_they_are_without_us(run: Run, here: Here) -> None:
    alone, absent = Scripted(*TWO_CALLS), Scripted(*TWO_CALLS)
    run(agent_of(alone), "deploy")
    with remembering(None) as where:
        run(agent_of(absent), "deploy", **here(where)())
    assert absent.requests == alone.requests
    assert len(absent.requests) == 3


def test_what_breaks_in_here_never_reaches_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_of(self: Conversations, key: object) -> None:
        raise OSError("ours")

    monkeypatch.setattr(Conversations, "of", broken_of)
    alone, ours = Scripted(*TWO_CALLS), Scripted(*TWO_CALLS)
    run(agent_of(alone), "deploy")
    run(agent_of(ours), "deploy", **Recall()("t"))
    assert ours.requests == alone.requests


def test_what_the_users_tool_raises_is_the_users(run: Run, here: Here) -> None:
    with remembering(Recalls({})) as where:
        recall = here(where)
        with pytest.raises(Exception, match="the user's own"):
            run(agent_of(Scripted(calls("broken"))), "deploy", **recall())
        gc.collect()
        assert len(recall.conversations) == 0, "a run that failed has closed its session"


class Mine(RunHooks[Any]):
    def __init__(self) -> None:
        self.tools: list[str] = []

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.tools.append(tool.name)
        raise RuntimeError("my hook's own")


def test_the_users_own_hooks_and_filter_do_what_they_did(run: Run, here: Here) -> None:
    def shorten(data: CallModelData[Any]) -> ModelInputData:
        return ModelInputData(input=data.model_data.input[-1:], instructions="mine")

    mine = Mine()
    model = Scripted(says("done"), *TWO_CALLS)
    with remembering(Recalls({"deploy": ["of-turn"]})) as where:
        recall = here(where)
        long = [{"role": "user", "content": "old"}, {"role": "user", "content": "deploy"}]
        run(agent_of(model), long, **recall(run_config=RunConfig(call_model_input_filter=shorten)))
        assert model.seen() == [[("user", "deploy"), ("developer", line_of("of-turn"))]]
        with pytest.raises(Exception, match="my hook's own"):
            run(agent_of(Scripted(*TWO_CALLS)), "deploy", **recall(hooks=mine))
    assert mine.tools == ["first"]


def test_a_thread_goes_on_in_its_session_and_the_sdks_session_holds_no_line(run: Run, here: Here) -> None:
    script = Recalls({"deploy": ["of-turn"], "and now?": ["of-second"]})
    model = Scripted(says("done"))
    with remembering(script) as where:
        recall, kept = here(where), SQLiteSession("t1")
        run(agent_of(model), "deploy", session=kept, **recall("t1"))
        run(agent_of(model), "and now?", session=kept, **recall("t1"))
        history = asyncio.run(kept.get_items())
        kept.close()
    assert model.seen()[-1] == [
        ("user", "deploy"),
        ("developer", line_of("of-turn")),
        ("assistant", "done"),
        ("user", "and now?"),
        ("developer", line_of("of-second")),
    ]
    assert "recalled" not in str(history)
    assert len({one.session for one in script.all_of(Turn)}) == 1


@pytest.mark.parametrize("thread", [None, "the same"], ids=["no thread", "one thread"])
def test_two_runs_at_once_have_a_session_each(thread: str | None, here: Here) -> None:
    script = Recalls({"one": ["of-one"], "two": ["of-two"]})
    model = Scripted(*TWO_CALLS)

    async def both(recall: Recall) -> None:
        runs = (Runner.run(agent_of(model), text, **recall(thread)) for text in ("one", "two"))
        await asyncio.gather(*runs)

    with remembering(script) as where:
        recall = here(where)
        asyncio.run(both(recall))
        gc.collect()
        assert len(recall.conversations) == (0 if thread is None else 1)
    assert len(model.requests) == 6
    assert len({one.session for one in script.all_of(Turn)}) == 2
    for request in model.seen():
        texts = [text for _, text in request]
        assert (line_of("of-one") in texts, line_of("of-two") in texts) == ("one" in texts, "two" in texts)
