"""Fits the gate's probabilities on public data and says what they are worth; --write keeps them in the package.

    python -m training.gate --data DIR --work DIR [--write] [--json FILE]

Questions with an answer in their memory give positives (that answer) and negatives (whatever else ranks high);
questions without one give negatives only, and say where to cut. All that is reported, the cuts among it, is judged on
kinds of memories that the fit never saw: notes by a model of everything but notes, and so on. `tests/bench/silence.py`
judges what is in the package by evaluation-only data.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from recalld_daemon import recall
from recalld_daemon.recall.gate_model import FALSE_RATE, Model, row_of
from recalld_daemon.recall.signals import FEATURES
from recalld_daemon.recall.types import Float64
from training.chats import chat_pools
from training.gate_asks import CHATS, FAMILIES, large_pools
from training.gate_runs import Encoders, Run, collect
from training.permissive import LICENCES

HERE = Path(next(iter(recall.__path__)))
SEED = 20260101
RIDGE = 3.0  # prior on standardised weights: keeps correlated signals from cancelling each other
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
# What boundaries without an answer are like, for the cuts: one in five is of the kind the memory is about, the others
# are of no such kind. Half and half would cut at .32, not .20, and keep back a third of what LoCoMo's development half
# asks for and has, for 0.7 points of its false injections; the share was chosen by that. Not counted, only reported:
# questions about the very things a memory holds (answers hidden, premises false), where something near is shown.
ALIKE_SHARE = 0.2
ALIKE = ("absent.sibling",)
UNLIKE = ("absent.foreign", "absent.smalltalk", "absent.nonsense", "absent.tool")
EASIEST, HARDEST = 0.05, 0.98  # no cut is outside


@dataclass(frozen=True, slots=True)
class Table:
    """All candidates of one stage's runs: x (n, f), y (n,), weight (n,), run (n,) which run each belongs to."""

    runs: list[Run]
    x: Float64
    y: Float64
    weight: Float64
    run: Any
    free: Any

    def of(self, keep: Callable[[Run], bool]) -> Any:
        """(n,) whether a candidate's run is kept."""
        return np.array([keep(run) for run in self.runs], bool)[self.run]


