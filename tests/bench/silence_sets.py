"""Moments at which nothing should come to mind, and the memories in which nothing is to be found.

cross: a conversation's questions, asked in the memory of the next one. adversarial: questions whose premise is false,
in their own. unrelated: tool calls of real coding sessions, beside vaults that have nothing to do with them. smalltalk:
what people say between two requests, and strings that mean nothing, in every memory. All is found below --data by its
files; nothing here was seen by whatever fits the gate.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from eval_pools import ADVERSARIAL, DataMissing, Judged, lines, locomo
from pool_types import Pool, Row, user

from recalld_daemon.ingest.documents import Dates, parse_document
from recalld_daemon.recall.types import Focus
from recalld_daemon.worker_wire import ParsedPassage

SEED = 20260301
TOOL_CALLS = 200  # per vault and kind of session
STRINGS = 40  # that mean nothing
LETTERS = "bcdfghjklmnprstvwz", "aeiou"
TALK = """ok|go on|yes please|thanks!|perfect, thank you|sure, why not|hm, not quite|that's it for today
good evening|hello again|sorry for the delay|one moment please|I'm back|are you still there?|you can stop now
let's take a break|that was quick|I like it|not like that|almost there|please do|no, leave it as it is
can you try once more?|what do you mean by that?|is that all?|could you be more brief?|a bit shorter please
looks fine, next|same again|start over|wait, no|never mind, I found it|how are things going?
let me read that first|I'll think about it|do what you think is best|your call|both please|the first one
can you summarise what you did?|what's left to do?|anything else?|show me the result|open it again
run everything once more|ok now commit and push|apply the change|accept all|carry on with the plan
write it to a file|print the output|check that it still works|make sure that nothing broke"""


@dataclass(frozen=True, slots=True)
class Moment:
    """A focus in a memory. gold: the rows that answer it; none: silence is right. kind: the set it belongs to."""

    kind: str
    memory: str
    focus: Focus
    gold: frozenset[int] = frozenset()


@dataclass(slots=True)
class Moments:
    """pools by name; moments in the order in which they are asked."""

    pools: dict[str, Pool]
    moments: list[Moment]


def load(data: Path, most: int, named: str = "") -> Moments:
    """All sets below a directory. most: questions, or tool calls, of each set in each memory.

    named: vaults whose path holds this; "": all. Raises DataMissing.
    """
    rng = random.Random(SEED)
    talks = [judged for file in _conversations(data) for judged in locomo(file)]
    vaults = [_vault(path) for path in sorted(data.rglob("vault")) if path.is_dir() and named in str(path)]
    calls = [_calls(data), _raw_calls(data)]
    if len(talks) < 2 or not vaults or not any(calls):
        raise DataMissing(
            f"{data}: silence needs two LoCoMo conversations (found {len(talks)}), a directory named vault "
            f"({len(vaults)}) and coding sessions with tool calls ({sum(map(len, calls))}) below it"
        )
    pools = {pool.name: pool for pool in [*(judged.pool for judged in talks), *vaults]}
    moments = [*_questions(talks, most, rng)]
    for vault in vaults:
        for own in calls:
            chosen = rng.sample(own, min(len(own), TOOL_CALLS, most))
            moments += [Moment("unrelated", vault.name, focus) for focus in chosen]
    said = [user(text) for text in [*_talk(), *_nonsense(STRINGS, rng)]]
    moments += [Moment("smalltalk", name, focus) for name in pools for focus in said]
    return Moments(pools, moments)


def _questions(talks: Sequence[Judged], most: int, rng: random.Random) -> Iterator[Moment]:
    """Known, adversarial, and the same known ones in the next conversation."""
    for judged, other in zip(talks, [*talks[1:], talks[0]], strict=True):
        asks = rng.sample(judged.pool.asks, min(len(judged.pool.asks), most))
        for ask in asks:
            if ask.kind == ADVERSARIAL:
                yield Moment("adversarial", judged.pool.name, ask.focus)
            else:
                yield Moment("known", judged.pool.name, ask.focus, ask.gold)
                yield Moment("cross", other.pool.name, ask.focus)


def _conversations(data: Path) -> list[Path]:
    """LoCoMo's files, by name; `data` itself where it is one, or the directory of one."""
    if data.is_file():
        return [data]
    return sorted(data.rglob("locomo*.json"))


def _vault(path: Path) -> Pool:
    """A directory of notes, as the daemon would read it, titles and file names in their place."""
    pool = Pool(f"vault {path.parent.name}", [])
    for note in sorted(path.rglob("*.md")):
        text = note.read_text(encoding="utf-8", errors="replace")
        parsed = parse_document(io.BytesIO(text.encode()), "utf-8", 0, Dates(None, 4e9), markdown=True)
        source = str(note.relative_to(path))
        kept = (found for found in parsed if isinstance(found, ParsedPassage))
        pool.rows += [Row(p.text, source, "", p.heading, p.written_at) for p in kept]
    return pool


def _calls(data: Path) -> list[Focus]:
    """Tool calls of slimmed sessions, each with what the user and the assistant said before it."""
    found: list[Focus] = []
    for path in sorted(data.rglob("sessions_slim.jsonl*")):
        for session in lines(path):
            said = {"user": "", "assistant": ""}
            for event in session["events"]:
                if event["role"] in said and not event.get("meta"):
                    said[event["role"]] = event["text"]
                elif event["role"] == "tool_call":
                    name, _, args = event["text"].partition(": ")
                    found.append(Focus(name, args.replace(" :: ", "\n"), said["user"], said["assistant"]))
    return found


def _raw_calls(data: Path) -> list[Focus]:
    """The same of raw transcripts (main.jsonl), whose arguments are whole."""
    found: list[Focus] = []
    for path in sorted(data.rglob("main.jsonl")):
        said = {"user": "", "assistant": ""}
        for record in lines(path):
            role, content = record.get("type"), (record.get("message") or {}).get("content")
            if role not in said:
                continue
            blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks or ():
                if block.get("type") == "text":
                    said[role] = block["text"]
                elif block.get("type") == "tool_use":
                    args = json.dumps(block["input"], ensure_ascii=False)
                    found.append(Focus(block["name"], args, said["user"], said["assistant"]))
    return found


def _talk() -> list[str]:
    return [text.strip() for text in chain.from_iterable(line.split("|") for line in TALK.split("\n"))]


def _nonsense(most: int, rng: random.Random) -> list[str]:
    """Words that no language has, two to six of them."""

    def word() -> str:
        return "".join(rng.choice(LETTERS[place % 2]) for place in range(rng.randint(3, 9)))

    return [" ".join(word() for _ in range(rng.randint(2, 6))) for _ in range(most)]
