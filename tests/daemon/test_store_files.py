"""The database as a file: its mode, its age, its damage, and what a killed process leaves."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from recalld_daemon.recall.types import View
from recalld_daemon.store import (
    NewerSchema,
    StoreCorrupt,
    StoreError,
    StoreUnreadable,
    WriterInUse,
    open_reader,
    open_writer,
)
from store_samples import passage, put_file

FIXTURES = Path(__file__).parent / "fixtures"


def test_p048_all_files_are_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "recalld.db"
    path.touch(mode=0o644)
    path.chmod(0o644)
    with open_writer(path) as writer, open_reader(path):
        put_file(writer, "/a.md", ["text"])
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"recalld.db": 0o600, "recalld.db-wal": 0o600, "recalld.db-shm": 0o600}


def test_a_path_with_spaces_and_url_signs_opens(tmp_path: Path) -> None:
    home = tmp_path / "a b?c=1#d%20"
    home.mkdir()
    with open_writer(home / "x.db") as writer, open_reader(home / "x.db") as reader:
        writer.remember("text", at=1.0)
        assert reader.counts()["memories"] == 1


def test_a_newer_schema_is_refused_with_both_versions_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "recalld.db"
    open_writer(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    for opener in (open_writer, open_reader):
        with pytest.raises(NewerSchema, match=r"recalld\.db: its schema is version 99.*knows up to 4: upgrade recalld"):
            opener(path)


def test_a_reader_does_not_open_what_no_writer_has_made(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(StoreError, match=r"empty\.db: its schema is version 0, not 4: start recalld"):
        open_reader(path)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE visits (url TEXT)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match=r"history\.db: this SQLite database is not recalld's"):
        open_writer(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database at all " * 500, b"SQLite format 3\x00" + b"\xff" * 9000])
def test_a_damaged_file_is_named_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "recalld.db"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"recalld\.db: .*move it away"):
        open_writer(path)


def test_damage_in_the_middle_is_named_when_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "recalld.db"
    with open_writer(path) as writer:
        ids, _ = put_file(writer, "/a.md", [f"passage {n} " * 40 for n in range(200)])
    data = bytearray(path.read_bytes())
    data[len(data) // 4 :] = b"\xff" * (len(data) - len(data) // 4)
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match=r"recalld\.db: .*damaged"), open_reader(path) as reader:
        reader.passages(ids)


def test_a_missing_file_or_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match=r"none\.db"):
        open_reader(tmp_path / "none.db")
    with pytest.raises(StoreUnreadable, match=r"nowhere.*No such file"):
        open_writer(tmp_path / "nowhere" / "x.db")


def test_a_transaction_is_all_or_nothing_and_a_nested_one_may_fail_alone(tmp_path: Path) -> None:
    with open_writer(tmp_path / "x.db") as writer, open_reader(tmp_path / "x.db") as reader:
        with writer.transaction():
            put_file(writer, "/a.md", ["kept"])
            with suppress(ZeroDivisionError), writer.transaction():
                put_file(writer, "/b.md", ["dropped"])
                raise ZeroDivisionError
        with suppress(ZeroDivisionError), writer.transaction():
            put_file(writer, "/c.md", ["dropped too"])
            raise ZeroDivisionError
        assert [source.path for source in reader.sources()] == ["/a.md"]
        assert reader.lexical(["dropped"], View(), 5).ids.tolist() == []
        assert writer.check() == []


def test_the_generation_counts_what_an_index_must_know(tmp_path: Path) -> None:
    with open_writer(tmp_path / "x.db") as writer, open_reader(tmp_path / "x.db") as reader:
        before = reader.generation()
        put_file(writer, "/a.md", ["text"])
        assert reader.generation() == before + 1  # one transaction
        writer.scope_id("/p")
        writer.fail_source("/b.md", "unreadable")
        assert reader.generation() == before + 1


def test_two_threads_at_once_are_refused_and_one_after_the_other_is_fine(tmp_path: Path) -> None:
    caught: list[Exception] = []

    def use() -> None:
        try:
            writer.remember("from another thread", at=1.0)
        except StoreError as error:
            caught.append(error)

    with open_writer(tmp_path / "x.db") as writer:
        for held in (True, False):
            thread = threading.Thread(target=use)
            if held:
                with writer.transaction():
                    thread.start()
                    thread.join()
            else:
                thread.start()
                thread.join()
        assert [type(error) for error in caught] == [WriterInUse]
        assert "from two threads at once" in str(caught[0])
        with writer.transaction(), pytest.raises(WriterInUse):
            writer.checkpoint()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "x.db")
    reader = open_reader(tmp_path / "x.db")
    reader.close()
    writer.close()
    writer.close()
    with pytest.raises(StoreError, match="the writer is closed"):
        writer.remember("too late", at=1.0)
    with pytest.raises(StoreError, match="the reader is closed"):
        reader.counts()


def test_p035_a_checkpoint_cuts_the_log_and_tells_of_a_reader_in_its_way(tmp_path: Path) -> None:
    with open_writer(tmp_path / "x.db") as writer:
        outside = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        outside.execute("BEGIN")
        outside.execute("SELECT count(*) FROM passages").fetchone()
        put_file(writer, "/a.md", ["text " * 100] * 200)
        held = writer.checkpoint()
        assert held.blocked
        assert held.wal_bytes > 0
        outside.close()
        assert writer.checkpoint() == type(held)(blocked=False, wal_bytes=0)


def test_p034_readers_in_many_threads_meet_no_lock(tmp_path: Path) -> None:
    failed: list[Exception] = []
    done = threading.Event()
    with open_writer(tmp_path / "x.db") as writer, open_reader(tmp_path / "x.db") as reader:

        def read() -> None:
            try:
                while not done.is_set():
                    reader.passages(reader.lexical(["passage", "word7"], View(), 20).ids.tolist())
                    reader.counts()
            except StoreError as error:
                failed.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n in range(20):
            put_file(writer, f"/{n % 8}.md", [f"passage word{n} {m}" for m in range(20)])
            writer.checkpoint()
        done.set()
        for thread in threads:
            thread.join()
        assert (failed, writer.check()) == ([], [])


KILLED = """
import os, signal, sys
from pathlib import Path
from recalld_daemon.store import RecallRecord, SessionRecord, ImpressionRecord, open_writer
from store_samples import passages, put_file
writer = open_writer(Path(sys.argv[1]))
writer.touch_session(SessionRecord("s"))
writer.record_recall(RecallRecord("r", "s", "turn 1", "query", 1.0, "ready"))
shown = dict(text="", start=0, end=1, rank=1, score=1.0, probability=0.9, stage="late", outcome="won", boundary=1)
for n in range(10**6):
    writer.remember(f"memory {n}", at=float(n), key=f"key {n}")
    writer.record_impressions([ImpressionRecord(f"i{n}", "r", "s", n, "/a", shown_at=1.0, **shown)])
    writer.record_feedback(f"i{n}", "good", at=1.0)
    print(n, flush=True)
    source = writer.begin_source("/long.md", shown_path="long.md", kind="text")
    writer.add_passages(source, passages([f"{n} {m}" for m in range(30)]))
