"""`recalld demo`: a real daemon over the sample memory, a scripted agent, and a live account of every race."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import resources
from pathlib import Path

from recalld_client import Session
from recalld_daemon.demo.private import DidNotStart, PrivateDaemon, private_daemon, wait_until_indexed
from recalld_daemon.demo.races import Races, RaceSeen
from recalld_daemon.demo.script import Said, Script, ScriptedTurn, ToolCall, load_script
from recalld_daemon.demo.timeline import Timeline

THINKING_SECONDS = 0.4  # the scripted model's, between two steps; real ones take seconds
FAST = 0.15  # of a long call's length, with --fast
SHORT_SECONDS = 0.1  # calls up to this keep their length with --fast: they are what races are about


def run_demo(fast: bool = False, json_file: Path | None = None) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    timeline = Timeline(sys.stdout)
    script = load_script()
    try:
        with _sample_memory() as memory, private_daemon([memory / "notes", memory / "sessions"]) as daemon:
            timeline.heading("recalld demo: an agent at work, and what comes to its mind")
            status = wait_until_indexed(daemon, timeline.progress)
            timeline.ready(status)
            races = play(script, daemon, timeline, FAST if fast else 1.0)
            timeline.summary(races, daemon.status())
    except DidNotStart as error:
        print(f"recalld demo: {error}", file=sys.stderr)
        return 1
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(race) for race in races.seen], indent=1, default=str) + "\n")
    return 0


@contextmanager
def _sample_memory() -> Iterator[Path]:
    """A copy, since what is watched should be the user's to look at and change while the demo runs."""
    with tempfile.TemporaryDirectory(prefix="recalld-demo-") as directory:
        memory = Path(directory) / "tidewater"
        with resources.as_file(resources.files(__package__).joinpath("sample")) as sample:
            shutil.copytree(sample, memory)
        yield memory


def play(script: Script, daemon: PrivateDaemon, timeline: Timeline, pace: float) -> Races:
    races = Races()
    with Session("demo", cwd=script.cwd, endpoints=daemon.endpoints) as session:
        if not session.connect(5.0):
            raise DidNotStart(f"the client can't connect: {session.problem}")
        for number, turn in enumerate(script.turns, 1):
            _play_turn(session, number, turn, races, timeline, pace)
        timeline.late(_settle(session, races, 1.0))
    return races


def _play_turn(
    session: Session, number: int, turn: ScriptedTurn, races: Races, timeline: Timeline, pace: float
) -> None:
    timeline.turn(number, turn.text)
    session.turn(turn.text)
    race = races.turn(number, f"turn {number}")
    timeline.boundary(race, races.boundary([race], session.boundary()), [])
    for step in turn.steps:
        time.sleep(THINKING_SECONDS * pace)
        if isinstance(step, Said):
            session.said(step.text)
            timeline.said(step.text)
        else:
            _play_call(session, step, races, timeline, pace)


def _play_call(session: Session, step: ToolCall, races: Races, timeline: Timeline, pace: float) -> None:
    seconds = step.seconds if step.seconds <= SHORT_SECONDS else step.seconds * pace
    call = session.tool_started(step.name, step.args)
    race = races.call(call.id, f"{step.name} {step.args}")
    race.length = seconds
    timeline.started(race)
    time.sleep(seconds)
    session.tool_ended(call, step.result, step.ok)
    got = races.boundary([race], session.boundary())
    timeline.boundary(race, got, races.settled(session.outcomes()))


def _settle(session: Session, races: Races, seconds: float) -> list[RaceSeen]:
    """What is still under way when the agent stops: wait for it, so that every race has an end."""
    ended: list[RaceSeen] = []
    deadline = time.monotonic() + seconds
    while any(race.verdict in ("running", "late") for race in races.seen) and time.monotonic() < deadline:
        got = races.boundary([], session.boundary(wait_seconds=0.05))
        ended += got + races.settled(session.outcomes())
        time.sleep(0.02)
    return ended
