"""Fits the gate's probabilities on public data and reports what they are worth; --write keeps them in the package.

    python tests/bench/gate.py --data DIR --work DIR [--write] [--json FILE]

Questions with an answer in their pool give positives (that answer) and negatives (whatever else ranks high); questions
without one (their gold hidden, another pool's questions, small talk, nonsense) give negatives only, and say how often
the gate speaks where it should not. Everything reported about the gate is judged on a pool that the fit never saw.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from gate_memory import Encoders, Memory, open_memory
from gate_pools import Ask, Pool, fit_pools, locomo_pools, nonsense, tool_calls

from recalld_daemon import recall
from recalld_daemon.recall import fusion, words
from recalld_daemon.recall.gate import GATE_DEPTH, Context, Model, decide
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.signals import FEATURES, pool_of, signals_of, wanted_of
from recalld_daemon.recall.types import Answer, Candidate, Float32, Passage, Query, QueryEncoding

HERE = Path(next(iter(recall.__path__)))
SEED = 20260101
CAP = 4000  # passages per pool
RIDGE = 1.0  # prior on standardised weights: enough to keep correlated signals from cancelling each other
FALSE_RATE = 0.05  # of questions without an answer, the share that may draw a snippet, on pools the fit never saw
WORD_FLOOR = 3 / 16000  # share of passages; a rarer word weighs 1
WORD_CEILING = 0.8  # words that weigh more are not listed: an unlisted word weighs 1


@dataclass(frozen=True, slots=True)
class Run:
    """One question at one stage: its answer, and the rows it gives to a fit."""

    pool: str
    kind: str
    stage: str
    query: Query
    gold: frozenset[int]
    answer: Answer
    rows: Float32  # (n, f) signals of the first n candidates
    labels: Float32  # (n,)


def main() -> None:
    options = _options()
    began = time.monotonic()
    pools = fit_pools(options.data, options.cap, SEED)
    if options.write:
        _write("word_weights.json", {"provenance": _provenance(options, "none"), "weights": word_weights(pools)})
        words._weights.cache_clear()
    options.work.mkdir(parents=True, exist_ok=True)
    encoder = Encoders(options.work)
    memories = [open_memory(pool, encoder, options.work) for pool in pools]
    print(f"{[(m.pool.name, len(m.pool.texts), len(m.pool.asks)) for m in memories]}, {time.monotonic() - began:.0f} s")
    report: dict[str, Any] = {"ranking": ranking(memories, encoder)}
    judged = [open_memory(pool, encoder, options.work) for pool in locomo_pools(options.data)]
    report["ranking"] |= ranking(judged, encoder, "locomo")
    for kind, rows in report["ranking"].items():
        print(f"{kind:18}", "  ".join(f"{m} {r:.3f}/{mrr:.3f}" for m, (r, mrr) in rows.items()), flush=True)
    runs = [run for m in memories for run in collect(m, encoder, asks_of(m, memories, options.data))]
    fitted, report["gate"] = fit_all(runs, memories)
    report["locomo"] = judge([r for m in judged for r in collect(m, encoder, m.pool.asks)], judged, fitted)
    _print(report)
    if options.write:
        kept = {stage: _row(model) for stage, model in fitted.items()}
        _write(
            "gate_weights.json",
            {"provenance": _provenance(options, encoder.fingerprint) | {"report": report["gate"]}, "models": kept},
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(f"{time.monotonic() - began:.0f} s")


def word_weights(pools: Sequence[Pool]) -> dict[str, float]:
    """stem -> weight in 0..WORD_CEILING: log of the share of passages that hold it, the mean over pools.

    Only words that at least two pools know: what one project says all day (its name, its people) is not ordinary.
    """
    shares: dict[str, list[float]] = defaultdict(list)
    for pool in pools:
        counts = Counter(word for text in pool.texts for word in words.content_stems(text))
        for word, count in counts.items():
            if count > 1 and len(word) > 1:
                shares[word].append(count / len(pool.texts))
    weights = {word: log(sum(s) / len(pools)) / log(WORD_FLOOR) for word, s in shares.items() if len(s) > 1}
    return {word: round(w, 2) for word, w in sorted(weights.items()) if w < WORD_CEILING}


def asks_of(memory: Memory, memories: Sequence[Memory], data: Path) -> list[Ask]:
    """A pool's own questions, the same with their gold hidden, other pools' questions, nonsense, tool calls."""
    rng = random.Random(SEED)
    own = memory.pool.asks
    blind = [
        replace(a, kind="goldless.hidden", gold=frozenset(), hidden=a.hidden | a.gold)
        for a in rng.sample(own, len(own) // 2)
    ]
    asks = own + blind
    for other in memories:
        if memory.pool.name == other.pool.name or {memory.pool.name, other.pool.name} == {"til", "tldr"}:
            continue  # notes and command pages answer each other's questions
        asks += [Ask("goldless.foreign", a.focus) for a in rng.sample(other.pool.asks, 60)]
    asks += [Ask("goldless.nonsense", focus) for focus in nonsense(60, rng)]
    kind = "goldless.tool" if memory.pool.name == "wiki" else "unlabelled.tool"
    return asks + [Ask(kind, focus) for focus in tool_calls(data, 200, rng)]


def search(memory: Memory, query: Query, encoding: QueryEncoding | None, hidden: frozenset[int]) -> list[Candidate]:
    """The fused candidates, as the cascade makes them."""
    return fusion.fuse(memory.lanes(query, encoding, hidden, fusion.LANE_LIMIT))


def collect(memory: Memory, encoder: Encoders, asks: Sequence[Ask]) -> list[Run]:
    """Runs each question through all three stages; a question that is silent by itself gives runs without rows."""
    queries = [query_of(ask.focus) for ask in asks]
    encodings = [encoder.query(query.text or ".") for query in queries]
    runs = []
    for ask, query, encoding in zip(asks, queries, encodings, strict=True):
        fused = search(memory, query, encoding, ask.hidden) if query.text else []
        late = memory.late.deepen(query, encoding, fused) if fused else []
        lexical = search(memory, query, None, ask.hidden) if query.text else []
        for stage, candidates in (("lexical", lexical), ("fused", fused), ("late", late)):
            answer = Answer("late" if stage == "late" else "fused", candidates, 0.0)
            rows, labels = _rows(memory, query, ask, stage, candidates)
            runs.append(Run(memory.pool.name, ask.kind, stage, query, ask.gold, answer, rows, labels))
    return runs


def _rows(
    memory: Memory, query: Query, ask: Ask, stage: str, candidates: Sequence[Candidate]
) -> tuple[Float32, Float32]:
    wanted, pool, top = wanted_of(query), pool_of(candidates), candidates[:GATE_DEPTH]
    signals = [signals_of(c, pool, wanted, memory.pool.texts[c.passage]) for c in top]
    rows = [[row[name] for name in FEATURES[stage]] for row in signals]
    labels = [float(c.passage in ask.gold) for c in top]
    return np.array(rows, np.float32).reshape(len(top), len(FEATURES[stage])), np.array(labels, np.float32)


def fit(runs: Sequence[Run], stage: str) -> Model:
    """A ridge logistic regression by Newton steps; goldless questions together weigh as much as the others."""
    used = [run for run in runs if run.stage == stage and len(run.rows) and not run.kind.startswith("unlabelled")]
    goldless = sum(not run.gold for run in used)
    x = np.concatenate([run.rows for run in used]).astype(np.float64)
    y = np.concatenate([run.labels for run in used]).astype(np.float64)
    share = (len(used) - goldless) / max(1, goldless)
    sizes = [np.full(len(run.labels), 1.0 if run.gold else share) for run in used]
    weight = np.concatenate(sizes)
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    z = np.column_stack([np.ones(len(x)), (x - mean) / scale])  # (n, 1 + f)
    prior = np.diag([0.0] + [RIDGE] * x.shape[1])
    beta = np.zeros(z.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-z @ beta))
        gradient = z.T @ (weight * (y - p)) - prior @ beta
        hessian = (z * (weight * p * (1 - p))[:, None]).T @ z + prior
        beta = beta + np.linalg.solve(hessian, gradient)
    numbers = [tuple(round(float(v), 6) for v in values) for values in (mean, scale, beta[1:])]
    return Model(FEATURES[stage], *numbers, bias=round(float(beta[0]), 6), threshold=0.5)


def fit_all(runs: Sequence[Run], memories: Sequence[Memory]) -> tuple[dict[str, Model], dict[str, Any]]:
    """The final models, with thresholds and a report from models that did not see the pool they are judged on."""
    fitted: dict[str, Model] = {}
    report: dict[str, Any] = {}
    for stage in FEATURES:
        held = {m.pool.name: fit([run for run in runs if run.pool != m.pool.name], stage) for m in memories}
        mine = [run for run in runs if run.stage == stage]
        threshold = _threshold(mine, held, memories)
        held = {name: replace(model, threshold=threshold) for name, model in held.items()}
        report[stage] = {"threshold": threshold} | _judged(mine, memories, lambda run, h=held: h[run.pool])
        fitted[stage] = replace(fit(runs, stage), threshold=threshold)
    return fitted, report


def _threshold(runs: Sequence[Run], held: dict[str, Model], memories: Sequence[Memory]) -> float:
    """The lowest threshold at which no more than FALSE_RATE of the goldless questions draw a snippet."""
    goldless = [run for run in runs if run.kind.startswith("goldless")]
    bests = []
    for run in goldless:
        passed = _decision(run, replace(held[run.pool], threshold=1e-9), memories)
        bests.append(max((candidate.probability for candidate in passed), default=0.0))
    return round(float(np.quantile(bests, 1 - FALSE_RATE)) + 0.005, 2)


def judge(runs: Sequence[Run], memories: Sequence[Memory], fitted: dict[str, Model]) -> dict[str, Any]:
    return {
        stage: _judged([run for run in runs if run.stage == stage], memories, lambda run, m=model: m)
        for stage, model in fitted.items()
    }


def _judged(runs: Sequence[Run], memories: Sequence[Memory], model: Callable[[Run], Model]) -> dict[str, Any]:
    """Per kind of question: how often it speaks, how often rightly; and how well probabilities are calibrated."""
    kinds: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for run in runs:
        passed = _decision(run, model(run), memories)
        kinds[run.kind].append((len(passed), sum(c.passage in run.gold for c in passed)))
        kinds["goldless" if run.kind.startswith("goldless") else "answerable"].append(kinds[run.kind][-1])
        if run.kind.startswith("unlabelled"):
            kinds["answerable"].pop()
    table = {}
    for kind, rows in sorted(kinds.items()):
        shown = sum(n for n, _ in rows)
        table[kind] = {
            "n": len(rows),
            "speaks": round(sum(n > 0 for n, _ in rows) / len(rows), 3),
            "right": round(sum(hit > 0 for _, hit in rows) / len(rows), 3),
            "precision": round(sum(hit for _, hit in rows) / shown, 3) if shown else None,
        }
    return {"kinds": table, "reliability": _reliability(runs, model)}


def _decision(run: Run, model: Model, memories: Sequence[Memory]) -> list[Candidate]:
    if not run.answer.candidates:
        return []
    texts = next(m.pool.texts for m in memories if m.pool.name == run.pool)
    passages = [
        Passage(c.passage, f"/{c.passage}", f"{c.passage}", 0, 0, texts[c.passage], "utf-8")
        for c in run.answer.candidates[:GATE_DEPTH]
    ]
    return decide(run.answer, passages, Context(run.query), {run.stage: model}).passed


def _reliability(runs: Sequence[Run], model: Callable[[Run], Model]) -> list[tuple[float, float, int]]:
    """(mean probability, share that was gold, n) in ten bins, over all judged candidates of labelled questions."""
    pairs = [
        (model(run).probability(dict(zip(FEATURES[run.stage], row, strict=True))), label)
        for run in runs
        if not run.kind.startswith("unlabelled")
        for row, label in zip(run.rows.tolist(), run.labels.tolist(), strict=True)
    ]
    bins: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for probability, label in pairs:
        bins[min(9, int(probability * 10))].append((probability, label))
    return [
        (round(float(np.mean([p for p, _ in b])), 3), round(float(np.mean([y for _, y in b])), 3), len(b))
        for _, b in sorted(bins.items())
    ]


def ranking(memories: Sequence[Memory], encoder: Encoders, name: str = "") -> dict[str, dict[str, tuple[float, float]]]:
    """Per kind of question and per method: (R@10, MRR). R@10 is the share of gold found, at most 10 of them counted."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for memory in memories:
        queries = [query_of(ask.focus) for ask in memory.pool.asks]
        encodings = [encoder.query(query.text or ".") for query in queries]
        for ask, query, encoding in zip(memory.pool.asks, queries, encodings, strict=True):
            for method, ids in _methods(memory, query, encoding, ask.hidden).items():
                found[name or ask.kind][method].append(_scores(ids, ask.gold))
    return {kind: {method: _means(pairs) for method, pairs in rows.items()} for kind, rows in found.items()}


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    first, second = np.array(pairs).mean(axis=0).round(3).tolist()
    return first, second


