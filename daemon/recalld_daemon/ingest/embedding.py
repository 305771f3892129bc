"""The backlog: passages without vectors go to the bulk worker in small batches, newest first, until there are none.

Two batches are under way at a time, so that the worker encodes one while the other is being written. Nothing is
embedded while files wait to be read: words can be found at once, meaning follows. A text the worker can't encode, or
dies of, is singled out and left without a vector, until the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from recalld_daemon.ingest.keeping import Keeping, Missing
from recalld_daemon.ingest.paths import PathQueue
from recalld_daemon.ingest.ports import Bulk, Gate, Report, Space
from recalld_daemon.ingest.turns import Turns
from recalld_daemon.recall.types import EncoderUnavailable
from recalld_daemon.store.errors import StoreError
from recalld_daemon.worker_link import RequestFailed
from recalld_daemon.worker_wire import FrameTooLarge

BATCH = 64  # passages: 0.2 s of a worker that encodes 300 a second, after which live recalls may go first
UNDER_WAY = 2
FAULT_SECONDS = 10.0  # after the store refused vectors, until the next try

T = TypeVar("T")
Turn = Callable[[Callable[[], T]], Awaitable[T]]

log = logging.getLogger(__name__)


class Embedding:
    """`turn` runs a function in the writer's thread."""

    def __init__(
        self, keeping: Keeping, bulk: Bulk, turns: Turns, files: PathQueue, turn: Turn[int], gate: Gate, report: Report
    ) -> None:
        self._keeping = keeping
        self._bulk = bulk
        self._turns = turns
        self._files = files
        self._turn = turn
        self._gate = gate
        self._report = report
        self._under_way: set[bytes] = set()
        self._given_up: set[bytes] = set()
        self._choosing = trio.Lock()
        self._woken = trio.Event()
        self._idle = trio.Event()
        self.embedded = 0  # passages that got their vectors since the start

    def wake(self) -> None:
        """There may be passages without vectors."""
        if self._idle.is_set():
            self._idle = trio.Event()
        self._stir()

    async def wait_idle(self) -> None:
        """Returns when nothing is left to embed."""
        while not self._idle.is_set():
            await self._idle.wait()

    @property
    def idle(self) -> bool:
        """Whether nothing is left to embed."""
        return self._idle.is_set()

    @property
    def given_up(self) -> int:
        """Texts that could not be embedded."""
        return len(self._given_up)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(UNDER_WAY):
                nursery.start_soon(self._embed)

    async def _embed(self) -> None:
        while True:
            await self._files.wait_idle()
            await self._gate()
            woken = self._woken
            space = self._keeping.space
            try:
                batch = [] if space is None else await self._choose()  # what is chosen is under way until it is kept
            except StoreError as error:
                log.error("the backlog can't be read: %s", error)
                await trio.sleep(FAULT_SECONDS)
                continue
            if space is None or not batch:
                if space and not self._under_way and woken is self._woken:
                    self._idle.set()
                await woken.wait()
                continue
            try:
                await self._encode(space, batch, alone=False)
            except StoreError as error:
                log.error("vectors were not kept: %s", error)
                self._report("ingest.failed", path="", error=str(error))
                await trio.sleep(FAULT_SECONDS)
            finally:
                self._under_way.difference_update(hash for hash, _ in batch)
            self._stir()

    def _stir(self) -> None:
        """A batch is done: whoever found nothing to do looks again."""
        woken, self._woken = self._woken, trio.Event()
        woken.set()

    async def _choose(self) -> Missing:
        async with self._choosing:
            passed_over = self._under_way | self._given_up
            missing = await trio.to_thread.run_sync(self._keeping.missing, BATCH + len(passed_over))
            batch = [(hash, text) for hash, text in missing if hash not in passed_over][:BATCH]
            self._under_way.update(hash for hash, _ in batch)
        return batch

    async def _encode(self, space: Space, batch: Missing, *, alone: bool) -> None:
        """Encode and keep a batch; where that fails, once more alone, then text by text, then give the text up."""
        try:
            await self._bulk.wait_ready()
            async with self._turns.take(alone=alone):
                encoded = await self._bulk.encode_passages([text for _, text in batch])
        except (EncoderUnavailable, RequestFailed, FrameTooLarge) as error:
            await self._after_failure(space, batch, alone, error)
            return
        self.embedded += await self._turn(lambda: self._keeping.put(space, [hash for hash, _ in batch], encoded))

    async def _after_failure(self, space: Space, batch: Missing, alone: bool, error: Exception) -> None:
        if not alone and isinstance(error, EncoderUnavailable):
            await self._encode(space, batch, alone=True)
        elif len(batch) > 1:
            for one in batch:
                await self._encode(space, [one], alone=True)
        elif not alone:
            await self._encode(space, batch, alone=True)
        else:
            self._given_up.add(batch[0][0])
            log.warning("a passage can't be embedded: %s", error)
            self._report("ingest.unembeddable", error=str(error), text=batch[0][1][:80])
