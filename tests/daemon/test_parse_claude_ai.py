"""Claude.ai's export: what was said, once, and what was attached, under its file's name."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export_samples import PEAK, chat, message, write_array
from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.formats import claude_ai
from recalld_daemon.ingest.parse import kind_of
from recalld_daemon.ingest.survey import survey

MEMORY_KB = 64 * 1024
WORDS = st.lists(
    st.sampled_from(["harbour", "crane", 'a "quote"', "caf\u00e9", "\U0001f9a2 swan", "back\\slash"]), min_size=3
)


def write(tmp_path: Path, *chats: Any, name: str = "conversations.json", **dump: Any) -> Path:
    file = tmp_path / name
    file.write_text(json.dumps(list(chats), **dump), encoding="utf-8")
    return file


def parsed(tmp_path: Path, *chats: Any) -> Outcome:
    return parse(write(tmp_path, *chats))


def test_what_is_said_twice_is_read_once(tmp_path: Path) -> None:
    asked = message("How deep is the harbour?\nAt low tide.")
    outcome = parsed(tmp_path, chat(asked, message("Four metres, says the chart.", "assistant", created_at=None)))
    assert [(p.speaker, p.text, p.heading) for p in outcome.passages] == [
        ("user", "How deep is the harbour?\nAt low tide.", "Harbour"),
        ("assistant", "Four metres, says the chart.", "Harbour"),
    ]
    dates = [datetime.fromtimestamp(p.written_at, UTC).day for p in outcome.passages if p.written_at is not None]
    assert dates == [2, 1]  # its own, else the conversation's
    assert outcome.problems == []


@pytest.mark.parametrize("content", [None, [], 7, "text", [{"type": "tool_use", "name": "x", "input": {}}], [7, None]])
def test_text_stands_in_where_no_block_has_words(tmp_path: Path, content: Any) -> None:
    assert parsed(tmp_path, chat(message("the only words of all", content=content))).texts == ["the only words of all"]
    absent = message("the only words of all")
    del absent["content"]
    assert parsed(tmp_path, chat(absent)).texts == ["the only words of all"]


def test_thinking_and_tools_are_left_out(tmp_path: Path) -> None:
    blocks = [
        {"type": "thinking", "thinking": "secret heron words here"},
        {"type": "text", "text": "first I look it up"},
        {"type": "tool_use", "name": "search", "input": {"text": "secret heron words here"}},
        {"type": "tool_result", "content": [{"type": "text", "text": "secret heron words here"}]},
        {"type": "text", "text": "and now I know it"},
    ]
    said = message("first I look it up\n\n```\nThis block is not supported.\n```", "assistant", content=blocks)
    assert parsed(tmp_path, chat(said)).texts == ["first I look it up", "and now I know it"]


def test_an_attachment_stands_under_its_files_name(tmp_path: Path) -> None:
    files: list[Any] = [
        {
            "file_name": "tide table.csv",
            "file_size": 9,
            "file_type": "csv",
            "extracted_content": "the tide turns at nine",
        },
        {"file_name": "empty.txt", "extracted_content": ""},
        {"file_name": "image.png"},
        {"extracted_content": "words without any name"},
        None,
    ]
    outcome = parsed(tmp_path, chat(message("see what I attached", attachments=files)))
    assert [(p.heading, p.speaker, p.text) for p in outcome.passages] == [
        ("Harbour", "user", "see what I attached"),
        ("Harbour > tide table.csv", "", "the tide turns at nine"),
        ("Harbour", "", "words without any name"),
    ]


def test_a_long_attachment_is_read_to_its_bound(tmp_path: Path) -> None:
    long = " ".join(f"word{n}" for n in range(200_000))
    outcome = parsed(tmp_path, chat(message("see it", attachments=[{"file_name": "a.log", "extracted_content": long}])))
    size = sum(p.end - p.start for p in outcome.passages)
    assert 0.98 * claude_ai.ATTACHMENT < size <= claude_ai.ATTACHMENT
    assert [p.text.split(": ", 1)[1] for p in outcome.problems] == [
        f"attachment a.log: the first {claude_ai.ATTACHMENT} of its {len(long)} bytes are read"
    ]


@pytest.mark.parametrize(
    "odd", [chat(), chat(chat_messages=None), chat(message("")), chat(message("", content=[]), name="")]
)
def test_empty_chats_are_fine(tmp_path: Path, odd: Any) -> None:
    outcome = parsed(tmp_path, odd, chat(message("the last words of all")))
    assert (outcome.texts, outcome.problems) == (["the last words of all"], [])


@pytest.mark.parametrize("keys", [sorted, lambda keys: sorted(keys, reverse=True), list])
def test_told_by_its_head_in_any_order_of_keys(tmp_path: Path, keys: Any) -> None:
    told = chat(message('words with "mapping": {} and "title": in them'))
    file = write(tmp_path, {key: told[key] for key in keys(told)}, name="export.json", indent=2)
    assert kind_of(str(file)) == "claude-ai"
    assert len(parse(file).texts) == 1


def test_a_tools_input_does_not_make_it_another_services(tmp_path: Path) -> None:
    block = {"type": "tool_use", "input": {"title": "x", "mapping": {}, "current_node": "y"}}
    assert kind_of(str(write(tmp_path, chat(message("words", content=[block]))))) == "claude-ai"


@pytest.mark.parametrize("name", ["projects.json", "users.json"])
def test_the_exports_other_files_are_not_read(tmp_path: Path, name: str) -> None:
    rows = {
        "projects.json": [{"uuid": "p", "name": "x", "docs": [{"filename": "a", "content": '"chat_messages": []'}]}],
        "users.json": [{"uuid": "u", "full_name": "Ada", "email_address": "ada@example.org"}],
    }
    assert kind_of(str(write(tmp_path, *rows[name], name=name))) is None


def test_p016_p025_p031_in_words_and_attachments(tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5" * 3
    kept = [{"file_name": f"{key}.txt", "extracted_content": f"the key {key} again \ud83d and \0"}]
    file = write(tmp_path, chat(message(f"my key is {key} today", attachments=kept)), chat(message("an odd byte here")))
    file.write_bytes(file.read_bytes().replace(b"odd byte", b"odd \xff byte"))
    outcome = parse(file)
    told = outcome.all_text + "".join(p.heading for p in outcome.passages)
    assert key not in told
    assert set("\0\ud83d").isdisjoint(told)
    assert outcome.texts[-1] == "an odd \ufffd byte here"
    assert [p.text.split(": ")[1] for p in outcome.problems] == ["2 invalid bytes replaced"]  # it stands there twice


@given(
    st.lists(st.tuples(st.sampled_from(["human", "assistant"]), st.lists(WORDS, max_size=3)), max_size=5), st.booleans()
)
def test_any_conversation_gives_its_blocks_in_order(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, list[list[str]]]], ascii_only: bool
) -> None:
    messages = [
        message("\n".join(" ".join(words) for words in blocks), sender,
                content=[{"type": "text", "text": " ".join(words)} for words in blocks])
        for sender, blocks in told
    ]  # fmt: skip
    file = write(tmp_path_factory.mktemp("chat"), chat(*messages), ensure_ascii=ascii_only)
    outcome = parse(file)
    speakers = {"human": "user", "assistant": "assistant"}
    assert [(p.speaker, p.text) for p in outcome.passages] == [
        (speakers[sender], " ".join(words)) for sender, blocks in told for words in blocks
    ]


def test_survey_counts(tmp_path: Path) -> None:
    file = write(tmp_path, chat(message("hm"), message("four metres at low tide", "assistant"), message("x", "system")))
    surveyed = survey(file, lambda done, total: None)
    assert (surveyed.label, surveyed.passages, surveyed.tally.conversations) == ("Claude.ai export", 1, 1)
    assert dict(surveyed.tally.by) == {"user": 1, "assistant": 1}
    assert surveyed.tally.first == surveyed.tally.last == datetime(2024, 5, 2, 10, tzinfo=UTC).timestamp()


def test_memory_is_bounded_whatever_the_size(tmp_path: Path) -> None:
    noise = [{"type": "tool_result", "content": "output " * 8_000}, {"type": "text", "text": "four metres at low tide"}]
    told = [chat(message(f"what number {n} asks of us"), message("", "assistant", content=noise)) for n in range(9)]
    file = tmp_path / "conversations.json"
    size = write_array(file, told, 200_000_000)
    done = subprocess.run([sys.executable, "-c", PEAK, str(file)], capture_output=True, text=True, check=True)
    kind, passages, grown = done.stdout.split()
    assert kind == "claude-ai"
    assert int(passages) > 2 * size // 70_000
    assert int(grown) < MEMORY_KB
