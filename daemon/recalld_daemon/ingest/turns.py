"""Who may use the bulk worker now: many at once, or one alone.

A worker that dies takes all that was asked of it along. Who was under way then asks again alone, so that a second death
has one culprit and nothing innocent is given up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Turns:
    """A lock with a shared and an exclusive side; whoever waits to be alone goes before new shared ones."""

    def __init__(self) -> None:
        self._changed = trio.Condition()
        self._shared = 0
        self._alone = 0  # holding or waiting
        self._taken = False

    @asynccontextmanager
    async def take(self, *, alone: bool) -> AsyncIterator[None]:
        await (self._enter_alone() if alone else self._enter_shared())
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await self._leave(alone)

    async def _enter_shared(self) -> None:
        async with self._changed:
            while self._alone:
                await self._changed.wait()
            self._shared += 1

    async def _enter_alone(self) -> None:
        self._alone += 1
        try:
            async with self._changed:
                while self._shared or self._taken:
                    await self._changed.wait()
                self._taken = True
        except BaseException:
            self._alone -= 1
            raise

    async def _leave(self, alone: bool) -> None:
        async with self._changed:
            if alone:
                self._alone -= 1
                self._taken = False
            else:
                self._shared -= 1
            self._changed.notify_all()
