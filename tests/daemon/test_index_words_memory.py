"""The catalogue in the daemon's memory: open without any model, told of what is remembered, saved now and then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from recalld_daemon import memory as memory_module
from recalld_daemon.config import Config
from recalld_daemon.events import EventFeed
from recalld_daemon.memory import Memory
from recalld_daemon.memory_topic import topic_of
from recalld_daemon.paths import home_under
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.types import Answer, EncoderUnavailable, Focus, View
from recalld_daemon.sources import roots_of


class NoPublisher:
    def wanted(self, topic: str) -> bool:
        return False


class LoadingWorker:
    """In both workers' place: it never gets ready."""

    async def wait_ready(self) -> Any:
        await trio.sleep_forever()

    async def encode_query(self, text: str) -> Any:
        await trio.lowlevel.checkpoint()
        raise EncoderUnavailable("it is loading")


WORKER: Any = LoadingWorker()


def serving(tmp_path: Path, body: Callable[[Memory], Awaitable[None]]) -> None:
    """A memory without files that serves until the body is done."""
    home = home_under(tmp_path)
    home.make()
    memory = Memory.open(home)

    async def main() -> None:
        feed = EventFeed(NoPublisher())  # type: ignore[arg-type]
        gate = trio.lowlevel.checkpoint
        async with trio.open_nursery() as nursery:
            config = Config(transcripts=False)
            nursery.start_soon(
                partial(memory.serve, config, roots_of(config, {}), WORKER, WORKER, gate, feed, lambda: None)
            )
            with trio.fail_after(30):
                while memory.catalogue is None:
                    await trio.testing.wait_all_tasks_blocked(0.01)
                await body(memory)
            nursery.cancel_scope.cancel()

    try:
        trio.run(main)
    finally:
        memory.close()


async def found(memory: Memory, text: str) -> list[int]:
    answers: list[Answer] = []
    query = query_of(Focus(user_text=text))
    await memory.recaller(WORKER, False).run(query, View(None), frozenset(), answers.append)
    return [candidate.passage for candidate in answers[-1].candidates]


def test_what_is_remembered_is_found_at_once_without_any_model(tmp_path: Path) -> None:
    async def body(memory: Memory) -> None:
        _, ids = memory.writer.remember("the zeppelins were moored at the northern pier", at=1.0)
        assert await found(memory, "zeppelin mooring") == []
        await memory.kick(ids)
        assert await found(memory, "zeppelin mooring") == ids  # by its stem: FTS5 has none
        assert topic_of(memory)["catalogued"] == 1

    serving(tmp_path, body)


def test_until_the_catalogue_is_open_the_store_answers(tmp_path: Path) -> None:
    home = home_under(tmp_path)
    home.make()
    memory = Memory.open(home)
    _, ids = memory.writer.remember("the zeppelin was moored", at=1.0)

    async def main() -> None:
        await memory.kick(ids)
        assert await found(memory, "where is the zeppelin") == ids

    trio.run(main)
    assert topic_of(memory)["catalogued"] == 0
    memory.close()


def test_it_is_saved_when_much_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "SAVE_CHANGES", 2)

    async def body(memory: Memory) -> None:
        manifest = memory.home.index / "catalogue" / "manifest.json"
        for text, saved in (("one gull", False), ("two gulls", True)):
            await memory.kick(memory.writer.remember(text, at=1.0)[1])
            await memory.save()
            assert manifest.exists() is saved

    serving(tmp_path, body)

    async def again(memory: Memory) -> None:
        assert len(await found(memory, "gull")) == 2

    serving(tmp_path, again)
