"""P018 in the store: rows, words of the full-text index, vectors, names, free pages, the log; not what others have."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from log_house import NOON, LogHouse
from recalld_daemon.recall.quotes import MASK
from recalld_daemon.recall.types import GLOBAL_SCOPE, View
from recalld_daemon.records import without
from recalld_daemon.store import ImpressionRecord, RecallRecord, SessionRecord
from recalld_daemon.worker_wire import ParsedPassage
from recalld_protocol.messages import Why, WhyCandidate
from store_samples import passage

SECRET = "quexalorn"
TEXT = f"Mara Vintgaard said the {SECRET} ledger of the berth_booking moved to /srv/{SECRET}/ledger.db"
EVERYWHERE = View(scopes=None)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path) as made:
        yield made


def forget(house: LogHouse, *paths: str) -> list[int]:
    """All of it, as the daemon does: log, rows, file."""
    writer = house.writer
    names = [source.shown_path for path in paths if (source := house.reader.source(path))]
    writer.forget_log(paths, [*paths, *names], without, ())
    gone = writer.forget_sources(paths).passages
    purge(house)
    return gone


def purge(house: LogHouse) -> None:
    assert house.writer.purge_owed()
    for _ in house.writer.purge_steps():
        pass
    assert not house.writer.checkpoint().blocked
    house.writer.purged()
    assert not house.writer.purge_owed()


def held(house: LogHouse, *words: str) -> list[str]:
    """What the files of the store hold of these, as bytes."""
    data = b"".join(p.read_bytes() for p in house.home.data.glob("recalld.db*")).lower()
    return [word for word in words if word.lower().encode() in data]


def counts(house: LogHouse) -> dict[str, int]:
    db = sqlite3.connect(house.home.database)
    tables = ("passages", "facts", "subjects", "subject_aliases", "passage_whens", "vectors", "impressions", "feedback")
    found = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    db.close()
    return found


def test_p018_nothing_of_it_is_left_in_any_page(house: LogHouse) -> None:
    house.remember("/notes/harbour.md", ["The harbour office opens at seven in the morning"])
    before = counts(house)
    for n in range(8):  # several segments of the full-text index, some of them merged
        house.remember(f"/notes/{n}.md", [f"{TEXT}, it says for the {n}th time", f"And {SECRET} again on 3 May 2024"])
    paths = [f"/notes/{n}.md" for n in range(8)]
    assert held(house, SECRET, "vintgaard") == [SECRET, "vintgaard"]
    assert len(forget(house, *paths)) == 16
    assert held(house, SECRET, "vintgaard") == []
    assert counts(house) == before
    assert house.writer.check() == []
    assert house.reader.lexical([SECRET], EVERYWHERE, 5).ids.tolist() == []
    assert len(house.reader.lexical(["harbour"], EVERYWHERE, 5).ids) == 1


def test_what_another_source_says_too_stays_whole(house: LogHouse) -> None:
    (one,), (other,) = house.remember("/a.md", [TEXT]), house.remember("/b.md", [TEXT])
    vectors = counts(house)["vectors"]
    assert forget(house, "/a.md") == [one]
    assert counts(house)["vectors"] == vectors
    assert [p.text for p in house.reader.passages([one, other])] == [TEXT]
    assert house.reader.lexical([SECRET], EVERYWHERE, 5).ids.tolist() == [other]
    assert house.reader.count_missing(house.encoder, 0) == 0
    assert forget(house, "/b.md") == [other]
    assert held(house, SECRET) == []


def test_a_name_that_only_it_gave_to_another_ones_subject_goes(house: LogHouse) -> None:
    """ "Ada" alone means the one Ada that is known: her surname must not outlive the passage that told it."""
    house.remember("/a.md", ["We met Ada Quexalorn at the pier, and Ada Quexalorn laughed"])
    kept = house.remember("/b.md", ["Later we saw that Ada was gone", "Nobody knows where to Ada went"])
    names = {row.name for row in house.reader.subjects_of(house.reader.links_of(kept).subjects.tolist())}
    assert "Ada Quexalorn" in names
    house.writer.forget_log(["/a.md"], ["a.md"], without, ())
    assert house.writer.forget_sources(["/a.md"]).renamed == kept
    purge(house)
    names = {row.name for row in house.reader.subjects_of(house.reader.links_of(kept).subjects.tolist())}
    assert "Ada" in names
    assert held(house, SECRET) == []


def test_a_subject_that_others_name_alike_is_left_alone(house: LogHouse) -> None:
    house.remember("/a.md", ["We met Ada Quexalorn at the pier", "she edits src/auth/tokens.py and getUserName()"])
    rest = house.remember("/b.md", ["Ada\nQuexalorn wrote", "src/auth/tokens.py calls getUserName() again"])
    house.writer.forget_log(["/a.md"], ["a.md"], without, ())
    assert house.writer.forget_sources(["/a.md"]).renamed == []
    names = {row.name for row in house.reader.subjects_of(house.reader.links_of(rest).subjects.tolist())}
    assert names >= {"Ada Quexalorn", "src/auth/tokens.py", "getUserName"}


def why(query: str, *paths: str) -> bytes:
    rows = [WhyCandidate(path=path, text=f"text of {path}") for path in paths]
    return msgspec.msgpack.encode(Why(recall="r", query=query, cause=f"turn 1: {query}", candidates=rows))


def test_the_log_forgets_what_was_shown_of_it_and_what_questions_quote(house: LogHouse) -> None:
    (gone,) = house.remember("/notes/a.md", [TEXT])
    (kept,) = house.remember("/notes/b.md", ["the harbour office is the place to ask where the keys are"])
    house.writer.touch_session(SessionRecord("s"))
    for id, query in (
        ("r1", "where are the keys"),
        ("r2", f"keep this: SAID the {SECRET} ledger, of; where are the keys"),
    ):
        explain = why(query, "a.md", "b.md", "a.md2")
        house.writer.record_recall(RecallRecord(id, "s", f"turn 1: {query}", query, NOON, "won", explain=explain))
        for of, path in ((gone, "a.md"), (kept, "b.md"), (999, "a.md")):  # the last was edited away long ago
            house.writer.record_impressions(
                [ImpressionRecord(f"{id}-{of}", id, "s", of, path, 0, 9, "…", 1, 1.0, 0.5, "late", "won", 1, NOON)]
            )
            house.writer.record_feedback(f"{id}-{of}", "good", at=NOON)
    told = house.writer.forget_log(["/notes/a.md"], ["a.md"], without, ())
    assert sorted(told.impressions) == sorted(f"r{n}-{of}" for n in (1, 2) for of in (gone, 999))
    assert (told.masked, told.explanations) == (1, 2)
    house.writer.forget_sources(["/notes/a.md"])
    purge(house)
    assert held(house, SECRET) == []
    first, second = house.reader.recall("r1"), house.reader.recall("r2")
    assert first is not None and second is not None  # noqa: PT018
    assert first.query == "where are the keys"
    assert second.query == f"keep this: {MASK}; where are the keys"
    for record in (first, second):
        told_now = msgspec.msgpack.decode(record.explain, type=Why)
        assert told_now.query == record.query
        assert record.cause == told_now.cause == f"turn 1: {record.query}"
        assert [candidate.path for candidate in told_now.candidates] == ["b.md", "a.md2"]
        assert [row.id for row in house.reader.impressions(record.id)] == [f"{record.id}-{kept}"]
    assert counts(house)["feedback"] == 2


def test_a_forgetting_that_was_interrupted_is_ended_at_the_next_start(house: LogHouse) -> None:
    for name in ("a", "b", "c"):
        house.remember(f"/in/{name}.md", [f"{TEXT} ({name})"])
    house.remember("/other.md", ["stays"])
    house.writer.follow("/in", kind="", is_file=False, at=NOON)
    paths = [f"/in/{name}.md" for name in ("a", "b", "c")]
    house.writer.note_forgetting("/in", paths, ["/in", "a.md", "b.md", "c.md"])
    house.writer.forget_sources(paths[:1])  # and here it was killed
    house.close()
    again = LogHouse(house.home.data.parent)
    assert again.writer.resume_forgetting(without) == 2
    assert again.writer.forgetting() == {}
    assert again.reader.followed() == []
    assert [source.path for source in again.reader.sources()] == ["/other.md"]
    purge(again)
    assert held(again, SECRET) == []
    assert again.writer.resume_forgetting(without) == 0
    again.close()


def test_a_database_from_before_deletes_were_secure_is_written_anew_once(house: LogHouse) -> None:
    house.close()
    db = sqlite3.connect(house.home.database, isolation_level=None)
    db.execute("PRAGMA secure_delete = OFF")
    db.execute("CREATE TABLE old (text TEXT)")
    db.execute("INSERT INTO old VALUES (?)", ((f"{SECRET} " * 5_000),))
    db.execute("DELETE FROM old")
    db.execute("DROP TABLE old")
    db.execute("DELETE FROM meta WHERE key = 'scrubbed'")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    again = LogHouse(house.home.data.parent)
    assert held(again, SECRET) == [SECRET]
    again.remember("/a.md", [TEXT])
    again.writer.forget_log(["/a.md"], ["a.md"], without, ())
    again.writer.forget_sources(["/a.md"])
    assert "pages" in list(again.writer.purge_steps())
    again.writer.checkpoint()
    assert held(again, SECRET) == []
    assert "pages" not in list(again.writer.purge_steps())
    again.close()


def test_vectors_that_come_too_late_are_not_kept(house: LogHouse) -> None:
    """A text is on its way through the encoder while it is forgotten."""
    (kept,) = house.remember("/b.md", ["the harbour"])
    before = counts(house)["vectors"]
    late = house.live.encode_passages([TEXT])
    from log_house import _frame
    from recalld_daemon.ingest.ports import Space

    assert house._keeping.put(Space(house.encoder, 0), [b"0" * 16], _frame(late)) == 0
    assert counts(house)["vectors"] == before
    assert house.reader.passages([kept])


def test_a_memory_goes_with_its_text_title_and_key(house: LogHouse) -> None:
    whole = ParsedPassage(start=0, end=9, text=TEXT, codec="utf-8", heading=f"title {SECRET}", written_at=NOON)
    path, _ = house.writer.remember(TEXT, at=NOON, title=f"title {SECRET}", key=f"k-{SECRET}", passages=[whole])
    assert forget(house, path)
    assert held(house, SECRET) == []
    assert house.reader.memory_text(path) is None
    again, _ = house.writer.remember("another", at=NOON, scope=GLOBAL_SCOPE, passages=[passage("another")])
    assert again != path
