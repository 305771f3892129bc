"""How many tool calls of recorded sessions have their recall ready at their own boundary?

    python tests/bench/replay_wins.py --sessions DIR --passages 100000 [--data DIR] [--home DIR] [--json FILE]

Each session (Claude Code JSONL, searched below DIR) is replayed at pace `none` against a daemon that holds that many
passages; a race is decided by the recorded length of its call. `won_any`: some answer, or silence, was decided in time;
`won_full`: the deepest stage was. All passages are in view: nothing is made easy by dates.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_corpus import corpus, default_data, varied, write_notes
from bench_tools import keep, spread, table

from recalld_daemon.demo.private import private_daemon, wait_until_indexed
from recalld_daemon.demo.races import RaceSeen
from recalld_daemon.replay.recording import NotASession, Recording, StartStep, TurnStep, read_recording
from recalld_daemon.replay.runner import replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=Path, action="append", required=True, help="repeatable")
    parser.add_argument("--data", type=Path, default=default_data(), help="where real text is (%(default)s)")
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--home", type=Path, help="keep indexed passages below this directory")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    files = sorted(path for root in arguments.sessions for path in root.rglob("*.jsonl"))
    with tempfile.TemporaryDirectory() as scratch:
        base = (arguments.home or Path(scratch)) / str(arguments.passages)
        if not (base / "notes").is_dir():
            write_notes(varied(corpus(arguments.data), arguments.passages), base / "notes")
        with private_daemon([base / "notes"], base / "home") as daemon:
            wait_until_indexed(daemon, lambda line: print(f"\r{line}", end="", flush=True))
            print()
            races = [race for path in files for race in replayed(path, daemon.endpoints)]
    result = figures(races)
    table([["won_any", "won_full", "n", "silent", "repeat", "late_ms"], list(result.values())])
    keep(result, arguments.json)


def replayed(path: Path, where: Any) -> list[RaceSeen]:
    try:
        races = replay(undated(read_recording(path)), where)
    except NotASession as error:
        print(error)
        return []
    return [race for race in races.seen if race.call and race.passed]


def undated(recording: Recording) -> Recording:
    """Without its moments: a recall then looks through all passages, as it would have on the day."""
    steps = [replace(step, at=None) if isinstance(step, TurnStep | StartStep) else step for step in recording.steps]  # type: ignore[arg-type]
    return replace(recording, steps=steps)


def figures(races: list[RaceSeen]) -> dict[str, Any]:
    full = [max(race.stage_ms.values()) for race in races if race.stage_ms]
    return {
        "won_any": round(sum(race.ready_any for race in races) / len(races), 4),
        "won_full": round(sum(race.ready_full for race in races) / len(races), 4),
        "n": len(races),
        "silent": sum(race.verdict == "silent" for race in races),
        "repeat": sum(race.verdict == "repeat" for race in races),
        "late_ms": spread(full),
    }


if __name__ == "__main__":
    main()
