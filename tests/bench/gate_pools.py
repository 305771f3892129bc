"""The pools and questions that the gate is fitted on and judged by: public notes, pages, sessions, with their labels.

A pool is a memory of passages; a question is a focus with the passages that answer it (none: nothing here does). What
has no permissive licence (LoCoMo) is for judging only and never reaches a fit. Everything is drawn with a given seed.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recalld_daemon.recall.types import Focus

CHUNK_WORDS = 75  # about 100 tokens
SMALLTALK = """ok cool|thanks a lot, that works|please go on with it|hm let me think|sounds good to me|what now?
try again please|can you check the test please|please check the test|fix it|run it again|why not
looks good, ship it|do the next one|good morning, how are you today?|never mind|that is not what I meant
can you explain that again?|I will be back later|open the file|check the file again
please continue with the next step|show me the code|is it done yet?|yes do that|great work so far|wait a moment
what do you think?|make it better|clean this up a bit|same as before|rename it|undo the last change
add a comment here|remove this line|update the readme|write a test for this function|run the tests
what does this function do?|where is this defined?|fix the failing test|bump the version|format the code
commit this"""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question. gold: indexes into the pool's passages; hidden: indexes that this question must not see."""

    kind: str
    focus: Focus
    gold: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()


@dataclass(slots=True)
class Pool:
    """A memory: passages' texts and the questions about it that have an answer in it."""

    name: str
    texts: list[str]
    asks: list[Ask] = field(default_factory=list)


def user(text: str) -> Focus:
    return Focus(user_text=text)


def fit_pools(data: Path, cap: int, seed: int) -> list[Pool]:
    """The permissively licensed pools, at most `cap` passages and some hundred questions each."""
    pools = [make(data, cap, random.Random(seed)) for make in (til_pool, wiki_pool, tldr_pool, entire_pool)]
    return [unrepeated(pool) for pool in pools]


def unrepeated(pool: Pool) -> Pool:
    """Each text once: a store keeps one passage of those that say the very same. Answers move to the first of them."""
    first: dict[str, int] = {}
    for text in pool.texts:
        first.setdefault(text, len(first))
    now = [first[text] for text in pool.texts]
    asks = [
        replace(ask, gold=frozenset(now[i] for i in ask.gold), hidden=frozenset(now[i] for i in ask.hidden))
        for ask in pool.asks
    ]
    return Pool(pool.name, list(first), asks)


def til_pool(data: Path, cap: int, rng: random.Random) -> Pool:
    """Notes without their titles; asked by commit subject, by the text around a link, and by title."""
    root = data / "real/til_jbranchaud"
    pool, owned = Pool("til", []), dict[str, list[int]]()
    for path in sorted((root / "vault").rglob("*.md")):
        body = re.sub(r"^#[^\n]*\n", "", path.read_text(encoding="utf-8"), count=1)
        owned[str(path.relative_to(root / "vault"))] = add_chunks(pool, body)
    for kind, most in (("commit", 335), ("crosslink", 63), ("title", 200)):
        rows = list(lines(root / f"labels_{kind}.jsonl"))
        for row in rng.sample(rows, min(most, len(rows))):
            gold = {i for name in row["gold"] for i in owned.get(name, [])}
            hidden = frozenset(owned.get(row.get("source", ""), []))
            pool.asks.append(Ask(f"til.{kind}", user(row["query"]), frozenset(gold - hidden), hidden))
    return pool


def wiki_pool(data: Path, cap: int, rng: random.Random) -> Pool:
    """Encyclopaedia passages and short questions about them."""
    rows = list(lines(data / "ir/wiki_qa.jsonl.xz"))
    pool, at = Pool("wiki", []), dict[str, int]()
    for row in rows:
        if row["passage"] not in at and len(at) < cap:
            at[row["passage"]] = len(pool.texts)
            pool.texts.append(" ".join(row["passage"].split()[: 2 * CHUNK_WORDS]))
    rows = [row for row in rows if row["passage"] in at]
    for row in rng.sample(rows, 400):
        pool.asks.append(Ask("wiki.question", user(row["query"]), frozenset({at[row["passage"]]})))
    return pool


def tldr_pool(data: Path, cap: int, rng: random.Random) -> Pool:
    """Command pages, each asked by the description of one of its examples, which is then left out of the page."""
    rows = [row for row in lines(data / "ir/tldr_pages.jsonl.xz") if len(row["examples"]) >= 3 and "alias" not in row]
    pool = Pool("tldr", [])
    for row in rng.sample(rows, min(cap, len(rows))):
        asked = rng.randrange(len(row["examples"]))
        rest = [example for i, example in enumerate(row["examples"]) if i != asked]
        text = f"{row['title']}\n{row['desc']}\n" + "\n".join(f"- {about}: `{command}`" for about, command in rest)
        pool.texts.append(" ".join(text.split()[: 2 * CHUNK_WORDS]))
        if len(pool.asks) < 400:
            ask = Ask("tldr.example", user(row["examples"][asked][0]), frozenset({len(pool.texts) - 1}))
            pool.asks.append(ask)
    return pool


