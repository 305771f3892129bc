"""What became of each race, as the agent's side sees it: pure, for `recalld demo` and `recalld replay` to print from.

It goes by what was started, what came at each boundary, and what the daemon said was settled. A race is won if
something of its recall is taken at the call's own boundary or before, slipped if at a later one, silent if its recall
ended with nothing. One not back at its own boundary is late: it may yet slip, fall silent, or go stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from recalld_client import Injection
from recalld_protocol.messages import Settled

Verdict = Literal["running", "late", "won", "slipped", "silent", "repeat", "stale", "failed"]
_ENDINGS: dict[str, Verdict] = {"silent": "silent", "repeat": "repeat", "stale": "stale", "failed": "failed"}


@dataclass(slots=True)
class RaceSeen:
    """One race: of a tool call, or of a turn (call ""). `ms`: from event to answer; `length`: the call's seconds."""

    label: str
    call: str = ""
    turn: int = 0
    length: float = 0.0
    verdict: Verdict = "running"
    recall: str = ""
    reason: str = ""
    stage: str = "none"
    ms: float = 0.0
    stage_ms: dict[str, float] = field(default_factory=dict)
    injections: list[Injection] = field(default_factory=list)
    passed: bool = False  # its own boundary has passed
    settled: bool = False  # the daemon said what became of it
    ready_any: bool = False  # some answer, or silence, was there at its own boundary
    ready_full: bool = False  # the deepest answer was


class Races:
    """All races of a session, in order."""

    def __init__(self) -> None:
        self.seen: list[RaceSeen] = []

    def turn(self, turn: int, label: str) -> RaceSeen:
        self.seen.append(RaceSeen(label, turn=turn))
        return self.seen[-1]

    def call(self, call: str, label: str) -> RaceSeen:
        self.seen.append(RaceSeen(label, call=call))
        return self.seen[-1]

    def boundary(self, own: Sequence[RaceSeen], injections: Iterable[Injection]) -> list[RaceSeen]:
        """At the boundary of `own` races these were taken. Returns the races that got something."""
        got = []
        for injection in injections:
            race = self._of(injection.calls, injection.asked_turn)
            if race is None:
                continue
            early = race in own or not race.passed
            race.verdict = "won" if early else "slipped"
            race.ready_any = race.ready_any or early
            race.recall, race.stage, race.ms = injection.recall, injection.stage, injection.ms
            race.injections.append(injection)
            got.append(race)
        for race in own:
            race.passed = True
            if race.verdict == "running":
                race.verdict = "late"
        return list({id(race): race for race in got}.values())

    def settled(self, messages: Iterable[Settled]) -> list[RaceSeen]:
        """Take in what the daemon settled; returns the races that ended by it without an injection."""
        ended = []
        for message in messages:
            for race in self._served(message):
                race.recall, race.stage, race.reason = message.recall, message.stage, message.reason
                race.settled = True
                race.stage_ms = dict(message.stage_ms)
                race.ms = race.ms or message.ms
                if race.verdict in ("running", "late") and message.outcome in _ENDINGS:
                    race.verdict = _ENDINGS[message.outcome]
                    ended.append(race)
        return ended

    def counts(self) -> Counter[str]:
        return Counter(race.verdict for race in self.seen)

    def _of(self, calls: Sequence[str], turn: int) -> RaceSeen | None:
        """The newest race that an injection serves."""
        serves = (race for race in reversed(self.seen) if race.call in calls or (turn and race.turn == turn))
        return next(serves, None)

    def _served(self, message: Settled) -> list[RaceSeen]:
        return [r for r in self.seen if (r.call and r.call in message.calls) or (r.turn and r.turn == message.turn)]
