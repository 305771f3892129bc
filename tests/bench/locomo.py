"""LoCoMo: of the turns of a long conversation, which answer this question? As shipped, and adapted to such talk.

    python tests/bench/locomo.py --data FILE_OR_DIR [--train-on FILE_OR_DIR] [--cross-validate] [--json FILE]

`shipped` is the package as it is: nothing in it has seen LoCoMo. `adapted` stands for a user whose feedback has been
learned: the encoder is tuned and the ranker fitted on other conversations, either those of --train-on, or, with
--cross-validate (which is what happens where --data holds two conversations or more), on all but the one that is
judged. `adapted_ranker_only` fits the ranker and leaves the encoder as it ships; with --ranker-only that is `adapted`.

Cross-validated, conversation i is remembered and searched with an encoder E(-i) tuned on all others, both for its
lessons and when it is judged, and c is judged with a ranker fitted on the lessons of i != c. The E(-i) of those lessons
have seen c's questions, as in any stacking; neither E(-c) nor the ranker's labels have. With --train-on nothing has:
its conversations are halved, each half's lessons are made with an encoder tuned on the other half, and --data is
searched with one tuned on all of them. A tuning takes --tune-seconds at most: one per conversation of --data, or three.

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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import house_adapt
import house_tuned
from bench_tools import keep, table
from eval_pools import ADVERSARIAL, Judged, locomo
from figures import Scored, by_kind, cell, difference, intervals, means
from house_recall import PLAIN, Setting, names_of
from judging import Court, answered, bench_options, convened, encoders_of, floor, judge, latency, tell

SHOWN = ("r1", "r5", "r10", "r20", "hit1", "hit5", "hit10", "strict10", "mrr")
ABLATED = ("r10", "hit1", "mrr")
TARGETS = {"shipped": {"r10": 0.80, "hit1": 0.52, "mrr": 0.64}, "adapted": {"r10": 0.88, "hit1": 0.66, "mrr": 0.77}}
LATENCY_TARGET_MS = 30.0  # p95
SECONDS = 240.0  # of one tuning: six passes over five conversations take 1.6 s a step on one core, some 140 steps

Scores = dict[str, list[Scored]]  # setting -> its questions
Run = Callable[[Setting], list[Scored]]
ADAPTED, RANKER_ONLY = "adapted", "adapted_ranker_only"
STACKED = "adapted: the E(-i) behind the lessons have seen the judged questions; E(-c) and the ranker's labels have not"
CLEAN = "adapted: neither an encoder nor the ranker has seen a judged conversation"
UNTUNED = "adapted: the ranker alone is fitted, on other conversations; the encoder is the shipped one"


def main() -> None:
    options = _options()
    pools = locomo(options.data)
    others = _others(options, pools)
    tunable = _tunable(options, pools, others)
    encoders = encoders_of(options)
    with ExitStack() as houses:
        courts = houses.enter_context(convened(pools, encoders))
        teachers = houses.enter_context(convened(others, encoders))
        scores: Scores = {"bm25": floor(pools), "shipped": told("shipped", judge(courts))}
        runs: dict[str, Run] = {"shipped": lambda setting: judge(courts, setting)}
        fitted = _fitted(courts, teachers, options)
        if fitted is not None:
            name = RANKER_ONLY if tunable else ADAPTED
            scores[name] = told(name, fitted(PLAIN))
            runs |= {} if tunable else {ADAPTED: fitted}
        tuning = house_tuned.Tuning(options.tune_seconds)
        if tunable:
            runs[ADAPTED] = _tuned(houses, pools, others, tuning)
            scores[ADAPTED] = told(ADAPTED, runs[ADAPTED](PLAIN))
        dropped = {} if options.quick else {name: ablation(courts, run) for name, run in runs.items()}
        result = report(scores, dropped) | {"latency_ms": latency(courts), "tuning_seconds": tuning.took}
    note = "" if ADAPTED not in scores else UNTUNED if not tunable else CLEAN if others else STACKED
    show(scores, dropped, result["latency_ms"], note)
    keep(result | {"adapted_is": note}, options.json)


def _fitted(courts: Sequence[Court], teachers: Sequence[Court], options: argparse.Namespace) -> Run | None:
    """The run whose ranker is fitted on the teachers or, without any, by cross-validation; None: there is no other."""
    if teachers:
        return lambda setting: judge(courts, house_adapt.adapted_to(teachers, setting))
    if options.shipped_only or len(courts) < house_tuned.FEWEST:
        return None
    return lambda setting: judge(courts, house_adapt.cross_adapted(courts, setting))


def _tuned(houses: ExitStack, pools: Sequence[Judged], others: Sequence[Judged], tuning: house_tuned.Tuning) -> Run:
    """The run in houses with tuned encoders, tuned here and now, and with a fitted ranker."""
    if others:
        teachers, courts = houses.enter_context(house_tuned.tuned_on(others, pools, tuning))
        return lambda setting: judge(courts, house_adapt.adapted_to(teachers, setting))
    courts = []
    for court in houses.enter_context(house_tuned.cross_tuned(pools, tuning)):
        told("tuned encoder, all else as shipped", judge([court]))
        courts.append(court)
    return lambda setting: judge(courts, house_adapt.cross_adapted(courts, setting))


def told(name: str, scores: list[Scored]) -> list[Scored]:
    """The same, after a line of progress for each conversation."""
    groups: dict[str, list[Scored]] = {}
    for row in answered(scores):
        groups.setdefault(row.group, []).append(row)
    for group, rows in groups.items():
        own = means(rows)
        tell(f"{group}, {name}: " + ", ".join(f"{figure} {own[figure]:.3f}" for figure in ABLATED))
    return scores


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


def _tunable(options: argparse.Namespace, pools: Sequence[Judged], others: Sequence[Judged]) -> bool:
    """Whether encoders are to be tuned; says why not where that is not what was asked for."""
    if options.shipped_only or options.ranker_only or (not others and len(pools) < house_tuned.FEWEST):
        return False
    if options.model != "default":
        tell(f"adapted is the ranker only: what is tuned is the default encoder, not {options.model}")
    elif len(others) == 1:
        tell("adapted is the ranker only: --train-on holds one other conversation, which can't be halved")
    return options.model == "default" and len(others) != 1


def report(scores: Scores, dropped: dict[str, Scores]) -> dict[str, Any]:
    """The JSON: figures by setting, intervals, categories, and what each part is worth."""
    result: dict[str, Any] = {"n": len(answered(scores["shipped"])), "adapted": None}
    result |= {name: means(answered(rows)) for name, rows in scores.items()}
    result["intervals"] = {
        name: intervals(answered(rows), by_group=name.startswith(ADAPTED)) for name, rows in scores.items()
    }
    result["by_category"] = {
        name: {kind: means(own) for kind, own in by_kind(rows).items() if kind != ADVERSARIAL}
        for name, rows in scores.items()
    }
    result["adversarial"] = {name: means([r for r in rows if r.kind == ADVERSARIAL]) for name, rows in scores.items()}
    result["ablation"] = {
        name: {part: means(answered(rows)) for part, rows in parts.items()} for name, parts in dropped.items()
    }
    result["tuned_against_ranker_only"] = gains(scores)
    result["targets"] = TARGETS
    return result


def gains(scores: Scores) -> dict[str, list[float]]:
    """figure -> [mean, low, high] of what the tuned encoder adds, over the same questions; {} where none was tuned."""
    if RANKER_ONLY not in scores or ADAPTED not in scores:
        return {}
    pair = answered(scores[RANKER_ONLY]), answered(scores[ADAPTED])
    return {figure: list(difference(*pair, figure)) for figure in SHOWN}


def show(scores: Scores, dropped: dict[str, Scores], ms: dict[str, float], note: str) -> None:
    rows: list[list[object]] = [["setting", "n", *SHOWN]]
    for name, found in scores.items():
        own, spans = means(answered(found)), intervals(answered(found), by_group=name.startswith(ADAPTED))
        rows.append([name, own["n"], *(f"{own[figure]:.3f}" for figure in SHOWN)])
        rows.append(["  95 %", "", *("{:.3f}-{:.3f}".format(*spans[figure]) for figure in SHOWN)])
        if name in TARGETS:
            rows.append(["  target", "", *(f"{TARGETS[name][f]:.2f}" if f in TARGETS[name] else "" for f in SHOWN)])
    if gained := gains(scores):
        rows.append(["tuned - ranker only", "", *(f"{gained[figure][0]:+.3f}" for figure in SHOWN)])
        rows.append(["  95 %", "", *("{1:+.3f} {2:+.3f}".format(*gained[figure]) for figure in SHOWN)])
    table(rows)
    print(f"{note}\n")
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
    parser.add_argument("--ranker-only", action="store_true", help="fit the ranker alone: `adapted` tunes no encoder")
    parser.add_argument(
        "--tune-seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help="of one tuning at most (%(default)s); give more on a busy machine",
    )
    options = parser.parse_args()
    if options.train_on and options.cross_validate:
        parser.error("--train-on and --cross-validate exclude each other: one says what to fit on, the other how")
    return options


if __name__ == "__main__":
    main()
