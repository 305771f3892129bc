"""Claude Code transcripts: what was said, nothing that was injected, and no record lost."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.parse import goes_on, kind_of


def record(content: Any, kind: str = "user", **more: Any) -> dict[str, Any]:
    base = {
        "parentUuid": None,
        "isSidechain": False,
        "type": kind,
        "cwd": "/home/ada/tidewater",
        "timestamp": "2026-03-02T10:00:00.500Z",
        "message": {"role": kind, "content": content},
    }
    return base | more


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def write(tmp_path: Path, *records: Any, end: str = "\n") -> Path:
    file = tmp_path / "session.jsonl"
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    file.write_bytes(("\n".join(lines) + end).encode("utf-8", "surrogateescape"))
    return file


def parsed(tmp_path: Path, *records: Any) -> Outcome:
    return parse(write(tmp_path, record("the first words of all"), *records))


def test_user_and_assistant_text_with_speaker_date_and_project(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, record(text('"Quoted"\nand escaped\\ words'), "assistant"))
    assert [(p.speaker, p.text) for p in outcome.passages] == [
        ("user", "the first words of all"),
        ("assistant", '"Quoted"\nand escaped\\ words'),
    ]
    assert {p.written_at for p in outcome.passages} == {1772445600.5}
    assert (outcome.project, outcome.append_only) == ("/home/ada/tidewater", True)
    assert {p.codec for p in outcome.passages} == {"json"}


@pytest.mark.parametrize(
    "silent",
    [
        record("secret heron words here", isMeta=True),
        record("secret heron words here", isCompactSummary=True),
        record("secret heron words here", isApiErrorMessage=True),
        record("secret heron words here", "attachment"),
        record("secret heron words here", "system"),
        record([{"type": "tool_result", "content": text("secret heron words here")}]),
        record([{"type": "tool_use", "name": "x", "input": {"text": "secret heron words here"}}], "assistant"),
        record([{"type": "thinking", "thinking": "secret heron words here"}], "assistant"),
        record([{"type": "image", "source": {"data": "secret heron words here"}}]),
        {"type": "summary", "summary": "secret heron words here", "leafUuid": "x"},
        {"type": "queue-operation", "content": "secret heron words here"},
        {"type": "api-request-blob", "message": {"role": "user", "content": "secret heron words here"}},
        record("<command-name>/x</command-name>\n<command-args>secret heron words here</command-args>"),
        record("<local-command-stdout>secret heron words here</local-command-stdout>"),
        record("<system-reminder>\nsecret heron words here\n</system-reminder>"),
        record("<hook_context>secret heron words here"),
        record('recalled: "… secret heron words here …" — a.md:1-2'),
        record("[Request interrupted by user for heron tool use]"),
        record("API Error: heron words are here"),
        {"type": "assistant", "message": {"model": "<synthetic>", "content": text("secret heron words here")}},
    ],
)
def test_p013_what_nobody_said_is_not_indexed(tmp_path: Path, silent: dict[str, Any]) -> None:
    outcome = parsed(tmp_path, silent, record("the last words of all"))
    assert outcome.texts == ["the first words of all", "the last words of all"]
    assert outcome.problems == []


def test_p013_a_reminder_inside_a_message_leaves_the_rest(tmp_path: Path) -> None:
    outcome = parsed(
        tmp_path, record("We said this before. <system-reminder>heron</system-reminder> And that after it.")
    )
    assert outcome.texts[1:] == ["We said this before.", "And that after it."]


def test_a_subagents_words_are_no_users(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, record("look into the harbour code", isSidechain=True))
    assert outcome.passages[1].speaker == "assistant"


def test_a_resumed_copy_is_indexed_once(tmp_path: Path) -> None:
    same = record("these words were said once", uuid="u1")
    assert (
        parsed(tmp_path, same, same, record("these words were said once", uuid="u2")).texts[1:]
        == ["these words were said once"] * 2
    )


def test_p025_nine_of_ten_lines_are_indexed(tmp_path: Path) -> None:
    lines: list[Any] = [record(f"this is line number{n}") for n in range(1, 11)]
    lines[2] = json.dumps(lines[2]).replace("line number3", "line \udcff number3")
    outcome = parse(write(tmp_path, *lines))
    assert [t[-1] for t in outcome.texts] == [*"12456789", "0"]
    assert [p.line for p in outcome.problems] == [3]


@pytest.mark.parametrize(
    "bad", ["{not json", "[1, 2]", '"text"', "\0\0\0", '{"type": "user", "message": 7}', '{"type": 3}']
)
def test_a_line_that_is_no_record_is_counted(tmp_path: Path, bad: str) -> None:
    outcome = parsed(tmp_path, bad, record("the last words of all"))
    assert outcome.texts[-1] == "the last words of all"
    assert [p.line for p in outcome.problems] == [2]


def test_many_problems_are_counted_not_told_one_by_one(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, *["{bad"] * 1000)
    assert len(outcome.problems) == 51
    assert outcome.problems[-1].text == "and 950 more problems"


@pytest.mark.parametrize("cut", [5, -30, -4])
def test_p026_a_torn_last_line_is_left_for_later(tmp_path: Path, cut: int) -> None:
    whole = write(tmp_path, record("the first words of all"), record("words with a swan 🦢")).read_bytes()
    whole = whole.replace(b"\\ud83e\\udda2", "🦢".encode())
    start = whole.index(b"\n") + 1
    at = whole.index("🦢".encode()) + 2 if cut == -4 else start + cut if cut > 0 else len(whole) + cut
    file = tmp_path / "session.jsonl"
    file.write_bytes(whole[:at])
    outcome = parse(file)
    assert (outcome.texts, outcome.cursor, outcome.problems) == (["the first words of all"], start, [])
    file.write_bytes(whole)
    rest = parse(file, outcome.cursor)
    assert rest.texts == ["words with a swan 🦢"]
    assert rest.cursor == len(whole)
    assert parse(file, rest.cursor).passages == []


def test_a_last_record_without_newline_is_whole(tmp_path: Path) -> None:
    file = write(tmp_path, record("the only words of all"), end="")
    outcome = parse(file)
    assert outcome.texts == ["the only words of all"]
    with file.open("a") as out:
        out.write("\n" + json.dumps(record("some more words here")) + "\n")
    assert goes_on(str(file), outcome.cursor)
    assert parse(file, outcome.cursor).texts == ["some more words here"]


def test_a_rewritten_file_does_not_go_on(tmp_path: Path) -> None:
    file = write(tmp_path, record("the only words of all"))
    assert goes_on(str(file), 0)
    assert goes_on(str(file), file.stat().st_size)
    assert not goes_on(str(file), 40)


def test_p028_lines_of_many_megabytes_are_skipped_in_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    with file.open("wb") as out:
        for n, megabytes in enumerate((0, 25, 0, 60, 0)):
            if megabytes:
                out.write(b'{"type":"user","message":{"content":"')
                for _ in range(megabytes):
                    out.write(b"x" * 1_000_000)
                out.write(b'"}}\n')
            else:
                out.write(json.dumps(record(f"a normal line, the one called {n}")).encode() + b"\n")
    tracemalloc.start()
    try:
        outcome = parse(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [t[-1] for t in outcome.texts] == ["0", "2", "4"]
    assert [p.line for p in outcome.problems] == [2, 4]
    assert peak < 20_000_000


def test_p029_base64_in_a_message_gives_no_passage(tmp_path: Path) -> None:
    blob = "iVBORw0KGgo" * 3000
    outcome = parsed(tmp_path, record(f"Look at this picture: data:image/png;base64,{blob} and tell me"))
    assert outcome.texts[1:] == ["Look at this picture:", "and tell me"]


def test_p031_nuls_and_lone_surrogates_in_a_message(tmp_path: Path) -> None:
    raw = json.dumps(record("a null NUL and halves of EMOJI, LOW, a whole 🦢 and \\ud83d here"))
    raw = raw.replace("NUL", "\\u0000").replace("EMOJI", "\\ud83d").replace("LOW", "\\udca2")
    outcome = parsed(tmp_path, raw)
    assert outcome.texts[1] == "a null \ufffd and halves of \ufffd, \ufffd, a whole 🦢 and \\ud83d here"
    assert outcome.problems == []
    outcome.texts[1].encode()


def test_a_long_message_is_cut_with_offsets_into_the_json(tmp_path: Path) -> None:
    words = "\n\n".join(f'Paragraph {n} said "something" längere 🦢 about it, and then\tsome more.' for n in range(60))
    outcome = parsed(tmp_path, record(words), record(text(words), "assistant"))
    assert len(outcome.passages) > 10
    assert "".join("".join(outcome.texts[1:]).split()) == "".join((words + words).split())


def test_only_a_transcript_is_one(tmp_path: Path) -> None:
    assert kind_of(str(write(tmp_path, record("hello")))) == "claude-code"
    assert kind_of(str(write(tmp_path, {"type": "summary", "summary": "x", "leafUuid": "y"}))) == "claude-code"
    assert kind_of(str(write(tmp_path, {"question": "q", "answer": "a"}))) is None
    assert kind_of(str(write(tmp_path, ""))) is None


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_record_nested_without_end_is_told_and_the_rest_is_read(tmp_path: Path, end: str) -> None:
    deep = '{"type": "user", "message": ' + "[" * 100_000
    after = "words that come after the deep one"
    outcome = parse(write(tmp_path, record("the first words of all"), deep, record(after), deep + "}", end=end))
    assert [p.text for p in outcome.passages] == ["the first words of all", after]
    assert [problem.line for problem in outcome.problems] == ([2, 4] if end else [2])
