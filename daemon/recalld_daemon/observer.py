"""What an agent made of what it was shown: one session, sans-IO. Events in, verdicts out.

Each snippet is watched for some boundaries after it was shown; what was withheld at random is watched alike, from the
boundary at which it would have been shown, and tells how often the same happens without us. Verdicts:

- `acted`: a later tool call opens that file. Opening what it had open already tells nothing, for or against.
- `used`: it later says, or puts into a tool call, what only the snippet said (`tells`).
- `ignored`: the agent was seen at work to the last of those boundaries, and did neither.
- `unknown`: it was not seen at work, some of it was missed, or the session ended. Never a label.

The first two may both come, each once; the others end a watch without them. What the user, a tool's result or another
snippet says meanwhile is no longer what only this snippet said. A watch lives in memory: a daemon that restarts has
lost it, and what was shown before stays without a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, assert_never

from recalld_daemon.recall.query import opened_by
from recalld_daemon.recall.types import Focus
from recalld_daemon.traces_of_use import Text, Traces, same_file, traces_of

Told = Literal["acted", "used", "ignored", "unknown"]
MAX_WATCHED = 64  # per session, a few hundred bytes each: sixteen full boundaries; the oldest give way, `unknown`


@dataclass(frozen=True, slots=True)
class Impression:
    """What is to be watched. paths: the file's names, absolute and as shown; none: it can't be opened."""

    id: str
    text: str
    paths: tuple[str, ...] = ()


# ---------------------------------------------------------------- events: what happened


@dataclass(frozen=True, slots=True)
class Shown:
    """Shown at `boundary`, or withheld from it. context: all that the agent had before it then, the query too."""

    impressions: tuple[Impression, ...]
    boundary: int
    context: tuple[str, ...] = ()
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The agent calls a tool, none of ours. cwd: where it works."""

    name: str
    args: str
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """The assistant said something."""

    text: str


@dataclass(frozen=True, slots=True)
class Heard:
    """Something else came before the agent: what the user said, the head of a tool's result."""

    text: str


@dataclass(frozen=True, slots=True)
class BoundaryPassed:
    number: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Something may have happened that was not seen, or the agent has lost what it was shown (a compaction)."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What these showed is forgotten: nothing is made of them any more."""

    impressions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Closed:
    """The session is over."""


Event = Shown | ToolStarted | Said | Heard | BoundaryPassed | Missed | Forgotten | Closed


@dataclass(frozen=True, slots=True)
class Verdict:
    impression: str
    verdict: Told
    withheld: bool = field(default=False, compare=False)


# ---------------------------------------------------------------- the observer


@dataclass(slots=True)
class _Watch:
    """`since`: the boundary from which on the agent could know it; `until`: the one that ends the watch."""

    impression: Impression
    since: int
    until: int
    withheld: bool
    traces: Traces
    familiar: bool  # its file was open before
    told: set[Told] = field(default_factory=set)
    seen: bool = False  # the agent was at work since
    unclear: bool = False  # what it did can't be told from what it would have done


class Observer:
    """observed_boundaries: for how many a snippet is watched. While nothing is, events need not be told."""

    def __init__(self, observed_boundaries: int = 4) -> None:
        self._boundary = 0  # the last one known to have passed, while anything is watched
        self._observed = observed_boundaries
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        """How many impressions are watched."""
        return len(self._watches)

    def handle(self, event: Event) -> list[Verdict]:
        """The verdicts that follow, each once for each impression."""
        match event:
            case Shown():
                return self._shown(event)
            case _ if not self._watches:
                return []
            case ToolStarted(name, args, cwd):
                return self._opened(name, args, cwd) + self._spoke(f"{name} {args}")
            case Said(text):
                return self._spoke(text)
            case Heard(text):
                heard = Text(text)
                for watch in self._watches.values():
                    watch.traces.not_alone(heard)
                return []
            case BoundaryPassed(number):
                return self._passed(number)
            case Missed():
                for watch in self._watches.values():
                    watch.unclear = True
                return []
            case Forgotten(impressions):
                for id in impressions & self._watches.keys():
                    del self._watches[id]
                return []
            case Closed():
                return self._end(list(self._watches.values()), lost=True)
            case _:
                assert_never(event)

    def _shown(self, event: Shown) -> list[Verdict]:
        if not self._watches:
            self._boundary = event.boundary - 1  # it passes after what it shows
        if not event.withheld:  # what was withheld before is no news any more if this says it
            for watch in (watch for watch in self._watches.values() if watch.withheld):
                for impression in event.impressions:
                    watch.traces.not_alone(Text(impression.text))
        context = [Text(text) for text in event.context]
        for impression in event.impressions:
            if impression.id in self._watches:
                continue
            familiar = any(_mentions(text, impression.paths) for text in event.context)
            self._watches[impression.id] = _Watch(
                impression, event.boundary, event.boundary + self._observed, event.withheld,
                traces_of(impression.text, context), familiar,
            )  # fmt: skip
        return self._end(list(self._watches.values())[:-MAX_WATCHED], lost=True)

    def _opened(self, name: str, args: str, cwd: str) -> list[Verdict]:
        files = opened_by(Focus(name, args))
        verdicts = []
        for watch in self._watches.values() if files else ():
            if any(same_file(file, path, cwd) for file in files for path in watch.impression.paths):
                if self._boundary < watch.since:  # before it could be known: from then on it is nothing new
                    watch.familiar = True
                elif watch.familiar:
                    watch.unclear = True
                else:
                    verdicts += self._tell(watch, "acted")
        return verdicts

    def _spoke(self, text: str) -> list[Verdict]:
        verdicts, said = [], Text(text)
        for watch in list(self._watches.values()):
            if self._boundary < watch.since:
                watch.traces.not_alone(said)
                continue
            watch.seen = True
            if "used" not in watch.told and watch.traces.tells(said):
                verdicts += self._tell(watch, "used")
        return verdicts

    def _passed(self, number: int) -> list[Verdict]:
        """A number that goes back was lost with the client's process; one that leaps: some of it was not seen."""
        shift = min(0, number - self._boundary)
        leapt = number > self._boundary + 1
        self._boundary = number
        for watch in self._watches.values():
            watch.since, watch.until = watch.since + shift, watch.until + shift
            watch.unclear = watch.unclear or leapt
        return self._end([watch for watch in self._watches.values() if number >= watch.until])

    def _tell(self, watch: _Watch, told: Told) -> list[Verdict]:
        if told in watch.told:
            return []
        watch.told.add(told)
        return [Verdict(watch.impression.id, told, watch.withheld)]

    def _end(self, watches: Iterable[_Watch], lost: bool = False) -> list[Verdict]:
        verdicts = []
        for watch in watches:
            del self._watches[watch.impression.id]
            if not watch.told:
                known = watch.seen and not watch.unclear and not lost
                verdicts += self._tell(watch, "ignored" if known else "unknown")
        return verdicts


def _mentions(text: str, paths: tuple[str, ...]) -> bool:
    return any(path.rpartition("/")[2] in text for path in paths)
