"""Codex: messages and nothing else; what Codex writes in the user's name, copies and rollbacks left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.parse import goes_on
from transcripts import CODEX, RECORDED, TIME, Format, Record, codex_record

FIRST, LAST = "the first words of all", "the last words of all"


def item(role: str, *parts: str, kinds: list[str] | None = None, **more: Any) -> Record:
    content = [{"type": "input_text", "text": part} for part in parts]
    marks = {"internal_chat_message_metadata_passthrough": {"content_item_kinds": kinds}} if kinds else {}
    payload = {"type": "message", "role": role, "content": content} | marks | more
    return {"timestamp": TIME, "type": "response_item", "payload": payload}


def event(kind: str, **more: Any) -> Record:
    return {"timestamp": TIME, "type": "event_msg", "payload": {"type": kind} | more}


def parsed(tmp_path: Path, *records: Record, cursor: int = 0) -> Outcome:
    lines = [json.dumps(record) for record in (*CODEX.opening, codex_record("user", FIRST, "m1"), *records)]
    return parse(CODEX.write(tmp_path, *lines), cursor)


@pytest.mark.parametrize(
    "silent",
    [
        item("developer", "secret heron words here"),
        item("system", "secret heron words here"),
        item("user", "secret heron words here", kinds=["hooks.additional_context"]),
        item("user", "secret heron words here", kinds=["multi_agent.subagent_notification"]),
        item("user", "# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>\nheron\n</INSTRUCTIONS>"),
        item("user", "<environment_context>\n<cwd>/heron words here</cwd>\n</environment_context>"),
        item("user", "<user_instructions>\n\nheron words here\n\n</user_instructions>"),
        item("user", "<subagent_notification>\nheron words here\n</subagent_notification>"),
        item("user", "<turn_aborted>\nheron words here\n</turn_aborted>"),
        event("user_message", message="secret heron words here"),
        event("agent_message", message="secret heron words here"),
        event("item_completed", item={"type": "AgentMessage", "content": [{"text": "secret heron words here"}]}),
        {"type": "response_item", "payload": {"type": "reasoning", "summary": [{"text": "secret heron words here"}]}},
        {"type": "response_item", "payload": {"type": "function_call", "arguments": '{"cmd": "secret heron words"}'}},
        {"type": "response_item", "payload": {"type": "function_call_output", "output": "secret heron words here"}},
        {"type": "compacted", "payload": {"message": "secret heron words here", "replacement_history": []}},
        {"type": "session_meta", "payload": {"cwd": "/x", "base_instructions": {"text": "secret heron words"}}},
        {"type": "world_state", "payload": {"state": {"agents_md": {"text": "secret heron words here"}}}},
    ],
)
def test_p013_what_nobody_said_is_not_indexed(tmp_path: Path, silent: Record) -> None:
    outcome = parsed(tmp_path, silent, codex_record("assistant", LAST, "m2"))
    assert (outcome.texts, outcome.problems) == ([FIRST, LAST], [])


def test_of_a_message_the_parts_that_the_user_wrote(tmp_path: Path) -> None:
    mixed = item("user", "AGENTS say heron", "what was typed here", kinds=["agents_md.instructions", "user.text"])
    assert parsed(tmp_path, mixed).texts == [FIRST, "what was typed here"]


def test_the_project_is_that_of_the_files_own_meta(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, {"type": "session_meta", "payload": {"cwd": "/the/parents"}})
    assert outcome.project == "/home/ada/tidewater"
    meta = {"type": "session_meta", "payload": {"cwd": "/the/parents"}}
    again = parsed(tmp_path, meta, codex_record("assistant", LAST, "m2"), cursor=outcome.cursor)
    assert again.texts == [LAST]
    assert again.project == "/home/ada/tidewater"  # also of what was appended


def test_a_subagents_file_is_read_from_where_its_own_part_begins() -> None:
    parent = parse(RECORDED / "codex-0.171.0.jsonl")
    child = parse(RECORDED / "codex-0.171.0-subagent.jsonl")
    assert "A question about whitespace in the parser" in (RECORDED / "codex-0.171.0-subagent.jsonl").read_text()
    assert not set(parent.texts) & set(child.texts)
    assert [(p.speaker, p.text) for p in child.passages] == [
        ("assistant", "Find out how the parser treats blank lines"),  # no user said it
        ("assistant", "Both of us are done with the question of whitespace."),
    ]


def test_of_an_older_subagents_file_what_its_parents_file_has_is_a_copy(tmp_path: Path) -> None:
    """Versions before ordinals copied the history, with times of the copying and no ids, and did not say how far."""
    home = tmp_path / ".codex"
    history = [item("user", FIRST), item("assistant", "an answer that was copied")]
    own = [item("user", "look into the harbour code"), item("assistant", LAST)]
    parents = Format("codex", "rollout-2026-03-01T10-00-00-0a1b.jsonl", CODEX.opening, codex_record)
    meta = {"cwd": "/p", "forked_from_id": "0a1b", "source": {"subagent": "review"}}
    opening = ({"timestamp": TIME, "type": "session_meta", "payload": meta}, *CODEX.opening)
    child = Format("codex", "rollout-2026-03-02T10-00-00-0c2d.jsonl", opening, codex_record)
    lines = [json.dumps(record) for record in (*opening, *history, *own)]
    file = child.write(home / "sessions" / "2026" / "03" / "02", *lines)
    assert parse(file).texts == [FIRST, "an answer that was copied", "look into the harbour code", LAST]
    later = item("assistant", "what the parent said later")
    parent = [json.dumps(record) for record in (*CODEX.opening, *history, later)]
    for place in ("sessions/2026/03/01", "archived_sessions"):
        written = parents.write(home / place, *parent)
        assert parse(file).texts == ["look into the harbour code", LAST]
        written.unlink()


def test_a_message_that_comes_again_under_its_id_is_indexed_once(tmp_path: Path) -> None:
    assert parsed(tmp_path, codex_record("user", FIRST, "m1")).texts == [FIRST]


def turns(*numbers: int) -> list[Record]:
    said: list[Record] = []
    for n in numbers:
        said += [
            codex_record("user", f"this is question {n}", f"q{n}"),
            codex_record("assistant", f"this is answer {n}", f"a{n}"),
        ]
    return said


def test_what_was_rolled_back_is_taken_back(tmp_path: Path) -> None:
    back = event("thread_rolled_back", num_turns=2)
    outcome = parsed(tmp_path, *turns(1, 2, 3), back, *turns(4), event("thread_rolled_back", num_turns=1), *turns(5))
    assert [text[-1] for text in outcome.texts[1:]] == ["1", "1", "5", "5"]


def test_more_than_there_is_rolled_back_is_all(tmp_path: Path) -> None:
    assert parsed(tmp_path, *turns(1), event("thread_rolled_back", num_turns=9), *turns(2)).texts == [
        "this is question 2",
        "this is answer 2",
    ]


def test_a_rollback_that_is_appended_has_the_file_read_anew(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, *turns(1))
    after = parsed(tmp_path, *turns(1), event("thread_rolled_back", num_turns=1), *turns(2), cursor=outcome.cursor)
    assert (after.texts, after.cursor) == ([], outcome.cursor)  # nothing is done by halves
    file = str(tmp_path / CODEX.name)
    assert not goes_on(file, outcome.cursor, "codex")
    assert parse(Path(file)).texts == [FIRST, "this is question 2", "this is answer 2"]
    within = parsed(tmp_path, *turns(1, 2), event("thread_rolled_back", num_turns=1), cursor=outcome.cursor)
    assert within.texts == []  # what came and went between two readings
    assert goes_on(file, outcome.cursor, "codex")
