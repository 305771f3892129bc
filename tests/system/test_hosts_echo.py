"""P013, with the real programs: what we injected, and what our own tools answered, is never recalled and never indexed.

Three sessions in a row of one program whose transcripts are indexed by the daemon that its hooks speak to; then what is
in the store is looked at, passage by passage, since what is not there can't be recalled.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from host_house import (
    GATED,
    INDEX,
    LINE,
    NEVER_WAITS,
    NOTES,
    PATIENCE_SECONDS,
    PROMPT,
    Gates,
    HostedDaemon,
    heard_from,
    hosted_daemon,
    write,
)
from host_programs import CLAUDE_CODE, CODEX, Home, Program, install_hooks, installed_or_skipped
from mock_models import Call, MockModel, Say, Script
from recalld_daemon.demo.private import is_settled

pytestmark = pytest.mark.models

TRANSCRIPTS = {"claude-code": ".claude/projects", "codex": ".codex/sessions"}
ANSWERS = (
    "The first index on the booking table stands now, and queries are quick.",
    "The second index is made as well, and nobody had to wait for the table.",
    "There was nothing more to find out about the third of the indexes today.",
)
PROMPTS = (
    PROMPT,
    "Add a second index on berth_booking, for the waitlist this time.",
    "What did the hook's additional context that was recalled say about an index on berth_booking?",
)
ECHO = re.compile(
    "recalled:|additional context:|additional_context|hook_context|system.reminder|Additional guidance"
    "|eleven minutes|CONCURRENTLY|invoice worker by hand|blue tin",  # these stand in the notes, and no one said them
)
OWN = "./recallctl search 'berth_booking index'"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Iterator[HostedDaemon]:
    """Of the same user as the programs, whose transcripts it indexes."""
    home = tmp_path_factory.mktemp("user")
    write(home / "notes", NOTES)
    config = f"[sources]\nwatch = [{str(home / 'notes')!r}]\n[hooks]\n{NEVER_WAITS}\n"
    with hosted_daemon(home, model_cache, config) as daemon:
        yield daemon


@pytest.fixture(params=[CLAUDE_CODE, CODEX], ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def model() -> Iterator[MockModel]:
    with MockModel(Script({})).serving() as model:
        yield model


@pytest.fixture
def home(daemon: HostedDaemon, program: Program, model: MockModel) -> Home:
    home = Home(daemon.home, program, installed_or_skipped(program), model.url, dict(daemon.environ))
    shutil.rmtree(home.project, ignore_errors=True)
    ours = f'#!/bin/sh\nexec {Path(sys.executable).parent}/recallctl "$@"\n'
    home.prepare({"psql": GATED, "recallctl": ours, "README.md": "# Bookings\n"})
    return home


def passages(daemon: HostedDaemon) -> dict[str, str]:
    """Text -> kind of its source."""
    (store,) = (daemon.home / "recalld").rglob("recalld.db")
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        query = "SELECT p.text, s.kind FROM passages p JOIN sources s ON s.id = p.source"
        return dict(connection.execute(query).fetchall())


def wait_until_indexed(daemon: HostedDaemon, words: str) -> None:
    """Until what was said at the end of a session can be recalled, and so all that stands before it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(words in text for text in passages(daemon)):
        assert time.monotonic() < deadline, f"never indexed: {words!r}"
        time.sleep(0.1)
    daemon.wait_until(is_settled)


def test_p013_in_three_sessions_in_a_row_nothing_of_ours_is_indexed_or_recalled(
    daemon: HostedDaemon, program: Program, model: MockModel, home: Home
) -> None:
    install_hooks(home)
    for number, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True), 1):
        model.script = Script({prompt: [[program.shell(INDEX)], [program.shell(OWN)], [Say(answer)]]})
        with Gates(home.project, daemon.endpoints, {f"psql-{number}": 2 if program.tells_starts else 1}).watched():
            home.run(prompt)
        wait_until_indexed(daemon, answer)
    logs = [path.read_text() for path in (home.path / TRANSCRIPTS[program.host]).rglob("*.jsonl")]
    assert any(LINE.search(log) for log in logs)  # the host did write it down
    assert any("CONCURRENTLY" in log and "recallctl search" in log for log in logs)  # and what our command found
    said = [text for text, kind in passages(daemon).items() if kind == program.host]
    assert [answer for answer in ANSWERS if not any(answer in text for text in said)] == []
    assert [text for text in said if ECHO.search(text)] == []
    shown = {line for one in model.asked for line in LINE.findall(one.text)}
    assert shown
    assert [line for line in shown if line.count("recalled:") > 1 or "additional" in line] == []


def test_p013_our_own_tools_trigger_no_recall(
    daemon: HostedDaemon, program: Program, model: MockModel, home: Home
) -> None:
    install_hooks(home)
    calls = [program.shell(OWN)]
    if program is CLAUDE_CODE:  # the server is started by the host, as its user set it up
        server = {"command": str(home.project / "recallctl"), "args": ["mcp"], "env": daemon.environ}
        write(home.path, {"mcp.json": json.dumps({"mcpServers": {"recalld": server}})})
        home.flags += ["--mcp-config", str(home.path / "mcp.json"), "--allowedTools", "mcp__recalld"]
        calls.append(Call("mcp__recalld__recall", {"query": "berth_booking index"}))
    model.script = Script({"thanks": [[call] for call in calls]})
    with heard_from(daemon.endpoints, ["turn", "tool.started", "recall.started"]) as events:
        home.run("thanks")
        told = [event.what for event in iter(lambda: events.receive(0.5), None)]
    assert told.count("tool.started") == len(calls)
    assert told.count("recall.started") == told.count("turn") == 1
    answers = model.of("thanks")[1:]
    assert len(answers) == len(calls)
    assert all("CONCURRENTLY" in one.text for one in answers)  # they did answer
