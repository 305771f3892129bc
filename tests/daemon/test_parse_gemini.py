"""Gemini CLI: a log of changes, of which the last word on each message counts; older chats are one JSON object."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.formats.gemini_chats import MOST
from recalld_daemon.ingest.parse import kind_of
from transcripts import GEMINI, MOMENT, PROJECT, Record, gemini_record

FIRST, LAST = "the first words of all", "the last words of all"
HERON = "secret heron words here"


def parsed(tmp_path: Path, *records: Record) -> Outcome:
    lines = [json.dumps(record) for record in (*GEMINI.opening, gemini_record("user", FIRST, "m1"), *records)]
    return parse(GEMINI.write(tmp_path, *lines))


@pytest.mark.parametrize(
    "silent",
    [
        {"id": "x", "type": "info", "content": HERON},
        {"id": "x", "type": "error", "content": HERON},
        gemini_record("user", f"<session_context>\n{HERON}\n</session_context>", "x"),
        gemini_record("user", f'<hook_context>recalled: "… {HERON} …" — a.md:1-9</hook_context>', "x"),
        gemini_record("user", f"<state_snapshot>\n{HERON}\n</state_snapshot>", "x"),
        gemini_record("assistant", "", "x", thoughts=[{"description": HERON}]),
        gemini_record("assistant", "", "x", toolCalls=[{"args": {"text": HERON}, "resultDisplay": HERON}]),
        {"id": "x", "type": "user", "content": [{"functionResponse": {"response": {"output": HERON}}}]},
        {"id": "x", "type": "gemini", "content": [{"functionCall": {"args": {"text": HERON}}}, {"thought": True}]},
        gemini_record("user", HERON, "x", displayContent=[{"text": "ok"}]),
        {"$set": {"summary": HERON, "memoryScratchpad": {"text": HERON}}},
    ],
)
def test_p013_what_nobody_said_is_not_indexed(tmp_path: Path, silent: Record) -> None:
    outcome = parsed(tmp_path, silent, gemini_record("assistant", LAST, "m2"))
    assert (outcome.texts, outcome.problems) == ([FIRST, LAST], [])


def test_of_a_message_that_comes_again_the_last_counts(tmp_path: Path) -> None:
    outcome = parsed(
        tmp_path, gemini_record("assistant", "as first written", "m2"), gemini_record("assistant", LAST, "m2")
    )
    assert outcome.texts == [FIRST, LAST]


def test_a_set_adds_and_neither_repeats_nor_removes(tmp_path: Path) -> None:
    """On resuming it repeats all under their ids, some twice, at the time of resuming, and with files put in."""
    repeated = [
        {"id": "m2", "timestamp": "2026-05-05T10:00:00Z", "type": "gemini", "content": [{"text": "as it was said"}]},
        {"id": "m2", "type": "user", "content": [{"functionResponse": {}}]},
        gemini_record("user", LAST, "m3"),
    ]
    outcome = parsed(tmp_path, gemini_record("assistant", "as it was said", "m2"), {"$set": {"messages": repeated}})
    assert outcome.texts == [FIRST, "as it was said", LAST]
    assert {p.written_at for p in outcome.passages} == {MOMENT}


def test_what_the_user_typed_and_not_the_files_that_were_put_in(tmp_path: Path) -> None:
    typed = "what stands in @a.txt there"
    parts = [typed, "\n--- Content from referenced files ---", "\nContent from @a.txt:\n", HERON]
    parts += ["\n--- End of content ---", "and these words after it"]
    message = gemini_record("user", "", "m2") | {"content": [{"text": part} for part in parts]}
    assert parsed(tmp_path, message).texts == [FIRST, typed, "and these words after it"]
    assert parsed(tmp_path, message | {"displayContent": [{"text": typed}]}).texts == [FIRST, typed]


def test_a_rewind_takes_back_that_message_and_all_after_it(tmp_path: Path) -> None:
    said = [gemini_record("user", f"this is message {n}", f"n{n}") for n in range(4)]
    outcome = parsed(tmp_path, *said, {"$rewindTo": "n2"}, gemini_record("user", LAST, "n9"))
    assert outcome.texts == [FIRST, "this is message 0", "this is message 1", LAST]
    assert parsed(tmp_path, *said, {"$rewindTo": "nowhere"}, gemini_record("user", LAST, "n9")).texts == [LAST]


def test_a_subagents_words_are_no_users(tmp_path: Path) -> None:
    opening = GEMINI.opening[0] | {"kind": "subagent"}
    lines = [json.dumps(opening), json.dumps(gemini_record("user", FIRST, "m1"))]
    assert [p.speaker for p in parse(GEMINI.write(tmp_path, *lines)).passages] == ["assistant"]


# ------------------------------------------------------------ whose it is


def chat(directory: Path, *records: Record) -> Path:
    opening = {key: value for key, value in GEMINI.opening[0].items() if key != "directories"}
    lines = [json.dumps(record) for record in (opening, *records, gemini_record("user", FIRST, "m1"))]
    return GEMINI.write(directory, *lines)


def test_the_project_has_the_hash_whoever_names_it(tmp_path: Path) -> None:
    chats = tmp_path / ".gemini" / "tmp" / "tidewater" / "chats"
    assert parse(chat(chats)).project == ""
    (tmp_path / ".gemini" / "projects.json").write_text(json.dumps({"projects": {"/other": "o", PROJECT: "tidewater"}}))
    assert parse(chat(chats)).project == PROJECT
    assert parse(chat(chats / "a-parents-id")).project == PROJECT
    (tmp_path / ".gemini" / "projects.json").write_text("[broken")
    assert parse(chat(chats)).project == ""
    (chats.parent / ".project_root").write_text("/another/project")
    assert parse(chat(chats)).project == ""  # what has another hash is not it
    (chats.parent / ".project_root").write_text(PROJECT)
    assert parse(chat(chats)).project == PROJECT


def test_else_the_context_at_its_beginning_names_it(tmp_path: Path) -> None:
    context = f"<session_context>\n- **Workspace Directories:**\n  - /other\n  - {PROJECT}\n- **Directory"
    opening = {"$set": {"messages": [gemini_record("user", context, "c1")]}}
    assert parse(chat(tmp_path, opening)).project == PROJECT


# ------------------------------------------------------------ older chats


def old_chat(path: Path, messages: list[Any], **style: Any) -> Path:
    session = {"sessionId": "0a1b", "projectHash": hashlib.sha256(PROJECT.encode()).hexdigest(), "messages": messages}
    path.write_text(json.dumps(session, **style))
    return path


@pytest.mark.parametrize("style", [{"indent": 2}, {}, {"ensure_ascii": False}])
def test_a_chat_of_one_object(tmp_path: Path, style: dict[str, Any]) -> None:
    messages = [gemini_record("user", 'a swan 🦢 and "quotes"', "m1"), gemini_record("assistant", LAST, "m2")]
    messages.append({"id": "m3", "type": "gemini", "content": "", "thoughts": [{"description": HERON}]})
    file = old_chat(tmp_path / "session-1.json", messages, **style)
    assert kind_of(str(file)) == "gemini"
    outcome = parse(file)
    assert [(p.speaker, p.text) for p in outcome.passages] == [
        ("user", 'a swan 🦢 and "quotes"'),
        ("assistant", LAST),
    ]
    assert outcome.problems == []


def test_p025_of_a_chat_of_one_object_an_invalid_byte_costs_its_own_message(tmp_path: Path) -> None:
    file = old_chat(
        tmp_path / "s.json", [gemini_record("user", f"this is message {n}", f"m{n}") for n in range(4)], indent=1
    )
    file.write_bytes(file.read_bytes().replace(b"message 1", b"message \xff"))
    outcome = parse(file)
    assert [text[-1] for text in outcome.texts] == ["0", "2", "3"]
    assert len(outcome.problems) == 1
    assert "message at byte" in outcome.problems[0].text


def test_p028_a_chat_of_one_object_that_is_too_long_is_refused_in_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    with file.open("wb") as out:
        out.write(b'{\n "sessionId": "0a1b",\n "projectHash": "h",\n "messages": [')
        for _ in range(MOST // 1_000_000 + 2):
            out.write(b" " * 1_000_000)
        out.write(b"]}")
    tracemalloc.start()
    try:
        outcome = parse(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(p.line, "too many" in p.text) for p in outcome.problems] == [(1, True)]
    assert peak < 2 * MOST


def test_a_chat_that_is_being_written_is_told_and_read_when_it_is_whole(tmp_path: Path) -> None:
    file = old_chat(tmp_path / "s.json", [gemini_record("user", FIRST, "m1")], indent=2)
    whole = file.read_text()
    file.write_text(whole[:-30])
    outcome = parse(file)
    assert (outcome.texts, len(outcome.problems)) == ([], 1)
    file.write_text(whole)
    assert parse(file).texts == [FIRST]
