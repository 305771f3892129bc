"""A user whose interests move: what usefulness is worth before and after, and how long it takes to follow.

    python tests/bench/focus.py [--seeds N] [--queries N] [--texts] [--json FILE]

A made-up user has a memory of twelve topics and asks about one at a time, mostly (four of five questions; the rest is
about anything). In "switch" the topic changes once, half way; in "back and forth" it changes every two weeks between
two, as before and after. Each question is a noisy sight of one memory, so that others are as near; what was among the
three shown and looked at (the chance falls with the rank) counts as used, and nothing else does. Each arm lives through
it by itself and learns from what it showed. Weights are fitted by `fit_weights` in two ways: "others": on the logs of
other users who move, and "own": on the user's own log of plain search before the first move. --texts: made-up notes
through the packaged encoder in place of made-up vectors; the question leaves out the topic's name.

In arms "by use" the focus is moved by what was used as well as by each question.

Recovery: questions after the switch until the moving average (40) of the reciprocal rank is back at 95 % of its mean
before. A row of nan: never within the run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from bench_tools import keep, table

from recalld_daemon.adapters.pairs import inverse_propensity
from recalld_daemon.recall.adapter import unit
from recalld_daemon.recall.types import Float32, Float64
from recalld_daemon.recall.usefulness import DAY_SECONDS, Interests, Weights, usefulness
from recalld_daemon.recall.usefulness_fit import Choice, TooFewQuestions, fit_weights

TOPICS, PER_TOPIC, DIMS = 12, 40, 64
A_DAY = 25  # questions
SCALE = 20.0  # of a cosine: the ranker's scores
SHOWN, POOL, WINDOW = 3, 100, 40
OTHERS = range(100, 105)  # seeds of the users whose logs weights are fitted on
VARIANTS = ("switch", "back and forth")
ARMS = {
    "none": (0, 0, 0), "counts": (1, 0, 0), "slow": (0, 1, 0), "fast": (0, 0, 1), "two speeds": (0, 1, 1),
    "all": (1, 1, 1), "fast, by use": (0, 0, 1), "two speeds, by use": (0, 1, 1), "all, by use": (1, 1, 1),
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """memories: (m, d); topic: (m,); query: makes a question (d,) about a memory."""

    memories: Float32
    topic: np.ndarray
    query: Callable[[int, np.random.Generator], Float32]


@dataclass
class Life:
    """One user with one arm. ranks: of each question's memory; log: what a fit may see."""

    ranks: Float64
    log: list[Choice]
    asked: list[int]  # which question each entry of the log is of

    def log_before(self, n: int) -> list[Choice]:
        return [choice for choice, at in zip(self.log, self.asked, strict=True) if at < n]


def vectors(seed: int) -> World:
    rng = np.random.default_rng(seed)
    centres = unit(rng.normal(size=(TOPICS, DIMS)).astype(np.float32))
    topic = np.repeat(np.arange(TOPICS), PER_TOPIC)
    memories = unit(0.6 * centres[topic] + 0.8 * unit(rng.normal(size=(len(topic), DIMS)).astype(np.float32)))

    def query(gold: int, rng: np.random.Generator) -> Float32:
        return unit(memories[gold] + 2.6 * unit(rng.normal(size=DIMS).astype(np.float32)))

    return World(memories, topic, query)