def entire_pool(data: Path, cap: int, rng: random.Random) -> Pool:
    """What users and agents said in coding sessions; asked by commit subject and by a later session's first prompt."""
    root = data / "real/entire_cli"
    pool, owned, when = Pool("entire", []), dict[str, list[int]](), dict[str, str]()
    sessions = list(lines(root / "sessions_slim.jsonl.xz"))
    for session in sessions:
        said = [e for e in session["events"] if e["role"] in ("user", "assistant") and not e.get("meta")]
        texts = [chunk for event in said for chunk in chunks(event["text"])]
        texts = rng.sample(texts, min(len(texts), max(10, cap // len(sessions))))
        owned[session["session_id"]] = list(range(len(pool.texts), len(pool.texts) + len(texts)))
        when[session["session_id"]] = session["first_checkpoint"]
        pool.texts.extend(texts)
    for row in lines(root / "commit_to_session.jsonl"):
        gold = frozenset(i for name in row["gold"] for i in owned.get(name, []))
        if gold and not row["subject_verbatim_in_session"]:
            pool.asks.append(Ask("entire.commit", user(row["query"]), gold))
    for row in lines(root / "prompt_to_earlier_sessions.jsonl"):
        gold = frozenset(i for name, weight in row["gold"].items() if weight >= 0.5 for i in owned.get(name, []))
        mine = when.get(row["session_id"], "")
        hidden = frozenset(i for name, at in when.items() if at >= mine for i in owned[name])
        if gold - hidden:
            pool.asks.append(Ask("entire.prompt", user(row["query"]), gold - hidden, hidden))
    return pool


def tool_calls(data: Path, most: int, rng: random.Random) -> list[Focus]:
    """Real tool calls, each with the user's text before it."""
    found: list[Focus] = []
    for session in lines(data / "real/entire_cli/sessions_slim.jsonl.xz"):
        asked = ""
        for event in session["events"]:
            if event["role"] == "user" and not event.get("meta"):
                asked = event["text"]
            if event["role"] == "tool_call":
                name, _, args = event["text"].partition(": ")
                found.append(Focus(tool_name=name, tool_args=args.replace(" :: ", "\n"), user_text=asked))
    return rng.sample(found, most)


def nonsense(most: int, rng: random.Random) -> list[Focus]:
    """Strings that mean nothing anywhere, and talk that asks for nothing."""
    letters = "bcdfghjklmnpqrstvwxzaeiou"
    words = [
        ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(rng.randint(2, 6))] for _ in range(most)
    ]
    talk = [line.strip() for line in SMALLTALK.replace("\n", "|").split("|")]
    return [user(" ".join(row)) for row in words] + [user(line) for line in talk]


def locomo_pools(data: Path) -> list[Pool]:
    """LoCoMo's development conversations, one pool each, turns as passages: for judging only (CC BY-NC)."""
    pools, at = dict[str, Pool](), dict[tuple[str, str], int]()
    for entry in json.loads((data / "locomo/locomo_dev6.json").read_text(encoding="utf-8")):
        pool = pools[entry["sample_id"]] = Pool(f"locomo {entry['sample_id']}", [])
        talk = entry["conversation"]
        for key in sorted((k for k in talk if re.fullmatch(r"session_\d+", k)), key=lambda k: int(k[8:])):
            for turn in talk[key]:
                at[entry["sample_id"], turn["dia_id"]] = len(pool.texts)
                seen = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
                pool.texts.append(f"{turn['speaker']}: {turn['text']}{seen}")
    for row in lines(data / "locomo/labels.jsonl"):
        names = [(row["sample_id"], name) for name in row.get("gold_audited") or row["gold"]]
        gold = frozenset(at[name] for name in names if name in at)
        if gold and row["category"] != 5:
            pools[row["sample_id"]].asks.append(Ask("locomo.question", user(row["query"]), gold))
    return [unrepeated(pool) for pool in pools.values()]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON-lines file, xz or plain."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def chunks(text: str) -> list[str]:
    """A text's paragraphs, gathered to about CHUNK_WORDS words; very long ones are cut."""
    found: list[str] = []
    held: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        words = paragraph.split()
        if held and len(" ".join(held).split()) + len(words) > CHUNK_WORDS:
            found.append("\n\n".join(held))
            held = []
        held.append(" ".join(words[: 2 * CHUNK_WORDS]) if len(words) > 2 * CHUNK_WORDS else paragraph.strip())
    return [chunk for chunk in [*found, "\n\n".join(held)] if chunk.strip()]


def add_chunks(pool: Pool, text: str) -> list[int]:
    first = len(pool.texts)
    pool.texts.extend(chunks(text))
    return list(range(first, len(pool.texts)))
