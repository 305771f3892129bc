"""The real job: from what an agent has at hand to the note, session or turn that mattered. As shipped, nothing fitted.

    python tests/bench/ambient.py --data DIR [--sets entire,til,...] [--json FILE]

Sets are found below --data by their files, wherever they lie; what is not there is left out.

  entire       coding sessions; a commit's subject, or a later session's first prompts, asks for the session
  til          notes without title and file name; a commit's subject, the words around a link, or the title asks
  bukzor       agents' session notes without title and file name; a commit's subject asks
  beam         long chats with an assistant; a turn is asked for, by ability (instructions and preferences above all)
  realtalk     messenger chats between people; questions about them
  locomo_plus  memories of two lines; a later remark that shares the thought and hardly a word asks

`..._unlike` are the commits that don't repeat what they ask for: not verbatim in the session, of four words or more;
sharing less than a fifth with the note's title. bm25 is plain BM25 over whole documents or turns. The target is 1.25
times its hit@1 where that is below 0.6, and never less than it. The ranker that ships is fitted on permissively
licensed data; where these very files were among it (its provenance says so), their figures are not held out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_tools import keep, table
from eval_documents import MARKS, load
from eval_pools import Judged
from figures import Scored, by_kind, cell, difference, intervals, means
from house_encoders import Encoders
from judging import bench_options, convened, encoders_of, floor, judge

NAMES = ("hit1", "hit5", "hit10", "mrr")
HEADROOM = 0.6  # a floor above it leaves no room for much more
GAIN = 1.25

Row = tuple[list[Scored], list[Scored]]  # plain BM25's and ours, question by question


def main() -> None:
    options = _options()
    encoders = encoders_of(options)
    rows: dict[str, Row] = {}
    for name, pools in load(options.data, options.sets):
        rows |= measured(name, pools, encoders)
    print()
    show(rows)
    keep({name: figures(row) for name, row in rows.items()}, options.json)


def measured(name: str, pools: list[Judged], encoders: Encoders) -> dict[str, Row]:
    """kind -> its questions, answered by plain BM25 and by the cascade; of several kinds, all of them too."""
    plain = floor(pools)
    with convened(pools, encoders) as courts:
        ours = judge(courts)
    kinds = {kind.replace(".", "_"): rows for kind, rows in by_kind(ours).items()}
    floors = {kind.replace(".", "_"): rows for kind, rows in by_kind(plain).items()}
    rows = {kind: (floors[kind], kinds[kind]) for kind in kinds}
    return rows | {name: (plain, ours)} if name == "beam" else rows


def figures(row: Row) -> dict[str, Any]:
    plain, ours = row
    bm25 = means(plain, ("hit1",))["hit1"]
    return {
        **means(ours, NAMES),
        "bm25_hit1": bm25,
        "target_hit1": target(bm25),
        "intervals": intervals(ours, NAMES),
        "bm25": means(plain, NAMES),
    }


def target(bm25: float) -> float:
    """What hit@1 should be.

    >>> target(0.4), target(0.7)
    (0.5, 0.7)
    """
    return round(bm25 * GAIN if bm25 < HEADROOM else bm25, 4)


def show(rows: dict[str, Row]) -> None:
    lines: list[list[object]] = [["set", "n", *NAMES, "bm25 hit1", "target", "", "hit1 against bm25"]]
    for name, row in rows.items():
        own, spans = means(row[1], NAMES), intervals(row[1], NAMES)
        bm25 = means(row[0], ("hit1",))["hit1"]
        gap, low, high = difference(*row, "hit1")
        lines.append(
            [name, own["n"], *(cell(own[figure], spans[figure]) for figure in NAMES), f"{bm25:.3f}",
             f"{target(bm25):.3f}", "met" if own["hit1"] >= target(bm25) else "short",
             f"{gap:+.3f} [{low:+.3f} {high:+.3f}]"]
        )  # fmt: skip
    table(lines)


def _options() -> argparse.Namespace:
    parser = bench_options(__doc__ or "", "a directory below which the sets lie")
    parser.add_argument("--sets", default=",".join(MARKS), help="which of them (%(default)s)")
    options = parser.parse_args()
    options.sets = options.sets.split(",")
    if unknown := set(options.sets) - MARKS.keys():
        parser.error(f"no such set: {', '.join(sorted(unknown))}; there are {', '.join(MARKS)}")
    return options


if __name__ == "__main__":
    main()
