"""Copilot CLI: two of a hundred types of events, and of each one field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.parse import goes_on
from transcripts import COPILOT, Record, copilot_record

FIRST, LAST = "the first words of all", "the last words of all"
HERON = "secret heron words here"


def event(kind: str, **data: Any) -> Record:
    return {"type": kind, "data": data, "id": kind, "timestamp": "2026-03-02T10:00:00.500Z"}


def parsed(tmp_path: Path, *records: Record) -> Outcome:
    lines = [json.dumps(record) for record in (*COPILOT.opening, copilot_record("user", FIRST, "m1"), *records)]
    return parse(COPILOT.write(tmp_path, *lines))


@pytest.mark.parametrize(
    "silent",
    [
        event("system.message", role="system", content=HERON),
        event("hook.start", hookType="postToolUse", input={"toolResult": {"textResultForLlm": HERON}}),
        event("hook.end", output={"additionalContext": f'recalled: "… {HERON} …" — a.md:1-9'}),
        event("tool.execution_start", arguments={"command": HERON}),
        event("tool.execution_complete", result={"content": HERON, "detailedContent": HERON}),
        event("assistant.reasoning", content=HERON),
        event("assistant.message", content="", reasoningText=HERON, toolRequests=[{"arguments": {"text": HERON}}]),
        event("user.message", content="ok", transformedContent=f"<current_datetime>now</current_datetime> {HERON}"),
        event("user.message", content=HERON, source="skill-pdf"),
        event("user.message", content=HERON, source="agent-7"),
        event("user.message", content=HERON, isAutopilotContinuation=True),
        event("session.compaction_complete", summaryContent=HERON),
        event("skill.invoked", content=HERON),
        event("session.task_complete", summary=HERON),
        event("some.event_of_tomorrow", content=HERON, data=HERON),
    ],
)
def test_p013_what_nobody_said_is_not_indexed(tmp_path: Path, silent: Record) -> None:
    outcome = parsed(tmp_path, silent, copilot_record("assistant", LAST, "m2"))
    assert (outcome.texts, outcome.problems) == ([FIRST, LAST], [])


def test_a_subagents_events_are_no_users(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, copilot_record("user", "look into the harbour code", "m2") | {"agentId": "a1"})
    assert [(p.speaker, p.text) for p in outcome.passages[1:]] == [("assistant", "look into the harbour code")]


def test_the_project_is_where_the_session_began(tmp_path: Path) -> None:
    moved = event("session.resume", context={"cwd": "/elsewhere"})
    assert parsed(tmp_path, moved).project == "/home/ada/tidewater"


def test_an_event_that_comes_again_is_indexed_once(tmp_path: Path) -> None:
    assert parsed(tmp_path, copilot_record("user", FIRST, "m1")).texts == [FIRST]


def test_a_file_that_was_cut_off_by_a_rewind_is_read_anew(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, copilot_record("user", "words that are taken back", "m2"))
    parsed(tmp_path, copilot_record("user", "other words, and more of them than before", "m3"))
    file = tmp_path / COPILOT.name
    assert file.stat().st_size > outcome.cursor
    assert not goes_on(str(file), outcome.cursor, "copilot")
