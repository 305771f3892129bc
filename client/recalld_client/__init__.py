"""The agent's side of recalld: `Session` and `AsyncSession` tell the daemon what happens and take what comes to mind.

Invariant: nothing here raises into, blocks or slows the agent's loop. Importing this costs little: zmq is imported when
the first session opens, asyncio when `AsyncSession` is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recalld_client.injection import Injection
from recalld_client.session import Call, Session

if TYPE_CHECKING:
    from recalld_client.aio import AsyncSession

__all__ = ["AsyncSession", "Call", "Injection", "Session"]


def __getattr__(name: str) -> Any:
    if name == "AsyncSession":
        from recalld_client.aio import AsyncSession

        return AsyncSession
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
