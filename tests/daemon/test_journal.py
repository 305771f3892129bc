"""Writes off the hot path: in order, together, and never one at the cost of another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from recalld_daemon import journal as journal_module
from recalld_daemon.journal import Journal
from recalld_daemon.store import NoSuchRow
from recalld_daemon.store.errors import StoreBusy
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.rows import RecallRecord, SessionRecord
from recalld_daemon.store.writer import Writer, open_writer


def with_journal(tmp_path: Path, body: Callable[[Journal, Reader], Awaitable[None]]) -> None:
    async def main() -> None:
        with open_writer(tmp_path / "db") as writer, open_reader(tmp_path / "db") as reader:
            journal = Journal(writer, trio.CapacityLimiter(1))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(journal.serve)
                await body(journal, reader)
                nursery.cancel_scope.cancel()

    trio.run(main)


def session(name: str) -> Callable[[Writer], object]:
    return lambda writer: writer.touch_session(SessionRecord(name, opened_at=1.0, last_seen_at=1.0))


def test_notes_are_written_in_order_and_flush_waits_for_them(tmp_path: Path) -> None:
    async def body(journal: Journal, reader: Reader) -> None:
        journal.note(session("a"))
        journal.note(lambda writer: writer.record_recall(RecallRecord("r", "a", "cause", "q", 1.0, "silent")))
        await journal.flush()
        found = reader.recall("r")
        assert found is not None
        assert found.session == "a"

    with_journal(tmp_path, body)


def test_one_bad_note_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    async def body(journal: Journal, reader: Reader) -> None:
        journal.note(session("a"))
        journal.note(lambda writer: writer.record_recall(RecallRecord("r", "nobody", "cause", "q", 1.0, "silent")))
        journal.note(session("b"))
        await journal.flush()
        assert {row.id for row in reader.sessions()} == {"a", "b"}
        assert reader.recall("r") is None

    with_journal(tmp_path, body)


def test_a_promise_gives_its_result_or_raises_its_error(tmp_path: Path) -> None:
    async def body(journal: Journal, reader: Reader) -> None:
        path, ids = await journal.promised(lambda writer: writer.remember("gulls nest here", at=1.0))
        assert reader.passage_ids(path) == ids
        with pytest.raises(NoSuchRow):
            await journal.promised(lambda writer: writer.record_feedback("none", "good", at=1.0))
        await journal.flush()

    with_journal(tmp_path, body)


def test_when_the_disk_does_not_keep_up_notes_are_dropped_and_counted_and_promises_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "QUEUE", 3)

    async def body(journal: Journal, reader: Reader) -> None:
        for name in "abcde":
            journal.note(session(name))
        assert (journal.waiting, journal.dropped) == (3, 2)
        await journal.promised(session("kept"))
        assert {row.id for row in reader.sessions()} == {"a", "b", "c", "kept"}

    with_journal(tmp_path, body)


def test_too_many_promises_are_refused_at_once_and_those_given_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MOST_WAITING", 3)

    async def main() -> None:
        kept: list[str] = []
        with open_writer(tmp_path / "db") as writer:
            journal = Journal(writer, trio.CapacityLimiter(1))

            async def ask(name: str) -> None:
                try:
                    await journal.promised(lambda writer: kept.append(name))
                except StoreBusy:
                    kept.append(f"{name} refused")

            async with trio.open_nursery() as nursery:
                for name in "abcd":
                    nursery.start_soon(ask, name)
                await trio.testing.wait_all_tasks_blocked()
                assert len(kept) == 1  # nothing is written yet: one was refused
                nursery.start_soon(journal.serve)
                await journal.flush()
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        assert len([name for name in kept if not name.endswith("refused")]) == 3

    trio.run(main)
