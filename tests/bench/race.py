"""The race over the real socket: how long from an event to its injection, and what it costs the agent and the daemon.

    python tests/bench/race.py --passages 10000,100000 [--data DIR] [--home DIR] [--json FILE]

For each size a daemon of its own indexes real passages (repeated and varied to reach the size; `--home` keeps them for
the next run), then a client makes tool calls one after the other and waits for each answer. `late_ms` and `full_ms` are
from the event's arrival in the daemon to that stage's gated answer, snippets cut; `fused_ms` is the same in a daemon
without late interaction, since one with it judges a fused answer only where the late one is late. `stages_ms` is what
each lane and stage takes by itself, over the same home in this process, after the daemon has gone. `settled_ms` is the
client's own clock, from its call to the last message; `after_pause_ms` the same after a second of quiet. Jitter is
measured from outside, as the delay of a `ping` beyond the median while the bulk worker indexes. It begins when every
passage has its vector; vectors of facts, which come after those, may be missing still, and the table says how many
there were.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_corpus import corpus, default_data, queries, varied, write_notes
from bench_stages import stage_times
from bench_tools import keep, quantile, spread, table

from recalld_client import Session
from recalld_daemon.demo.private import PrivateDaemon, is_settled, private_daemon, progress_line
from recalld_protocol.messages import Ping, Settled, Status

PROBES = 310
PAUSED_PROBES = 40
BOUNDARIES = 3000
PAUSE_SECONDS = 0.01  # between two calls; a real agent pauses longer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="where real text is (%(default)s)")
    parser.add_argument("--passages", default="10000,100000")
    parser.add_argument("--home", type=Path, help="keep indexed passages below this directory")
    parser.add_argument("--encoder", default="default", help="as in the configuration (%(default)s)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    texts = corpus(arguments.data)
    with tempfile.TemporaryDirectory() as scratch:
        base = arguments.home or Path(scratch)
        sizes = [int(size) for size in arguments.passages.split(",")]
        results = {str(size): measure(size, texts, base / str(size), arguments.encoder) for size in sizes}
    print()
    table([["passages", *next(iter(results.values()))]] + [[size, *row.values()] for size, row in results.items()])
    keep(results, arguments.json)


def measure(size: int, texts: list[str], base: Path, encoder: str) -> dict[str, Any]:
    notes, flags = base / "notes", ["--encoder", encoder]
    if not notes.is_dir():
        write_notes(varied(texts, size), notes)
    fresh = not (base / "home").is_dir()  # with nothing left to index there is no jitter to measure
    with private_daemon([notes], base / "home", flags) as daemon:
        delays = wait_and_ping(daemon, size) if fresh else []
    began = time.monotonic()
    with private_daemon([notes], base / "home", flags) as daemon:
        ready = time.monotonic() - began
        wait_and_ping(daemon, size)
        answering = time.monotonic() - began
        races = race(daemon, queries(texts, PROBES))
        paused = race(daemon, queries(texts, PAUSED_PROBES, seed=5), pause_seconds=1.0)
        empty, one = boundaries(daemon, queries(texts, PROBES, seed=11))
        status = daemon.status()
    with private_daemon([notes], base / "home", [*flags, "--no-late-interaction"]) as daemon:
        wait_and_ping(daemon, size)
        races["fused"] = race(daemon, queries(texts, PROBES))["fused"]
    assert status is not None
    stages, facts = stage_times(base / "home", encoder, queries(texts, PROBES))
    middle = statistics.median(delays) if delays else 0.0
    return {
        "passages_indexed": status.topics["index"]["passages"],
        **{f"{stage}_ms": spread(times) for stage, times in races.items()},
        "stages_ms": stages,
        "fact_vectors": facts,
        "after_pause_ms": spread(paused["settled"]),
        "boundary_empty_us": spread(empty, 50, 99),
        "boundary_one_us": spread(one, 50, 99),
        "jitter_ms_p99": round(quantile([delay - middle for delay in delays], 0.99), 3) if delays else None,
        "rss_mb": round(sum(float(size or 0) for size in status.topics["memory"].values()), 1),
        "rss_by_process_mb": dict(status.topics["memory"]),
        "ready_s": round(ready, 2),
        "answering_s": round(answering, 2),
    }


def wait_and_ping(daemon: PrivateDaemon, size: int) -> list[float]:
    """Wait until all is indexed; meanwhile ask for a sign of life, and say how long each took (ms)."""
    delays: list[float] = []
    last = began = time.monotonic()
    while True:
        at = time.perf_counter()
        daemon.link.request(Ping(), 10.0)
        delays.append((time.perf_counter() - at) * 1000)
        time.sleep(0.005)
        if time.monotonic() - last > 2.0:
            last = time.monotonic()
            status = daemon.status()
            if status is not None:
                print(f"\r{size}: {progress_line(status)}  {last - began:.0f} s", end="", flush=True)
                if is_searchable(status) and status.topics["models"]["bulk_state"] == "ready":
                    print()
                    return delays


def is_searchable(status: Status) -> bool:
    """Whether every passage can be found by meaning; facts come after passages."""
    index = status.topics["index"]
    all_embedded = index.get("embedded") == index.get("passages") and index.get("files_done") == index.get(
        "files_total"
    )
    return is_settled(status) or (status.topics["models"].get("state") == "ready" and bool(all_embedded))


def race(daemon: PrivateDaemon, asked: list[str], pause_seconds: float = PAUSE_SECONDS) -> dict[str, list[float]]:
    """One tool call after the other, each waited for; stage -> ms. The first ten warm up."""
    times: dict[str, list[float]] = {"fused": [], "late": [], "full": [], "settled": []}
    with Session("bench", cwd="/", endpoints=daemon.endpoints) as session:
        assert session.connect(5.0), session.problem
        for text in asked:
            time.sleep(pause_seconds)
            began = time.perf_counter()
            call = session.tool_started("Bash", text)
            settled = settled_of(session, call.id)
            times["settled"].append((time.perf_counter() - began) * 1000)
            session.tool_ended(call, "", True)
            session.boundary()
            for stage, ms in settled.stage_ms.items():
                times[stage].append(ms)
            if settled.stage_ms:
                times["full"].append(max(settled.stage_ms.values()))
    return {stage: values[10:] for stage, values in times.items()}


def settled_of(session: Session, call: str) -> Settled:
    """Wait for what became of a call's recall, as its tool would: asleep."""
    while True:
        for settled in session.outcomes():
            if call in settled.calls:
                return settled
        session.wait(1.0)


def boundaries(daemon: PrivateDaemon, asked: list[str]) -> tuple[list[float], list[float]]:
    """Cost of `boundary()` in microseconds: with nothing there, and with something."""
    empty: list[float] = []
    one: list[float] = []
    with Session("bench-boundary", cwd="/", endpoints=daemon.endpoints) as session:
        assert session.connect(5.0), session.problem
        for _ in range(BOUNDARIES):
            began = time.perf_counter()
            session.boundary()
            empty.append((time.perf_counter() - began) * 1e6)
        for text in asked:
            call = session.tool_started("Bash", text)
            settled_of(session, call.id)
            session.tool_ended(call, "", True)
            began = time.perf_counter()
            taken = session.boundary()
            if taken:
                one.append((time.perf_counter() - began) * 1e6)
    return empty, one


if __name__ == "__main__":
    main()