def _methods(memory: Memory, query: Query, encoding: QueryEncoding, hidden: frozenset[int]) -> dict[str, Iterable[int]]:
    lanes = memory.lanes(query, encoding, hidden, fusion.LANE_LIMIT)
    fused = fusion.fuse(lanes)
    late = memory.late.deepen(query, encoding, fused)
    alone = sorted(late, key=lambda c: -(c.late if c.late is not None else -1.0))
    return {
        "dense": [c.passage for c in fusion.fuse({"dense": lanes["dense"]})],
        "lexical": [c.passage for c in fusion.fuse({"lexical": lanes["lexical"]})],
        "rrf": [c.passage for c in fusion.fuse(lanes, shares=fusion.reciprocal_rank)],
        "fused": [c.passage for c in fused],
        "max-sim": [c.passage for c in alone],
        "late": [c.passage for c in late],
    }


def _scores(ids: Iterable[int], gold: frozenset[int]) -> tuple[float, float]:
    ranks = [rank for rank, passage in enumerate(ids, start=1) if passage in gold]
    return sum(rank <= 10 for rank in ranks) / min(10, len(gold)), 1 / ranks[0] if ranks else 0.0


def _row(model: Model) -> dict[str, Any]:
    return {
        "features": model.names,
        "means": model.means,
        "scales": model.scales,
        "weights": model.weights,
        "bias": model.bias,
        "threshold": model.threshold,
    }


