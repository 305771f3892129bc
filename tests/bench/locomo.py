"""LoCoMo: of the turns of a long conversation, which answer this question? As shipped, and adapted to such talk.

    python tests/bench/locomo.py --data FILE_OR_DIR [--train-on FILE_OR_DIR] [--cross-validate] [--json FILE]

`shipped` is the package as it is: nothing in it has seen LoCoMo. `adapted` stands for a user whose feedback has been
learned: what can be fitted is fitted on other conversations, either those of --train-on, or, with --cross-validate
(which is what happens where --data holds two conversations or more), on all but the one that is judged.

r@k is the share of a question's evidence turns among the first k, hit@k whether any is, strict@k whether all are, mrr
the mean reciprocal rank of the first. Intervals are 95 % bootstraps; those of `adapted` draw conversations, too.
Adversarial questions have no answer; where their misleading turn ranks is told apart and counts nowhere. The ablation
leaves out one lane or stage at a time. Latency is a whole recall in this process, query encoding included; it is only
worth something on a machine with nothing else to do.

The data (CC BY-NC) is for evaluation only: snap-research/LoCoMo, data/locomo10.json, or any file of that schema.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import house_adapt
from bench_tools import keep, table
from eval_pools import ADVERSARIAL, Judged, locomo
from figures import Scored, by_kind, cell, difference, intervals, means
from house_recall import PLAIN, Setting, names_of
from judging import Court, answered, bench_options, convened, encoders_of, floor, judge, latency, tell

SHOWN = ("r1", "r5", "r10", "r20", "hit1", "hit5", "hit10", "strict10", "mrr")
ABLATED = ("r10", "hit1", "mrr")
TARGETS = {"shipped": {"r10": 0.80, "hit1": 0.52, "mrr": 0.64}, "adapted": {"r10": 0.88, "hit1": 0.66, "mrr": 0.77}}
LATENCY_TARGET_MS = 30.0  # p95

Scores = dict[str, list[Scored]]  # setting -> its questions
Run = Callable[[Setting], list[Scored]]


def main() -> None:
    options = _options()
    pools = locomo(options.data)
    others = _others(options, pools)
    encoders = encoders_of(options)
    with convened(pools, encoders) as courts, convened(others, encoders) as teachers:
        scores: Scores = {"bm25": floor(pools), "shipped": judge(courts)}
        runs: dict[str, Run] = {"shipped": lambda setting: judge(courts, setting)}
        if teachers:
            runs["adapted"] = lambda setting: judge(courts, house_adapt.adapted_to(teachers, setting))
        elif not options.shipped_only and len(courts) > 1:
            runs["adapted"] = lambda setting: judge(courts, house_adapt.cross_adapted(courts, setting))
        if "adapted" in runs:
            scores["adapted"] = runs["adapted"](PLAIN)
        dropped = {} if options.quick else {name: ablation(courts, run) for name, run in runs.items()}
        result = report(scores, dropped) | {"latency_ms": latency(courts)}
    show(scores, dropped, result["latency_ms"])
    keep(result, options.json)


def ablation(courts: Sequence[Court], run: Run) -> Scores:
    """What is left when one lane or stage is missing, for each that there is."""
    parts = names_of(courts[0].house.parts)
    return {part: run(Setting(f"without {part}", frozenset([part]))) for part in parts}


def _others(options: argparse.Namespace, pools: Sequence[Judged]) -> list[Judged]:
    """The conversations of --train-on that are not judged. Raises SystemExit when there is none."""
    if options.train_on is None or options.shipped_only:
        if len(pools) == 1 and not options.shipped_only:
            tell("adapted is left out: --data holds one conversation; name others to fit on with --train-on")
        return []
    judged = {judged.pool.name for judged in pools}
    others = [other for other in locomo(options.train_on) if other.pool.name not in judged]
    if not others:
        raise SystemExit(f"{options.train_on} holds no conversation that --data does not hold: nothing to fit on")
    return others


def report(scores: Scores, dropped: dict[str, Scores]) -> dict[str, Any]:
    """The JSON: figures by setting, intervals, categories, and what each part is worth."""
    result: dict[str, Any] = {"n": len(answered(scores["shipped"])), "adapted": None}
    result |= {name: means(answered(rows)) for name, rows in scores.items()}
    result["intervals"] = {name: intervals(answered(rows), by_group=name == "adapted") for name, rows in scores.items()}
    result["by_category"] = {
        name: {kind: means(own) for kind, own in by_kind(rows).items() if kind != ADVERSARIAL}
        for name, rows in scores.items()
    }
    result["adversarial"] = {name: means([r for r in rows if r.kind == ADVERSARIAL]) for name, rows in scores.items()}
    result["ablation"] = {
        name: {part: means(answered(rows)) for part, rows in parts.items()} for name, parts in dropped.items()
    }
    result["targets"] = TARGETS
    return result


def show(scores: Scores, dropped: dict[str, Scores], ms: dict[str, float]) -> None:
    rows: list[list[object]] = [["setting", "n", *SHOWN]]
    for name, found in scores.items():
        own, spans = means(answered(found)), intervals(answered(found), by_group=name == "adapted")
        rows.append([name, own["n"], *(f"{own[figure]:.3f}" for figure in SHOWN)])
        rows.append(["  95 %", "", *("{:.3f}-{:.3f}".format(*spans[figure]) for figure in SHOWN)])
        if name in TARGETS:
            rows.append(["  target", "", *(f"{TARGETS[name][f]:.2f}" if f in TARGETS[name] else "" for f in SHOWN)])
    table(rows)
    print()
    table([["category", "n", *(f"{name} {figure}" for name in scores for figure in ABLATED)], *_categories(scores)])
    for name, parts in dropped.items():
        print(f"\n{name}, one part left out (change of mrr against the whole, 95 %)")
        table([["without", *ABLATED, "change"], *_ablated(answered(scores[name]), parts)])
    print(f"\na whole recall: p50 {ms['p50']} ms, p95 {ms['p95']} ms (target {LATENCY_TARGET_MS:.0f})")


def _categories(scores: Scores) -> list[list[object]]:
    kinds = {name: by_kind(rows) for name, rows in scores.items()}
    rows = []
    for kind in sorted(kinds["shipped"], key=lambda kind: (kind == ADVERSARIAL, kind)):
        own = {name: kinds[name][kind] for name in scores}
        cells = [
            cell(means(found)[figure], intervals(found, [figure])[figure])
            for found in own.values()
            for figure in ABLATED
        ]
        rows.append([kind, len(own["shipped"]), *cells])
    return rows


def _ablated(whole: Sequence[Scored], parts: Scores) -> list[list[object]]:
    rows: list[list[object]] = []
    for part, found in parts.items():
        own, (gap, low, high) = means(answered(found)), difference(whole, answered(found))
        rows.append([part, *(f"{own[figure]:.3f}" for figure in ABLATED), f"{gap:+.3f} [{low:+.3f} {high:+.3f}]"])
    return rows


def _options() -> argparse.Namespace:
    parser = bench_options(__doc__ or "", "a LoCoMo file, or the directory that holds it and perhaps labels.jsonl")
    parser.add_argument("--train-on", type=Path, metavar="PATH", help="fit `adapted` on these conversations")
    parser.add_argument("--cross-validate", action="store_true", help="fit `adapted` on all others of --data (default)")
    parser.add_argument("--shipped-only", action="store_true", help="leave `adapted` out")
    parser.add_argument("--quick", action="store_true", help="leave the ablations out")
    options = parser.parse_args()
    if options.train_on and options.cross_validate:
        parser.error("--train-on and --cross-validate exclude each other: one says what to fit on, the other how")
    return options


if __name__ == "__main__":
    main()
