"""What must reach the daemon although it may be away: feedback and memories, kept until it says they are on disk.

Sans-IO. Each has an idempotency key, so that sending it again counts once; the whole is bounded in number and size,
and the oldest gives way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from recalld_protocol.messages import Feedback, Remember

MAX_PLEDGES = 256  # a session gives some dozens of verdicts; a daemon that is away for a day should cost little
MAX_CHARACTERS = 4 << 20  # of memories' text: 128 of the longest
AGAIN_SECONDS = 5.0  # before one is repeated that the daemon has not acknowledged, or put off as busy

Pledge = Feedback | Remember


@dataclass(slots=True)
class _Held:
    message: Pledge
    sent_at: float = -math.inf


class Pledges:
    """Messages by their id, oldest first."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._characters = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, id: int) -> bool:
        return id in self._held

    def add(self, message: Pledge) -> list[Pledge]:
        """Keep it. Those that had to give way."""
        self._held[message.id] = _Held(message)
        self._characters += _size(message)
        given_up: list[Pledge] = []
        while len(self._held) > MAX_PLEDGES or self._characters > MAX_CHARACTERS:
            oldest = self.done(next(iter(self._held)))
            if oldest is not None:
                given_up.append(oldest)
        return given_up

    def due(self, now: float) -> list[Pledge]:
        """Those never sent, and those not acknowledged for a while."""
        return [held.message for held in self._held.values() if now - held.sent_at >= AGAIN_SECONDS]

    def sent(self, id: int, now: float) -> None:
        if id in self._held:
            self._held[id].sent_at = now

    def lost(self) -> None:
        """The connection was lost: all that is not acknowledged is due again."""
        for held in self._held.values():
            held.sent_at = -math.inf

    def done(self, id: int) -> Pledge | None:
        """It is on disk, or was refused for good."""
        held = self._held.pop(id, None)
        if held is None:
            return None
        self._characters -= _size(held.message)
        return held.message

    def clear(self) -> None:
        self._held.clear()
        self._characters = 0


def _size(message: Pledge) -> int:
    return len(message.text) if isinstance(message, Remember) else 0
