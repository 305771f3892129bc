"""P018 in the index files: what was removed is in none of them after a purge, and what stays is as before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from recalld_daemon.index import open_catalogue, open_index
from recalld_daemon.index.token_file import TokenFile
from recalld_daemon.purging import purge_indexes
from recalld_daemon.recall.types import View
from recalld_daemon.store import open_reader, open_writer
from store_samples import DIMS, TOKEN_DIMS, encode_missing, passage, put_file, vector_of


def rows(value: int, count: int) -> tuple[bytes, np.ndarray]:
    return bytes([value]) * (count * 4), np.full((count, 2), value * 257, np.uint16)


def test_token_rows_that_nobody_has_are_overwritten(tmp_path: Path) -> None:
    file = TokenFile(tmp_path, 1, 4)
    for id, count in ((1, 3), (2, 5), (3, 2), (4, 4)):
        tokens, spans = rows(0x40 + id, count)
        file.append([id], [tokens], [spans])
    file.remove([2, 4])
    tokens, spans = rows(0x7E, 6)  # appended after the last save of a process that was killed
    kept_rows = file.rows
    file.append([9], [tokens], [spans])
    file.rows = kept_rows
    del file.places[9]
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    file.scrub()
    held = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert [bytes([value]) in held for value in (0x41, 0x42, 0x43, 0x44, 0x7E)] == [True, False, True, False, False]
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == sizes
    block = file.block([1, 3])
    assert block.vectors.tolist() == [[0x41] * 4] * 3 + [[0x43] * 4] * 2
    file.append([5], [rows(0x45, 2)[0]], [rows(0x45, 2)[1]])
    assert file.block([5]).vectors.tolist() == [[0x45] * 4] * 2
    file.close()


def test_a_purged_index_finds_what_is_left_and_holds_nothing_else(tmp_path: Path) -> None:
    with open_writer(tmp_path / "db") as writer, open_reader(tmp_path / "db") as reader:
        encoder = writer.encoder_id("e", dims=DIMS, token_dims=TOKEN_DIMS)
        (gone,), _ = put_file(writer, "/notes/a.md", ["the quexalorn ledger"])
        (kept,), _ = put_file(writer, "/notes/b.md", ["the harbour office"])
        encode_missing(writer, reader, encoder)
        root = tmp_path / "index"
        index = open_index(root / f"encoder-{encoder}", reader, encoder)
        catalogue = open_catalogue(root / "catalogue", reader)
        index.save()
        catalogue.save()
        number = writer.begin_version(encoder, at=1.0, vectors=None, why="f_K")
        building = root / f"encoder-{encoder}-v{number}"
        other = root / "encoder-77"
        for directory in (building, other):
            directory.mkdir()
        vector = vector_of("the quexalorn ledger").astype(np.float32).tobytes()
        assert vector in on_disk(root)

        writer.forget_sources(["/notes/a.md"])
        index.remove([gone])
        catalogue.forget([gone])
        purge_indexes(root, reader, index, catalogue)
        assert vector not in on_disk(root)
        assert (building.exists(), other.exists()) == (True, False)  # a night at work keeps its own
        found = index.search(vector_of("the harbour office").astype(np.float32), View(scopes=None), 5)
        assert found.ids.tolist() == [kept]
        index.close()
        again = open_index(root / f"encoder-{encoder}", reader, encoder)
        assert again.state().passages == 1
        assert open_catalogue(root / "catalogue", reader).state().passages == 1
        again.close()


def test_a_speaker_who_has_nothing_left_is_named_nowhere(tmp_path: Path) -> None:
    with open_writer(tmp_path / "db") as writer, open_reader(tmp_path / "db") as reader:
        for path, speaker in (("/a", "Quexalorn"), ("/b", "Mara")):
            with writer.transaction():
                source = writer.begin_source(path, shown_path=path, kind="chat")
                writer.add_passages(source, [passage(f"hello from {path}", speaker=speaker, at=1.7e9)])
                writer.finish_source(source, cursor=9)
        catalogue = open_catalogue(tmp_path / "catalogue", reader)
        numbers = dict(catalogue.cards.speakers())
        ids = reader.passage_ids("/a")
        writer.forget_sources(["/a"])
        catalogue.forget(ids)
        catalogue.purge()
        assert dict(catalogue.cards.speakers()) == {"Mara": numbers["Mara"]}
        assert b"Quexalorn" not in on_disk(tmp_path / "catalogue")
        (saved,) = (tmp_path / "catalogue").rglob("speakers.json")
        assert json.loads(saved.read_bytes())[numbers["Mara"] - 1] == "Mara"
        again = open_catalogue(tmp_path / "catalogue", reader)
        assert dict(again.cards.speakers()) == {"Mara": numbers["Mara"]}
        with writer.transaction():
            source = writer.begin_source("/c", shown_path="/c", kind="chat")
            new = writer.add_passages(source, [passage("hello again", speaker="Otto", at=1.7e9)])
            writer.finish_source(source, cursor=9)
        again.learn(new)
        assert len(set(again.cards.speakers().values())) == 2


def on_disk(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())
