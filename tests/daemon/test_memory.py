"""Store and index are opened in spite of a disk that is full for a while, and closed in spite of it too."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from recalld_daemon import activation as activation_module
from recalld_daemon import memory as memory_module
from recalld_daemon.config import Config
from recalld_daemon.events import EventFeed
from recalld_daemon.extract.interface import Piece
from recalld_daemon.extract.rules import RULES
from recalld_daemon.index import open_index
from recalld_daemon.memory import Memory
from recalld_daemon.paths import home_under
from recalld_daemon.recall.types import EncoderUnavailable
from recalld_daemon.sources import roots_of
from recalld_daemon.store.writer import open_writer
from recalld_daemon.worker_wire import Loaded


class NoPublisher:
    def wanted(self, topic: str) -> bool:
        return False


class ReadyWorker:
    """In both workers' place: loaded, but never able to encode."""

    async def wait_ready(self) -> Loaded:
        await trio.lowlevel.checkpoint()
        return Loaded(id=0, fingerprint="f", model="m", runtime="r", dims=8, token_dims=4)

    async def encode_query(self, text: str) -> Any:
        raise EncoderUnavailable("it is a test's")


async def until_open(memory: Memory) -> None:
    while memory.index is None:
        await trio.testing.wait_all_tasks_blocked(0.01)


def test_what_another_extractor_made_is_made_anew_when_the_store_is_opened(tmp_path: Path) -> None:
    """What is extracted is a cache: elsewhere it was kept under a key that did not name how it had been made."""

    class Louder:
        name = "loud-2"

        def facts(self, piece: Piece) -> list[str]:
            return [piece.text.upper()]

    home = home_under(tmp_path)
    home.make()
    with open_writer(home.database) as writer:
        writer.remember("Mia keeps the key under the mat", at=1e9)
        writer.adopt_recipe(replace(RULES, facts=Louder()))
    made_by = "SELECT DISTINCT made_by FROM facts"
    with closing(sqlite3.connect(home.database)) as database:
        assert database.execute(made_by).fetchall() == [("loud-2",)]
    Memory.open(home).close()
    with closing(sqlite3.connect(home.database)) as database:
        assert ("loud-2",) not in database.execute(made_by).fetchall()


def test_the_index_is_opened_once_the_disk_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [OSError(errno.ENOSPC, "No space left on device")] * 2
    states: list[str] = []

    def opening(*arguments: Any) -> Any:
        states.append(memory.opening)
        if refusals:
            raise refusals.pop()
        return open_index(*arguments)

    monkeypatch.setattr(activation_module, "open_index", opening)
    monkeypatch.setattr(memory_module, "RETRY_SECONDS", 0)
    monkeypatch.setattr("gc.freeze", lambda: None)  # it would outlast the test
    home = home_under(tmp_path)
    home.make()
    memory = Memory.open(home)

    async def main() -> None:
        worker: Any = ReadyWorker()
        feed = EventFeed(NoPublisher())  # type: ignore[arg-type]
        gate = trio.lowlevel.checkpoint
        async with trio.open_nursery() as nursery:
            config = Config(transcripts=False)
            nursery.start_soon(
                partial(memory.serve, config, roots_of(config, {}), worker, worker, gate, feed, lambda: None)
            )
            with trio.fail_after(30):
                await until_open(memory)
            nursery.cancel_scope.cancel()

    trio.run(main)
    memory.close()
    assert states == ["", "waiting for the disk", "waiting for the disk"]


def test_a_writer_closes_although_its_statistics_find_no_room(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "db")
    writer._db.set_authorizer(refuse_optimize)
    writer.close()
    with pytest.raises(sqlite3.ProgrammingError):
        writer._db.execute("SELECT 1")


def refuse_optimize(action: int, name: str | None, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_PRAGMA and name == "optimize" else sqlite3.SQLITE_OK
