"""The online step: what it costs, with and without replay, and what each part of a lesson's way costs beside it.

    python tests/bench/online_step.py [--steps N] [--json FILE]

On one thread, at d = 384 and h = 128, with a full buffer and a full slice of held pairs: the step as the worker makes
it (checked, Adam, drift, the slice's MRR), and beside it the state as it is saved after each. `busy` is the time on the
processor, which other processes hardly change; the target of 6 ms is for the wall clock of a quiet machine. `limit` is
what the step's matrix products and Adam's passes over the weights take alone, in the same run.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are there: the worker has one as well
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from bench_tools import keep, spread, table

from recalld_daemon.adapters.adam import Adam
from recalld_daemon.adapters.online import OnlineLearner
from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.adapters.residual import Residual, tensor
from recalld_daemon.adapters.settings import OnlineSettings
from recalld_daemon.recall.adapter import Adapter, unit
from recalld_daemon.recall.types import Float32

DIMS = 384
TARGET_MS = 6.0
Times = dict[str, list[float]]


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    learners = {"": _filled(OnlineSettings()), "without_replay": _filled(OnlineSettings(replay=0))}
    times = {name: _steps(learner, options.steps) for name, learner in learners.items()}
    states = _timed(learners[""].state, max(10, options.steps // 10))
    limit = _timed(_least(), options.steps)
    rows: list[list[object]] = [["", "p50 ms", "p95 ms", "busy p50", "busy p95"]]
    for name, found in (("step, replay of 7", times[""]), ("step, no replay", times["without_replay"])):
        rows.append([name, *_figures(found)])
    rows += [["state to bytes", *_figures(states)], ["limit of the step", *_figures(limit)]]
    table(rows)
    size = len(learners[""].state())
    p95 = spread(times[""]["wall"])["p95"]
    print(f"state {size / 1e6:.1f} MB; p95 {p95:.2f} ms, target {TARGET_MS:.0f} ms")
    result: dict[str, Any] = _json(times[""]) | {
        "without_replay": _json(times["without_replay"]), "state": _json(states), "limit": _json(limit),
        "state_bytes": size, "steps": options.steps,
    }  # fmt: skip
    keep({"online_step_ms": result}, options.json)


def _pair(number: int) -> Pair:
    """A question near its gold, six negatives and a subject: as many as a lesson has."""
    rng = np.random.default_rng(number)
    gold = _units(rng, DIMS)
    return Pair(f"pair {number}", unit(gold + 0.8 * _units(rng, DIMS)), gold, _units(rng, 6, DIMS), _units(rng, DIMS))


def _units(rng: np.random.Generator, *shape: int) -> Float32:
    return unit(rng.normal(size=shape).astype(np.float32))


def _filled(settings: OnlineSettings) -> OnlineLearner:
    """Buffer and slice full, so that each step is as dear as any."""
    learner, number = OnlineLearner(Adapter.born(DIMS), settings, "bench"), 0
    while learner.pairs < settings.kept or learner.held_pairs < settings.held_kept:
        learner.learn(_pair(number))
        number += 1
    return learner


def _steps(learner: OnlineLearner, steps: int) -> Times:
    """Of the pairs that are learned from: held ones cost less."""
    found: Times = {"wall": [], "busy": []}
    number = 1_000_000
    while len(found["wall"]) < steps:
        pair, number = _pair(number), number + 1
        wall, busy = time.perf_counter(), time.thread_time()
        step = learner.learn(pair)
        if not step.held:
            found["wall"].append(1000 * (time.perf_counter() - wall))
            found["busy"].append(1000 * (time.thread_time() - busy))
    return found


def _least() -> Callable[[], object]:
    """The step's arithmetic alone: forward, both backward products, Adam, and both looks at the held pairs."""
    module, rng = Residual(Adapter.born(DIMS)), np.random.default_rng(0)
    adam, adapter = Adam([module], 1e-3), Adapter.born(DIMS)
    rows, looked = tensor(_units(rng, 8, DIMS)), _units(rng, 80, DIMS)
    module.flat_gradient.fill_(1e-3)

    @torch.no_grad()
    def arithmetic() -> None:
        for _ in range(3):
            module(rows)
        adam.step()
        adapter.apply(looked)

    return arithmetic


def _timed(work: Callable[[], object], times: int) -> Times:
    found: Times = {"wall": [], "busy": []}
    work()
    for _ in range(times):
        wall, busy = time.perf_counter(), time.thread_time()
        work()
        found["wall"].append(1000 * (time.perf_counter() - wall))
        found["busy"].append(1000 * (time.thread_time() - busy))
    return found


def _figures(found: Times) -> list[str]:
    return [f"{spread(found[kind], 50, 95)[share]:.2f}" for kind in ("wall", "busy") for share in ("p50", "p95")]


def _json(found: Times) -> dict[str, Any]:
    return spread(found["wall"], 50, 95) | {"busy": spread(found["busy"], 50, 95)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="measured of each kind (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