def _provenance(options: argparse.Namespace, encoder: str) -> dict[str, Any]:
    return {
        "made_by": f"python tests/bench/gate.py --data DATA --work WORK --write --cap {options.cap}",
        "made_on": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seed": SEED,
        "encoder": encoder,
        "data": {
            "til": "jbranchaud/til, MIT",
            "wiki": "NQ-open and QED (CC BY-SA 3.0), XQuAD (CC BY-SA 4.0)",
            "tldr": "tldr-pages, CC BY 4.0",
            "entire": "entireio/cli checkpoints, MIT",
        },
    }


def _write(name: str, value: Any) -> None:
    (HERE / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _print(report: dict[str, Any]) -> None:
    for title in ("gate", "locomo"):
        for stage, found in report[title].items():
            print(f"\n{title}, {stage}, threshold {found.get('threshold', '')}")
            for kind, row in found["kinds"].items():
                print(f"  {kind:20}", "  ".join(f"{key} {value}" for key, value in row.items()))
            print("  reliability", found["reliability"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of the development data")
    parser.add_argument("--write", action="store_true", help="keep the fitted weights in the package")
    parser.add_argument(
        "--work", type=Path, required=True, help="directory for encodings and stores; kept for next time"
    )
    parser.add_argument("--cap", type=int, default=CAP, help=f"passages per pool (default {CAP})")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
