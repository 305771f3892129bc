"""`AsyncSession`: the same session for asyncio and trio. What may wait is awaited, the rest stays plain calls.

All logic is `Session`'s; only the resting differs. It sleeps in short, growing steps instead of waiting on zmq's file
descriptor: that is edge-triggered, may be watched by one trio task or one asyncio reader only, and a cancelled wait on
it needs care, while a nap of one to ten milliseconds has none of these troubles, needs no dependency, and costs some
20 microseconds of the loop each. Cancellation while it naps loses nothing: nothing was taken yet.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from recalld_client import waits
from recalld_client.injection import Injection
from recalld_client.quiet import quiet_async
from recalld_client.session import OUTBOX_SECONDS, PACK_TOKENS, SEARCH_SECONDS, Call, Session, ToolSpan
from recalld_protocol.endpoints import Endpoints
from recalld_protocol.messages import Hit, Settled, Verdict

SHORTEST_NAP_SECONDS = 0.001  # a fused answer takes some 5 ms: this adds a fifth at most
LONGEST_NAP_SECONDS = 0.01
T = TypeVar("T")


class AsyncSession:
    """See `Session` for every method; parameters and results are the same. Opening blocks for up to 40 ms, once."""

    def __init__(
        self,
        host: str = "",
        cwd: str | os.PathLike[str] = ".",
        session_id: str | None = None,
        project: str | os.PathLike[str] | None = None,
        delivery: Literal["push", "pull"] = "push",
        all_scopes: bool = False,
        endpoints: Endpoints | None = None,
    ) -> None:
        self._session = Session(host, cwd, session_id, project, delivery, all_scopes, endpoints)

    # ------------------------------------------------------------ plain: never wait

    def turn(self, text: str, as_of: float | None = None) -> None:
        self._session.turn(text, as_of)

    def said(self, text: str) -> None:
        self._session.said(text)

    def tool_started(
        self,
        name: str,
        args: object = "",
        *,
        call_id: str | None = None,
        parent: Call | str | None = None,
        as_of: float | None = None,
    ) -> Call:
        return self._session.tool_started(name, args, call_id=call_id, parent=parent, as_of=as_of)

    def tool_ended(self, call: Call | str, result: object = "", ok: bool = True) -> None:
        self._session.tool_ended(call, result, ok)

    def tool(self, name: str, args: object = "", *, parent: Call | str | None = None) -> ToolSpan:
        """A plain `with` block, which may hold awaits."""
        return self._session.tool(name, args, parent=parent)

    def feedback(self, impression: Injection | str, verdict: Verdict) -> None:
        self._session.feedback(impression, verdict)

    def compacted(self) -> None:
        self._session.compacted()

    def outcomes(self) -> list[Settled]:
        return self._session.outcomes()

    def close(self) -> None:
        self._session.close()

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def connected(self) -> bool:
        return self._session.connected

    @property
    def problem(self) -> str:
        return self._session.problem

    # ------------------------------------------------------------ awaited

    @quiet_async(list[Injection])
    async def boundary(self, wait_seconds: float = 0.0) -> list[Injection]:
        return await _nap_through(self._session._at_boundary(wait_seconds))

    @quiet_async(list[Injection])
    async def outbox(self, wait_seconds: float = OUTBOX_SECONDS) -> list[Injection]:
        return await _nap_through(self._session._at_boundary(wait_seconds))

    @quiet_async(list[Hit])
    async def search(self, query: str, limit: int = 10, wait_seconds: float = SEARCH_SECONDS) -> list[Hit]:
        return await _nap_through(self._session._searching(query, limit, wait_seconds))

    @quiet_async(str)
    async def recall(self, query: str, token_budget: int = PACK_TOKENS, wait_seconds: float = SEARCH_SECONDS) -> str:
        return await _nap_through(self._session._packing(query, token_budget, wait_seconds))

    @quiet_async(str)
    async def remember(
        self,
        text: str,
        scope: Literal["project", "global"] = "project",
        title: str = "",
        wait_seconds: float = 0.0,
    ) -> str:
        return await _nap_through(self._session._remembering(text, scope, title, wait_seconds))

    @quiet_async(bool)
    async def connect(self, wait_seconds: float = 1.0) -> bool:
        return await _nap_through(waits.connecting(self._session._correspondence, wait_seconds))

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()


async def _nap_through(steps: waits.Steps[T]) -> T:
    """Drive the steps, napping between them. A cancelled nap closes them, which gives up what they asked for."""
    nap = SHORTEST_NAP_SECONDS
    sleep = _sleeper()
    try:
        while True:
            try:
                left = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await sleep(min(left, nap))
            nap = min(nap * 1.5, LONGEST_NAP_SECONDS)
    finally:
        steps.close()


def _sleeper() -> Callable[[float], Awaitable[Any]]:
    """The sleep of the loop that is running: trio's inside trio, else asyncio's."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        sleep: Callable[[float], Awaitable[Any]] = trio.sleep
        return sleep
    return asyncio.sleep
