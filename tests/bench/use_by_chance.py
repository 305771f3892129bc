"""How often chance alone looks like use: real agent sessions are watched for snippets that they were never shown.

    python tests/bench/use_by_chance.py --data DIR [--json FILE]

At moments of recorded coding sessions (entire_cli) an observer watches ten words of a passage for four boundaries, as
the daemon would; nobody showed them, so every `used` is chance. `foreign` words are of notes about other things;
`same` of another session of the same project; `near` of that one among 200 of these that shares most words with what
the conversation is about, as a recall's would. `told` is the other side: of the same snippets, the share that is told
as used when the agent repeats so many of its words in a row. Each count is of moments; intervals by bootstrap.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_tools import keep, table
from figures import cell, share_interval

from recalld_daemon import observer as ob
from recalld_daemon.recall.words import content_stems
from recalld_daemon.traces_of_use import Text, traces_of

MOMENTS = 1_500
BOUNDARIES = 4  # [learning] observed_boundaries
SNIPPET_WORDS = 10
NEAREST_OF = 200
RUNS = (2, 3, 4, 6)  # words in a row that are repeated
SESSIONS = "real/entire_cli/sessions_slim.jsonl.xz"
NOTES = "real/til_jbranchaud/vault"


@dataclass(frozen=True)
class Moment:
    """context: what the agent has before it; after: what happens then, to the fourth boundary."""

    session: int
    context: tuple[str, ...]
    after: tuple[ob.Event, ...]


def moments(sessions: Sequence[Sequence[dict[str, Any]]], random: Random) -> Iterator[Moment]:
    places = [(n, at) for n, events in enumerate(sessions) for at in range(4, len(events) - 8)]
    for number, at in random.sample(places, min(MOMENTS, len(places))):
        events = sessions[number]
        latest: dict[str, list[str]] = {}
        for event in events[:at]:
            latest.setdefault(event["role"], []).append(event["text"])
        context = (*latest.get("user", [])[-1:], *latest.get("assistant", [])[-2:], *latest.get("tool_call", [])[-8:])
        after, passed = [], 1
        for event in events[at:]:
            match event["role"]:
                case "assistant":
                    after.append(ob.Said(event["text"]))
                case "tool_call":
                    name, _, args = event["text"].partition(": ")
                    after.append(ob.ToolStarted(name, args))
                case "tool_result" | "user":
                    passed += 1
                    after += [ob.Heard(event["text"]), ob.BoundaryPassed(passed)]
            if passed > BOUNDARIES:
                break
        yield Moment(number, context, tuple(after))


def watched(moment: Moment, snippet: str) -> list[str]:
    """The verdicts on a snippet that is said to have been shown at boundary 1."""
    observer = ob.Observer(BOUNDARIES)
    shown = ob.Shown((ob.Impression("i", snippet),), 1, moment.context)
    events = (shown, ob.BoundaryPassed(1), *moment.after)
    return [verdict.verdict for event in events for verdict in observer.handle(event)]


def told(moment: Moment, snippet: str, run: int, random: Random) -> bool:
    words = snippet.split()
    at = random.randrange(max(1, len(words) - run + 1))
    said = f"I would say that {' '.join(words[at : at + run])} is what matters"
    return traces_of(snippet, map(Text, moment.context)).tells(Text(said))


def spans(texts: Sequence[str], random: Random) -> list[str]:
    """Ten words in a row of each text that has as many."""
    found = []
    for words in (text.split() for text in texts):
        if len(words) >= SNIPPET_WORDS:
            at = random.randrange(len(words) - SNIPPET_WORDS + 1)
            found.append(" ".join(words[at : at + SNIPPET_WORDS]))
    return found


def sets(
    sessions: Sequence[Sequence[dict[str, Any]]], notes: Sequence[str], random: Random
) -> dict[str, Callable[[Moment], str]]:
    own = [spans([event["text"] for event in s if event["role"] in ("assistant", "user")], random) for s in sessions]
    foreign = spans(notes, random)

    def same(moment: Moment) -> str:
        other = random.choice([n for n, lines in enumerate(own) if n != moment.session and lines])
        return random.choice(own[other])

    def near(moment: Moment) -> str:
        about = content_stems(" ".join(moment.context[:3]))
        return max((same(moment) for _ in range(NEAREST_OF)), key=lambda line: len(content_stems(line) & about))

    return {"foreign": lambda moment: random.choice(foreign), "same": same, "near": near}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with lzma.open(options.data / SESSIONS, "rt") as lines:
        sessions = [[e for e in json.loads(line)["events"] if e["text"]] for line in lines]
    notes = [path.read_text() for path in sorted((options.data / NOTES).rglob("*.md"))]
    random = Random(7)
    all_moments = list(moments(sessions, random))
    result: dict[str, Any] = {"moments": len(all_moments), "sessions": len(sessions)}
    rows: list[Sequence[object]] = [("snippet", "used by chance", "ignored", *(f"told, {run} words" for run in RUNS))]
    for name, pick in sets(sessions, notes, random).items():
        snippets = [pick(moment) for moment in all_moments]
        verdicts = [watched(moment, snippet) for moment, snippet in zip(all_moments, snippets, strict=True)]
        used = share_interval(["used" in found for found in verdicts])
        pairs = list(zip(all_moments, snippets, strict=True))
        detected = {run: share_interval([told(m, s, run, random) for m, s in pairs]) for run in RUNS}
        ends = Counter(end for found in verdicts for end in found)
        result[name] = {"used": used, "verdicts": dict(ends), "told": {str(run): d for run, d in detected.items()}}
        rows.append((name, cell(*used), ends["ignored"], *(cell(*found) for found in detected.values())))
    table(rows)
    keep(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
