"""Frameworks with a real daemon over real notes: what it brings to mind stands in what the model is sent, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host_house import INDEX, NOTES, PROMPT, HostedDaemon, hosted_daemon, write
from host_programs import PROGRAMS, Home, install_hooks
from mock_models import Call, MockModel, Say, Script

pytestmark = pytest.mark.models

NOTE = "notes/postgres.md:"
LONG_WAIT = 4.0  # below the limit that hosts set our hooks; a recall takes a tenth of a second


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Iterator[HostedDaemon]:
    home = tmp_path_factory.mktemp("user")
    write(home / "notes", NOTES)
    config = f"[sources]\nwatch = [{str(home / 'notes')!r}]\ntranscripts = false\n[hooks]\nhook_wait_seconds = 0.1\n"
    with hosted_daemon(home, model_cache, config) as daemon:
        yield daemon


def test_langchain_recalls_what_was_written_down(daemon: HostedDaemon, tmp_path: Path) -> None:
    pytest.importorskip("langchain", reason="langchain is not installed: pip install 'recalld[langchain]'")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from recalld_client.frameworks.langchain import recall

    requests: list[list[str]] = []

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            requests.append([str(message.text) for message in messages])
            return super()._generate(messages, *args, **kwargs)

    @tool
    def shell(command: str) -> str:
        """Runs a command."""
        return "CREATE INDEX"

    call = {"name": "shell", "args": {"command": INDEX}, "id": "1"}
    model = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")]))
    middleware = recall(wait_seconds=60.0, cwd=tmp_path, endpoints=daemon.endpoints)
    create_agent(model, [shell], middleware=[middleware]).invoke({"messages": [("user", PROMPT)]})
    assert [text.count(NOTE) for text in requests[-1] if NOTE in text] == [1]
    assert [len(request) for request in requests] == [2, 4]


def test_beside_the_settings_own_hooks_a_snippet_is_given_once(daemon: HostedDaemon, tmp_path: Path) -> None:
    """The daemon gives a session that speaks for itself to nobody else."""
    sdk = pytest.importorskip(
        "claude_agent_sdk", reason="claude-agent-sdk (385 MB) is not installed: pip install 'recalld[claude-agent-sdk]'"
    )
    from recalld_client.frameworks.claude_agent_sdk import recall

    steps = [[Call("Bash", {"command": f"echo {INDEX!r}", "description": "d"})], [Say("All is done.")]]
    program = next(program for program in PROGRAMS if program.host == "claude-code")
    with MockModel(Script({PROMPT: steps})).serving() as model:
        home = Home(tmp_path, program, Path("unused"), model.url, daemon.environ)
        home.prepare({"README.md": "A project.\n"})
        install_hooks(home)
        before = asked_of(daemon)
        options = sdk.ClaudeAgentOptions(
            hooks=recall(wait_seconds=LONG_WAIT, endpoints=daemon.endpoints),
            cwd=home.project,
            env={**home.environ, "IS_SANDBOX": "1"},
            permission_mode="bypassPermissions",
            setting_sources=["user", "project", "local"],
        )

        async def main() -> None:
            async for _ in sdk.query(prompt=PROMPT, options=options):
                pass

        asyncio.run(main())
        last = json.dumps(model.of(PROMPT)[-1].body, ensure_ascii=False)
    assert asked_of(daemon) > before, "the settings' hooks ran as well"
    assert last.count(NOTE) == 1


def asked_of(daemon: HostedDaemon) -> int:
    """Hook events that the settings' hooks brought to the daemon."""
    status = daemon.status()
    assert status is not None
    return int(status.topics["hooks"]["requests"] or 0)
