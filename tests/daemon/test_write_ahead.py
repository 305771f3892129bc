"""The store's log stays bounded whatever other processes do: bulk work waits, recalls and their writes do not."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from recalld_daemon.store.reader import open_reader
from recalld_daemon.store.writer import Writer, open_writer
from recalld_daemon.write_ahead import RETRY_SECONDS, WriteAhead
from store_samples import put_file

LIMIT = 100_000


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with open_writer(tmp_path / "x.db") as writer:
        writer.checkpoint()  # what the migrations wrote
        yield writer


def reading(path: Path) -> sqlite3.Connection:
    outside = sqlite3.connect(path, isolation_level=None)
    outside.execute("BEGIN")
    outside.execute("SELECT count(*) FROM passages").fetchone()
    return outside


def grow(writer: Writer, name: str) -> None:
    put_file(writer, name, [f"{name} text {n} " * 40 for n in range(200)])


def test_a_log_that_nobody_holds_is_cut_and_no_work_waits(writer: Writer) -> None:
    async def main() -> None:
        write_ahead = WriteAhead(writer, trio.CapacityLimiter(1), LIMIT)
        grow(writer, "/a.md")
        assert write_ahead.size_bytes > LIMIT
        await write_ahead.bounded()
        assert write_ahead.size_bytes == 0
        assert not write_ahead.held

    trio.run(main)


def test_p035_bulk_work_waits_while_a_reader_holds_the_log(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = trio.testing.MockClock()
    came: list[str] = []

    async def bulk(write_ahead: WriteAhead, turns: trio.CapacityLimiter) -> None:
        for name in ("/a.md", "/b.md", "/c.md"):
            await write_ahead.after(trio.lowlevel.checkpoint)()
            async with turns:
                grow(writer, name)
            came.append(name)

    async def main() -> None:
        turns = trio.CapacityLimiter(1)
        write_ahead = WriteAhead(writer, turns, LIMIT)
        outside = reading(writer.path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bulk, write_ahead, turns)
            while not write_ahead.held:
                await trio.testing.wait_all_tasks_blocked(0.001)
            for _ in range(3):
                clock.jump(RETRY_SECONDS)
                await trio.testing.wait_all_tasks_blocked(0.001)
            assert came == ["/a.md"]
            async with turns:
                writer.remember("what is promised is still kept", at=1.0)
            with open_reader(writer.path) as reader:
                assert reader.counts()["memories"] == 1
            outside.close()
            clock.autojump_threshold = 0.001
        assert came == ["/a.md", "/b.md", "/c.md"]
        assert not write_ahead.held

    trio.run(main, clock=clock)
    told = [record.message for record in caplog.records]
    assert sum("holds a transaction open" in line for line in told) == 1
    assert "indexing goes on" in told[-1]
