"""The demo's account on the terminal: one line when something starts, one when its race is decided.

Plain text when the output is no terminal or NO_COLOR is set; what came from a memory is printed as the client rendered
it, made harmless.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, TextIO

from recalld_daemon.demo.races import Races, RaceSeen
from recalld_protocol.messages import Status

_COLOURS = {"won": "32", "slipped": "33", "late": "33", "silent": "2", "repeat": "2", "failed": "31", "stale": "2"}
_MARKS = {"won": "●", "slipped": "◐", "late": "…", "silent": "·", "repeat": "·", "failed": "×", "stale": "·"}


class Timeline:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._tty = out.isatty()
        self._colour = self._tty and "NO_COLOR" not in os.environ
        self._width = shutil.get_terminal_size((100, 24)).columns
        self._began = time.monotonic()
        self._progress = False

    def heading(self, text: str) -> None:
        self._line(self._paint("1", text))

    def progress(self, line: str) -> None:
        """One line, rewritten in place on a terminal."""
        if self._tty:
            self._out.write(f"\r\x1b[K{line[: self._width - 1]}")
            self._out.flush()
            self._progress = True
        else:
            self._line(line)

    def ready(self, status: Status) -> None:
        models, index = status.topics["models"], status.topics["index"]
        self._line(
            f"ready: {index.get('files')} files, {index.get('passages')} passages; queries encoded by "
            f"{models.get('model')} ({models.get('runtime')})\n"
        )
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        self._line(text)

    def turn(self, number: int, text: str) -> None:
        self._line(self._paint("1", f"\n{self._clock()} turn {number}  “{self._cut(text, 20)}”"))

    def said(self, text: str) -> None:
        self._line(self._paint("2", f"{self._clock()} said    {self._cut(text, 20)}"))

    def started(self, race: RaceSeen) -> None:
        self._line(f"{self._clock()} tool    {self._cut(race.label, 34)}  ({_length(race.length)})")

    def boundary(self, own: RaceSeen, got: Sequence[RaceSeen], ended: Sequence[RaceSeen]) -> None:
        """What this boundary brought: first what came from earlier races, then the race whose own boundary it was."""
        for race in [race for race in [*got, *ended] if race is not own]:
            self._verdict(race, f" of “{self._cut(race.label, 60)}”")
        if own.call or own in got:
            self._verdict(own)

    def late(self, ended: Sequence[RaceSeen]) -> None:
        for race in ended:
            self._verdict(race, f" of “{self._cut(race.label, 60)}”")

    def summary(self, races: Races, status: Status | None) -> None:
        counts = races.counts()
        shown = ("won", "slipped", "silent", "repeat", "stale", "failed", "late")
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in shown if counts[verdict])
        times = [race.ms for race in races.seen if race.ms and race.verdict in ("won", "slipped", "silent")]
        self._line(f"\n{len(races.seen)} races: {told}")
        if times:
            self._line(f"from event to answer: median {median(times):.1f} ms, slowest {max(times):.1f} ms")
        snippets = sum(len(race.injections) for race in races.seen)
        self._line(
            f"{snippets} snippets injected, {sum(len(i.text) for r in races.seen for i in r.injections)} characters"
        )
        if status is not None:
            memory = status.topics.get("memory", {})
            sizes = ", ".join(f"{name.removesuffix('_mb')} {value} MB" for name, value in memory.items())
            self._line(f"memory in use: {sizes}")

    def replayed(self, report: dict[str, Any], bad_lines: int) -> None:
        summary = report["summary"]
        told = ", ".join(f"{count} {verdict}" for verdict, count in summary["verdicts"].items())
        self._line(f"\n{summary['tool_calls']} tool calls and their turns: {told}")
        self._line(
            f"ready at its own boundary: some answer {summary['ready_any']:.1%}, "
            f"the full one {summary['ready_full']:.1%}; "
            f"from event to answer p50 {summary['ms']['p50']:.1f} ms, p95 {summary['ms']['p95']:.1f} ms"
        )
        if bad_lines:
            self._line(f"{bad_lines} lines of the session could not be read and were left out")

    def _verdict(self, race: RaceSeen, whose: str = "") -> None:
        mark, colour = _MARKS.get(race.verdict, "?"), _COLOURS.get(race.verdict, "0")
        if race.injections:
            for injection in race.injections:
                told = f"        {mark} {race.verdict}{whose} in {race.ms:.1f} ms ({race.stage})  {injection}"
                self._line(self._paint(colour, told))
            return
        if race.verdict == "late":
            told = f"        {mark} not back yet: may slip to the next boundary"
        else:
            why = f": {race.reason}" if race.reason else ""
            told = f"        {mark} {race.verdict}{whose} after {race.ms:.1f} ms{why}"
        self._line(self._paint(colour, self._cut(told, 0)))

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began:6.2f}"

    def _cut(self, text: str, less: int) -> str:
        flat = " ".join(text.split()) if less else text.rstrip()
        room = max(30, self._width - less)
        return flat if len(flat) <= room else flat[: room - 1] + "…"

    def _paint(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text

    def _line(self, text: str) -> None:
        if self._progress:
            self._out.write("\r\x1b[K")
            self._progress = False
        print(text, file=self._out, flush=True)


def _length(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
