"""Passes over files: what is still there keeps its id, what is gone is gone everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalld_daemon.recall.types import GLOBAL_SCOPE, View
from recalld_daemon.store import NoSuchRow, Reader, StoreError, Writer, open_reader, open_writer
from store_samples import passage, passages, put_file

NOTE = "/home/ada/notes/deploy.md"


@pytest.fixture
def writer(tmp_path: Path):
    with open_writer(tmp_path / "recalld.db") as writer:
        yield writer
        assert writer.check() == []


@pytest.fixture
def reader(writer: Writer):
    with open_reader(writer.path) as reader:
        yield reader


def found(reader: Reader, *terms: str) -> list[int]:
    return reader.lexical(terms, View(), 10).ids.tolist()


def test_an_edit_keeps_the_ids_of_what_it_did_not_touch(writer: Writer, reader: Reader) -> None:
    first, _ = put_file(writer, NOTE, ["alpha one", "beta two", "gamma three"])
    new, gone = put_file(writer, NOTE, ["a new opening", "alpha one", "gamma three"])
    assert (len(new), gone) == (1, [first[1]])
    assert reader.passage_ids(NOTE) == [new[0], first[0], first[2]]
    kept = reader.passages([first[0]])[0]
    assert (kept.start, kept.end) == (14, 23)
    assert found(reader, "beta") == []


def test_p017_edited_away_text_is_never_found(writer: Writer, reader: Reader) -> None:
    put_file(writer, NOTE, ["the port is 8080"])
    put_file(writer, NOTE, ["the port is 9090"])
    assert found(reader, "8080") == []
    assert [p.text for p in reader.passages(found(reader, "port"))] == ["the port is 9090"]


def test_equal_passages_are_told_apart_by_their_order(writer: Writer, reader: Reader) -> None:
    first, _ = put_file(writer, NOTE, ["same", "same", "other"])
    new, gone = put_file(writer, NOTE, ["same", "other"])
    assert (new, gone) == ([], [first[1]])
    assert reader.passage_ids(NOTE) == [first[0], first[2]]


def test_the_heading_and_the_speaker_are_part_of_what_a_passage_is(writer: Writer, reader: Reader) -> None:
    source = writer.begin_source(NOTE, shown_path="notes/deploy.md", kind="markdown")
    ids = writer.add_passages(source, [passage("text", heading="A"), passage("text", speaker="A"), passage("text")])
    writer.finish_source(source, cursor=4)
    assert len(set(ids)) == 3
    assert [(p.heading, p.speaker) for p in reader.passages(ids)] == [("A", ""), ("", "A"), ("", "")]


def test_an_appending_pass_only_replaces_what_starts_at_the_cursor(writer: Writer, reader: Reader) -> None:
    source = writer.begin_source(NOTE, shown_path="notes/deploy.md", kind="claude-code")
    first = writer.add_passages(source, [passage("finished", 0), passage("half a li", 9)])
    writer.finish_source(source, cursor=9)
    again = writer.begin_source(NOTE, shown_path="notes/deploy.md", kind="claude-code", append=True)
    second = writer.add_passages(again, [passage("half a line", 9)])
    assert writer.finish_source(again, cursor=21) == [first[1]]
    assert reader.passage_ids(NOTE) == [first[0], second[0]]
    assert reader.source(NOTE).cursor == 21


@pytest.mark.parametrize("append", [True, False])
def test_an_interrupted_pass_is_put_right_by_the_next(writer: Writer, reader: Reader, append: bool) -> None:
    first, _ = put_file(writer, NOTE, ["one", "two"])
    cut_off = writer.begin_source(NOTE, shown_path="notes/deploy.md", kind="markdown", append=append)
    writer.add_passages(cut_off, passages(["one", "half"], start=8 if append else 0))
    assert [source.path for source in reader.sources(state="indexing")] == [NOTE]
    put_file(writer, NOTE, ["one", "two", "three"])
    assert [p.text for p in reader.passages(reader.passage_ids(NOTE))] == ["one", "two", "three"]
    assert reader.passage_ids(NOTE)[:2] == first
    assert reader.source(NOTE).state == "ok"


def test_a_full_pass_that_is_cut_off_starts_over_at_byte_0(writer: Writer, reader: Reader) -> None:
    put_file(writer, NOTE, ["one"])
    writer.begin_source(NOTE, shown_path="notes/deploy.md", kind="markdown")
    assert reader.source(NOTE).cursor == 0


def test_adding_outside_a_pass_is_refused(writer: Writer) -> None:
    put_file(writer, NOTE, ["one"])
    with pytest.raises(NoSuchRow, match="begin_source first"):
        writer.add_passages(1, [passage("two")])


def test_a_passage_without_a_date_has_the_files_and_keeps_the_earliest(writer: Writer, reader: Reader) -> None:
    first, _ = put_file(writer, NOTE, ["one"], mtime=2000.0)
    assert put_file(writer, NOTE, ["one"], mtime=3000.0) == ([], [])
    assert reader.passages(first)[0].written_at == 2000.0
    assert put_file(writer, NOTE, ["one"], mtime=1000.0) == (first, [])  # an index must learn the earlier date
    assert reader.passages(first)[0].written_at == 1000.0


def test_another_scope_is_something_an_index_must_learn(writer: Writer, reader: Reader) -> None:
    project = writer.scope_id("/home/ada/shop")
    assert writer.scope_id("/home/ada/shop") == project != GLOBAL_SCOPE
    first, _ = put_file(writer, NOTE, ["one"])
    assert put_file(writer, NOTE, ["one"], scope=project) == (first, [])
    assert reader.passages(first)[0].scope == project
    assert writer.set_scope(reader.source(NOTE).id, GLOBAL_SCOPE) == first
    assert reader.scopes() == {"global": 1, "/home/ada/shop": project}
    assert reader.scope_ids(["/home/ada/shop", "/unknown"]) == [project]


def test_p022_a_file_that_is_deleted_and_restored_is_found_again(writer: Writer, reader: Reader) -> None:
    first, _ = put_file(writer, NOTE, ["restorable"])
    assert writer.remove_source(NOTE) == first
    assert writer.remove_source(NOTE) == []
    assert (found(reader, "restorable"), reader.source(NOTE), reader.passages(first)) == ([], None, [])
    second, _ = put_file(writer, NOTE, ["restorable"])
    assert second != first  # an id never comes to mean something else
    assert found(reader, "restorable") == second


def test_p022_a_renamed_directory_keeps_its_passages_and_only_new_paths_answer(writer: Writer, reader: Reader) -> None:
    ids = {name: put_file(writer, f"/home/ada/Finance/{name}.md", [f"about {name}"])[0] for name in ("tax", "rent")}
    put_file(writer, "/home/ada/Finance2/tax.md", ["not below it"])
    assert writer.rename_under("/home/ada/Finance", "/home/ada/finance/") == []
    paths = [source.path for source in reader.sources()]
    assert paths == ["/home/ada/Finance2/tax.md", "/home/ada/finance/rent.md", "/home/ada/finance/tax.md"]
    moved = reader.passages(ids["tax"])[0]
    assert (moved.path, moved.shown_path) == ("/home/ada/finance/tax.md", "finance/tax.md")


def test_p022_a_rename_over_another_file_tells_what_went(writer: Writer, reader: Reader) -> None:
    draft, _ = put_file(writer, "/home/ada/notes/draft.md", ["the draft"])
    old, _ = put_file(writer, NOTE, ["the old one"])
    assert writer.rename_source("/home/ada/notes/draft.md", NOTE) == old
    assert reader.passages(draft)[0].shown_path == "notes/deploy.md"
    assert found(reader, "deploy") == draft
    assert found(reader, "draft") == draft  # by its text; its path says so no more
    assert writer.rename_source("/nowhere", NOTE) == []


def test_a_failed_file_keeps_what_it_held_and_is_read_whole_when_it_comes_back(writer: Writer, reader: Reader) -> None:
    first, _ = put_file(writer, NOTE, ["one"])
    writer.fail_source(NOTE, "Permission denied", stat=(7, 8, 2**64 - 1))
    writer.fail_source("/home/ada/new.md", "not UTF-8\ud800")
    failed = reader.source(NOTE)
    assert (failed.state, failed.error, failed.cursor, failed.size) == ("failed", "Permission denied", 0, 7)
    assert [source.path for source in reader.sources(state="failed")] == ["/home/ada/new.md", NOTE]
    assert put_file(writer, NOTE, ["one"]) == ([], [])
    assert (reader.source(NOTE).error, reader.passage_ids(NOTE)) == ("", first)


def test_remove_under_spares_the_neighbours(writer: Writer, reader: Reader) -> None:
    inside, _ = put_file(writer, "/a/b/c.md", ["in"])
    outside, _ = put_file(writer, "/a/bc.md", ["out"])
    assert writer.remove_under("/a/b") == inside
    assert [source.path for source in reader.sources(under="/a")] == ["/a/bc.md"]
    assert [p.id for p in reader.passages([*inside, *outside])] == outside


def test_a_path_that_is_no_utf8_is_refused_by_name(writer: Writer, reader: Reader) -> None:
    with pytest.raises(StoreError, match="not valid UTF-8: rename it"):
        writer.begin_source("/home/ada/\udcff.md", shown_path="x", kind="text")
    assert reader.source("/home/ada/\udcff.md") is None
    assert writer.remove_source("/home/ada/\udcff.md") == writer.rename_source("/home/ada/\udcff.md", NOTE) == []


def test_p031_nul_and_lone_surrogates_do_not_harm_their_neighbours(writer: Writer, reader: Reader) -> None:
    ids, _ = put_file(writer, NOTE, ["before\x00after", "half \ud83d of it", "a good neighbour"])
    assert found(reader, "neighbour") == [ids[2]]
    assert [p.text for p in reader.passages(ids[:2])] == ["before\ufffdafter", "half \ufffd of it"]
    assert found(reader, "after\x00") == [ids[0]]
