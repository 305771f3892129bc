"""The first recalls of a process, which nobody should wait for, and the end of what is loaded once.

The first query counts how rare each word is and touches cold files, 50 ms in all; then what is open stays open, so
later collections of garbage need not walk it.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable

from recalld_daemon.recall.budget import Budget, Costs
from recalld_daemon.recall.cascade import Recaller
from recalld_daemon.recall.types import Query, View

WARM_UP = Query("what did we learn about this", ("learn", "note", "error", "change", "file"), "")


async def warm_up(recaller: Callable[[], Recaller], costs: Costs) -> None:
    """Ask twice, and measure the second time: what the first costs is not what recalls will cost."""
    for measured in (Costs(), costs):
        budget = Budget(math.inf, measured)
        await recaller().run(WARM_UP, View(scopes=None), frozenset(), lambda answer: None, budget=budget)
    gc.collect()
    gc.freeze()
