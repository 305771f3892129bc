"""The client's outer edge: whatever goes wrong in here is logged and never reaches the agent's loop.

This is the one place where every exception is swallowed, as the house allows for the outermost frame. What the caller's
own code raises inside a `with` block, and cancellation, are no concern of it and pass through.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger("recalld.client")
_logged: set[tuple[str, type[Exception]]] = set()  # bounded: functions of this package x exception types


def quiet(fallback: Callable[[], R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function return `fallback()` instead of raising; each cause is logged once, with its traceback."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the outermost frame
                report(function.__qualname__, error)
                return fallback()

        return call

    return decorate


def quiet_async(
    fallback: Callable[[], R],
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """The same for coroutine functions. Cancellation is no `Exception` in asyncio nor trio, and goes on."""

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return await function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the outermost frame
                report(function.__qualname__, error)
                return fallback()

        return call

    return decorate


def report(where: str, error: Exception) -> None:
    """Log `error` once per place and type."""
    cause = (where, type(error))
    if cause not in _logged:
        _logged.add(cause)
        logger.error("%s failed, the agent goes on without recall", where, exc_info=error)
