"""What the cross-encoder adds to late interaction, and what it costs.

    python tests/bench/cross.py --data DIR --work DIR [--model default|NAME|PATH] [--sets ...] [--json FILE]

Each question's candidates are ordered by the cascade up to late interaction (nothing learned after it), then the first
few by the cascade's score and the cross-encoder's together. The weight is the one that ships; `weights` shows others,
so that nobody need believe in it. Beside R@10, hit@1 and MRR stands the paired difference to late interaction, with its
95 % bootstrap interval. `linear` fits the weights of (fused, late) and of (fused, late, cross) on the permissive
held-out questions and judges both on the others: what a ranker could make of the score. LoCoMo, REALTALK and bukzor are
judged by only; the held-out questions of the permissive sets were not trained on, though their passages were seen.
Latency is that of the scoring alone, on one thread, at fixed lengths: state it from an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_tools import spread
from cross_cases import DEPTH, HELD_OUT, SETS, Case, cases_of
from cross_linear import fitted, linear_scores
from figures import Scored, difference, intervals, means

from recalld_daemon.models.reranker import BATCH, Reranker, RerankerSettings, load_reranker
from recalld_daemon.models.reranker_runtimes import Pair
from recalld_daemon.recall.cross import CROSS_WEIGHT, blended
from recalld_daemon.recall.types import Candidate, Float32

NAMES = ("r10", "hit1", "mrr")
COUNTS = (5, 10, 20)  # first candidates that are scored
WEIGHTS = (0.02, 0.05, 0.1, 0.2, 0.4)
ALONE = 1e6  # a weight with which the cross-encoder alone orders what it scored
EVER = 1e9
REPEATS = 30

Scores = list[Float32]  # one array (n,) per case


def main() -> None:
    options = _options()
    cases = {name: cases_of(name, options.data, options.work) for name in options.sets}
    reranker = load_reranker(RerankerSettings(options.models or options.work, options.model), lambda *_: None)
    print(f"{reranker.model} {reranker.runtime}", flush=True)
    scored = {name: _scored(reranker, found, name, options) for name, found in cases.items()}
    report: dict[str, Any] = {"model": reranker.model, "runtime": reranker.runtime, "weight": CROSS_WEIGHT}
    report["sets"] = {name: ranking(found, scored[name], options.first) for name, found in cases.items()}
    report["weights"] = {name: weighing(found, scored[name]) for name, found in cases.items()}
    report["linear"] = linear(cases, scored)
    report["latency_ms"] = latency(reranker)
    _print(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def ranking(cases: Sequence[Case], scores: Scores, most: int) -> dict[str, Any]:
    """Late interaction alone, and with the cross-encoder over the first COUNTS, as far as they were scored."""
    base = [case.score(case.order()) for case in cases]
    rows: dict[str, Any] = {"late": _figures(base)}
    for count in (count for count in COUNTS if count <= most):
        rows[f"late + cross {count}"] = _compared(base, _blended(cases, scores, count, CROSS_WEIGHT))
    rows[f"cross alone {most}"] = _compared(base, _blended(cases, scores, most, ALONE))
    return rows


def weighing(cases: Sequence[Case], scores: Scores) -> dict[str, float]:
    """MRR by weight, over all that were scored."""
    found = {str(weight): _blended(cases, scores, DEPTH, weight) for weight in WEIGHTS}
    return {weight: means(rows, ("mrr",))["mrr"] for weight, rows in found.items()}


def linear(cases: dict[str, list[Case]], scores: dict[str, Scores]) -> dict[str, Any]:
    """Weights from the permissive held-out questions; figures on all sets."""
    held = [name for name in cases if name in HELD_OUT]
    taught = [each for name in held for each in zip(cases[name], scores[name], strict=True)]
    if not taught:
        return {}
    without, within = fitted(taught, cross=False), fitted(taught, cross=True)
    found: dict[str, Any] = {"weights": {"without": without.tolist(), "with": within.tolist()}}
    for name, own in cases.items():
        rows = list(zip(own, scores[name], strict=True))
        left = [case.score(case.order(linear_scores(case, row, without))) for case, row in rows]
        right = [case.score(case.order(linear_scores(case, row, within))) for case, row in rows]
        found[name] = {"without": _figures(left), "with": _compared(left, right)}
    return found


def latency(reranker: Reranker) -> dict[str, dict[str, float]]:
    """p50 and p95 of scoring so many pairs of so many tokens, in batches as a rerank makes them."""
    found = {}
    for tokens in (64, 96):
        pair = _pair_of(reranker, tokens)
        for count in (10, 20):
            times = []
            for _ in range(REPEATS):
                began = time.perf_counter()
                for first in range(0, count, BATCH):
                    reranker.score([pair] * min(BATCH, count - first))
                times.append((time.perf_counter() - began) * 1000)
            found[f"{count} pairs of {tokens} tokens"] = spread(times, 50, 95)
    return found


def _pair_of(reranker: Reranker, tokens: int) -> Pair:
    words = ["the", "staging", "key", "lies", "in", "a", "vault", "since", "nobody", "asked"]
    for count in range(tokens, 0, -1):
        (pair,) = reranker.pairs("where does the staging key lie now?", [" ".join((words * tokens)[:count])])
        if len(pair) <= tokens:
            return pair
    raise ValueError(f"no pair of {tokens} tokens")


def _blended(cases: Sequence[Case], scores: Scores, count: int, weight: float) -> list[Scored]:
    found = []
    for case, row in zip(cases, scores, strict=True):
        candidates = [Candidate(at, fused=value) for at, value in enumerate(case.fused)]
        known = {at: float(value) for at, value in enumerate(row[:count])}
        moved = blended(candidates, known, weight)
        if weight == ALONE:  # those that were not scored stay below
            moved = sorted(moved, key=lambda candidate: candidate.passage >= count)
        found.append(case.score([candidate.passage for candidate in moved]))
    return found


def _figures(scored: Sequence[Scored]) -> dict[str, Any]:
    spans = intervals(scored, NAMES)
    return {name: [value, *spans[name]] for name, value in means(scored, NAMES).items() if name != "n"} | {
        "n": len(scored)
    }


def _compared(base: Sequence[Scored], scored: Sequence[Scored]) -> dict[str, Any]:
    gains = {name: [round(value, 4) for value in difference(base, scored, name)] for name in NAMES}
    return _figures(scored) | {"gain": gains}


def _scored(reranker: Reranker, cases: Sequence[Case], name: str, options: argparse.Namespace) -> Scores:
    """The cross-encoder's scores; kept in --work by model and runtime where --keep names them."""
    file = options.work / f"scores-{name}-{options.keep}.pkl"
    if options.keep and file.exists():
        kept: Scores = pickle.loads(file.read_bytes())
        return kept
    found = []
    for case in cases:
        reranking = reranker.begin(case.query, case.texts[: options.first], EVER)
        while reranking.step():
            pass
        found.append(reranking.scores)
    if options.keep:
        file.write_bytes(pickle.dumps(found))
    return found


