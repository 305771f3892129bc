"""The catalogue is a cache: whatever became of its files, opening it gives what the store holds; then it follows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catalogue_samples import differences
from recalld_daemon.index import Catalogue, agree_catalogue, catalogue_opening, catalogue_saved, open_catalogue
from recalld_daemon.recall.types import View
from recalld_daemon.store import Reader, StoreError, Writer, open_reader, open_writer
from store_samples import passage, put_file

TEXTS = [f"passage number{n} speaks of gull{n % 5}" for n in range(40)]
FILES = ["cards", "ids", "rows", "vocabulary", "starts", "owners", "counts", "speakers.json", "manifest.json"]


@dataclass
class House:
    """A store with forty passages, and its catalogue's directory."""

    directory: Path
    writer: Writer
    reader: Reader
    learnt: list[tuple[int, int]] = field(default_factory=list)

    def open(self) -> Catalogue:
        self.learnt = []
        return open_catalogue(self.directory, self.reader, lambda done, total: self.learnt.append((done, total)))

    def reopened(self) -> Catalogue:
        """Opened, saved, and opened again with nothing left to learn."""
        catalogue = self.open()
        assert differences(catalogue, self.reader) == []
        catalogue.save()
        again = self.open()
        assert (self.learnt, differences(again, self.reader)) == ([(0, 0)], [])
        assert again.cards.speakers() == catalogue.cards.speakers()
        return again


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with open_writer(tmp_path / "x.db") as writer, open_reader(tmp_path / "x.db") as reader:
        put_file(writer, "/notes/a.md", TEXTS)
        source = writer.begin_source("/talk.jsonl", shown_path="talk.jsonl", kind="claude-code")
        turns = [passage(f"turn {n}", n * 10, speaker="Ada" if n % 2 else "Grace") for n in range(6)]
        writer.add_passages(source, turns)
        writer.finish_source(source, cursor=99)
        yield House(tmp_path / "catalogue", writer, reader)


def test_an_absent_catalogue_is_built_and_an_intact_one_is_taken(house: House) -> None:
    assert house.reopened().state().passages == 46


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["shorter", "changed", "gone"])
def test_a_torn_file_means_the_catalogue_is_built_anew(house: House, name: str, damage: str) -> None:
    house.open().save()
    (file,) = house.directory.rglob(name)
    data = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    else:
        data[3] ^= 0x55
        file.write_bytes(data if damage == "changed" else data[:5])
    house.open()
    assert house.learnt[-1] == (46, 46)
    house.reopened()


def test_deleting_it_loses_nothing(house: House) -> None:
    house.reopened()
    shutil.rmtree(house.directory)
    house.reopened()


def test_terms_of_another_recipe_are_not_believed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(catalogue_saved, "RECIPE", "an older stemmer")
        house.open().save()
    house.open()
    assert house.learnt[-1] == (46, 46)


def test_changes_while_it_was_closed_are_caught_up_with(house: House) -> None:
    house.reopened()
    put_file(house.writer, "/notes/a.md", [*reversed(TEXTS[5:]), "something new"])
    put_file(house.writer, "/b.md", ["another"], scope=house.writer.scope_id("/p"))
    house.writer.rename_source("/talk.jsonl", "/kept/old-talk.jsonl", shown_path="kept/old-talk.jsonl")
    catalogue = house.open()
    assert house.learnt[-1] == (8, 8)  # two new, six that are found by another path; those that moved are not read
    assert differences(catalogue, house.reader) == []
    assert len(catalogue.words.search(["kept"], View(None), 9).ids) == 6


def test_a_store_that_was_replaced_is_noticed_though_its_ids_are_the_same(house: House, tmp_path: Path) -> None:
    house.reopened()
    with open_writer(tmp_path / "y.db") as writer, open_reader(tmp_path / "y.db") as reader:
        put_file(writer, "/other.md", [f"quite another {n}" for n in range(46)])
        House(house.directory, writer, reader).reopened()


def test_an_empty_store_has_an_empty_catalogue(tmp_path: Path) -> None:
    with open_writer(tmp_path / "y.db") as writer, open_reader(tmp_path / "y.db") as reader:
        assert House(tmp_path / "c", writer, reader).reopened().state().passages == 0


def test_p032_leftovers_of_a_killed_process_are_swept_and_others_files_are_not(house: House) -> None:
    house.open().save()
    for name in ("state-7.tmp", "state-99"):
        (house.directory / name).mkdir()
    for name in ("manifest.json.tmp", "notes.txt"):
        (house.directory / name).write_text("left over")
    house.open()
    assert {entry.name for entry in house.directory.iterdir()} == {"manifest.json", "state-1", "notes.txt"}


def test_a_failed_save_leaves_the_last_one_valid(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = house.reopened()
    put_file(house.writer, "/b.md", ["unsaved"])
    catalogue.learn(house.reader.passage_ids("/b.md"))

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(catalogue_saved, "write_synced", full)
        with pytest.raises(OSError, match="No space left"):
            catalogue.save()
    assert (catalogue.state().unsaved, differences(catalogue, house.reader)) == (1, [])
    house.open()
    assert house.learnt[-1] == (1, 1)


def test_p048_its_files_are_the_users_alone(house: House) -> None:
    house.reopened()
    assert {entry.stat().st_mode & 0o077 for entry in [house.directory, *house.directory.rglob("*")]} == {0}


def test_a_large_build_is_saved_at_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_opening, "BATCH", 7)
    house.open()
    assert house.learnt[0] == (0, 46)
    house.open()
    assert house.learnt == [(0, 0)]


# ------------------------------------------------------------ following


def test_what_was_written_while_it_opened_is_agreed_upon(house: House) -> None:
    catalogue = house.open()
    put_file(house.writer, "/notes/a.md", ["before all", *TEXTS[3:]])
    agree_catalogue(catalogue, house.reader)
    assert differences(catalogue, house.reader) == []


def test_a_passage_moved_within_its_file_has_its_new_neighbours(house: House) -> None:
    catalogue = house.open()
    first, second = house.reader.passage_ids("/notes/a.md")[:2]
    new, gone = put_file(house.writer, "/notes/a.md", [TEXTS[1], "between", TEXTS[0], *TEXTS[2:]])
    catalogue.forget(gone)
    catalogue.learn(new)
    catalogue.passed([house.reader.source("/notes/a.md").id])
    assert differences(catalogue, house.reader) == []
    assert catalogue.cards.cards(np.array([second])).around.tolist() == [[0, 0, new[0], first]]


def test_what_can_not_be_read_now_is_learnt_at_the_next_call(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = house.open()
    new, _ = put_file(house.writer, "/b.md", ["a zeppelin", "another"])

    def busy(*_: Any) -> Any:
        raise StoreError("x.db: it is locked")

    with monkeypatch.context() as patch:
        patch.setattr(house.reader, "passage_batch", busy)
        patch.setattr(house.reader, "passage_facts_of", busy)
        catalogue.learn(new)
        catalogue.passed([house.reader.source("/b.md").id])
        catalogue.forget(new[1:])
    assert catalogue.words.search(["zeppelin"], View(None), 5).ids.tolist() == []
    house.writer.set_scope(house.reader.source("/b.md").id, house.writer.scope_id("/p"))
    catalogue.catch_up()
    assert differences(catalogue, house.reader) == []


def test_learning_what_is_gone_by_now_is_no_error(house: House) -> None:
    catalogue = house.open()
    catalogue.learn([10**9, 1])
    catalogue.forget([10**9])
    assert differences(catalogue, house.reader) == []
