"""Keeps the store's write-ahead log bounded: while another process's open reader holds it, indexing waits.

SQLite can't cut its log past the oldest reader. A forgotten transaction somewhere (a shell left open, a backup that
hangs) would let it grow for as long as files are indexed; so bulk work stops at a limit, says why, and goes on by
itself when the reader has gone. Recalls, and the little they write, never wait here.
"""

from __future__ import annotations

import logging

import trio

from recalld_daemon.ingest.ports import Gate
from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.writer import Writer

LOG_LIMIT_BYTES = 256 * 1024 * 1024  # about 8,000 new passages; it is cut to 16 MB whenever nobody holds it
RETRY_SECONDS = 2.0

log = logging.getLogger(__name__)


class WriteAhead:
    """`turns` is the limiter that all writing shares."""

    def __init__(self, writer: Writer, turns: trio.CapacityLimiter, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
        self._writer, self._turns = writer, turns
        self.limit_bytes = limit_bytes
        self.held = False  # bulk work waits for a reader to go

    @property
    def size_bytes(self) -> int:
        return self._writer.log_bytes()

    async def bounded(self) -> None:
        """Returns once the log is below its limit; cheap when it is."""
        while self.size_bytes > self.limit_bytes:
            await self.cut()
            if self.size_bytes <= self.limit_bytes:
                break
            if not self.held:
                self.held = True
                size, limit = self.size_bytes // 1_000_000, self.limit_bytes // 1_000_000
                log.warning(
                    "%s: a reader, most likely of another process, holds a transaction open, so the log can't be cut "
                    "(%d MB, limit %d MB): indexing waits until that one is closed",
                    self._writer.path, size, limit,
                )  # fmt: skip
            await trio.sleep(RETRY_SECONDS)
        if self.held:
            self.held = False
            log.info("the store's log could be cut: indexing goes on")

    async def cut(self) -> None:
        """Move the log into the database, as far as readers allow."""
        try:
            await trio.to_thread.run_sync(self._writer.checkpoint, limiter=self._turns)
        except StoreError as error:
            log.error("the store's log was not cut: %s", error)

    def after(self, gate: Gate) -> Gate:
        """A gate that is open when `gate` is, and the log is bounded."""

        async def both() -> None:
            await gate()
            await self.bounded()

        return both