def _print(report: dict[str, Any]) -> None:
    for name, rows in report["sets"].items():
        print(f"\n{name} (n {rows['late']['n']}): R@10 / hit@1 / MRR [95 %], gain in MRR [95 %]")
        for method, row in rows.items():
            values = "  ".join(f"{row[key][0]:.3f} [{row[key][1]:.3f}, {row[key][2]:.3f}]" for key in NAMES)
            gain = row.get("gain", {}).get("mrr")
            print(f"  {method:18} {values}" + (f"   {gain[0]:+.4f} [{gain[1]:+.4f}, {gain[2]:+.4f}]" if gain else ""))
        print("  MRR by weight:", report["weights"][name])
    for name, rows in report["linear"].items():
        if name == "weights":
            print("\nlinear, weights of (fused, late[, cross]):", rows)
        else:
            gain = rows["with"]["gain"]["mrr"]
            print(f"  {name:10} MRR {rows['without']['mrr'][0]:.3f} -> {rows['with']['mrr'][0]:.3f}  {gain}")
    for what, row in report["latency_ms"].items():
        print(f"{what}: {row}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="keeps encodings, candidates and graphs")
    parser.add_argument("--models", type=Path, help="cache of prepared models; default: --work")
    parser.add_argument("--model", default="default")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--first", type=int, default=DEPTH, help="candidates that are scored")
    parser.add_argument("--keep", default="", help="name under which this model's scores are kept in --work")
    parser.add_argument("--json", type=Path)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return parser.parse_args()


if __name__ == "__main__":
    main()
