"""The tool calls of one session that are under way, whatever order their starts and ends come in.

Hosts run calls in parallel and nested (a subagent's calls have a parent), and report them from processes of their own:
an end may overtake its start, come twice, or never. Each call starts once and ends once here; a call that ends takes
with it those within it; one without a sign of life for `call_ttl_seconds` counts as ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recalld_daemon.race_events import RaceLimits

Start = Literal["new", "overtaken", "duplicate"]


@dataclass(slots=True)
class OpenCall:
    parent: str
    seen_at: float  # seconds; when it, or a call within it, last started or ended
    name: str = ""  # the tool's
    started_at: float = 0.0


class Calls:
    """Open calls, and those that ended of late. Times are seconds, monotonic."""

    def __init__(self, limits: RaceLimits) -> None:
        self.limits = limits
        self.open: dict[str, OpenCall] = {}  # longest without a sign of life first
        self.ended: dict[str, bool] = {}  # oldest first -> whether its start was seen

    def start(self, call: str, parent: str, at: float, name: str = "") -> Start:
        """ "overtaken": its end was here first, so it is over already; "duplicate": it was here before."""
        if self.ended.get(call) is False:
            self.ended[call] = True
            return "overtaken"
        if call in self.open or call in self.ended:
            return "duplicate"
        self._touch(parent, at)
        self.open[call] = OpenCall(parent, at, name, at)
        return "new"

    def end(self, call: str, at: float) -> list[str]:
        """Which calls end now: it and all within it; none if it had ended before, or has not been heard of."""
        if call in self.open:
            self._touch(self.open[call].parent, at)
            return self._end(call)
        self.ended.setdefault(call, False)
        self._trim()
        return []

    def expire(self, at: float) -> list[str]:
        """Which calls count as ended now: too long without a sign of life, or too many to keep."""
        ended: list[str] = []
        while self.open:
            call = next(iter(self.open))
            crowded = len(self.open) > self.limits.max_open_calls
            if not crowded and at - self.open[call].seen_at < self.limits.call_ttl_seconds:
                break
            ended += self._end(call)
        return ended

    def clear(self) -> None:
        self.open.clear()
        self.ended.clear()

    def _end(self, call: str) -> list[str]:
        ending = [call]
        for ended in ending:
            del self.open[ended]
            self.ended[ended] = True
            ending += [c for c, inner in self.open.items() if inner.parent == ended and c not in ending]
        self._trim()
        return ending

    def _touch(self, call: str, at: float) -> None:
        """A sign of life from within: the enclosing calls live too. `touched` ends the walk if they form a ring."""
        touched: set[str] = set()
        while call in self.open and call not in touched:
            touched.add(call)
            self.open[call] = open_call = self.open.pop(call)
            open_call.seen_at = at
            call = open_call.parent

    def _trim(self) -> None:
        while len(self.ended) > self.limits.max_ended_calls:
            del self.ended[next(iter(self.ended))]
