"""The figures of the online learner, for status: what the last step found, and how long steps take."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from recalld_daemon.events import Scalar
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.worker_wire import LearnStepped

TIMED = 256  # steps whose times are kept


@dataclass(slots=True)
class Figures:
    """steps to promoted_mrr: of the adapter as it is, since its version went live; the rest since the start."""

    steps: int = 0
    drift: float = 0.0
    held_pairs: int = 0
    held_mrr: float = math.nan  # while there are none
    promoted_mrr: float = math.nan
    reverted: int = 0
    failed: int = 0
    dropped: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=TIMED))  # ms

    def anew(self) -> Figures:
        """Those of another version, before its first step."""
        return Figures(reverted=self.reverted, failed=self.failed, dropped=self.dropped, times=self.times)

    def read(self, figures: Mapping[str, float]) -> None:
        """What a step found, as it stands beside the adapter; what is not there stays."""
        self.steps = int(figures.get("steps", self.steps))
        self.drift = figures.get("drift", self.drift)
        self.held_pairs = int(figures.get("held_pairs", self.held_pairs))
        self.held_mrr = figures.get("held_mrr", self.held_mrr)
        self.promoted_mrr = figures.get("promoted_mrr", self.promoted_mrr)

    def step(self, stepped: LearnStepped) -> None:
        self.reverted += bool(stepped.reverted)
        if not stepped.held:
            self.times.append(stepped.ms)

    def row(self, adapter: Adapter | None) -> dict[str, Scalar]:
        """What status tells; of the adapter the norms of its output layer."""
        w2, b2 = (0.0, 0.0) if adapter is None else adapter.norms
        p50, p95 = np.percentile(list(self.times), (50, 95)).tolist() if self.times else (0.0, 0.0)
        return {
            "steps": self.steps, "step_ms_p50": round(p50, 2), "step_ms_p95": round(p95, 2),
            "drift": round(self.drift, 4), "w2": round(w2, 4), "b2": round(b2, 4), "held_pairs": self.held_pairs,
            "held_mrr": _rounded(self.held_mrr), "promoted_mrr": _rounded(self.promoted_mrr),
            "reverted": self.reverted, "failed": self.failed, "dropped": self.dropped,
        }  # fmt: skip


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
