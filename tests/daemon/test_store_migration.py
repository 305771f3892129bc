"""A database of the first schema opens with everything in it, and its messages get the date they are embedded with."""

from __future__ import annotations

import sqlite3
from hashlib import blake2b
from pathlib import Path

import pytest

from recalld_daemon.recall.types import View
from recalld_daemon.store import embedded_text, open_reader, open_writer
from recalld_daemon.store.migrations import APPLICATION_ID, m001_initial
from store_samples import DIMS, TOKEN_DIMS, encode_missing, passage

MAY_7 = 1_683_458_900.0
MTIME = 1_690_000_000.0
PASSAGES = [  # speaker, written_at, text
    ("user", MAY_7, "we ship on Friday"),
    ("assistant", MTIME, "a message without a date of its own"),
    ("", MTIME, "a note"),
    ("user", 0.0, "an undated message, counted as always"),
]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database as the first schema's writer left it."""
    path = tmp_path / "recalld.db"
    with sqlite3.connect(path) as db:
        db.executescript(m001_initial.SQL + f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;")
        db.execute(
            """INSERT INTO sources(id, scope, kind, path, shown_path, path_words, mtime_ns, cursor, state)
            VALUES (1, 1, 'claude-code', '/p/a.jsonl', 'p/a.jsonl', 'p a', ?, 900, 'ok')""",
            (int(MTIME * 1e9),),
        )
        for n, (speaker, at, text) in enumerate(PASSAGES):
            hash = blake2b(f"{speaker}: {text}".encode() if speaker else text.encode(), digest_size=16).digest()
            db.execute(
                """INSERT INTO passages(source, scope, written_at, hash, generation, ordinal, start, "end", codec,
                heading, speaker, parts, text) VALUES (1, 1, ?, ?, 1, ?, ?, ?, 'json', '', ?, '', ?)""",
                (at, hash, n, n * 100, n * 100 + 90, speaker, text),
            )
        db.execute("INSERT INTO passages_fts(passages_fts) VALUES ('rebuild')")
        db.execute(
            """INSERT INTO sources(id, scope, kind, path, shown_path, path_words, mtime_ns, cursor, state)
            VALUES (2, 1, 'memory', 'memory:1', 'memory:1', '', 5, 9, 'ok')"""
        )
    db.close()
    return path


def test_passages_keep_their_ids_and_messages_get_their_dates(old: Path) -> None:
    with open_writer(old) as writer, open_reader(old) as reader:
        assert writer.check() == []
        assert [(p.speaker, p.written_at, p.text) for p in reader.passages([1, 2, 3, 4])] == PASSAGES
        encoder = writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)
        texts = {text for _, text in reader.missing_vectors(encoder, 0, 10)}
        assert texts == {
            "user (7 May 2023): we ship on Friday",
            "assistant: a message without a date of its own",
            "a note",
            "user: an undated message, counted as always",
        }
        encode_missing(writer, reader, encoder)
        learnt = reader.vectors_for([1], encoder, 0)
        assert learnt.ends[0].tolist() == [0, 0, 0, 0, 2, 7, 10, 17]
        assert reader.lexical(["May", "2023"], View(), 5).ids.tolist() == [1]


def test_what_has_a_file_is_read_again_and_memories_are_not(old: Path) -> None:
    with open_writer(old), open_reader(old) as reader:
        states = {s.path: (s.mtime_ns, s.cursor, s.state) for s in reader.sources()}
    assert states == {"/p/a.jsonl": (-1, 0, "ok"), "memory:1": (5, 9, "ok")}


def test_reading_again_finds_the_passages_of_before(old: Path) -> None:
    with open_writer(old) as writer, open_reader(old) as reader:
        source = writer.begin_source(
            "/p/a.jsonl", shown_path="p/a.jsonl", kind="claude-code", mtime_ns=int(MTIME * 1e9)
        )
        parsed = [
            passage(text, n * 100, speaker=speaker, at=at if at not in (MTIME, 0.0) else None)
            for n, (speaker, at, text) in enumerate(PASSAGES)
        ]
        writer.add_passages(source, parsed)
        assert writer.finish_source(source, cursor=900) == []
        assert reader.passage_ids("/p/a.jsonl") == [1, 2, 3, 4]


def test_the_date_counts_only_where_somebody_speaks() -> None:
    assert embedded_text("", "Ada", "x", MAY_7) == "Ada (7 May 2023): x"
    assert embedded_text("", "", "x", MAY_7) == "x"
    assert embedded_text("", "Ada", "x", 0.0) == embedded_text("", "Ada", "x", 1e300) == "Ada: x"


def test_the_same_words_on_another_day_are_another_passage(tmp_path: Path) -> None:
    with open_writer(tmp_path / "x.db") as writer, open_reader(tmp_path / "x.db") as reader:
        source = writer.begin_source("/a.jsonl", shown_path="a", kind="claude-code")
        ids = writer.add_passages(
            source,
            [passage("run it", 0, speaker="user", at=MAY_7), passage("run it", 9, speaker="user", at=MAY_7 + 1e6)],
        )
        writer.finish_source(source, cursor=20)
        encoder = writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)
        assert len(ids) == len(reader.missing_vectors(encoder, 0, 10)) == 2
