"""The examples of docs/frameworks.md and of the README are run as they stand, with a scripted model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recalld_client.frameworks import conversations
from recalld_protocol.messages import Bye, Turn
from scripted_recalls import PATIENCE_SECONDS, Recalls, line_of, remembering

ROOT = Path(__file__).parents[3]
PROMPT = "deploy the new version"
PAGES = {"docs": ROOT / "docs" / "frameworks.md", "readme": ROOT / "README.md"}


def example(page: str, name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```python\n(.*?)```\n<!-- /{name} -->", PAGES[page].read_text(), re.DOTALL)
    assert found, f"{PAGES[page].name} has no example {name!r}"
    return found[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recalls]:
    """A daemon where the environment says, and adapters that wait for it however loaded the machine is."""
    began = conversations.Conversation.__init__
    opened: list[conversations.Conversation] = []

    def begin(self: conversations.Conversation, session: Any, wait_seconds: float) -> None:
        began(self, session, min(100 * wait_seconds, PATIENCE_SECONDS))
        opened.append(self)

    monkeypatch.setattr(conversations.Conversation, "__init__", begin)
    recalls = Recalls({PROMPT: ["of-turn"]})
    with remembering(recalls) as where:
        monkeypatch.setenv("RECALLD_RUNTIME_DIR", str(Path(where.request.removeprefix("ipc://")).parent))
        yield recalls
        for conversation in opened:
            conversation.session.close()


def told(script: Recalls) -> list[str]:
    return [one.text for one in script.all_of(Turn, 1)]


@pytest.mark.parametrize("page", PAGES)
def test_langchain(page: str, script: Recalls) -> None:
    pytest.importorskip("langchain", reason="langchain is not installed")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    seen: list[str] = []

    class Model(GenericFakeChatModel):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            seen.extend(str(message.text) for message in messages)
            return super()._generate(messages, *args, **kwargs)

    exec(example(page, "langchain"), {"model": Model(messages=iter([AIMessage("done")])), "tools": []})
    assert seen == [PROMPT, line_of("of-turn")]
    assert script.all_of(Bye, 1)


def on_a_loop(run: Callable[[], None]) -> None:
    """The frameworks' `run_sync` take the thread's loop and leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        run()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.parametrize("page", PAGES)
def test_openai_agents(page: str, script: Recalls) -> None:
    pytest.importorskip("agents", reason="openai-agents is not installed")
    from agents import Model, ModelResponse, Usage, set_tracing_disabled
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    seen: list[Any] = []

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            seen.extend((item["role"], item["content"]) for item in input)
            text = ResponseOutputText(annotations=[], text="done", type="output_text", logprobs=[])
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    on_a_loop(lambda: exec(example(page, "openai-agents"), {"model": Scripted(), "tools": []}))
    assert seen == [("user", PROMPT), ("developer", line_of("of-turn"))]
    assert told(script) == [PROMPT]


@pytest.mark.parametrize("page", PAGES)
def test_pydantic_ai(page: str, script: Recalls) -> None:
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    seen: list[Any] = []

    def respond(messages: Any, info: Any) -> ModelResponse:
        seen.extend(part.content for message in messages for part in message.parts)
        return ModelResponse(parts=[TextPart("done")])

    on_a_loop(lambda: exec(example(page, "pydantic-ai"), {"model": FunctionModel(respond), "tools": []}))
    assert seen == [PROMPT, line_of("of-turn")]
    assert told(script) == [PROMPT]


@pytest.mark.parametrize("page", PAGES)
def test_claude_agent_sdk(page: str, script: Recalls, tmp_path: Path) -> None:
    pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk (385 MB) is not installed")
    from mock_models import MockModel, Say, Script

    namespace: dict[str, Any] = {}
    with MockModel(Script({PROMPT: [[Say("done")]]})).serving() as model:
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none", "HOME": str(tmp_path)}
        env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        namespace["settings"] = {"cwd": tmp_path, "env": env, "setting_sources": []}
        exec(example(page, "claude-agent-sdk"), namespace)
        asyncio.run(namespace["main"]())
        asked = model.of(PROMPT)
    assert "words of of-turn" in asked[0].text
    assert told(script) == [PROMPT]
