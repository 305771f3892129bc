"""Writes that the race need not wait for: noted on the loop, done together in the writer's turn, in order.

All of the daemon's writes, those of ingest too, take turns through one limiter, since the store has one writer. Notes
are kept in a bounded queue; when the disk can't keep up the newest are dropped and counted, recall goes on. What a
client is promised (`promised`) is never dropped: it waits its turn behind the notes and returns when it is on disk, or
is refused at once when very much waits, so that the client repeats it later.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import trio

from recalld_daemon.store.errors import StoreBusy, StoreError
from recalld_daemon.store.writer import Writer

Gate = Callable[[], Awaitable[None]]
Note = Callable[[Writer], object]
QUEUE = 4096  # notes; some hundred bytes to some KB each
MOST_WAITING = 2 * QUEUE  # notes and promises; clients repeat what they are not told is kept
BATCH = 64  # notes per transaction
GATE_SECONDS = 1.0  # for which notes give way to recalls, which take milliseconds

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Promise(Generic[T]):
    work: Callable[[Writer], T]
    done: trio.Event = field(default_factory=trio.Event)
    result: list[T] = field(default_factory=list)
    error: StoreError | None = None


class Journal:
    """`turns` is the limiter (of one) that everything which writes shares; notes wait at `gate` while recalls run."""

    def __init__(self, writer: Writer, turns: trio.CapacityLimiter, gate: Gate = trio.lowlevel.checkpoint) -> None:
        self._writer, self._turns, self._gate = writer, turns, gate
        self._send, self._receive = trio.open_memory_channel[Note | _Promise[Any]](math.inf)
        self.dropped = 0

    @property
    def waiting(self) -> int:
        return self._receive.statistics().current_buffer_used

    def note(self, write: Note) -> None:
        """Write it soon. Never waits."""
        if self.waiting >= QUEUE:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("the disk does not keep up: %d notes wait; further ones are dropped", self.waiting)
            return
        self._send.send_nowait(write)

    async def promised(self, work: Callable[[Writer], T]) -> T:
        """Write it after all noted before, and return what it gave. Raises StoreError; StoreBusy at once, if full."""
        if self.waiting >= MOST_WAITING:
            raise StoreBusy(f"{self.waiting} writes wait for the disk already: try again later")
        return await self._promise(work)

    async def _promise(self, work: Callable[[Writer], T]) -> T:
        promise = _Promise(work)
        self._send.send_nowait(promise)
        await promise.done.wait()
        if promise.error is not None:
            raise promise.error
        return promise.result[0]

    async def flush(self) -> None:
        """Returns when all that was noted before is written."""
        await self._promise(lambda writer: None)

    async def serve(self) -> None:
        """Until cancelled; a batch that was begun is finished."""
        async for first in self._receive:
            batch = [first]
            while len(batch) < BATCH and not isinstance(batch[-1], _Promise):
                try:
                    batch.append(self._receive.receive_nowait())
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
            await self._write(batch)

    async def _write(self, batch: list[Note | _Promise[Any]]) -> None:
        notes = [item for item in batch if not isinstance(item, _Promise)]
        with trio.CancelScope(shield=True):
            if notes:
                with trio.move_on_after(GATE_SECONDS):
                    await self._gate()
                await trio.to_thread.run_sync(self._write_notes, notes, limiter=self._turns)
            for item in batch:
                if isinstance(item, _Promise):
                    await trio.to_thread.run_sync(self._keep, item, limiter=self._turns)
                    item.done.set()

    def _write_notes(self, notes: list[Note]) -> None:
        try:
            with self._writer.transaction():
                for note in notes:
                    note(self._writer)
        except StoreError as error:
            if len(notes) == 1:
                log.error("not written: %s", error)
                return
            for note in notes:  # one of them is at fault: the others must not go down with it
                self._write_notes([note])

    def _keep(self, promise: _Promise[object]) -> None:
        try:
            promise.result.append(promise.work(self._writer))
        except StoreError as error:
            promise.error = error
