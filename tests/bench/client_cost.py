"""What the client costs an agent: the empty boundary, one with an injection waiting, the sends, the import.

    python tests/bench/client_cost.py [--rounds N] [--json FILE]

A scripted daemon answers from another process. Times are of single calls, in microseconds; "idle" ones follow a pause
of 4 ms, as between the events of a real agent, in which caches cool and threads sleep. The goal: p50 of the empty
boundary <= 20.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from recalld_client import Session
from recalld_protocol.endpoints import endpoints_in
from scripted_daemon import PATIENCE_SECONDS, child_daemon, short_directory

PAUSE_SECONDS = 0.004
Row = dict[str, float]


def measure(rounds: int) -> dict[str, Row]:
    """Name -> p50 and p99 in microseconds, with a daemon there and without."""
    with short_directory() as directory:
        rows = {f"{name}, no daemon": row for name, row in _calls(directory, rounds, boundary_only=True).items()}
        with child_daemon(directory):
            rows |= _calls(directory, rounds, boundary_only=False)
    rows["import recalld_client"] = _percentiles([_import_us("recalld_client") for _ in range(9)])
    rows["import zmq (first session)"] = _percentiles([_import_us("zmq") for _ in range(9)])
    return rows


def _calls(directory: Path, rounds: int, boundary_only: bool) -> dict[str, Row]:
    with Session("bench", endpoints=endpoints_in(directory)) as session:
        if boundary_only:
            return {"boundary, empty": _timed(session.boundary, rounds), **_started(session, rounds)}
        assert session.connect(PATIENCE_SECONDS)
        return {
            "boundary, empty": _timed(session.boundary, rounds),
            "boundary, empty, idle": _timed(session.boundary, rounds // 8, lambda: time.sleep(PAUSE_SECONDS)),
            "boundary, one waiting": _timed(session.boundary, rounds // 4, lambda: _provoke(session)),
            **_started(session, rounds // 4),
            "tool_started, idle": _timed(
                lambda: session.tool_started("bash", "git push"), rounds // 8, lambda: time.sleep(PAUSE_SECONDS)
            ),
        }


def _started(session: Session, rounds: int) -> dict[str, Row]:
    """Rounds of few enough messages that the daemon's process keeps up."""
    return {
        "tool_started": _timed(
            lambda: session.tool_started("bash", {"command": "git push"}), rounds, lambda: _drain(session)
        )
    }


def _provoke(session: Session) -> None:
    """Have the daemon send an injection, and wait until it can be received; its `settled` comes right behind."""
    session.turn("something new")
    session._correspondence.link.wait(PATIENCE_SECONDS)


def _drain(session: Session) -> None:
    session.boundary(wait_seconds=0.001)


def _timed(call: Callable[[], object], rounds: int, before: Callable[[], object] = lambda: None) -> Row:
    times = []
    for _ in range(max(rounds, 50)):
        before()
        begun = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - begun) / 1_000)
    return _percentiles(times)


def _percentiles(times: list[float]) -> Row:
    ranked = sorted(times)
    return {"p50": round(ranked[len(ranked) // 2], 2), "p99": round(ranked[int(len(ranked) * 0.99)], 2)}


def _import_us(module: str) -> float:
    """In a fresh interpreter, without the interpreter's own start."""
    code = f"import time; t = time.perf_counter(); import {module}; print((time.perf_counter() - t) * 1e6)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4_000, help="calls of the cheapest kind (default 4000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, in microseconds")
    chosen = parser.parse_args()
    rows = measure(chosen.rounds)
    print(f"{'call':<28}{'p50 us':>12}{'p99 us':>12}")
    for name, row in rows.items():
        print(f"{name:<28}{row['p50']:>12.1f}{row['p99']:>12.1f}")
    if chosen.json:
        numbers = {"boundary_empty_us": rows["boundary, empty"], "boundary_one_us": rows["boundary, one waiting"]}
        chosen.json.write_text(json.dumps(numbers | {"calls": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
