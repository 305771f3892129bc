"""What holds of every host's sessions: whatever a line's faults, nothing else is lost, and every offset is exact."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_parsing import parse
from recalld_daemon.ingest.parse import goes_on, kind_of
from recalld_daemon.ingest.redact import MASK
from transcripts import FORMATS, GEMINI, MOMENT, PROJECT, RECORDED, Format

FIRST, LAST = "the first words of all", "the last words of all"
GROWING = [form for form in FORMATS if form is not GEMINI]

each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.kind)


@each_format
def test_who_said_what_when_and_where(form: Format, tmp_path: Path) -> None:
    file = form.write(tmp_path, *form.lines(FIRST, '"Quoted"\nand escaped\\ words 🦢'))
    assert kind_of(str(file)) == form.kind
    outcome = parse(file)
    assert [(p.speaker, p.text) for p in outcome.passages] == [
        ("user", FIRST),
        ("assistant", '"Quoted"\nand escaped\\ words 🦢'),
    ]
    assert {(p.written_at, p.codec) for p in outcome.passages} == {(MOMENT, "json")}
    assert (outcome.project, outcome.problems) == (PROJECT, [])


RECORDED_FILES = sorted(RECORDED.glob("*.jsonl"))


@pytest.mark.parametrize("file", RECORDED_FILES, ids=lambda file: file.stem)
def test_p013_of_a_recorded_session_only_what_was_said_is_indexed(file: Path) -> None:
    assert "recalled: " in file.read_text() and "harbour pump" in file.read_text()  # noqa: PT018 (the fixture's own)
    outcome = parse(file)
    assert (outcome.problems, outcome.project) == ([], "/home/user/proj")
    assert len(outcome.texts) >= 2
    for words in (
        "recalled",
        "harbour",
        "pump",
        "hook",
        "AGENTS",
        "tabs",
        "session_context",
        "<",
        "alpha\n",
        "cat a.txt",
    ):
        assert words not in outcome.all_text


@each_format
def test_p016_secrets_are_masked(form: Format, tmp_path: Path) -> None:
    outcome = parse(form.write(tmp_path, *form.lines("push with ghp_0123456789abcdefghijABCDEFGHIJ012345 then")))
    assert "ghp_0123456789abcdefghijABCDEFGHIJ012345" not in outcome.all_text
    assert MASK in outcome.all_text


@each_format
def test_p025_an_invalid_byte_costs_its_own_record(form: Format, tmp_path: Path) -> None:
    lines: list[str | bytes] = list(form.lines(*(f"this is line number {n}" for n in range(10))))
    at = len(form.opening) + 2
    lines[at] = str(lines[at]).encode().replace(b"line number", b"line \xff number")
    outcome = parse(form.write(tmp_path, *lines))
    assert [text[-1] for text in outcome.texts] == [*"01", *"3456789"]
    assert len(outcome.problems) == 1


@each_format
@pytest.mark.parametrize("bad", ["{not json", "[1, 2]", '"text"', "\0\0\0", "{" * 100_000, '{"a":' * 50_000])
def test_p025_a_line_that_is_no_record_is_counted(form: Format, bad: str, tmp_path: Path) -> None:
    first, last = form.lines(FIRST), form.lines(FIRST, LAST)[-1]
    outcome = parse(form.write(tmp_path, *first, bad, last))
    assert outcome.texts == [FIRST, LAST]
    assert [problem.line for problem in outcome.problems] == [len(first) + 1]


@each_format
@pytest.mark.parametrize("cut", [5, -30, -2])
def test_p026_a_torn_last_line_is_left_for_later(form: Format, cut: int, tmp_path: Path) -> None:
    lines = form.lines(FIRST, "words with a swan 🦢")
    whole = form.write(tmp_path, *lines).read_bytes().replace(b"\\ud83e\\udda2", "🦢".encode())
    start = whole.rindex(b"\n", 0, -1) + 1
    file = form.write(tmp_path, whole[: start + cut if cut > 0 else len(whole) + cut], end=b"")
    outcome = parse(file)
    assert (outcome.texts, outcome.problems) == ([FIRST], [])
    assert outcome.cursor == (start if outcome.append_only else file.stat().st_size)
    file.write_bytes(whole)
    rest = parse(file, outcome.cursor)
    assert rest.texts == (["words with a swan 🦢"] if rest.append_only else [FIRST, "words with a swan 🦢"])
    assert rest.problems == []


@pytest.mark.parametrize("form", GROWING, ids=lambda form: form.kind)
def test_what_is_appended_is_read_and_nothing_twice(form: Format, tmp_path: Path) -> None:
    lines = form.lines(FIRST, "in the middle of it all", LAST)
    file = form.write(tmp_path, *lines[:-1])
    outcome = parse(file)
    form.write(tmp_path, *lines)
    assert goes_on(str(file), outcome.cursor, form.kind)
    rest = parse(file, outcome.cursor)
    assert rest.texts == [LAST]
    assert parse(file, rest.cursor).texts == []


@each_format
def test_p028_lines_of_many_megabytes_are_passed_over_in_little_memory(form: Format, tmp_path: Path) -> None:
    lines = form.lines(FIRST, "in the middle of it all", LAST)
    file = tmp_path / form.name
    file.parent.mkdir(exist_ok=True)
    with file.open("wb") as out:
        for n, line in enumerate(lines):
            if n >= len(form.opening):
                out.write(b'{"type":"user","id":"x","message":{"content":"')
                for _ in range((25, 60, 0)[n - len(form.opening)]):
                    out.write(b"x" * 1_000_000)
                out.write(b'"}}\n')
            out.write(line.encode() + b"\n")
    tracemalloc.start()
    try:
        outcome = parse(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.texts == [FIRST, "in the middle of it all", LAST]
    assert len(outcome.problems) == 2
    assert peak < 24_000_000


@each_format
def test_p029_base64_gives_no_passage(form: Format, tmp_path: Path) -> None:
    blob = "iVBORw0KGgo" * 3000
    outcome = parse(form.write(tmp_path, *form.lines(f"Look at this: data:image/png;base64,{blob} and tell me")))
    assert outcome.texts == ["Look at this:", "and tell me"]


@each_format
def test_p031_nuls_and_lone_surrogates(form: Format, tmp_path: Path) -> None:
    lines = form.lines("a null NUL and halves of EMOJI, LOW, a whole 🦢 and \\ud83d here")
    lines[-1] = lines[-1].replace("NUL", "\\u0000").replace("EMOJI", "\\ud83d").replace("LOW", "\\udca2")
    outcome = parse(form.write(tmp_path, *lines))
    assert outcome.texts == ["a null \ufffd and halves of \ufffd, \ufffd, a whole 🦢 and \\ud83d here"]
    assert outcome.problems == []
    outcome.all_text.encode()


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=())), max_size=6), ascii=st.booleans())
@each_format
def test_every_word_is_found_and_every_offset_is_exact(
    form: Format, tmp_path_factory: pytest.TempPathFactory, texts: list[str], ascii: bool
) -> None:
    said = [f"three words and {text} so on" for text in texts]
    lines = [json.dumps(json.loads(line), ensure_ascii=ascii) for line in form.lines(*said)]
    raw = "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"
    file = tmp_path_factory.mktemp("records") / form.name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(raw)
    outcome = parse(file)  # which reads every passage's bytes again
    whole = sum(is_text(line) for line in lines[len(form.opening) :])
    assert outcome.all_text.count("three words and") == whole


def is_text(line: str) -> bool:
    """Whether a line can be written as UTF-8; a half of a surrogate pair that is not escaped cannot."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def test_every_kind_is_told_from_every_other(tmp_path: Path) -> None:
    kinds = [kind_of(str(form.write(tmp_path / form.kind, *form.lines(FIRST)))) for form in FORMATS]
    assert kinds == [form.kind for form in FORMATS]
    (tmp_path / "x.jsonl").write_text('{"type": "session", "payload": {}}\n')
    assert kind_of(str(tmp_path / "x.jsonl")) is None
