"""The hooks' room, wired: what the service starts, and what it shows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from recalld_daemon.book import SessionBook
from recalld_daemon.config import Config
from recalld_daemon.desk import Desk
from recalld_daemon.events import EventFeed
from recalld_daemon.hooks.figures import Figures
from recalld_daemon.hooks.front_keeper import FrontKeeper
from recalld_daemon.hooks.hook_desk import HookDesk
from recalld_daemon.hooks.listener import HookListener, hook_socket
from recalld_protocol.messages import Topic


class Hooks:
    """path: of the hook socket; `ready` tells whether a recall could be answered now."""

    def __init__(
        self, path: str, desk: Desk, book: SessionBook, feed: EventFeed, config: Config,
        environ: Mapping[str, str], ready: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._path = Path(path)
        self._figures = Figures(feed)
        self._desk = HookDesk(desk, book, self._figures, config.hook_wait_seconds, ready)
        self._listener = HookListener(self._desk.answer, self._figures)
        self._front = FrontKeeper(environ, path, self._figures, enabled=config.http_hooks)

    async def serve(self) -> None:
        """For ever; cancelled, waiting hooks see their stream end, and the front ends. Raises EndpointError."""
        with hook_socket(self._path) as listening:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listener.serve, listening)
                nursery.start_soon(self._front.serve)

    def topic(self) -> Topic:
        front = self._front
        http: Topic = {"http": front.state, "http_port": front.port, "http_pid": front.pid}
        return {**self._figures.topic(), **http, "http_restarts": front.restarts}
