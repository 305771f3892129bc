"""The Claude Agent SDK with the Claude Code it brings, against a loopback model: what the model is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "claude_agent_sdk", reason="claude-agent-sdk (385 MB) is not installed: pip install 'recalld[claude-agent-sdk]'"
)

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, query

from mock_models import Call, MockModel, Say, Script
from recalld_client.frameworks.claude_agent_sdk import Hooks, Recall, recall
from recalld_client.frameworks.conversations import Conversations
from recalld_protocol.messages import Hello, Said, ToolEnded, ToolStarted, Turn
from scripted_recalls import Recalls, line_of, remembering

RUN_SECONDS = 120.0  # bounds a hang
LONG_WAIT = 4.0  # below the SDK's own limit for our hooks


def bash(word: str) -> Call:
    return Call("Bash", {"command": f"echo {word}", "description": "says a word"})


STEPS = [[bash("one")], [Call("Read", {"file_path": "/etc/hostname"})], [Say("All is done.")]]


def run(directory: Path, prompts: dict[str, list[Any]], hooks: Hooks | None) -> dict[str, list[list[Any]]]:
    """Run each prompt, all at once; of each the messages of its requests."""

    async def one(prompt: str, url: str) -> None:
        env = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "HOME": str(directory / "home"),
            "CLAUDE_CONFIG_DIR": str(directory / "home" / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }
        work = directory / "work"
        work.mkdir(exist_ok=True, parents=True)
        options = ClaudeAgentOptions(
            hooks=hooks, cwd=work, env=env, permission_mode="bypassPermissions", model="claude-sonnet-4-5",
            setting_sources=[],
        )  # fmt: skip
        async for _ in query(prompt=prompt, options=options):
            pass

    async def all_of_them(url: str) -> None:
        async with asyncio.timeout(RUN_SECONDS):
            await asyncio.gather(*(one(prompt, url) for prompt in prompts))

    with MockModel(Script(prompts)).serving() as model:
        asyncio.run(all_of_them(model.url))
        return {prompt: [asked.body["messages"] for asked in model.of(prompt)] for prompt in prompts}


@pytest.fixture
def here() -> Iterator[Callable[..., Hooks]]:
    made: list[Conversations] = []

    def make(where: Any, own: Any = None) -> Hooks:
        made.append(Conversations("claude-code", {"endpoints": where}, LONG_WAIT))
        return Recall(made[-1]).hooks(own or {})

    yield make
    for conversations in made:
        conversations.close()


Here = Callable[..., Hooks]


def places(request: list[Any], id: str) -> list[int]:
    """The messages of a request in which the line of this snippet stands."""
    line = json.dumps(line_of(id), ensure_ascii=False)[1:-1]
    return [at for at, message in enumerate(request) if line in json.dumps(message, ensure_ascii=False)]


def test_a_snippet_stands_in_the_next_request_and_a_slipped_one_in_the_one_after(here: Here, tmp_path: Path) -> None:
    script = Recalls({"deploy": ["of-turn"], "Bash": ["slipped"], "Read": ["of-read"]}, slow={"Bash": "Read"})
    with remembering(script) as where:
        requests = run(tmp_path, {"deploy": STEPS}, here(where))["deploy"]
        assert [one.text for one in script.all_of(Said, 1)] == ["All is done."]
    assert len(requests) == 3
    counts = {id: [len(places(request, id)) for request in requests] for id in ("of-turn", "slipped", "of-read")}
    assert counts == {"of-turn": [1, 1, 1], "slipped": [0, 0, 1], "of-read": [0, 0, 1]}
    assert [one.text for one in script.all_of(Turn)] == ["deploy"]
    assert [one.name for one in script.all_of(ToolStarted)] == ["Bash", "Read"]
    assert [one.ok for one in script.all_of(ToolEnded)] == [True, True]
    hello = script.all_of(Hello)[0]
    assert (hello.host, hello.cwd) == ("claude-code", str(tmp_path / "work"))


def test_without_a_daemon_the_requests_are_what_they_are_without_us(here: Here, tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", {"deploy": STEPS}, None)["deploy"]
    with remembering(None) as where:
        absent = run(tmp_path / "absent", {"deploy": STEPS}, here(where))["deploy"]
    assert len(absent) == 3
    assert json.dumps(absent).replace("/absent/", "/alone/") == json.dumps(alone)


def test_two_runs_at_once_have_a_session_each(here: Here, tmp_path: Path) -> None:
    script = Recalls({"say one": ["of-one"], "say two": ["of-two"]})
    with remembering(script) as where:
        requests = run(tmp_path, {"say one": STEPS, "say two": STEPS}, here(where))
    assert len({one.session for one in script.all_of(Turn)}) == 2
    for request in requests["say one"]:
        assert (len(places(request, "of-one")), len(places(request, "of-two"))) == (1, 0)
    for request in requests["say two"]:
        assert (len(places(request, "of-one")), len(places(request, "of-two"))) == (0, 1)


def test_the_users_own_hooks_still_run(here: Here, tmp_path: Path) -> None:
    seen: list[str] = []

    async def mine(payload: Any, tool_use_id: str | None, context: Any) -> Any:
        seen.append(payload["tool_name"])
        return {}

    with remembering(Recalls({"Bash": ["of-bash"]})) as where:
        hooks = here(where, {"PostToolUse": [HookMatcher(matcher="Bash", hooks=[mine])]})
        requests = run(tmp_path, {"deploy": STEPS}, hooks)["deploy"]
    assert seen == ["Bash"]
    assert len(places(requests[-1], "of-bash")) == 1


# ------------------------------------------------------------ without the program: one callback, one payload


def answered(hooks: Hooks, event: str, **fields: Any) -> Any:
    hook: Callable[..., Awaitable[Any]] = hooks[event][-1].hooks[-1]
    payload = {"session_id": "s1", "cwd": "/", "hook_event_name": event, **fields}

    async def main() -> Any:
        return await hook(payload, None, {"signal": None})

    return asyncio.run(main())


def test_a_callback_answers_as_the_settings_hook_does(here: Here) -> None:
    with remembering(Recalls({"deploy": ["of-turn"]})) as where:
        answer = answered(here(where), "UserPromptSubmit", prompt="deploy")
    told = {"hookEventName": "UserPromptSubmit", "additionalContext": line_of("of-turn")}
    assert answer == {"hookSpecificOutput": told}


def test_a_stop_is_never_answered_with_context(here: Here) -> None:
    with remembering(Recalls({"deploy": ["of-turn"]})) as where:
        hooks = here(where)
        assert answered(hooks, "Stop", last_assistant_message="done") == {}
        assert answered(hooks, "SubagentStop", agent_id="a1", last_assistant_message="done") == {}


@pytest.mark.parametrize("payload", [{"prompt": 7}, {"session_id": None}, {"prompt": object()}, {"session_id": ""}])
def test_what_breaks_in_here_is_an_empty_answer(here: Here, payload: dict[str, Any]) -> None:
    with remembering(None) as where:
        assert answered(here(where), "UserPromptSubmit", **payload) == {}


def test_an_exception_of_ours_is_an_empty_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_of(self: Conversations, key: object, **own: object) -> None:
        raise OSError("ours")

    monkeypatch.setattr(Conversations, "of", broken_of)
    assert answered(recall(), "UserPromptSubmit", prompt="deploy") == {}


def test_a_subagent_is_a_session_of_its_own(here: Here) -> None:
    script = Recalls({"Bash": ["of-bash"]})
    with remembering(script) as where:
        hooks = here(where)
        answered(hooks, "UserPromptSubmit", prompt="deploy")
        call = {"tool_name": "Bash", "tool_input": {}, "tool_use_id": "t1", "tool_response": "ok"}
        assert answered(hooks, "PreToolUse", agent_id="a1", **call) == {}
        assert answered(hooks, "PostToolUse", agent_id="a1", **call) != {}
    assert [(one.session, one.name) for one in script.all_of(ToolStarted)] == [("s1/a1", "Bash")]
