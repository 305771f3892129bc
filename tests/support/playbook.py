"""A test that reads as the conversation it is about: `>>` something happens, `<<` the race answers.

    assert (
        play(race)
        >> TurnBegan(1, ask("ports"))
        << StartRecall("r1", ask("ports"), 1, ())
        >> Wait(30)
        >> Tick()
        << CancelRecall("r1")
    )

The script is only noted down; `assert` plays it, each event against all the answers up to the next. A difference fails
with the whole conversation, each line marked: `<<` as expected, `-<` expected but not said, `+<` said but not expected.
After each event the race's own rules are checked. A playbook can be asserted again with more lines: it goes on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recalld_daemon.race import Race
from recalld_daemon.race_events import Event, Instruction, Offer
from recalld_daemon.recall.types import Query


@dataclass(frozen=True)
class Wait:
    """Time passes, and nothing happens."""

    seconds: float


class Like(str):
    """A text that equals any text in which this pattern is found: for reasons, whose wording is not the point."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.search(str(self), other) is not None

    def __ne__(self, other: object) -> bool:
        return not self == other


def ask(words: str) -> Query:
    """A query whose key is its text."""
    return Query(words, tuple(words.split()), words)


def offer(id: str, passage: int | None = None, probability: float = 0.5) -> Offer:
    """An offer of the passage that its id ends with, unless told: offer("a7") is of passage 7."""
    return Offer(id, int(re.sub(r"\D", "", id)) if passage is None else passage, probability)


class Playbook:
    """A script, and how far it has been played. `now` is the race's clock in seconds."""

    def __init__(self, race: Race) -> None:
        self.race = race
        self.now = 0.0
        self._script: list[tuple[Event | Wait, list[Instruction]]] = []
        self._played: list[str] = []

    def __rshift__(self, event: Event | Wait) -> Playbook:
        self._script.append((event, []))
        return self

    def __lshift__(self, instruction: Instruction) -> Playbook:
        self._script[-1][1].append(instruction)
        return self

    def __bool__(self) -> bool:
        """Play what has not been played. Raises AssertionError with the conversation so far at the first difference."""
        while self._script:
            event, expected = self._script.pop(0)
            self._played.append(f">> {event}")
            said = self._say(event)
            self._played += lines_of(expected, said)
            if said != expected:
                raise AssertionError("the race went another way:\n  " + "\n  ".join(self._played))
            self.race.validate()
        return True

    def _say(self, event: Event | Wait) -> list[Instruction]:
        if isinstance(event, Wait):
            self.now += event.seconds
            return []
        return self.race.handle(event, self.now)


def lines_of(expected: list[Instruction], said: list[Instruction]) -> list[str]:
    """Both side by side: what agrees once, what differs twice."""
    lines = []
    for position in range(max(len(expected), len(said))):
        wanted, got = expected[position : position + 1], said[position : position + 1]
        if wanted == got:
            lines.append(f"<< {got[0]}")
        else:
            lines += [f"-< {one}" for one in wanted] + [f"+< {one}" for one in got]
    return lines


def play(race: Race) -> Playbook:
    return Playbook(race)
