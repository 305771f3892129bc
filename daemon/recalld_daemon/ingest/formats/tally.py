"""What a parser counts on its way, for whoever wants to know what a file holds before it is indexed.

Counted are messages, whether they make a passage or not: people know how many messages their export has, nobody
knows how many passages. Bounded: a file cannot name more people than are kept apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MOST_NAMES = 2_000  # people kept apart; the largest group chats have 1,024 members
OTHERS = "(others)"


@dataclass(slots=True)
class Tally:
    """conversations, messages: how many of them. by: messages by who wrote them. first, last: when the earliest and the
    latest were written, in epoch seconds; None: no message tells."""

    conversations: int = 0
    messages: int = 0
    by: Counter[str] = field(default_factory=Counter)
    first: float | None = None
    last: float | None = None

    def message(self, speaker: str, written_at: float | None) -> None:
        self.messages += 1
        self.by[speaker if speaker in self.by or len(self.by) < MOST_NAMES else OTHERS] += 1
        self.dated(written_at)

    def dated(self, written_at: float | None) -> None:
        """Something was written then."""
        if written_at is not None:
            self.first = written_at if self.first is None else min(self.first, written_at)
            self.last = written_at if self.last is None else max(self.last, written_at)
