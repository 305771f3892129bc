"""Another snapshot takes the place of the one that is searched, while recalls go on: prepared beside it, committed.

From `prepare` on ingest keeps both spaces: what it embeds gets its vectors in either. Meanwhile the missing ones are
made, the index is opened (or built) and agrees with the store, facts and names are read, and a sample of searches is
compared with exact ones, once in a process: what was saved and is opened again is told by its checksums. The commit is
one turn of the writer: what came meanwhile is caught up with, the index is compared with the store once more, and the
version is declared live. Until then nothing that is searched has changed, and whatever fails leaves it so; a process
that is killed finds at its next start the version that was live.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from recalld_daemon.index import Extracts, FaissIndex, finds_nearest, holds_all, open_index
from recalld_daemon.ingest.keeping import Keeping
from recalld_daemon.ingest.ports import Space
from recalld_daemon.learned import Learned
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN
from recalld_daemon.store.writer import Writer
from recalld_daemon.versions import VersionRefused, index_directory, sweep_indexes

T = TypeVar("T")
Progress = Callable[[int, int], None]


class Turn(Protocol):
    """Runs a function in the writer's thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Activation:
    """All of it is asked by one task at a time. root: the index directory."""

    def __init__(
        self, root: Path, writer: Writer, reader: Reader, extracts: Extracts, keeping: Keeping, turn: Turn
    ) -> None:
        self._root, self._writer, self._reader = root, writer, reader
        self._extracts, self._keeping, self._turn = extracts, keeping, turn
        self._verified: set[tuple[int, int]] = set()  # snapshots whose searches were compared with exact ones before

    async def opened(self, encoder: int, learned: Learned, progress: Progress) -> FaissIndex:
        """A version's index, equal to the store, with the vectors made that it lacked. Raises OSError, StoreError."""
        space = space_of(encoder, learned)
        after: bytes | None = b""
        while after is not None and space.snapshot != FROZEN:
            after = await self._turn(partial(self._keeping.project, space, after))
        directory = index_directory(self._root, encoder, learned.vectors)
        return await trio.to_thread.run_sync(
            partial(open_index, directory, self._reader, encoder, learned.vectors, _stoppable(progress))
        )

    async def prepare(self, encoder: int, learned: Learned, progress: Progress) -> FaissIndex:
        """All that `commit` needs, beside what is searched. Raises VersionRefused, OSError, StoreError."""
        space, index = space_of(encoder, learned), None
        try:
            await self._turn(partial(self._keeping.prepare, space))
            index = await self.opened(encoder, learned, progress)
            await trio.to_thread.run_sync(self._extracts.prepare, encoder, learned.vectors)
            if (encoder, learned.vectors) not in self._verified:
                wrong = await trio.to_thread.run_sync(finds_nearest, index, self._reader)
                if wrong:
                    raise VersionRefused(f"version {learned.version}: {wrong}")
                self._verified.add((encoder, learned.vectors))
        except BaseException:
            await self.abandon(index)
            raise
        return index

    def commit(self, encoder: int, learned: Learned, index: FaissIndex | None) -> None:
        """Declare the version live; in the writer's thread. index: as prepared, None where the vectors stay the same.

        From its return on ingest keeps the new index alone; the searching side must follow at once. Raises
        VersionRefused, StoreError; then the old version is live as before.
        """
        if index is not None:
            self._keeping.catch_up_prepared(index)
            if wrong := holds_all(index, self._reader):
                raise VersionRefused(f"version {learned.version}: {wrong}")
        self._writer.set_live(encoder, learned.version)
        if index is not None:
            self._keeping.swap()

    async def abandon(self, index: FaissIndex | None) -> None:
        """What was prepared is not needed."""
        with trio.CancelScope(shield=True):
            await self._turn(self._keeping.abandon)
            self._extracts.abandon()
            if index is not None:
                await trio.to_thread.run_sync(index.close)

    async def drop_old(self, encoder: int, keep: int) -> None:
        """Drop versions that are older than the last `keep`, and the indexes of those that are gone.

        Raises OSError, StoreError.
        """
        for version in await self._turn(partial(self._writer.retire_old_versions, encoder, keep)):
            while await self._turn(partial(self._writer.drop_version_rows, encoder, version)):
                pass
        await trio.to_thread.run_sync(sweep_indexes, self._root, self._reader)


def space_of(encoder: int, learned: Learned) -> Space:
    """Where ingest keeps a version's vectors."""
    return Space(encoder, learned.vectors, learned.key)


def _stoppable(progress: Progress) -> Progress:
    """Raises trio.Cancelled in the thread when the task it works for was cancelled: the daemon stops."""

    def told(done: int, total: int) -> None:
        trio.from_thread.check_cancelled()
        progress(done, total)

    return told
