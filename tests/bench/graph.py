"""Walking over the subjects that passages share: the documented negative, measured again whenever it is run.

    python tests/bench/graph.py --data FILE_OR_DIR [--json FILE]

Four settings on LoCoMo's conversations: the package as it is, with the subject lane, with one hop over subject links as
a spreading lane, and with personalised PageRank in its place. Each with the hand-weighted order alone and with the
shipped ranker behind it. A lane that does not win here stays off.
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
from recalld_daemon.recall.lanes.subjects import SubjectLane
from recalld_daemon.recall.stages import Parts

SHOWN = ("r10", "r20", "hit1", "mrr")
SETTINGS = ("as it is", "subjects", "one hop", "PageRank")


def main() -> None:
    options = bench_options(__doc__ or "", "a LoCoMo file, or the directory that holds it").parse_args()
    results: dict[str, dict[str, Any]] = {}
    with convened(locomo(options.data), encoders_of(options)) as courts:
        for ranked in (False, True):
            without = frozenset() if ranked else frozenset({"ranked"})
            for name in SETTINGS:
                found = []
                for court in courts:
                    found += judge([court], Setting(name, without, _with(name, court.house.memory)))
                row = means(answered(found))
                results[f"{name}, {'ranked' if ranked else 'by hand'}"] = {key: row[key] for key in SHOWN}
    table([["setting", *SHOWN]] + [[name, *(f"{row[key]:.3f}" for key in SHOWN)] for name, row in results.items()])
    keep(results, options.json)


def _with(name: str, memory: Any) -> Callable[[Parts], Parts]:
    """What a setting adds to the package's parts."""
    subjects = memory.extracts.subjects
    if name == "subjects":
        return lambda parts: replace(parts, lanes=[*parts.lanes, SubjectLane(subjects)])
    if name in ("one hop", "PageRank"):
        return lambda parts: replace(parts, spreading=[*parts.spreading, GraphLane(subjects, name == "PageRank")])
    return lambda parts: parts


if __name__ == "__main__":
    main()
