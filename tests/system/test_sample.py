"""The sample memory and the demo's script hold together: what ships is read by somebody who cannot ask back."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections import Counter
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import pytest

import recalld_daemon

DEMO = Path(recalld_daemon.__path__[0]) / "demo"
SAMPLE = DEMO / "sample"
NOTES = sorted((SAMPLE / "notes").rglob("*.md"))
SESSIONS = sorted((SAMPLE / "sessions").glob("*.jsonl"))
WORDS = (80, 500)  # a note's length
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)]+)\)")
FRONTMATTER = re.compile(r"\A---\ntitle: (.+)\ndate: (\S+)\n(?:status: .+\n)?---\n# (.+)\n")
PROJECT = "/home/dana/tidewater"
NEEDED = {"kind", "name", "args", "seconds", "result"}
EXPECTATIONS = {"recall", "silent", "repeat"}
KINDS_OF_RECORDS = {"user", "assistant", "system", "file-history-snapshot"}


def check_note(note: Path) -> None:
    text = note.read_text(encoding="utf-8")
    words = len(text.split())
    assert WORDS[0] <= words <= WORDS[1], f"{note.name} has {words} words"
    found = FRONTMATTER.match(text)
    assert found, f"{note.name}: title and date must stand above one heading"
    assert date(2026, 3, 1) <= date.fromisoformat(found[2]) <= date(2026, 10, 31)


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.stem)
def test_each_note_has_a_title_a_date_and_a_natural_length(note: Path) -> None:
    check_note(note)


def test_there_are_some_dozens_of_notes_in_a_tree() -> None:
    assert 36 <= len(NOTES) <= 48
    rooms = Counter(note.parent.name for note in NOTES)
    assert set(rooms) == {"notes", "decisions", "runbooks", "incidents", "howto", "log", "meetings", "people"}
    assert min(rooms.values()) >= 3


def test_no_text_stands_twice() -> None:
    digests = Counter(hashlib.sha256(note.read_bytes()).hexdigest() for note in NOTES)
    assert set(digests.values()) == {1}
    paragraphs = Counter(
        paragraph
        for note in NOTES
        for paragraph in note.read_text(encoding="utf-8").split("\n\n")
        if len(paragraph) > 60
    )
    assert [paragraph for paragraph, times in paragraphs.items() if times > 1] == []


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.stem)
def test_links_between_notes_resolve(note: Path) -> None:
    links = [link for link in LINK.findall(note.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (note.parent / link).is_file()] == []


def test_every_note_but_a_few_is_part_of_the_web() -> None:
    linked = {
        (note.parent / link).resolve() for note in NOTES for link in LINK.findall(note.read_text(encoding="utf-8"))
    }
    assert len(linked & set(NOTES)) >= len(NOTES) // 2


def test_lessons_are_written_down() -> None:
    """Each post-mortem ends with what to check next time: it is what the demo is about."""
    incidents = [note.read_text(encoding="utf-8") for note in NOTES if note.parent.name == "incidents"]
    assert len(incidents) == 6
    for text in incidents:
        assert text.count("**Next time**\n- ") == 1


def test_a_fact_that_changed_is_there_before_and_after() -> None:
    texts = {note.stem: note.read_text(encoding="utf-8") for note in NOTES}
    assert "Admin interface listens on 8421" in texts["2026-03-12"]
    assert "listens on **9421**" in " ".join(texts["0006-admin-port-moves-to-9421"].split())
    assert "120 requests per minute" in texts["0007-tide-feed-cache"]
    assert "60 per minute" in texts["0007-tide-feed-cache"]


def test_nothing_looks_like_a_secret_or_a_real_host() -> None:
    for path in [*NOTES, *SESSIONS, DEMO / "script.toml"]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"AKIA[0-9A-Z]{16}|gh[pousr]_\w{30}|sk-ant-|-----BEGIN|Bearer \S{20}", text), path.name
        hosts = re.findall(r"https?://([\w.-]+)", text)
        assert [host for host in hosts if "." in host and not host.endswith(".example")] == []


# ---------------------------------------------------------------- the two earlier sessions


def records(session: Path) -> list[dict[str, Any]]:
    """Its lines, each a JSON object; the last one is whole."""
    text = session.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [cast(dict[str, Any], json.loads(line)) for line in text.splitlines()]


def blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record.get("message", {}).get("content", [])
    return content if isinstance(content, list) else []


def test_two_sessions() -> None:
    assert len(SESSIONS) == 2


@pytest.mark.parametrize("session", SESSIONS, ids=["worker", "waitlist"])
def test_a_session_is_a_transcript_in_the_recorded_form(session: Path) -> None:
    found = records(session)
    assert 25 <= len(found) <= 40
    assert {record["type"] for record in found} == KINDS_OF_RECORDS
    parent = None
    moments = []
    for record in (record for record in found if record["type"] != "file-history-snapshot"):
        assert (record["sessionId"], record["cwd"], record["parentUuid"]) == (session.stem, PROJECT, parent)
        assert record["isSidechain"] is False
        parent = record["uuid"]
        moments.append(datetime.fromisoformat(record["timestamp"]))
    assert moments == sorted(moments)
    assert len({record["uuid"] for record in found if "uuid" in record}) == len(moments)


@pytest.mark.parametrize("session", SESSIONS, ids=["worker", "waitlist"])
def test_every_tool_call_of_a_session_has_its_result(session: Path) -> None:
    all_blocks = [block for record in records(session) for block in blocks(record)]
    kinds = Counter(block["type"] for block in all_blocks)
    assert set(kinds) == {"text", "thinking", "tool_use", "tool_result"}
    assert kinds["tool_use"] >= 8
    used = [block["id"] for block in all_blocks if block["type"] == "tool_use"]
    assert used == [block["tool_use_id"] for block in all_blocks if block["type"] == "tool_result"]


# ---------------------------------------------------------------- the script


def script() -> dict[str, Any]:
    return tomllib.loads((DEMO / "script.toml").read_text(encoding="utf-8"))


def tools(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [step for turn in turns for step in turn["step"] if step["kind"] == "tool"]


def check_step(step: dict[str, Any]) -> None:
    if step["kind"] == "said":
        assert set(step) == {"kind", "text"}
        assert step["text"]
        return
    assert step["kind"] == "tool"
    assert NEEDED <= set(step) <= NEEDED | {"ok", "expect"}
    assert isinstance(step["seconds"], float)
    assert 0.001 <= step["seconds"] <= 6.0
    assert isinstance(step.get("ok", True), bool)
    assert step.get("expect", "recall") in EXPECTATIONS


def test_the_script_holds_its_schema() -> None:
    played = script()
    assert set(played) == {"cwd", "as_of", "turn"}
    assert played["cwd"] == PROJECT
    assert datetime.fromisoformat(played["as_of"]).utcoffset() is not None
    for turn in played["turn"]:
        assert set(turn) == {"text", "step"}
        assert turn["text"]
        for step in turn["step"]:
            check_step(step)


def test_the_script_has_what_the_demo_is_to_show() -> None:
    turns = script()["turn"]
    calls = tools(turns)
    expected = Counter(call.get("expect", "") for call in calls)
    assert 3 <= len(turns) <= 4
    assert 12 <= len(calls) <= 16
    assert sum(call["seconds"] for call in calls) <= 45
    assert any(call["seconds"] <= 0.005 and call.get("expect") == "recall" for call in calls)
    assert expected["recall"] >= 5
    assert expected["silent"] >= 3


def test_the_script_repeats_a_query() -> None:
    calls = tools(script()["turn"])
    repeats = [index for index, call in enumerate(calls) if call.get("expect") == "repeat"]
    assert repeats
    for index in repeats:
        assert calls[index]["args"] == calls[index - 1]["args"]


def test_the_session_plays_after_all_that_it_may_recall() -> None:
    now = datetime.fromisoformat(script()["as_of"])
    last = max(
        datetime.fromisoformat(record["timestamp"]) for s in SESSIONS for record in records(s) if "uuid" in record
    )
    written = [date.fromisoformat(FRONTMATTER.match(note.read_text(encoding="utf-8"))[2]) for note in NOTES]  # type: ignore[index]
    assert max(written) < now.date()
    assert last < now
