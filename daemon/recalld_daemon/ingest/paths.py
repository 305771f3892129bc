"""Files that wait to be read: each once, however often it changed, and never two readers on one file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio


class PathQueue:
    """First come, first served; a file that is put again while it is read is read once more afterwards."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, None] = OrderedDict()  # its front is quick to take, unlike a dict's
        self._busy: set[str] = set()
        self._changed = trio.Event()
        self.put_count = 0
        self.done_count = 0

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._busy

    def put(self, path: str) -> None:
        if path not in self._waiting:
            self._waiting[path] = None
            self.put_count += 1
            self._stir()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[str]:
        """The next file, held until the end of the block."""
        while (path := next((path for path in self._waiting if path not in self._busy), None)) is None:
            await self._changed.wait()
        del self._waiting[path]
        self._busy.add(path)
        try:
            yield path
        finally:
            self._busy.remove(path)
            self.done_count += 1
            self._stir()

    async def drop(self, unwanted: Callable[[str], bool]) -> None:
        """Forget those that wait, and return when none of those that are unwanted is held any more."""
        while True:
            for path in [path for path in self._waiting if unwanted(path)]:
                del self._waiting[path]
                self.done_count += 1
            if not any(map(unwanted, self._busy)):
                return
            await self._changed.wait()

    async def wait_idle(self) -> None:
        while not self.idle:
            await self._changed.wait()

    def _stir(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
