"""Markdown and text: sections and headings, encodings, what is left out, and offsets that stay right."""

from __future__ import annotations

import base64
import os
import tracemalloc
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.chunks import LEAST, MOST, cut, tokens
from recalld_daemon.ingest.holes import holes
from recalld_daemon.ingest.lines import PIECE, read_lines
from recalld_daemon.ingest.parse import kind_of

NOTE = (
    "---\ntitle: Harbour\ndate: 2026-03-02\n---\n# Deploy\n\nAsk first, then ship.\n\n## Rollback\n\nCafé: undo it.\n"
)
BLOB = base64.b64encode(bytes(range(256)) * 400).decode()


def parsed(tmp_path: Path, content: str | bytes, name: str = "note.md") -> Outcome:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(file, (4e9, 4e9))  # after every date in these tests, whenever they run
    return parse(file)


@pytest.mark.parametrize(
    ("bom", "codec", "newline"),
    [
        (b"", "utf-8", "\n"),
        (b"\xef\xbb\xbf", "utf-8", "\n"),
        (b"\xef\xbb\xbf", "utf-8", "\r\n"),
        (b"\xff\xfe", "utf-16-le", "\n"),
        (b"\xff\xfe", "utf-16-le", "\r\n"),
        (b"\xfe\xff", "utf-16-be", "\n"),
    ],
)
def test_p024_frontmatter_and_headings_in_every_encoding(tmp_path: Path, bom: bytes, codec: str, newline: str) -> None:
    raw = bom + NOTE.replace("\n", newline).encode(codec)
    outcome = parsed(tmp_path, raw)
    assert outcome.texts == ["Ask first, then ship.", "Café: undo it."]
    assert [p.heading for p in outcome.passages] == ["Harbour > Deploy", "Harbour > Deploy > Rollback"]
    assert {p.written_at for p in outcome.passages} == {datetime(2026, 3, 2, 23, 59, 59).timestamp()}
    assert {p.codec for p in outcome.passages} == {codec}
    assert outcome.passages[1].start == raw.index("Café".encode(codec))
    assert outcome.problems == []


def test_utf16_with_newline_bytes_inside_characters(tmp_path: Path) -> None:
    text = "\u0a0a\u0a0d lives here\n\u010a\u0a00 and there\n"
    outcome = parsed(tmp_path, b"\xff\xfe" + text.encode("utf-16-le"))
    assert outcome.texts == [text.strip()]


def test_p025_windows_1252_is_read_and_said(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, "Der Müller läßt „grüßen“ – für 5 € …".encode("cp1252"), "brief.txt")
    assert outcome.texts == ["Der Müller läßt „grüßen“ – für 5 € …"]
    assert "Windows-1252" in outcome.problems[0].text


def test_p025_one_bad_byte_in_utf8_is_replaced_and_counted(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, "één\ntwee\n".encode() + b"dr\xffie\n" + "viér en vijf\n".encode())
    assert "dr\ufffdie" in outcome.all_text
    assert "viér" in outcome.all_text
    assert [problem.line for problem in outcome.problems] == [3]


def test_p025_a_file_cut_inside_a_character(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, "Swans ½ here and there 🦢".encode()[:-2])
    assert outcome.texts == ["Swans ½ here and there \ufffd"]
    assert len(outcome.problems) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (os.urandom(3000), "not indexed"),
        (b"\x7fELF" + bytes(500), "binary"),
        ("Привет, как дела? Это заметка о кошках.".encode("cp1251"), "UTF-8"),
        ("これは日本語のメモです。猫について。".encode("shift-jis"), "not indexed"),
        ("x".encode("utf-32"), "UTF-32"),
    ],
)
def test_p025_what_can_not_be_read_is_said_and_never_indexed(tmp_path: Path, content: bytes, why: str) -> None:
    outcome = parsed(tmp_path, content, "some.txt")
    assert outcome.passages == []
    assert why in outcome.problems[0].text