def life(world: World, variant: str, seed: int, queries: int, weights: Weights, by_use: bool = False) -> Life:
    """weights: zero is plain search."""
    rng = np.random.default_rng(seed + 1_000)
    topics = rng.permutation(TOPICS)[:2]
    now, day, ranks = Interests.none(world.memories.shape[1]), list[Float32](), list[int]()
    log, asked = list[Choice](), list[int]()
    liking = rng.permutation(1.0 / np.arange(1, PER_TOPIC + 1) ** 0.7)  # some memories are asked for more than others
    for n in range(queries):
        at = (n // A_DAY + 0.3 + 0.3 * (n % A_DAY) / A_DAY) * DAY_SECONDS
        if n % A_DAY == 0 and day:
            now, day = now.slept(np.stack(day)), []
        about = topics[phase(variant, n, queries)] if rng.random() < 0.8 else rng.integers(TOPICS)
        gold = int(rng.choice(np.flatnonzero(world.topic == about), p=liking / liking.sum()))
        query = world.query(gold, rng)
        scores = SCALE * world.memories @ query
        ids = np.argsort(-scores)[:POOL]
        features = now.features(ids, world.memories[ids], at, weights)
        order = np.argsort(-(scores[ids] + usefulness(features, weights)), kind="stable")
        place = np.flatnonzero(ids[order] == gold)
        rank = int(place[0]) + 1 if len(place) else POOL + 1
        ranks.append(rank)
        now = now.asked(query, at)
        if rank <= SHOWN and rng.random() < rank**-0.5:
            weight = inverse_propensity(rank)
            log.append(Choice(scores[ids].astype(np.float32), features, ids == gold, weight))
            asked.append(n)
            now = now.used(np.array([gold]), np.array([weight]), at)
            day.append(world.memories[gold])
            now = now.asked(world.memories[gold], at) if by_use else now
    return Life(np.array(ranks, np.float64), log, asked)


def phase(variant: str, n: int, queries: int) -> int:
    if variant == "switch":
        return int(n >= queries // 2)
    return (n // (14 * A_DAY)) % 2


def switches(variant: str, queries: int) -> list[int]:
    return [n for n in range(1, queries) if phase(variant, n, queries) != phase(variant, n - 1, queries)]


def fitted(log: list[Choice], mask: tuple[int, int, int]) -> Weights:
    """With the arm's features alone; zero where too little is known."""
    own = np.array(mask, np.float32)
    try:
        return fit_weights([replace(choice, features=choice.features * own) for choice in log]).weights
    except TooFewQuestions:
        return Weights()


def recovery(ranks: Float64, switch: int, end: int) -> float:
    """Questions until the moving average is back; nan: not before the next switch."""
    mrr = 1.0 / ranks
    before = mrr[max(0, switch - 8 * WINDOW) : switch].mean()
    for n in range(switch + WINDOW, end + 1):
        if mrr[n - WINDOW : n].mean() >= 0.95 * before:
            return float(n - WINDOW - switch)
    return float("nan")


def figures(variant: str, lives: list[Life]) -> dict[str, float]:
    """Means over lives: shortly before the last switch, the first 100 questions after it, and the rest."""
    queries = len(lives[0].ranks)
    moves = switches(variant, queries)
    last, mrr = moves[-1], np.array([1.0 / life.ranks for life in lives])
    hit = np.array([life.ranks == 1 for life in lives])
    until = list(zip(moves, [*moves[1:], queries], strict=True))
    back = [recovery(life.ranks, at, end) for life in lives for at, end in until]
    found = np.array([value for value in back if value == value])
    parts = {"before": slice(last - 200, last), "after": slice(last, last + 100), "later": slice(last + 100, queries)}
    row = {f"mrr {name}": float(mrr[:, part].mean()) for name, part in parts.items()}
    row |= {f"hit1 {name}": float(hit[:, part].mean()) for name, part in parts.items()}
    row["mrr all"] = float(mrr[:, queries // 4 :].mean())
    row["recovery"] = float(np.median(found)) if len(found) else float("nan")
    return row | {"never": 1.0 - len(found) / len(back)}


def main() -> None:
    options = options_of()
    seeds, queries = range(options.seeds), options.queries
    world_of: Callable[[int], World] = vectors
    if options.texts:
        from focus_texts import texts  # loads the encoder

        world_of = texts
    worlds = {seed: world_of(seed) for seed in [*seeds, *OTHERS]}
    result: dict[str, Any] = {"seeds": options.seeds, "queries": queries, "texts": options.texts}
    for variant in [options.only] if options.only else VARIANTS:
        of_others = {
            use: [c for n in OTHERS for c in life(worlds[n], variant, n, queries, Weights(), use).log]
            for use in (False, True)
        }
        for source in ("others", "own"):
            rows = arms(variant, worlds, list(seeds), queries, of_others if source == "others" else None)
            result[f"{variant}, {source}"] = rows
            print(f"\n{variant}; weights from {source}")
            names = [name for name in rows["none"] if name != "w"]
            head = ["arm", *names, "w_n w_s w_f"]
            table([head] + [[a, *(f"{r[n]:.3f}" for n in names), r["w"]] for a, r in rows.items()])
    keep(result, options.json)


def arms(
    variant: str, worlds: dict[int, World], seeds: list[int], queries: int, of_others: dict[bool, list[Choice]] | None
) -> dict[str, Any]:
    """Figures of each arm. of_others: what weights are fitted on; None: each user's own past."""
    rows: dict[str, Any] = {}
    plain = np.empty(0)
    for arm, mask in ARMS.items():
        use = arm.endswith("by use")
        shared = None if of_others is None else fitted(of_others[use], mask)
        chosen = [shared or fitted(own_log(worlds[seed], variant, seed, queries, use), mask) for seed in seeds]
        lives = [life(worlds[seed], variant, seed, queries, w, use) for seed, w in zip(seeds, chosen, strict=True)]
        mrr = np.array([(1.0 / one.ranks)[queries // 4 :].mean() for one in lives])
        plain = mrr if arm == "none" else plain
        error = (mrr - plain).std(ddof=1) / np.sqrt(len(mrr)) if len(mrr) > 1 else float("nan")
        rows[arm] = figures(variant, lives) | {"gain": float((mrr - plain).mean()), "gain se": float(error)}
        rows[arm]["w"] = np.mean([w.row.astype(float) for w in chosen], axis=0).round(2).tolist()
    return rows


def own_log(world: World, variant: str, seed: int, queries: int, by_use: bool) -> list[Choice]:
    """Of plain search, before the user's first move."""
    return life(world, variant, seed, queries, Weights(), by_use).log_before(switches(variant, queries)[0])


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--queries", type=int, default=1_400, help="of each life; 25 are a day")
    parser.add_argument("--texts", action="store_true", help="made-up notes through the packaged encoder")
    parser.add_argument("--only", choices=VARIANTS)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
