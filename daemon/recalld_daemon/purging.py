"""Forgotten rows leave traces in files: older segments, free pages, the log, index files. Here they are all purged.

It needs no memory of what was forgotten, so it may be done for several at once, and begun again after a crash. Work on
the database goes in short turns of the writer, between which others write; recalls read on all the while. The indexes
that are searched are saved anew without what was removed; those of other versions, a cache like them, are deleted, and
built again from the store by who goes back to one. What the file system keeps of freed blocks is beyond a program.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from recalld_daemon.index import Catalogue, FaissIndex
from recalld_daemon.store.errors import StoreBusy
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.writer import Writer
from recalld_daemon.versions import index_directories

CUT_SECONDS = 10.0  # for which readers are waited for, until the log can be cut; ours take milliseconds
RETRY_SECONDS = 0.05

T = TypeVar("T")


class Turn(Protocol):
    """Runs a function in the writer's thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


async def purge(writer: Writer, turn: Turn, indexes: Callable[[], Awaitable[None]]) -> None:
    """All of it; `indexes` purges those. Raises StoreError, OSError: it is owed still, and may be tried again.

    StoreBusy: a reader, most likely of another process, keeps the log from being cut.
    """
    steps = writer.purge_steps()
    while await turn(lambda: next(steps, None)) is not None:
        pass
    await indexes()
    with trio.move_on_after(CUT_SECONDS):
        while (await turn(writer.checkpoint)).blocked:
            await trio.sleep(RETRY_SECONDS)
        await turn(writer.purged)
        return
    raise StoreBusy(
        f"{writer.path}: what was forgotten is found no more, but another process reads the store, so its log can't be "
        "cut and still holds it: close that one (a shell, a backup); the rest is done as soon as that is possible"
    )


def purge_indexes(root: Path, reader: Reader, index: FaissIndex | None, catalogue: Catalogue) -> None:
    """In the writer's thread, while no index is opened. index: the one that is searched. Raises OSError, StoreError."""
    catalogue.purge()
    if index is not None:
        index.purge()
    searched = None if index is None else index.directory
    for directory in index_directories(root, reader):
        if directory != searched:
            shutil.rmtree(directory, ignore_errors=True)