def test_p031_a_nul_in_a_text_is_replaced(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, b"before the line " * 20 + b"\na \0 b\nafter it\n", "log.txt")
    assert "a \ufffd b" in outcome.all_text
    assert "after it" in outcome.all_text
    assert outcome.problems[0].line == 2


@pytest.mark.parametrize(
    "syntax", ["![a heron](data:image/png;base64,{})", "[x](data:application/pdf;base64,{})", "{}"]
)
@pytest.mark.parametrize("size", [120, 2_500_000])
def test_p029_no_passage_of_a_data_uri(tmp_path: Path, syntax: str, size: int) -> None:
    blob = (BLOB * (size // len(BLOB) + 1))[:size]
    if syntax == "{}" and size == 120:
        blob = f"<img src='data:image/png;base64,{blob}'>"
    outcome = parsed(
        tmp_path, f"# Birds\n\nBefore it we talk. {syntax.format(blob)} After it we rest.\n\nThe end is near.\n"
    )
    assert "Before it we talk." in outcome.all_text
    assert "After it we rest." in outcome.all_text
    assert "The end is near." in outcome.all_text
    assert len(outcome.all_text) < 200
    assert blob[-40:] not in outcome.all_text
    assert blob[:40] not in outcome.all_text


def test_lines_of_base64_and_key_blocks_are_left_out(tmp_path: Path) -> None:
    lines = "\n".join(BLOB[n : n + 76] for n in range(0, 3000, 76))
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "\n".join(["abcdef"] * 3) + "\n-----END OPENSSH PRIVATE KEY-----"
    outcome = parsed(tmp_path, f"The dump:\n{lines}\nand the key:\n{key}\nwere both left out.\n", "dump.txt")
    assert outcome.texts == ["The dump:", "and the key:", "were both left out."]


def test_p013_what_we_injected_is_not_indexed(tmp_path: Path) -> None:
    outcome = parsed(
        tmp_path,
        'Said the log:\n- recalled: "… the heron stands in the reeds …" — notes/a.md:1-9 (2026-03-02)\n'
        '{"additionalContext": "recalled: \\"… of reeds and rushes …\\" — a.md:1-9"}\n'
        "<hook_context>\nreeds again\n</hook_context>\nand went on with its work.\n",
    )
    assert "reeds" not in outcome.all_text
    assert "went on" in outcome.all_text


def test_html_comments_are_left_out_but_not_in_code(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, "Seen.\n<!-- hidden\n words -->\nAlso seen.\n\n```html\n<!-- code -->\n```\n")
    assert "hidden" not in outcome.all_text
    assert "<!-- code -->" in outcome.all_text


def test_headings_underlined_bare_and_in_code(tmp_path: Path) -> None:
    outcome = parsed(
        tmp_path,
        "Title\n=====\n\nIntro text.\n\nSub\n---\n\nSub text.\n\n```sh\n# no heading\nmake all\n```\n\n"
        "## Empty one\n## [Linked](http://x) `code` ##\n\nLast text.\n\n---\n\nAfter the rule.\n",
    )
    assert [(p.heading, p.text) for p in outcome.passages] == [
        ("Title", "Intro text."),
        ("Title > Sub", "Sub text.\n\n```sh\n# no heading\nmake all\n```"),
        ("Title", "## Empty one"),
        ("Title > Linked code", "Last text.\n\n---\n\nAfter the rule."),
    ]


def test_the_date_comes_from_frontmatter_then_name_and_is_never_after_the_last_change(tmp_path: Path) -> None:
    day = datetime(2025, 12, 31, 23, 59, 59).timestamp()
    assert parsed(tmp_path, "Some words.\n", "2025-12-31.md").passages[0].written_at == day
    exact = parsed(tmp_path, "---\nupdated: 2026-01-02T03:04:05Z\n---\nSome words.\n", "2025-12-31 b.md")
    assert exact.passages[0].written_at == 1767323045.0
    assert parsed(tmp_path, "Some words.\n", "c.md").passages[0].written_at is None  # as the file was changed
    os.utime(tmp_path / "2025-12-31.md", (1e9, 1e9))
    assert parse(tmp_path / "2025-12-31.md").passages[0].written_at == 1e9


def test_a_rule_at_the_beginning_is_no_frontmatter(tmp_path: Path) -> None:
    assert "words: here" in parsed(tmp_path, "---\nwords: here\n\nand no end\n").all_text


def test_passages_have_about_a_hundred_tokens_and_keep_words_whole(tmp_path: Path) -> None:
    words = [f"word{n}" for n in range(3000)]
    prose = " ".join(w + ("." if n % 17 == 0 else "") for n, w in enumerate(words))
    outcome = parsed(tmp_path, "# Long\n\n" + prose + "\n")
    sizes = [tokens(text) for text in outcome.texts]
    assert all(LEAST <= size <= MOST for size in sizes[:-1])
    assert [w.strip(".") for text in outcome.texts for w in text.split()] == words


def test_small_blocks_are_packed_and_lists_cut_between_items() -> None:
    items = "".join(f"- item number {n} says a few more words than needed, to be long enough\n" for n in range(30))
    spans = cut("Intro.\n\n" + items)
    texts = [("Intro.\n\n" + items)[a:b] for a, b in spans]
    assert texts[0].startswith("Intro.\n\n- item number 0")
    assert all(text.startswith("- item") for text in texts[1:])


@given(st.text(st.sampled_from("ab .\n-#`é日1"), max_size=2000))
def test_a_cut_loses_nothing_but_space_and_splits_no_word(text: str) -> None:
    spans = cut(text)
    assert [a for a, _ in spans] == sorted(a for a, _ in spans)
    outside = text
    for start, end in reversed(spans):
        assert text[start:end] == text[start:end].strip()
        outside = outside[:start] + outside[end:]
    assert not outside.strip()
    for (_, end), (start, _) in pairwise(spans):
        between = text[end - 1 : start + 1]
        assert any(c.isspace() or c == "日" for c in between)


@given(st.text(max_size=300))
def test_holes_are_ordered_and_apart(text: str) -> None:
    found = holes(text + " data:a/b,c <!-- d", comments=True, host=True)
    assert all(a < b for a, b in found)
    assert all(before[1] < after[0] for before, after in pairwise(found))


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "cp1252"])
@pytest.mark.parametrize("words", ["swan ", "swané", "🦢🦢🦢🦢🦢"])
def test_p028_a_long_line_comes_in_pieces_cut_between_characters(tmp_path: Path, codec: str, words: str) -> None:
    if codec == "cp1252" and "🦢" in words:
        words = "çççç "
    file = tmp_path / "big.txt"
    file.write_bytes(("first\n" + words * 60_000 + "\nlast").encode(codec))
    tracemalloc.start()
    try:
        with file.open("rb") as source:
            sizes, at = [], 0
            for line in read_lines(source, codec, 0):
                assert line.start == at
                assert line.raw.decode(codec)  # raises if a character was cut
                sizes.append((line.number, line.continues, len(line.raw) <= PIECE))
                at += len(line.raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert at == file.stat().st_size
    assert sizes[0] == (1, False, True)
    assert set(sizes[2:-1]) == {(2, True, True)}
    assert sizes[-1] == (3, False, True)
    assert peak < 8 * PIECE


def test_p028_words_are_whole_across_the_pieces_of_a_line(tmp_path: Path) -> None:
    words = [f"word{n}" for n in range(20_000)]
    outcome = parsed(tmp_path, "first line\n" + " ".join(words) + "\nlast line here\n")
    assert " ".join(outcome.texts).split() == ["first", "line", *words, "last", "line", "here"]


@pytest.mark.parametrize(("name", "kind"), [("a.MD", "markdown"), ("a.rst", "text"), ("a.log", None), ("a.png", None)])
def test_the_kind_is_told_by_the_name(tmp_path: Path, name: str, kind: str | None) -> None:
    assert kind_of(str(tmp_path / name)) == kind


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    assert parsed(tmp_path, "").passages == []
    assert parsed(tmp_path, "\ufeff").passages == []
