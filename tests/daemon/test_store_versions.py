"""Versions in the store: what a re-projected snapshot is made of, what is kept of old ones, and old databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recalld_daemon.store import Reader, StoreError, Writer, open_reader, open_writer
from recalld_daemon.store.migrations import APPLICATION_ID, MIGRATIONS, m002_extraction
from store_samples import DIMS, TOKEN_DIMS, encode_missing, passage, put_file, vector_of

TEXTS = ["the heron waits", "the ferry leaves at noon", "salt comes after"]


@dataclass
class House:
    writer: Writer
    reader: Reader
    encoder: int

    def version(self, vectors: int | None = None, *, finished: bool = True) -> int:
        version = self.writer.begin_version(self.encoder, at=1.0, vectors=vectors, why="made")
        if finished:
            self.writer.finish_version(self.encoder, version, metrics="{}", drift=0.0)
        return version

    def project(self, version: int, limit: int = 1_000) -> int:
        """The frozen vectors with the signs changed; returns how many."""
        hashes, frozen = self.reader.unprojected(self.encoder, version, limit)
        self.writer.put_projected(self.encoder, version, hashes, (-frozen).astype(np.float16))
        return len(hashes)

    def known(self) -> list[int]:
        return [record.version for record in self.reader.versions(self.encoder)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with open_writer(tmp_path / "x.db") as writer, open_reader(tmp_path / "x.db") as reader:
        house = House(writer, reader, writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS))
        writer.set_live(house.encoder, 0)
        put_file(writer, "/a.md", TEXTS)
        encode_missing(writer, reader, house.encoder)
        yield house


# ---------------------------------------------------------------- a snapshot of re-projected vectors


def test_vectors_are_the_snapshots_own_and_tokens_those_of_the_frozen_one(house: House) -> None:
    version = house.version(finished=False)
    assert house.project(version) == len(TEXTS)
    ids = house.reader.passage_ids("/a.md")
    frozen, projected = (house.reader.vectors_for(ids, house.encoder, snapshot) for snapshot in (0, version))
    assert np.array_equal(projected.vectors, -frozen.vectors)
    assert projected.ids.tolist() == frozen.ids.tolist()
    assert list(projected.tokens) == list(frozen.tokens)
    for one, other in zip([*projected.starts, *projected.ends], [*frozen.starts, *frozen.ends], strict=True):
        assert one.tolist() == other.tolist()
    (batch,) = house.reader.vector_batches(house.encoder, version, 10)
    assert np.array_equal(batch.vectors, projected.vectors)
    assert all(batch.tokens)
    encoded = house.reader.encoded(house.encoder, version)
    assert encoded.ids.tolist() == ids
    assert encoded.marks.tolist() == house.reader.encoded(house.encoder, 0).marks.tolist()


def test_lines_have_the_snapshots_vectors(house: House) -> None:
    version = house.version(finished=False)
    house.project(version)
    hashes = [hash for hashes, _ in house.reader.walk_vectors(house.encoder, version) for hash in hashes]
    frozen = house.reader.line_vectors(hashes, house.encoder, 0)
    projected = house.reader.line_vectors(hashes, house.encoder, version)
    assert len(projected) == len(TEXTS)
    assert all(np.array_equal(projected[hash], -frozen[hash]) for hash in hashes)


def test_what_has_no_projected_vector_yet_is_unprojected_and_not_in_the_index(house: House) -> None:
    version = house.version(finished=False)
    put_file(house.writer, "/b.md", ["not embedded yet"])
    assert house.project(version, 2) == 2
    assert house.reader.count_unprojected(house.encoder, version) == 1
    assert len(house.reader.encoded(house.encoder, version).ids) == 2
    assert len(house.reader.vectors_for(house.reader.passage_ids("/a.md"), house.encoder, version).ids) == 2
    assert house.project(version) == 1
    assert house.reader.count_unprojected(house.encoder, version) == 0
    assert len(house.reader.encoded(house.encoder, version).ids) == len(TEXTS)


@given(size=st.integers(1, 9))
@settings(max_examples=9, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_unprojected_goes_on_where_it_ended(house: House, size: int) -> None:
    put_file(house.writer, "/many.md", [f"passage {n}" for n in range(20)])
    encode_missing(house.writer, house.reader, house.encoder)
    version, after, seen = house.version(finished=False), b"", list[bytes]()
    while True:
        hashes, vectors = house.reader.unprojected(house.encoder, version, size, after)
        if not hashes:
            break
        assert vectors.shape == (len(hashes), DIMS)
        seen, after = [*seen, *hashes], hashes[-1]
    assert seen == sorted(set(seen))
    assert len(seen) == house.reader.count_vectors(house.encoder)


def test_a_projected_vector_without_its_frozen_one_is_not_in_the_index(house: House) -> None:
    """Its passage was gone, pruned, and is there again: it must be embedded first."""
    version = house.version(finished=False)
    house.project(version)
    (hashes,) = [hashes for hashes, _ in house.reader.walk_vectors(house.encoder, version)]
    house.writer.remove_source("/a.md")
    house.writer.prune()
    house.writer.put_projected(house.encoder, version, hashes, np.stack([vector_of(text) for text in TEXTS]))
    put_file(house.writer, "/a.md", TEXTS)
    ids = house.reader.passage_ids("/a.md")
    assert len(house.reader.encoded(house.encoder, version).ids) == 0
    assert len(house.reader.vectors_for(ids, house.encoder, version).ids) == 0
    assert len(house.reader.missing_vectors(house.encoder, 0, 10)) == len(TEXTS)


def test_a_prune_covers_projected_rows(house: House) -> None:
    version = house.version(finished=False)
    house.project(version)
    put_file(house.writer, "/a.md", TEXTS[:1])
    house.writer.prune()
    assert house.reader.count_vectors(house.encoder, 0) == house.reader.count_vectors(house.encoder, version) == 1


# ---------------------------------------------------------------- old ones


@given(
    shapes=st.lists(st.tuples(st.sampled_from(["own", "shared", "frozen"]), st.booleans()), min_size=1, max_size=9),
    keep=st.integers(1, 4),
    live=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_version_that_is_kept_loses_the_vectors_it_searches(
    house: House, shapes: list[tuple[str, bool]], keep: int, live: int
) -> None:
    own = 0
    house.writer.set_live(house.encoder, 0)
    house.writer.drop_unfinished(house.encoder)
    for shape, finished in shapes:
        vectors = {"own": None, "shared": own, "frozen": 0}[shape]
        version = house.version(vectors, finished=finished)
        if vectors is None and finished:
            house.project(version)
            own = version
    ready = [record.version for record in house.reader.versions(house.encoder) if record.state == "ready"]
    house.writer.set_live(house.encoder, ready[live % len(ready)])
    gone = house.writer.drop_old_versions(house.encoder, keep)
    kept = house.reader.versions(house.encoder)
    numbers = {record.version for record in kept}
    assert not numbers & set(gone)
    assert {0, ready[live % len(ready)], *ready[1:][-keep:]} <= numbers
    for record in kept:
        assert record.vectors in numbers
        if record.vectors == record.version and record.state == "ready":
            assert house.reader.count_vectors(house.encoder, record.version) == len(TEXTS)
    assert house.writer.drop_old_versions(house.encoder, keep) == []
    assert house.writer.check() == []


def test_old_versions_go_in_short_transactions(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recalld_daemon.store.learning_writes._ROWS_AT_ONCE", 2)
    old, new = house.version(), house.version()
    house.project(old)
    assert house.writer.retire_old_versions(house.encoder, 1) == [old]
    with pytest.raises(StoreError, match="no finished snapshot"):
        house.writer.set_live(house.encoder, old)
    steps = 0
    while house.writer.drop_version_rows(house.encoder, old):
        steps += 1
        assert house.known() == ([0, new] if steps == 3 else [0, old, new])
    assert (steps, house.known()) == (3, [0, new])
    assert not house.writer.drop_version_rows(house.encoder, new), "a finished one stays"


def test_what_a_killed_process_left_of_an_old_version_goes_with_the_unfinished_ones(house: House) -> None:
    old, new = house.version(), house.version()
    house.writer.retire_old_versions(house.encoder, 1)
    assert house.writer.drop_unfinished(house.encoder, but=new) == [old]
    assert house.known() == [0, new]


# ---------------------------------------------------------------- databases from before


def old_database(path: Path) -> None:
    """As the second schema's writer left it, with a log that was judged."""
    with sqlite3.connect(path, isolation_level=None) as db:
        for name, (arguments, function) in m002_extraction.FUNCTIONS.items():
            db.create_function(name, arguments, function, deterministic=True)
        for sql in MIGRATIONS[:2]:
            db.executescript(sql)
        db.executescript(
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 2; PRAGMA foreign_keys = ON;"
        )
        db.execute("INSERT INTO sessions VALUES ('s', 1, 'h', 'c', '/p', 1.0, 2.0, NULL, 3, 1, 2, 1, 1, 1)")
        for n in range(3):
            values = (f"r{n}", "s", "turn", f"query {n}", 10.0 + n, "won", "", "late", 7.5, b"explained")
            db.execute(
                """INSERT INTO recalls(id, session, cause, query, at, outcome, reason, stage, ms, explain)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                values,
            )
            outcome = ("won", "slipped", "withheld")[n]
            shown = (f"i{n}", f"r{n}", "s", n + 1, "p/a.md", 0, 9, "text", 1, 0.5, 0.8, "late", outcome, 3, 11.0 + n)
            db.execute(f"INSERT INTO impressions VALUES ({','.join('?' * 15)})", shown)
        for id, key, impression, verdict in (
            (1, "k1", "i0", "good"),
            (2, "k2", "i0", "used"),
            (7, "k3", "i1", "ignored"),
        ):
            db.execute("INSERT INTO feedback VALUES (?, ?, ?, ?, 20.0)", (id, key, impression, verdict))
        db.execute("INSERT INTO encoders(fingerprint, model, runtime, dims, token_dims) VALUES ('test','m','r',16,4)")
        db.execute("INSERT INTO snapshots(encoder, version, created_at, live) VALUES (1, 0, 5.0, 1)")
    db.close()


def rows(path: Path, table: str, columns: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as db:
        found = db.execute(f"SELECT {columns} FROM {table} ORDER BY id").fetchall()
    db.close()
    return found


def test_a_database_of_the_second_schema_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "recalld.db"
    old_database(path)
    shown = 'id, recall, session, passage, path, start, "end", text, rank, score, probability, stage, outcome, shown_at'
    before = rows(path, "impressions", shown), rows(path, "feedback", "id, key, impression, verdict, at")
    with open_writer(path) as writer, open_reader(path) as reader:
        assert writer.check() == []
        assert reader.live_snapshot() == (1, 0)
        (frozen,) = reader.versions(1)
        assert (frozen.vectors, frozen.state, frozen.live, frozen.created_at) == (0, "ready", True, 5.0)
        judged = {record.impression: record for record in reader.judged()}
        assert judged["i0"].verdicts == ("good", "used")
        assert {record.propensity for record in judged.values()} == {1.0}
        assert not writer.record_feedback("i0", "good", at=30.0, key="k1"), "it was counted before"
        assert writer.record_feedback("i2", "acted", at=30.0)
        with pytest.raises(StoreError):
            writer.record_feedback("nobody", "good", at=30.0)
        put_file(writer, "/a.md", TEXTS)
        encode_missing(writer, reader, 1)
        source = writer.begin_source("/b.md", shown_path="b", kind="text")
        writer.add_passages(source, [passage("more", 0)])
    after = rows(path, "impressions", shown), rows(path, "feedback", "id, key, impression, verdict, at")
    assert after[0] == before[0]
    assert [row for row in after[1] if row[1] in ("k1", "k2", "k3")] == before[1]


def test_a_recall_that_goes_takes_its_impressions_along_as_before(tmp_path: Path) -> None:
    """The foreign keys of the rebuilt tables hold: they name each other, not what they were rebuilt from."""
    path = tmp_path / "recalld.db"
    old_database(path)
    with open_writer(path) as writer, open_reader(path) as reader:
        writer.prune(recalls_kept=0)
        assert {record.impression for record in reader.judged()} == {"i0", "i1"}, "what was judged is kept"
        assert writer.check() == []
