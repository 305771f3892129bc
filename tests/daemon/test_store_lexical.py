"""Full-text search: terms are data, views are kept, and common words cost nothing."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from pathlib import Path

import pytest

from recalld_daemon.recall.types import GLOBAL_SCOPE, Lane, Query, View
from recalld_daemon.store import LexicalLane, Reader, Writer, lexical, open_reader, open_writer, texts
from store_samples import passage, put_file

TEXTS = [
    "run the pre-edit hook first",
    "don't use the old key",
    "the disk does 3 GB/s on a good day",
    "call getUserName in user_store.py",
    "das Café in der Größe",
    "foo and bar",
]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with open_writer(tmp_path / "recalld.db") as writer:
        put_file(writer, "/home/ada/notes/ops.md", TEXTS)
        yield writer


@pytest.fixture
def reader(writer: Writer) -> Iterator[Reader]:
    with open_reader(writer.path) as reader:
        yield reader


def texts_of(reader: Reader, *terms: str, view: View = View()) -> list[str]:  # noqa: B008
    return [p.text for p in reader.passages(reader.lexical(terms, view, 10).ids.tolist())]


@pytest.mark.parametrize("module", [texts, lexical])
def test_the_examples_in_the_docs_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("pre-edit", TEXTS[0]),
        ("don't", TEXTS[1]),
        ("don’t", TEXTS[1]),
        ("GB/s", TEXTS[2]),
        ("getusername", TEXTS[3]),
        ("user_store.py", TEXTS[3]),
        ("CAFE", TEXTS[4]),
        ("größe", TEXTS[4]),
        ("foo AND", TEXTS[5]),  # a phrase, no operator
    ],
)
def test_p037_hyphens_apostrophes_and_slashes_are_part_of_words(reader: Reader, term: str, text: str) -> None:
    assert texts_of(reader, term) == [text]


@pytest.mark.parametrize(
    "term",
    ['say "hi', "NEAR(", "a:b", "*", "title:x", "^", "(", "{a b}: c", "-x", "NOT", "\x00", "a\x00b", "'; DROP TABLE"],
)
def test_p037_grammar_in_a_term_is_no_grammar(reader: Reader, term: str) -> None:
    assert reader.lexical([term, "foo"], View(), 5).ids.tolist() == reader.lexical(["foo"], View(), 5).ids.tolist()


@pytest.mark.parametrize("terms", [[], [""], ["😀", "🎉🎉"], ['"' * 5000], ['"'] * 5000, ["\ud83d"], ["nowhere"]])
def test_p037_nothing_to_search_for_finds_nothing(reader: Reader, terms: list[str]) -> None:
    hits = reader.lexical(terms, View(), 5)
    assert (hits.ids.shape, hits.scores.shape) == ((0,), (0,))


def test_parts_of_camel_case_and_words_of_the_path_are_found(reader: Reader) -> None:
    assert texts_of(reader, "getUserName", "name") == [TEXTS[3]]
    assert sorted(texts_of(reader, "ops")) == sorted(TEXTS)
    assert texts_of(reader, "md") == []  # an extension is no reason to remember a file


def test_a_heading_counts_more_than_the_text(writer: Writer, reader: Reader) -> None:
    source = writer.begin_source("/h.md", shown_path="h.md", kind="markdown")
    ids = writer.add_passages(source, [passage("we rollback often"), passage("how we go back", heading="Rollback")])
    writer.finish_source(source, cursor=9)
    assert reader.lexical(["rollback"], View(), 5).ids.tolist() == [ids[1], ids[0]]


def test_p014_only_the_views_scopes_are_seen(writer: Writer, reader: Reader) -> None:
    a, b = writer.scope_id("/a"), writer.scope_id("/b")
    put_file(writer, "/a/n.md", ["deploy with make ship"], scope=a)
    put_file(writer, "/b/n.md", ["deploy with npm run ship"], scope=b)
    put_file(writer, "/n.md", ["deploy on Fridays"])
    assert sorted(texts_of(reader, "deploy", view=View((GLOBAL_SCOPE, a)))) == [
        "deploy on Fridays",
        "deploy with make ship",
    ]
    assert len(texts_of(reader, "deploy", view=View(None))) == 3
    assert texts_of(reader, "deploy", view=View(())) == []


def test_as_of_hides_what_was_written_then_or_later(writer: Writer, reader: Reader) -> None:
    for day in (1, 2, 3):
        put_file(writer, f"/{day}.md", [f"report of day {day}"], mtime=float(day))
    assert sorted(texts_of(reader, "report", view=View(as_of=2.0))) == ["report of day 1"]


def test_common_words_do_not_crowd_out_rare_ones(writer: Writer, reader: Reader) -> None:
    put_file(writer, "/many.md", [f"common filler number{n}" for n in range(400)])
    put_file(writer, "/one.md", ["common zeppelin"])
    assert texts_of(reader, "common", "filler", "zeppelin") == ["common zeppelin"]
    assert len(texts_of(reader, "common", "filler")) == 10  # when nothing else is left they count


def test_frequencies_follow_a_growing_store(writer: Writer, reader: Reader) -> None:
    assert texts_of(reader, "zeppelin") == []
    put_file(writer, "/one.md", ["zeppelin"])
    assert texts_of(reader, "zeppelin") == ["zeppelin"]


def test_the_lexical_lane_is_a_lane(reader: Reader) -> None:
    lane: Lane = LexicalLane(reader)
    assert (lane.name, lane.needs_encoding) == ("lexical", False)
    hits = lane.search(Query("the old key", ("key", "old"), "k"), None, View(), 3)
    assert reader.passages(hits.ids.tolist())[0].text == TEXTS[1]
    assert hits.scores[0] > 0
