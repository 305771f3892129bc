"""Real text in any quantity: paragraphs of the evaluation data, repeated with variations until there are enough.

A variation swaps numbers and moves sentences, so that no two passages have the same hash and each must be embedded.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BESIDE = Path(__file__).parents[3] / "shared" / "data"  # evaluation data, where a checkout has it beside it
SAMPLE = Path(__file__).parents[2] / "daemon" / "recalld_daemon" / "demo" / "sample"
WORDS = 72  # about 100 tokens
PER_FILE = 50


def default_data() -> Path:
    """Where real text is: beside the checkout, else the sample memory that ships, repeated and varied all the more."""
    return BESIDE if BESIDE.is_dir() else SAMPLE


def corpus(data: Path) -> list[str]:
    """Passages of about 100 tokens from below `data`: Markdown, and the `.jsonl.xz` question and meeting sets."""
    texts = [path.read_text(errors="replace") for path in sorted(data.rglob("*.md"))]
    for path in sorted(data.glob("ir/*.jsonl.xz")):
        with lzma.open(path, "rt") as lines:
            texts += [text for line in lines for text in _texts(json.loads(line))]
    passages = [" ".join(words) for text in texts for words in _windows(text.split())]
    if not passages:
        raise SystemExit(f"{data}: no Markdown and no ir/*.jsonl.xz below it")
    random.Random(7).shuffle(passages)
    return passages


def _texts(row: dict[str, Any]) -> Iterator[str]:
    if "passage" in row:
        yield str(row["passage"])
    elif "turns" in row:
        yield " ".join(str(text) for _, text in row["turns"])
    elif "examples" in row:
        yield f"{row['desc']} " + " ".join(f"{what}: {command}" for what, command in row["examples"])


def _windows(words: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(words), WORDS):
        if len(piece := words[start : start + WORDS]) >= WORDS // 2:
            yield piece


def varied(passages: list[str], count: int, seed: int = 1) -> Iterator[str]:
    """`count` passages: each of the given ones as it is, then variations of them."""
    chance = random.Random(seed)
    for number in range(count):
        text = passages[number % len(passages)]
        yield text if number < len(passages) else _vary(text, chance)


def _vary(text: str, chance: random.Random) -> str:
    sentences = re.split(r"(?<=[.!?]) ", text)
    chance.shuffle(sentences)
    words = re.sub(r"\d+", lambda found: str(chance.randrange(10 ** len(found[0]))), " ".join(sentences)).split()
    for _ in range(3):
        words.insert(chance.randrange(len(words)), chance.choice(words))
    return " ".join(words)


def write_notes(passages: Iterator[str], into: Path) -> int:
    """Markdown files of PER_FILE sections, one passage each. Returns how many passages."""
    into.mkdir(parents=True, exist_ok=True)
    number, section = 0, []
    for number, text in enumerate(passages, 1):
        title = " ".join(text.split()[:4]).strip("#*`-:. ")
        section.append(f"## {title}\n\n{text}\n")
        if len(section) == PER_FILE:
            (into / f"notes-{number // PER_FILE:05}.md").write_text("\n".join(section))
            section = []
    if section:
        (into / "notes-last.md").write_text("\n".join(section))
    return number


def queries(passages: list[str], count: int, seed: int = 3) -> list[str]:
    """What an agent might do about them: a few words from the middle of passages."""
    chance = random.Random(seed)
    picked = chance.sample(passages, min(count, len(passages)))
    return [" ".join(text.split()[10 : 10 + chance.randrange(6, 14)]) for text in picked]
