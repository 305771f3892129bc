"""The same session awaited, under asyncio and under trio."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from recalld_client import AsyncSession
from recalld_protocol.endpoints import Endpoints, endpoints_in
from recalld_protocol.messages import Inject, Injections, Outbox, Remember, Turn
from scripted_daemon import PATIENCE_SECONDS, Puppet, Stock, served, short_directory, snippet

Run = Callable[[Callable[[], Awaitable[None]]], None]


def run_asyncio(main: Callable[[], Awaitable[None]]) -> None:
    async def outermost() -> None:
        await main()

    asyncio.run(outermost())


def run_trio(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main)


@pytest.fixture(params=[run_asyncio, run_trio], ids=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


@pytest.fixture
def where() -> Iterator[Endpoints]:
    with short_directory() as directory:
        yield endpoints_in(directory)


async def times_out(seconds: float, doing: Callable[[], Awaitable[Any]]) -> bool:
    """Whether it had to be cancelled after so long, by whichever loop is running."""
    if "trio" in sys.modules and trio.lowlevel.in_trio_task():
        with trio.move_on_after(seconds) as scope:
            await doing()
        return scope.cancelled_caught
    try:
        await asyncio.wait_for(doing(), seconds)
    except TimeoutError:
        return True
    return False


def test_everything_can_be_awaited(where: Endpoints, run: Run) -> None:
    stock = Stock()

    async def main() -> None:
        async with AsyncSession("tests", endpoints=where) as session:
            assert await session.connect(PATIENCE_SECONDS)
            assert (session.connected, session.problem) == (True, "")
            session.turn("A")
            session.said("I shall")
            assert [one.id for one in await session.boundary(PATIENCE_SECONDS)] == ["i-first-1"]
            with session.tool("bash", "ls") as call:
                call.result = "fine"
            assert [one.id for one in await session.boundary(PATIENCE_SECONDS)] == ["i-first-2"]
            assert await session.boundary() == []
            assert [hit.text for hit in await session.search("what", wait_seconds=PATIENCE_SECONDS)] == ["what"]
            assert await session.remember("this", wait_seconds=PATIENCE_SECONDS) == "memory:17"
            assert await session.recall("what", 600, wait_seconds=PATIENCE_SECONDS) == "600 tokens about what"
            session.compacted()
            session.feedback("i-first-1", "used")

    with served(where, stock):
        run(main)
    assert isinstance(next(message for message in stock.heard if isinstance(message, Remember)), Remember)


def test_without_a_daemon_nothing_waits(where: Endpoints, run: Run) -> None:
    async def main() -> None:
        async with AsyncSession(endpoints=where) as session:
            session.turn("A")
            assert await session.boundary(wait_seconds=3600) == []
            assert await session.search("A", wait_seconds=3600) == []
            assert await session.recall("A", wait_seconds=3600) == ""
            assert not await session.connect(0)
            assert "no daemon at" in session.problem

    run(main)


def test_a_cancelled_boundary_has_taken_nothing(where: Endpoints, run: Run) -> None:
    async def main() -> None:
        with Puppet(where) as daemon:
            async with AsyncSession(session_id="s", endpoints=where) as session:
                daemon.welcome()
                session.turn("A")
                daemon.hear_a(Turn)
                assert await times_out(0.02, lambda: session.boundary(3600))
                daemon.say(Inject(session="s", recall="r", stage="late", turn=1, boundary=0, snippets=[snippet("i1")]))
                assert [one.id for one in await session.boundary(PATIENCE_SECONDS)] == ["i1"]
                assert session._session._correspondence.buffer.boundary == 1

    run(main)


def test_a_cancelled_outbox_keeps_its_answer_for_the_next(where: Endpoints, run: Run) -> None:
    async def main() -> None:
        with Puppet(where) as daemon:
            async with AsyncSession(session_id="s", delivery="pull", endpoints=where) as session:
                daemon.welcome()
                assert await times_out(0.02, lambda: session.outbox(3600))
                asked = daemon.hear_a(Outbox)
                daemon.say(Injections(session="s", re=asked.id, snippets=[snippet("i1")]))
                assert session._session._correspondence.link.wait(PATIENCE_SECONDS)
                assert [one.id for one in await session.outbox(PATIENCE_SECONDS)] == ["i1"]
                assert not session._session._correspondence._asked

    run(main)


def test_the_loop_goes_on_while_a_boundary_waits(where: Endpoints) -> None:
    async def main(daemon: Puppet) -> None:
        async with AsyncSession(session_id="s", endpoints=where) as session, trio.open_nursery() as nursery:
            daemon.welcome()
            session.turn("A")
            daemon.hear_a(Turn)
            taken: list[str] = []

            async def wait() -> None:
                taken.extend(one.id for one in await session.boundary(PATIENCE_SECONDS))

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            daemon.say(Inject(session="s", recall="r", stage="late", turn=1, boundary=0, snippets=[snippet("i1")]))
        assert taken == ["i1"]

    with Puppet(where) as daemon:
        trio.run(main, daemon)


def test_two_loops_in_two_threads_each_nap_in_their_own(where: Endpoints) -> None:
    results: list[int] = []

    async def main() -> None:
        async with AsyncSession(endpoints=where) as session:
            await session.connect(PATIENCE_SECONDS)
            session.turn("A")
            results.append(len(await session.boundary(PATIENCE_SECONDS)))

    with served(where):
        threads = [threading.Thread(target=run, args=(main,)) for run in (run_asyncio, run_trio)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [1, 1]
