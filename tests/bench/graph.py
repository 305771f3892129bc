"""Walking over the subjects that passages share: the documented negative, measured again whenever it is run.

    python tests/bench/graph.py --data FILE_OR_DIR [--json FILE]

Four settings on LoCoMo's conversations: the package as it is, with one hop over subject links as a spreading lane,
with personalised PageRank in its place, and without the subject lane. Each with the hand-weighted order alone and with
the shipped ranker behind it. A lane that does not win here stays off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_tools import keep, table
from eval_pools import locomo
from figures import means
from house_recall import Setting
from judging import answered, bench_options, convened, encoders_of, judge

from recalld_daemon.recall.lanes.graph import GraphLane
from recalld_daemon.recall.stages import Parts

SHOWN = ("r10", "r20", "hit1", "mrr")
SETTINGS: tuple[tuple[str, bool | None, tuple[str, ...]], ...] = (  # name, whether the graph lane walks, left out
    ("as it is", None, ()),
    ("one hop", False, ()),
    ("PageRank", True, ()),
    ("no subjects", None, ("subjects",)),
)


def main() -> None:
    options = bench_options(__doc__ or "", "a LoCoMo file, or the directory that holds it").parse_args()
    results: dict[str, dict[str, Any]] = {}
    with convened(locomo(options.data), encoders_of(options)) as courts:
        for ranked in (False, True):
            without = frozenset() if ranked else frozenset({"ranked"})
            for name, walks, left_out in SETTINGS:
                found = []
                for court in courts:
                    setting = Setting(name, without | frozenset(left_out), _with_graph(court.house.memory, walks))
                    found += judge([court], setting)
                row = means(answered(found))
                results[f"{name}, {'ranked' if ranked else 'by hand'}"] = {key: row[key] for key in SHOWN}
    table([["setting", *SHOWN]] + [[name, *(f"{row[key]:.3f}" for key in SHOWN)] for name, row in results.items()])
    keep(results, options.json)


def _with_graph(memory: Any, walks: bool | None) -> Callable[[Parts], Parts]:
    if walks is None:
        return lambda parts: parts
    return lambda parts: replace(parts, spreading=[*parts.spreading, GraphLane(memory.extracts.subjects, walks)])


if __name__ == "__main__":
    main()