def main() -> None:
    options = _options()
    began = time.monotonic()
    runs, fingerprint = _runs(options)
    print(f"{len(runs)} runs, {time.monotonic() - began:.0f} s", flush=True)
    fitted: dict[str, Model] = {}
    report: dict[str, Any] = {}
    for stage in FEATURES:
        if any(run.stage == stage for run in runs):
            fitted[stage], report[stage] = fit_stage(stage, runs)
            _print(stage, fitted[stage], report[stage])
    if options.write:
        kept = {stage: row_of(model) for stage, model in fitted.items()}
        provenance = _provenance(fingerprint) | {"report": report}
        text = json.dumps({"provenance": provenance, "models": kept}, indent=1, ensure_ascii=False)
        (HERE / "gate_weights.json").write_text(text + "\n", encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(f"{time.monotonic() - began:.0f} s")


def fit_stage(stage: str, runs: Sequence[Run]) -> tuple[Model, dict[str, Any]]:
    """The stage's model with its cuts, and a report; both by models that did not see the kind they are judged on."""
    mine = [run for run in runs if run.stage in (stage, "")]
    table = table_of(stage, mine)
    held = np.zeros(len(table.y))
    for family in FAMILIES:
        theirs = table.of(lambda run, f=family: run.family == f)  # type: ignore[misc]
        if theirs.any():
            held[theirs] = probabilities(fit(stage, table, ~theirs), table.x[theirs])
    cuts = cuts_of(table, held)
    model = replace(fit(stage, table, np.ones(len(table.y), bool)), cuts=cuts, usual=usual_of(stage, mine))
    model = replace(model, threshold=round(model.cut(FALSE_RATE), 3))
    return model, report_of(table, held, model.threshold)


def table_of(stage: str, runs: Sequence[Run]) -> Table:
    """Each kind of memory weighs the same, and in it large and small ones, and questions with and without answer."""
    usual = usual_of(stage, runs)
    asked = [(at, run) for at, run in enumerate(runs) if run.judged]
    x = np.concatenate([run.rows(FEATURES[stage], usual) for _, run in asked])
    y = np.array([one.gold for _, run in asked for one in run.judged], np.float64)
    free = np.array([one.free for _, run in asked for one in run.judged], bool)
    place = np.array([at for at, run in asked for _ in run.judged])
    counts: dict[tuple[object, ...], int] = defaultdict(int)
    for _, run in asked:
        counts[run.family, run.small, run.answered] += not run.kind.startswith("doubtful")
    shares = [
        0.0 if run.kind.startswith("doubtful") else 1000.0 / max(1, counts[run.family, run.small, run.answered])
        for run in runs
    ]
    return Table(list(runs), x, y, np.array(shares)[place], place, free)


def usual_of(stage: str, runs: Sequence[Run]) -> dict[str, float]:
    """signal -> the middle score of its list, the median over runs in large memories."""
    middles: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.pool is not None and not run.small and run.stage == stage:
            for signal, scores in run.pool.scores.items():
                if len(scores) > 1:
                    middles[signal].append(scores[len(scores) // 2])
    return {signal: round(float(np.median(values)), 4) for signal, values in sorted(middles.items())}


def fit(stage: str, table: Table, keep: Any) -> Model:
    """A ridge logistic regression by Newton steps."""
    x, y, weight = table.x[keep], table.y[keep], table.weight[keep]
    total = weight.sum()
    mean = (weight @ x) / total
    scale = np.sqrt(weight @ (x - mean) ** 2 / total) + 1e-6
    z = np.column_stack([np.ones(len(x)), (x - mean) / scale])  # (n, 1 + f)
    prior = np.diag([0.0] + [RIDGE] * x.shape[1])
    beta = np.zeros(z.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(z @ beta, -30, 30)))
        gradient = z.T @ (weight * (y - p)) - prior @ beta
        hessian = (z * (weight * p * (1 - p))[:, None]).T @ z + prior
        beta = beta + np.linalg.solve(hessian, gradient)
    means, scales, weights = (tuple(round(float(v), 6) for v in values) for values in (mean, scale, beta[1:]))
    return Model(FEATURES[stage], means, scales, weights, bias=round(float(beta[0]), 6), threshold=0.5)


def probabilities(model: Model, x: Float64) -> Float64:
    """(n,) for rows (n, f)."""
    z = (x - np.array(model.means)) / np.array(model.scales)
    return np.asarray(1 / (1 + np.exp(-np.clip(model.bias + z @ np.array(model.weights), -50, 50))), np.float64)


def bests(table: Table, p: Float64) -> Float64:
    """(runs,) the highest probability of a candidate that no other gate stops; 0 where there is none."""
    found = np.zeros(len(table.runs))
    np.maximum.at(found, table.run[table.free], p[table.free])
    return found


def cuts_of(table: Table, held: Float64) -> tuple[tuple[float, float], ...]:
    """Where to cut for each of RATES, of ALIKE and UNLIKE questions the share that gets something."""
    best = bests(table, held)
    groups: dict[str, dict[tuple[str, bool], list[float]]] = {"alike": defaultdict(list), "unlike": defaultdict(list)}
    for run, p in zip(table.runs, best.tolist(), strict=True):
        side = "alike" if run.kind in ALIKE else "unlike" if run.kind in UNLIKE else ""
        if side and not run.answered:
            groups[side][f"{run.kind} {run.family}", run.small].append(p)
    steps = np.linspace(EASIEST, HARDEST, 187)
    sides = [
        np.mean([(np.array(ps)[:, None] >= steps).mean(axis=0) for ps in kinds.values()], axis=0)
        for kinds in groups.values()
    ]
    rate = ALIKE_SHARE * sides[0] + (1 - ALIKE_SHARE) * sides[1]  # falls with the step
    return tuple((r, round(float(steps[np.argmax(rate <= r)] if (rate <= r).any() else HARDEST), 4)) for r in RATES)


def report_of(table: Table, held: Float64, cut: float) -> dict[str, Any]:
    """Per kind of question: how often the gate speaks, and rightly; and how well probabilities are calibrated."""
    passed = table.free & (held >= cut)
    shown = np.zeros(len(table.runs), int)
    right = np.zeros(len(table.runs), int)
    np.add.at(shown, table.run[passed], 1)
    np.add.at(right, table.run[passed & (table.y > 0)], 1)
    kinds: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for run, count, good in zip(table.runs, shown.tolist(), right.tolist(), strict=True):
        kinds[f"{run.kind} ({'small ' if run.small else ''}{run.family})"].append((count, good))
    rows = {
        kind: {
            "n": len(pairs),
            "speaks": round(float(np.mean([n > 0 for n, _ in pairs])), 3),
            "right": round(float(np.mean([good > 0 for _, good in pairs])), 3),
        }
        for kind, pairs in sorted(kinds.items())
    }
    used = table.weight > 0
    isotonic = _isotonic(table, held, used)
    y, weight = table.y[used], table.weight[used]
    return {
        "kinds": rows,
        "ece": {"logistic": ece(held[used], y, weight), "isotonic": ece(isotonic[used], y, weight)},
        "log_loss": {"logistic": log_loss(held[used], y, weight), "isotonic": log_loss(isotonic[used], y, weight)},
        "reliability": reliability(held[used], y, weight),
    }


def ece(p: Float64, y: Float64, weight: Float64) -> float:
    """The expected calibration error in ten bins, weighted."""
    rows = reliability(p, y, weight)
    return round(sum(share * abs(said - true) for said, true, share in rows), 4)


def reliability(p: Float64, y: Float64, weight: Float64) -> list[tuple[float, float, float]]:
    """(said, true, share of weight) per bin of a tenth."""
    rows = []
    for bin in range(10):
        here = np.minimum(9, (p * 10).astype(int)) == bin
        if (total := weight[here].sum()) > 0:
            said, true = (float(weight[here] @ values[here] / total) for values in (p, y))
            rows.append((round(said, 3), round(true, 3), round(float(total / weight.sum()), 4)))
    return rows


def log_loss(p: Float64, y: Float64, weight: Float64) -> float:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return round(float(-(weight @ (y * np.log(p) + (1 - y) * np.log(1 - p))) / weight.sum()), 5)


def _isotonic(table: Table, held: Float64, used: Any) -> Float64:
    """What an isotonic step on the held-out probabilities would say, each family's fitted on the others'."""
    from sklearn.isotonic import IsotonicRegression

    out = held.copy()
    for family in FAMILIES:
        theirs = table.of(lambda run, f=family: run.family == f)  # type: ignore[misc]
        if theirs.any() and (others := used & ~theirs).any():
            step = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
            step.fit(held[others], table.y[others], table.weight[others])
            out[theirs] = step.predict(held[theirs])
    return out


def _runs(options: argparse.Namespace) -> tuple[list[Run], str]:
    options.work.mkdir(parents=True, exist_ok=True)
    kept = options.work / "gate-runs.pickle"
    if options.again and kept.exists():  # only while the signals are being worked on
        runs, fingerprint = pickle.loads(kept.read_bytes())
        return runs, fingerprint
    pools = large_pools(options.data, SEED, chat_pools(CHATS, SEED))
    print([(pool.name, len(pool.rows), len(pool.asks)) for pool in pools], flush=True)
    encoders = Encoders(options.models or options.work / "models", options.work)
    runs = list(collect(pools, encoders, options.data, SEED))
    kept.write_bytes(pickle.dumps((runs, encoders.bulk.fingerprint)))
    return runs, encoders.bulk.fingerprint


def _provenance(encoder: str) -> dict[str, Any]:
    return {
        "made_by": "python -m training.gate --data DATA --work WORK --write",
        "made_on": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seed": SEED,
        "encoder": encoder,
        "data": dict(LICENCES) | {"chat": "made up by training/chats"},
    }


def _print(stage: str, model: Model, report: Mapping[str, Any]) -> None:
    print(f"\n{stage}: cut {model.threshold} at a false rate of {FALSE_RATE}; {dict(model.cuts)}")
    for kind, row in report["kinds"].items():
        print(f"  {kind:34}", "  ".join(f"{key} {value}" for key, value in row.items()))
    print(f"  ECE {report['ece']}, log loss {report['log_loss']}")
    print(
        "  weights",
        {name: round(weight, 2) for name, weight in zip(model.names, model.weights, strict=True)},
        flush=True,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of the development data")
    parser.add_argument("--work", type=Path, required=True, help="directory for encodings, kept for next time")
    parser.add_argument("--models", type=Path, help="where prepared models are kept (default: below --work)")
    parser.add_argument("--write", action="store_true", help="keep the fitted weights in the package")
    parser.add_argument("--again", action="store_true", help="fit on the answers that the last run collected")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
