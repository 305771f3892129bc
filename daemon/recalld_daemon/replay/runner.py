"""`recalld replay`: a recorded session through the real client to a real daemon, race by race.

With pace `recorded` the steps keep their moments (long pauses between calls are cut), and a race is what it was: what
is there at the boundary is taken. With pace `none` each call waits for its recall to be settled, and its race is
decided by comparing the time of each stage with the call's recorded length; that measures the same race without the
waiting. Every event carries the moment at which it was recorded, so only what was written before can be recalled.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from recalld_client import Session
from recalld_daemon.demo.private import DidNotStart, private_daemon, wait_until_indexed
from recalld_daemon.demo.races import Races, RaceSeen
from recalld_daemon.demo.timeline import Timeline
from recalld_daemon.paths import home_under
from recalld_daemon.replay.recording import (
    BoundaryStep,
    EndStep,
    NotASession,
    Recording,
    SaidStep,
    StartStep,
    Step,
    TurnStep,
    read_recording,
)
from recalld_daemon.replay.report import report_of
from recalld_daemon.store.reader import open_reader
from recalld_protocol.endpoints import Endpoints

SETTLE_SECONDS = 10.0  # a recall takes milliseconds; one that never settles must not hang a replay
PAUSE_SECONDS = 3.0  # longest pause between two steps while no call runs, with pace "recorded"


def run_replay(
    session_file: Path,
    memory: Sequence[Path],
    *,
    recorded_pace: bool = False,
    json_file: Path | None = None,
    home: Path | None = None,
    undated: bool = False,
    limit: int = 0,
) -> int:
    """Exit code 0; 2 for a session or memory that can't be used, 1 when the daemon fails."""
    timeline = Timeline(sys.stdout)
    try:
        recording = read_recording(session_file)
        for directory in memory:
            if not directory.exists():
                raise NotASession(f"--memory {directory}: no such directory")
        flags = ["--undated", "always"] if undated else []
        with private_daemon([path.absolute() for path in memory], home, flags) as daemon:
            timeline.heading(f"replay of {session_file.name}: {len(recording.steps)} steps")
            timeline.ready(wait_until_indexed(daemon, timeline.progress))
            tell_what_is_later(recording, daemon.home, timeline)
            races = replay(recording, daemon.endpoints, timeline, recorded_pace, limit)
    except BrokenPipeError:
        raise
    except NotASession as error:
        print(f"recalld replay: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"recalld replay: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except DidNotStart as error:
        print(f"recalld replay: {error}", file=sys.stderr)
        return 1
    report = report_of(races)
    timeline.replayed(report, len(recording.bad_lines))
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def tell_what_is_later(recording: Recording, home: Path, timeline: Timeline) -> None:
    """A replay that recalls nothing because all was written after it should say so."""
    ends = recording.steps[-1].at
    with open_reader(home_under(home).database) as reader:
        earlier, all_passages = reader.written_before(ends), reader.counts()["passages"]
    if earlier < all_passages:
        timeline.note(
            f"{all_passages - earlier} of {all_passages} passages were written after this session ended and can't be "
            "recalled; --undated takes those without a date of their own for older"
        )


def replay(
    recording: Recording,
    where: Endpoints,
    timeline: Timeline | None = None,
    recorded_pace: bool = False,
    limit: int = 0,
) -> Races:
    """The races of a recording against the daemon at `where`."""
    session_id = recording.session or "replayed"
    with ExitStack() as stack:
        session = stack.enter_context(
            Session("replay", cwd=recording.cwd or ".", session_id=session_id, endpoints=where)
        )
        if not session.connect(5.0):
            raise DidNotStart(f"the client can't connect: {session.problem}")
        player = _Player(session, timeline, recorded_pace)
        player.play(recording.steps, limit)
        return player.races


class _Player:
    def __init__(self, session: Session, timeline: Timeline | None, recorded_pace: bool) -> None:
        self.races = Races()
        self._session, self._timeline, self._recorded_pace = session, timeline, recorded_pace
        self._turns = 0
        self._open: dict[str, RaceSeen] = {}
        self._by_call: dict[str, RaceSeen] = {}
        self._turn_race: RaceSeen | None = None

    def play(self, steps: Sequence[Step], limit: int) -> None:
        before = steps[0].at if steps else 0.0
        for step in steps:
            if self._recorded_pace:
                gap = step.at - before
                time.sleep(max(0.0, gap if self._open else min(gap, PAUSE_SECONDS)))
            before = step.at
            self._step(step)
            if limit and len(self._by_call) >= limit and not self._open:
                break
        self._wait_settled([race for race in self.races.seen if race.verdict in ("running", "late")])

    def _step(self, step: Step) -> None:
        match step:
            case TurnStep(at, text):
                self._turns += 1
                self._session.turn(text, as_of=at)
                self._turn_race = self.races.turn(self._turns, f"turn {self._turns}")
                if self._timeline:
                    self._timeline.turn(self._turns, text)
                self._settle_now(self._turn_race)
            case SaidStep(_, text):
                self._session.said(text)
            case StartStep(at, call, name, args):
                started = self._session.tool_started(name, args, call_id=call, as_of=at)
                race = self.races.call(started.id, f"{name} {' '.join(map(str, args.values()))}")
                self._open[call] = self._by_call[call] = race
                self._settle_now(race)
            case EndStep(_, call, ok, result, seconds):
                race = self._open.pop(call)
                race.length = seconds
                self._session.tool_ended(race.call, result, ok)
            case BoundaryStep(_, calls):
                self._boundary(calls)

    def _boundary(self, calls: tuple[str, ...]) -> None:
        own = [self._by_call[call] for call in calls if call in self._by_call]
        if not calls and self._turn_race is not None:
            own = [self._turn_race]
        got = self.races.boundary(own, self._session.boundary())
        ended = self.races.settled(self._session.outcomes())
        if not self._recorded_pace:
            for race in own:
                decide(race)
        if self._timeline is None:
            return
        for race in own:
            if race.call:
                self._timeline.started(race)
            elif race.verdict == "silent":
                self._timeline.late([race])
            self._timeline.boundary(race, got if race is own[0] else [], ended if race is own[0] else [])

    def _settle_now(self, race: RaceSeen) -> None:
        if not self._recorded_pace:
            self._wait_settled([race])

    def _wait_settled(self, races: Sequence[RaceSeen]) -> None:
        """Until the daemon has said what became of these (not merely that they were taken)."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while any(not race.settled for race in races) and time.monotonic() < deadline:
            self._session.wait(0.05)
            self.races.settled(self._session.outcomes())


def decide(race: RaceSeen) -> None:
    """With pace "none": was the answer there within the call's recorded length? A turn's own boundary is at once."""
    length_ms = race.length * 1000 if race.call else 0.0
    ready = {stage: ms for stage, ms in race.stage_ms.items() if ms <= length_ms}
    race.ready_any = bool(ready) or race.verdict == "repeat"
    race.ready_full = race.verdict == "repeat" or (bool(race.stage_ms) and len(ready) == len(race.stage_ms))
    if race.injections:
        race.verdict = "won" if ready else "slipped"
        race.stage = max(ready, key=lambda stage: ready[stage]) if ready else race.stage
