"""What was extracted is kept with its passage, replaced with it, and goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from recalld_daemon.extract.interface import Piece
from recalld_daemon.extract.rules import RULES
from recalld_daemon.store import Reader, Writer, open_reader, open_writer
from recalld_daemon.worker_wire import ParsedPassage, ParsedSubject, ParsedWhen
from store_samples import DIMS, TOKEN_DIMS, encode_missing, passage


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with open_writer(tmp_path / "x.db") as writer:
        yield writer


@pytest.fixture
def reader(writer: Writer) -> Iterator[Reader]:
    with open_reader(writer.path) as reader:
        yield reader


def told(text: str, start: int = 0, *, facts: Sequence[str] = (), people: Sequence[str] = (), recipe: str = "facts=r-1",
         whens: Sequence[ParsedWhen] = (), aliases: tuple[str, ...] = ()) -> ParsedPassage:  # fmt: skip
    subjects = [ParsedSubject("person", name, aliases) for name in people]
    return changed(passage(text, start), facts=list(facts), subjects=subjects, whens=list(whens), recipe=recipe)


def write(writer: Writer, path: str, batch: Sequence[ParsedPassage]) -> tuple[list[int], list[int]]:
    with writer.transaction():
        source = writer.begin_source(path, shown_path=path, kind="markdown")
        return writer.add_passages(source, batch), writer.finish_source(source, cursor=100)


def rows(reader: Reader, sql: str) -> list[Any]:
    return reader._all(sql)


def facts(reader: Reader) -> list[tuple[int, str, str]]:
    return rows(reader, "SELECT passage, text, made_by FROM facts ORDER BY id")


def people(reader: Reader) -> list[tuple[str, int]]:
    sql = "SELECT s.name, l.passage FROM subjects s LEFT JOIN passage_subjects l ON l.subject = s.id ORDER BY 1, 2"
    return rows(reader, sql)


YESTERDAY = ParsedWhen(1e9, 1e9 + 86_400, "day", "yesterday")


def test_what_came_with_a_passage_is_kept_with_its_maker(writer: Writer, reader: Reader) -> None:
    write(writer, "/a.md", [told("one", facts=["Ada ships"], people=["Ada"], whens=[YESTERDAY, YESTERDAY])])
    assert facts(reader) == [(1, "Ada ships", "r-1")]
    assert people(reader) == [("Ada", 1)]
    assert rows(reader, "SELECT * FROM passage_whens") == [(1, 1e9, 1e9 + 86_400, "day", "yesterday")]
    assert writer.check() == []


def test_a_passage_found_again_keeps_its_facts_and_one_that_is_gone_takes_them_along(
    writer: Writer, reader: Reader
) -> None:
    write(writer, "/a.md", [told("one", facts=["f1"], people=["Ada"]), told("two", 9, facts=["f2"], people=["Bob"])])
    new, gone = write(writer, "/a.md", [told("one", facts=["f1"], people=["Ada"]), told("three", 9, facts=["f3"])])
    assert (new, gone) == ([3], [2])
    assert facts(reader) == [(1, "f1", "r-1"), (3, "f3", "r-1")]
    assert people(reader) == [("Ada", 1)]
    writer.remove_source("/a.md")
    assert facts(reader) == people(reader) == rows(reader, "SELECT * FROM subject_aliases") == []


def test_another_recipe_replaces_what_the_last_one_made(writer: Writer, reader: Reader) -> None:
    write(writer, "/a.md", [told("one", facts=["old"], people=["Ada", "Bob"], whens=[YESTERDAY])])
    write(writer, "/b.md", [told("four", people=["Bob"])])
    new, _ = write(writer, "/a.md", [told("one", facts=["new"], people=["Ada"], recipe="facts=llm-2")])
    assert new == [1]  # those who know facts must learn it again
    assert facts(reader) == [(1, "new", "llm-2")]
    assert people(reader) == [("Ada", 1), ("Bob", 2)]
    assert rows(reader, "SELECT * FROM passage_whens") == []


def test_a_subject_is_one_however_it_is_written_and_shared_from_two_passages_on(writer: Writer, reader: Reader) -> None:
    symbols = [
        changed(told("one"), subjects=[ParsedSubject("symbol", "getUserName", ("getusername",))]),
        changed(told("two", 9), subjects=[ParsedSubject("symbol", "get_user_name", ("get_user_name",))]),
    ]
    write(writer, "/a.md", symbols[:1])
    assert rows(reader, "SELECT name, shared FROM subjects") == [("getUserName", 0)]
    write(writer, "/b.md", symbols[1:])
    assert rows(reader, "SELECT name, shared FROM subjects") == [("getUserName", 1)]
    assert rows(reader, "SELECT alias FROM subject_aliases ORDER BY 1") == [("get_user_name",), ("getusername",)]


def test_a_first_name_means_the_only_one_who_bears_it(writer: Writer, reader: Reader) -> None:
    write(writer, "/a.md", [told("one", people=["Ada Lovelace"], aliases=("ada",))])
    write(writer, "/b.md", [told("two", people=["Ada"])])
    assert people(reader) == [("Ada Lovelace", 1), ("Ada Lovelace", 2)]
    write(
        writer,
        "/c.md",
        [told("three", people=["Bo Smith"], aliases=("bo",)), told("4", 9, people=["Bo Jones"], aliases=("bo",))],
    )
    write(writer, "/d.md", [told("five", people=["Bo"])])
    assert people(reader)[2:] == [("Bo", 5), ("Bo Jones", 4), ("Bo Smith", 3)]


def test_facts_are_embedded_after_passages_and_names_after_facts_without_tokens(writer: Writer, reader: Reader) -> None:
    encoder = writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)
    batch = [told("one", facts=["f1"], people=["Ada", "Once"]), told("two", 9, facts=["f2"], people=["Ada"])]
    write(writer, "/a.md", batch)
    texts = [text for _, text in reader.missing_vectors(encoder, 0, 10)]
    assert texts == ["two", "one", "f2", "f1", "Ada"]
    assert [text for _, text in reader.missing_vectors(encoder, 0, 3)] == ["two", "one", "f2"]
    assert encode_missing(writer, reader, encoder) == [1, 2]
    assert reader.missing_vectors(encoder, 0, 10) == []
    sizes = rows(reader, "SELECT length(tokens) > 0 FROM vectors ORDER BY rowid")
    assert sizes == [(1,), (1,), (0,), (0,), (0,)]
    assert writer.prune() == 0
    writer.remove_source("/a.md")
    assert writer.prune() == 5


def test_a_fact_that_reads_like_a_passage_does_not_take_its_tokens(writer: Writer, reader: Reader) -> None:
    encoder = writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)
    write(writer, "/a.md", [told("one", facts=["two"])])
    encode_missing(writer, reader, encoder)
    write(writer, "/b.md", [told("two")])
    assert [text for _, text in reader.missing_vectors(encoder, 0, 10)] == ["two"]
    encode_missing(writer, reader, encoder)
    assert len(reader.vectors_for([2], encoder, 0).starts[0]) == 1


def test_memories_are_extracted_from_when_they_are_given(writer: Writer, reader: Reader) -> None:
    text = "The staging server moved to Helsinki because of the outage last week. Deploys go through `make release`."
    writer.remember(text, at=1_683_458_900.0)
    assert len(facts(reader)) >= 1
    assert [row[0] for row in rows(reader, "SELECT said FROM passage_whens")] == ["last week"]
    assert ("Helsinki", 1) in people(reader)


def test_a_new_recipe_has_files_read_again_and_memories_extracted_anew_once(writer: Writer, reader: Reader) -> None:
    class Louder:
        name = "loud-2"

        def facts(self, piece: Piece) -> list[str]:
            return [piece.text.upper()]

    writer.remember("the key lies under the mat", at=1e9)
    write(writer, "/a.md", [told("one", facts=["f1"], recipe=RULES.name)])
    assert writer.adopt_recipe(RULES) == 0
    louder = replace(RULES, facts=Louder())
    assert writer.adopt_recipe(louder) == 2
    assert writer.adopt_recipe(louder) == 0
    assert facts(reader) == [(2, "f1", "rules-1"), (1, "THE KEY LIES UNDER THE MAT", "loud-2")]
    assert {s.path: s.mtime_ns for s in reader.sources()}["/a.md"] == -1


def test_what_is_not_text_does_not_stop_a_batch(writer: Writer, reader: Reader) -> None:
    odd = changed(
        told("one", facts=["a\x00b\ud800"], people=["A\x00da", "", "'s"]), whens=[ParsedWhen(0.0, 1.0, "day", "\x00")]
    )
    write(writer, "/a.md", [odd])
    assert facts(reader) == [(1, "a\ufffdb\ufffd", "r-1")]
    assert writer.check() == []
