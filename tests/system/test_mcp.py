"""`recallctl mcp` as a host runs it: a process, spoken to by the SDK's own client; behind it a real daemon."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="mcp is not installed: pip install 'recalld[mcp]'")

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import ListRootsResult, Root, TextContent

from recalld_client.cli.asking import Daemon
from recalld_client.cli.forget import PATIENCE_SECONDS as FORGET_SECONDS
from recalld_client.mcp_server import Tools
from recalld_daemon.session import is_own_tool
from recalld_protocol.endpoints import endpoints_in
from recalld_protocol.messages import Forgotten
from running import running

Talk = Callable[[Client], Awaitable[None]]
PATIENCE_SECONDS = 60.0  # bounds a hang; no test measures time
COMMAND = ["-m", "recalld_client.cli", "mcp"]


def talk(
    talk: Talk, runtime: Path, cwd: Path, stderr: Path, root: Path | None = None, args: tuple[str, ...] = ()
) -> None:
    """Run `talk` with a client of a server started in `cwd`; `root`: what the host says it works in."""

    async def roots(context: Any) -> ListRootsResult:
        assert root is not None
        return ListRootsResult(roots=[Root.model_validate({"uri": root.as_uri()})])

    async def main() -> None:
        server = StdioServerParameters(
            command=sys.executable,
            args=[*COMMAND, *args],
            cwd=cwd,
            env=dict(os.environ, RECALLD_RUNTIME_DIR=str(runtime)),
        )
        with stderr.open("a") as said:
            transport = stdio_client(server, errlog=said)
            options: dict[str, Any] = {"list_roots_callback": roots, "mode": "legacy"} if root else {}
            async with asyncio.timeout(PATIENCE_SECONDS), Client(transport, **options) as client:
                await talk(client)

    asyncio.run(main())


async def call(client: Client, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Whether it went well, and the text."""
    result = await client.call_tool(tool, arguments)
    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    return not result.is_error, "\n".join(texts)


@pytest.mark.models
def test_all_four_tools_with_a_real_daemon(tmp_path: Path, model_cache: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for directory in (project, other):
        (directory / ".git").mkdir(parents=True)
    seen: list[str] = []

    async def four(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"recall", "remember", "forget", "feedback"}
        fine, kept = await call(
            client, "remember", text="The staging database listens on port 6543.", title="staging database"
        )
        assert fine, kept
        memory = re.search(r"memory:\d+", kept)
        assert memory, kept
        assert str(project) in kept
        fine, block = await call(client, "recall", query="which port does the staging database use", ids=True)
        assert fine, block
        assert "port 6543" in block
        id = re.search(r"^(asked\.\S+) = memory:\d+:", block, re.MULTILINE)
        assert id, block
        assert await call(client, "feedback", id=id[1], verdict="good") == (True, f"{id[1]}: good, noted")
        fine, short = await call(client, "recall", query="which port does the staging database use", budget=50)
        assert fine, short
        assert "Ids of" not in short
        fine, gone = await call(client, "forget", memory=memory[0])
        assert fine, gone
        assert gone.startswith(f"{memory[0]} is gone")
        fine, after = await call(client, "recall", query="which port does the staging database use")
        assert fine, after
        assert "6543" not in after
        fine, again = await call(client, "forget", memory=memory[0])
        assert not fine
        seen.append(again)

    async def elsewhere(client: Client) -> None:
        fine, kept = await call(client, "remember", text="The gateway's certificate expires in May.")
        assert fine, kept
        assert str(other) in kept

    with running(tmp_path / "home", model_cache) as daemon:
        runtime = Path(daemon.link.address).parent
        talk(four, runtime, project, tmp_path / "stderr")
        talk(elsewhere, runtime, project, tmp_path / "stderr", root=other)
        talk(elsewhere, runtime, project, tmp_path / "stderr", args=("--cwd", str(other)))
    assert seen
    assert (tmp_path / "stderr").read_text() == ""


def test_without_a_daemon_a_tool_says_how_to_start_it(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        for tool, arguments in (
            ("recall", {"query": "the port"}),
            ("remember", {"text": "the port is 6543"}),
            ("forget", {"memory": "memory:1"}),
            ("feedback", {"id": "r-1", "verdict": "good"}),
        ):
            fine, text = await call(client, tool, **arguments)
            assert not fine
            assert "no daemon at" in text
            assert "start it with `recalld run`" in text

    talk(ask, tmp_path / "runtime", tmp_path, tmp_path / "stderr")
    assert (tmp_path / "stderr").read_text() == ""


def test_malformed_arguments_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        for tool, arguments, named in (
            ("recall", {}, "query"),
            ("recall", {"query": "x", "budget": 9_000}, "budget"),
            ("recall", {"query": ["x"]}, "query"),
            ("remember", {"text": ""}, "text"),
            ("remember", {"text": "x", "scope": "everyone"}, "scope"),
            ("forget", {"memory": "/etc/passwd"}, "memory"),
            ("feedback", {"id": "r-1", "verdict": "great"}, "verdict"),
        ):
            fine, text = await call(client, tool, **arguments)
            assert not fine, (tool, arguments)
            assert named in text
            assert "no daemon" not in text

    talk(ask, tmp_path / "runtime", tmp_path, tmp_path / "stderr")


def test_a_forgetting_takes_as_long_as_it_takes(tmp_path: Path) -> None:
    """Seconds, where much is remembered: it is waited for like `recallctl forget` waits, and other tools as ever."""

    class Recorded(Daemon):
        def ask(self, message: Any, answer: Any, seconds: float = 0.0) -> Any:
            waited.append(max(seconds, self.timeout_seconds))
            return Forgotten(path="memory:17", passages=1)

    waited: list[float] = []
    told = asyncio.run(Tools(Recorded(endpoints_in(tmp_path), 2.0)).forget("memory:17"))
    assert (told, waited) == ("memory:17 is gone, 1 passage of it", [FORGET_SECONDS])


def test_it_ends_when_its_input_ends_and_prints_nothing_of_its_own(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, *COMMAND], input=b"", capture_output=True, timeout=PATIENCE_SECONDS,
        env=dict(os.environ, RECALLD_RUNTIME_DIR=str(tmp_path)), check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_without_the_sdk_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('not here')\n")
    ended = subprocess.run(
        [sys.executable, *COMMAND], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
        env=dict(os.environ, RECALLD_RUNTIME_DIR=str(tmp_path), PYTHONPATH=str(tmp_path)),
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "pip install 'recalld[mcp]'" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["mcp__recalld__recall", "recalld__remember", "recalld.forget", "recalld-feedback"])
def test_the_daemon_knows_these_calls_as_its_own(name: str) -> None:
    """As Claude Code, Codex, Gemini and others name the tools of a server called recalld."""
    assert is_own_tool(name, "{}")