"""


def test_p032_kill_9_in_mid_write_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    environ = {"PYTHONPATH": ":".join(sys.path)}
    acknowledged = -1
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, env=environ) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(25)]
            child.kill()
        acknowledged = max(acknowledged, int(lines[-1]))
        with open_writer(path) as writer, open_reader(path) as reader:
            assert writer.check() == []
            assert [source.path for source in reader.sources(state="indexing")] == ["/long.md"]
            for n in range(acknowledged + 1):
                assert writer.remember(f"memory {n}", at=0.0, key=f"key {n}")[1] == []
                assert [verdict.verdict for verdict in reader.feedback(f"i{n}")] == ["good"]


def test_the_first_schemas_database_opens_for_ever(tmp_path: Path) -> None:
    """The fixture was written by `fixtures/make_m001.py` and is never written again."""
    path = tmp_path / "old.db"
    path.write_bytes((FIXTURES / "m001.db").read_bytes())
    with open_writer(path) as writer, open_reader(path) as reader:
        assert writer.check() == []
        hits = reader.lexical(["rollback"], View(), 5).ids.tolist()
        kept = reader.passages(hits)[0]
        assert (kept.text, kept.heading, kept.path) == (
            "rollback with make undo",
            "Deploy",
            "/home/ada/notes/deploy.md",
        )
        encoder = reader.encoder_named("fixture")
        assert reader.vectors_for(hits, encoder, 0).vectors.shape == (1, 16)
        assert reader.memory_text("memory:1") == "the staging key lives in the vault"
        assert [verdict.verdict for verdict in reader.feedback("i1")] == ["good"]
        put_file(writer, "/new.md", [passage("still writable").text])
        assert writer.check() == []
