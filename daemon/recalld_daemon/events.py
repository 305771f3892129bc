"""The live feed: what happens in the daemon, for whoever listens on the PUB socket; nothing is packed when nobody does.

Every event has a name (`what`, documented in docs/events.md) and a sequence number that grows by one per event,
listened to or not, so that a listener sees by a gap what a slow connection lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from recalld_protocol.messages import Event
from recalld_protocol.wire import encode

Scalar = str | int | float | bool | None


class Publisher(Protocol):
    def wanted(self, topic: str) -> bool: ...

    def publish_nowait(self, topic: str, body: bytes) -> None: ...


class EventFeed:
    """`clock` gives epoch seconds. Not thread-safe: the loop's thread only."""

    def __init__(self, publisher: Publisher, clock: Callable[[], float] = time.time) -> None:
        self._publisher, self._clock, self.seq = publisher, clock, 0

    def emit(self, what: str, session: str = "", **data: Scalar) -> None:
        self.seq += 1
        if self._publisher.wanted(what):
            event = Event(session=session, seq=self.seq, at=self._clock(), what=what, data=data)
            self._publisher.publish_nowait(what, encode(event))
