"""How deep a recall may go: what each stage costs here, how long each tool takes, and what follows for one recall.

Pure: milliseconds in, decisions out. `Costs` and `Lengths` learn from what happened; a `Budget` is one recall's use of
both. For whoever runs the cascade:

    Recaller.run(query, view, exclude, publish, close, budget: Budget = UNBOUNDED)
    budget.affords(stage: str, elapsed_ms: float) -> bool    # ready and judged before the boundary, if begun now
    budget.may_slip(stage: str) -> bool                      # too late for it, but cheap enough to come one later
    budget.spent(stage: str, ms: float) -> None              # after each stage: the model learns from it

`elapsed_ms` counts from the start of `run`. A stage that is not afforded is begun only after the answer before it is
out, and only if it may slip; what can do neither is left out. `spent` may be called from the recall's thread: losing
one of two updates at once would cost nothing. Stages have any names ("dense", "late", "ranked", "cross", "judge").

A boundary missed by a millisecond is a boundary missed, so both sides are estimated with caution: a stage's cost as its
smoothed mean plus twice its smoothed deviation (Jacobson and Karels' estimator of round trips, SIGCOMM 1988; TCP takes
four deviations, where a miss costs more), a tool's length as the quantile that four of five calls exceed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

GAIN = 0.125  # of a new cost in the mean, as TCP's; of its deviation twice that
DEVIATIONS = 2.0
JUDGE = "judge"  # the gate and the snippets: what each answer costs before it can be sent
STAGE_MS: Mapping[str, float] = {"fused": 12.0, "late": 3.0, "ranked": 2.0, "cross": 60.0, "full": 60.0, JUDGE: 4.0}
UNKNOWN_STAGE_MS = 10.0  # before anything was measured; the others above are docs/measurements.md's, rounded up
SLIP_MS = 400.0  # a deeper answer may take so long beyond its boundary: a model that is thinking takes seconds

TURN = "(turn)"  # the name under which a user's turn is kept: from its start to the first boundary
# The length that four of five calls of a tool exceed: 351 calls of the recorded sessions of entireio/cli (MIT) and
# jimmc414/cctrace (MIT). An in-process host passes a turn's boundary when it likes; a hook waits 150 ms for it.
TOOL_MS: Mapping[str, float] = {
    "read": 39.0, "edit": 35.0, "todowrite": 39.0, "write": 124.0, "grep": 415.0, "glob": 441.0, "bash": 660.0,
    "task": 60_000.0, "agent": 60_000.0, "webfetch": 2_000.0, "websearch": 2_000.0, TURN: 150.0,
}  # fmt: skip
UNKNOWN_TOOL_MS = 40.0
SHORT_QUANTILE = 0.2
PRIOR_CALLS = 4.0  # the weight of what is known of a tool in general, in calls
KEPT_CALLS = 32  # latest lengths per tool: enough for a quantile, soon forgotten when the machine changes
KEPT_TOOLS = 64  # of a session, or of all together
NAME_CHARS = 64
LONGEST_MS = 3_600_000.0


class Costs:
    """What each stage costs, learned from each recall; before that, STAGE_MS."""

    def __init__(self, prior: Mapping[str, float] = STAGE_MS) -> None:
        self._prior = prior
        self._known: dict[str, tuple[float, float]] = {}  # stage -> mean, deviation

    def observe(self, stage: str, ms: float) -> None:
        """A stage took `ms`. What is no length (negative, infinite, nan) is not learned from."""
        if not 0.0 <= ms < math.inf:
            return
        if stage not in self._known and len(self._known) >= KEPT_TOOLS:
            return
        ms = min(ms, LONGEST_MS)
        mean, deviation = self._known.get(stage, (ms, ms / 2))
        deviation += 2 * GAIN * (abs(ms - mean) - deviation) if stage in self._known else 0.0
        self._known[stage] = (mean + GAIN * (ms - mean), deviation)

    def expected(self, stage: str) -> float:
        """ms that it will hardly exceed.

        >>> costs = Costs()
        >>> for ms in [5.0, 6.0, 4.0, 5.0] * 20: costs.observe("late", ms)
        >>> round(costs.expected("late"))
        6
        """
        if stage not in self._known:
            return self._prior.get(stage, UNKNOWN_STAGE_MS)
        mean, deviation = self._known[stage]
        return mean + DEVIATIONS * deviation

    def table(self) -> dict[str, float]:
        """stage -> expected ms, of all that was ever measured."""
        return {stage: round(self.expected(stage), 2) for stage in sorted(self._known)}


@dataclass(frozen=True, slots=True)
class Budget:
    """One recall's: `ms` from its start until its boundary is expected."""

    ms: float
    costs: Costs = field(default_factory=Costs)
    slip_ms: float = SLIP_MS

    def affords(self, stage: str, elapsed_ms: float) -> bool:
        """Whether `stage`, begun now, will be finished and judged before the boundary.

        >>> Budget(30.0).affords("late", 12.0), Budget(30.0).affords("cross", 15.0)
        (True, False)
        """
        return elapsed_ms + self.costs.expected(stage) + self.costs.expected(JUDGE) <= self.ms

    def may_slip(self, stage: str) -> bool:
        """Whether it is cheap enough to be worth having at a later boundary."""
        return self.costs.expected(stage) <= self.slip_ms

    def spent(self, stage: str, ms: float) -> None:
        """`stage` took `ms`."""
        self.costs.observe(stage, ms)


UNBOUNDED = Budget(math.inf)  # for whoever asks without a race: a search, a warm-up


class Lengths:
    """How long tools take. A session's own leans on the one of `all` sessions, that on TOOL_MS."""

    def __init__(self, all: Lengths | None = None) -> None:
        self._all = all
        self._latest: dict[str, deque[float]] = {}  # tool -> ms, the one heard of longest ago first

    def observe(self, tool: str, ms: float) -> None:
        """A call took `ms`; it is also counted among `all`."""
        if not 0.0 <= ms < math.inf:
            return
        name = _name(tool)
        kept = self._latest.pop(name, None) or deque(maxlen=KEPT_CALLS)
        kept.append(min(ms, LONGEST_MS))
        self._latest[name] = kept
        if len(self._latest) > KEPT_TOOLS:
            del self._latest[next(iter(self._latest))]
        if self._all is not None:
            self._all.observe(tool, ms)

    def expected(self, tool: str) -> float:
        """ms that four of five calls of this tool will exceed; TURN: the same of turns.

        The quantile of what was seen and what is known in general, on a log scale, weighted by number of calls.

        >>> lengths = Lengths()
        >>> lengths.expected("Read"), lengths.expected("mcp__jira__find")
        (39.0, 40.0)
        >>> for ms in [900.0, 1000.0, 1100.0] * 8: lengths.observe("mcp__jira__find", ms)
        >>> 500 < lengths.expected("mcp__jira__find") < 900
        True
        """
        name = _name(tool)
        prior = self._all.expected(tool) if self._all is not None else TOOL_MS.get(name, UNKNOWN_TOOL_MS)
        kept = sorted(self._latest.get(name, ()))
        if not kept:
            return prior
        seen = max(0.1, kept[int(SHORT_QUANTILE * len(kept))])
        share = len(kept) / (len(kept) + PRIOR_CALLS)
        return math.exp(share * math.log(seen) + (1.0 - share) * math.log(max(0.1, prior)))


def _name(tool: str) -> str:
    return tool[:NAME_CHARS].lower()
