"""The index is a cache: whatever has become of its files, opening it gives what the store holds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from recalld_daemon.index import FaissIndex, learn, open_index
from recalld_daemon.recall.types import View
from recalld_daemon.store import NoSuchRow, Reader, Writer, open_reader, open_writer
from store_samples import DIMS, TOKEN_DIMS, encode_missing, put_file, vector_of

TEXTS = [f"passage number {n}" for n in range(40)]


@dataclass
class House:
    """A store with forty encoded passages, and its index's directory."""

    directory: Path
    writer: Writer
    reader: Reader
    encoder: int
    learnt: list[tuple[int, int]]

    def open(self, snapshot: int = 0, encoder: int | None = None) -> FaissIndex:
        self.learnt = []
        return open_index(
            self.directory,
            self.reader,
            encoder or self.encoder,
            snapshot,
            lambda done, total: self.learnt.append((done, total)),
        )

    def check(self, index: FaissIndex) -> None:
        """The index holds exactly what the store has, each passage where a search for its own text finds it first."""
        wanted = self.reader.encoded(index.encoder.id, index.snapshot)
        assert set(index.scope_of) == set(wanted.ids.tolist()) == set(index.token_file.places)
        assert index.state().passages == len(wanted.ids)
        for p in self.reader.passages(wanted.ids.tolist()):
            hits = index.search(vector_of(p.text).astype(np.float32), View((p.scope,)), 3)
            assert hits.ids[0] == p.id
            assert index.tokens([p.id]).ends.tolist()[-1] == len(p.text)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with open_writer(tmp_path / "x.db") as writer, open_reader(tmp_path / "x.db") as reader:
        house = House(
            tmp_path / "index", writer, reader, writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS), []
        )
        put_file(writer, "/a.md", TEXTS)
        encode_missing(writer, reader, house.encoder)
        yield house


@pytest.fixture
def saved(house: House) -> House:
    index = house.open()
    index.save()
    index.close()
    return house


def reopened(house: House) -> None:
    index = house.open()
    house.check(index)
    index.save()
    index.close()
    index = house.open()
    assert house.learnt == [(0, 0)]  # nothing is left to learn once it was saved
    house.check(index)
    index.close()


def test_an_absent_index_is_built_and_an_intact_one_is_taken(house: House) -> None:
    reopened(house)


def test_changes_while_it_was_closed_are_caught_up_with(saved: House) -> None:
    put_file(saved.writer, "/a.md", TEXTS[5:])
    put_file(saved.writer, "/b.md", ["another", *TEXTS[:2]], scope=saved.writer.scope_id("/p"))
    saved.writer.set_scope(saved.reader.source("/a.md").id, saved.writer.scope_id("/q"))
    encode_missing(saved.writer, saved.reader, saved.encoder)
    index = saved.open()
    assert saved.learnt[-1] == (38, 38)  # 35 in another scope, 3 new
    saved.check(index)
    index.close()


def test_deleting_index_loses_nothing(saved: House) -> None:
    shutil.rmtree(saved.directory)
    reopened(saved)


@pytest.mark.parametrize("name", ["manifest.json", "places.npy", "1.rows", "1.faiss", "tokens-0.bin", "spans-0.bin"])
@pytest.mark.parametrize("damage", ["shorter", "changed", "gone"])
def test_a_torn_file_means_the_index_is_built_anew(saved: House, name: str, damage: str) -> None:
    (file,) = saved.directory.rglob(name)
    data = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    else:
        data[3] ^= 0x55
        file.write_bytes(data if damage == "changed" else data[:5])
    reopened(saved)


def test_p038_another_encoder_or_snapshot_never_meets_the_old_vectors(saved: House) -> None:
    other = saved.writer.encoder_id("wider", dims=DIMS, token_dims=TOKEN_DIMS)
    index = saved.open(encoder=other)
    assert index.state().passages == 0
    encode_missing(saved.writer, saved.reader, other)
    learn(index, saved.reader, saved.reader.passage_ids("/a.md"), other)
    saved.check(index)
    index.close()
    saved.writer.add_snapshot(saved.encoder, 1, at=1.0)
    index = saved.open(snapshot=1)
    assert index.state().passages == 0
    index.close()
    with pytest.raises(NoSuchRow, match="knows no encoder 99"):
        saved.open(encoder=99)


def test_a_store_that_was_replaced_is_noticed_though_its_ids_are_the_same(saved: House, tmp_path: Path) -> None:
    with open_writer(tmp_path / "y.db") as writer, open_reader(tmp_path / "y.db") as reader:
        encoder = writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)
        put_file(writer, "/other.md", [f"quite another {n}" for n in range(40)])
        encode_missing(writer, reader, encoder)
        reopened(House(saved.directory, writer, reader, encoder, []))


def test_p032_leftovers_of_a_killed_process_are_swept_and_others_files_are_not(saved: House) -> None:
    for name in ("state-7.tmp", "state-99"):
        (saved.directory / name).mkdir()
    for name in ("tokens-5.bin", "spans-5.bin", "manifest.json.tmp", "notes.txt"):
        (saved.directory / name).write_text("left over")
    saved.open().close()
    names = {entry.name for entry in saved.directory.iterdir()}
    assert names == {"manifest.json", "state-1", "tokens-0.bin", "spans-0.bin", "notes.txt"}


def test_what_came_after_the_last_save_is_learnt_again(saved: House) -> None:
    """As after kill -9: the token files have more in them than the manifest says."""
    index = saved.open()
    put_file(saved.writer, "/b.md", ["unsaved one", "unsaved two"])
    learn(index, saved.reader, encode_missing(saved.writer, saved.reader, saved.encoder), saved.encoder)
    index.remove(saved.reader.passage_ids("/a.md")[:3])
    index.close()
    index = saved.open()
    assert saved.learnt[-1] == (2, 2)
    saved.check(index)
    index.close()


def test_a_failed_save_leaves_the_last_one_valid(saved: House, monkeypatch: pytest.MonkeyPatch) -> None:
    index = saved.open()
    put_file(saved.writer, "/b.md", ["unsaved"])
    learn(index, saved.reader, encode_missing(saved.writer, saved.reader, saved.encoder), saved.encoder)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("recalld_daemon.index.saved.write_synced", full)
        with pytest.raises(OSError, match="No space left"):
            index.save()
    saved.check(index)
    assert index.state().unsaved
    index.close()
    reopened(saved)


def test_p048_the_indexs_files_are_the_users_alone(saved: House) -> None:
    assert {entry.stat().st_mode & 0o077 for entry in [saved.directory, *saved.directory.rglob("*")]} == {0}


def test_holes_in_the_token_files_are_closed_by_a_save(saved: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recalld_daemon.index.faiss_index.COMPACT_ROWS", 10)
    index = saved.open()
    index.remove(saved.writer.remove_source("/a.md")[:30])
    put_file(saved.writer, "/c.md", TEXTS[30:])
    index.save()
    assert {path.name for path in saved.directory.glob("*.bin")} == {"tokens-1.bin", "spans-1.bin"}
    index.close()
    reopened(saved)
