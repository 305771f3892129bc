"""How long this session's tools and turns take, and so how much time a recall has: sans-IO, bounded.

Only what begins and ends before our eyes is measured: a call that its enclosing call took with it, or that expired,
says nothing about its tool. A turn lasts, for this purpose, until the first boundary after it.
"""

from __future__ import annotations

from recalld_daemon.race_calls import Calls
from recalld_daemon.race_recall import Recall
from recalld_daemon.recall.budget import TURN, Lengths


class Pace:
    """`lengths`: this session's, which leans on those of all sessions."""

    def __init__(self, lengths: Lengths, calls: Calls) -> None:
        self.lengths, self._calls = lengths, calls
        self._turn_at: float | None = None  # when the turn came whose first boundary is still to pass

    def turn_began(self, at: float) -> None:
        self._turn_at = at

    def boundary_passed(self, at: float) -> None:
        if self._turn_at is not None:
            self.lengths.observe(TURN, (at - self._turn_at) * 1000.0)
            self._turn_at = None

    def call_ends(self, call: str, at: float) -> None:
        """Asked before the call is taken from the open ones."""
        if (ending := self._calls.open.get(call)) is not None:
            self.lengths.observe(ending.name, (at - ending.started_at) * 1000.0)

    def budget_ms(self, recall: Recall, at: float) -> float:
        """From now until the boundary of `recall` is to be expected; 0 where it may come at any moment.

        Of several calls the one that ends first decides: whether the host then waits for the others is not known.
        """
        ends = [
            open_call.started_at + self.lengths.expected(open_call.name) / 1000.0
            for call in recall.calls
            if (open_call := self._calls.open.get(call)) is not None
        ]
        if recall.turn and self._turn_at is not None:
            ends.append(self._turn_at + self.lengths.expected(TURN) / 1000.0)
        elif recall.due:
            return 0.0
        return max(0.0, min(ends, default=at) - at) * 1000.0
