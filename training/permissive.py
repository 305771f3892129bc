"""Permissively licensed data as pools: what may be fitted into something that ships.

Notes (til, MIT), encyclopaedia passages (NQ, QED, XQuAD: CC BY-SA), command pages (tldr, CC BY), meetings (QMSum, MIT)
and coding sessions (entire, MIT). Sources, commits and licences stand in `LICENCES`, which provenance files quote. The
same data and seed give the same pools; each ask carries the group by which `pools.split` holds it out.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recalld_daemon.store.texts import embedded_text
from training.pools import Ask, Pool, Row, user

LICENCES = {
    "wiki": "ir/wiki_qa: NQ open (CC BY-SA 3.0, by way of lost-in-the-middle, MIT), QED (CC BY-SA 3.0), "
    "XQuAD (CC BY-SA 4.0)",
    "tldr": "ir/tldr_pages: tldr-pages @08e345f42639 (CC BY 4.0)",
    "qmsum": "ir/qmsum: Yale-LILY/QMSum @83d7768c1f2b (MIT)",
    "til": "real/til_jbranchaud: jbranchaud/til @453e9edbdf2b (MIT)",
    "entire": "real/entire_cli: entireio/cli @f446dcfc09fd (MIT)",
}
CHUNK_WORDS = 75  # about 100 tokens, what an ingest makes of prose
SESSION_ROWS = 60  # of a coding session, drawn evenly: the longest have thousands
MEETING_WORDS = 6  # a turn of fewer says "yeah" or "mm-hmm"; 54 % of QMSum's do
NOTES = {"commit": 335, "crosslink": 63, "title": 1868}  # kinds of til's labels, and how many there are


def pools(data: Path, seed: int = 0) -> list[Pool]:
    """All of it. data: the directory that holds `ir` and `real`. Raises OSError."""
    return [til_pool(data), wiki_pool(data), tldr_pool(data, seed), entire_pool(data), *qmsum_pools(data)]


def til_pool(data: Path) -> Pool:
    """Notes without their titles; asked by commit subject, by the text around a link, and by title. Group: the note."""
    root = data / "real/til_jbranchaud"
    pool, owned = Pool("til", []), dict[str, list[int]]()
    for path in sorted((root / "vault").rglob("*.md")):
        if path.name == "README.md":  # the list of all titles
            continue
        body = re.sub(r"^#[^\n]*\n", "", path.read_text(encoding="utf-8"), count=1)
        name = str(path.relative_to(root / "vault"))
        owned[name] = _add(pool, [Row(text, name) for text in chunks(body)])
    for kind in NOTES:
        for row in lines(root / f"labels_{kind}.jsonl"):
            gold = {at for name in row["gold"] for at in owned.get(name, [])}
            hidden = frozenset(owned.get(row.get("source", ""), []))
            if gold - hidden:
                ask = Ask(f"til.{kind}", user(row["query"]), frozenset(gold - hidden), hidden, group=row["gold"][0])
                pool.asks.append(ask)
    return pool


def wiki_pool(data: Path) -> Pool:
    """Encyclopaedia passages under their article's title, and short questions about them. Group: the article."""
    pool, at = Pool("wiki", []), dict[str, int]()
    for row in lines(data / "ir/wiki_qa.jsonl.xz"):
        text = " ".join(row["passage"].split()[: 2 * CHUNK_WORDS])
        title = row["title"].replace("_", " ")
        if text not in at:
            at[text] = len(pool.rows)
            pool.rows.append(Row(text, title, heading=title))
        pool.asks.append(Ask("wiki.question", user(row["query"]), frozenset({at[text]}), group=title))
    return pool


def tldr_pool(data: Path, seed: int = 0, asked: int = 2) -> Pool:
    """Command pages, each asked by the descriptions of up to `asked` of its examples, which the page then lacks."""
    pool, rng = Pool("tldr", []), random.Random(seed)
    for page in lines(data / "ir/tldr_pages.jsonl.xz"):
        examples = page["examples"]
        if len(examples) < 3 or "alias" in page:
            continue
        out = set(rng.sample(range(len(examples)), min(asked, len(examples) - 2)))
        kept = [f"- {about}: `{command}`" for at, (about, command) in enumerate(examples) if at not in out]
        text = " ".join("\n".join([page["desc"], *kept]).split(" ")[: 2 * CHUNK_WORDS])
        here = frozenset({len(pool.rows)})
        pool.rows.append(Row(text, page["page"], heading=page["title"]))
        pool.asks += [Ask("tldr.example", user(examples[at][0]), here, group=page["page"]) for at in sorted(out)]
    return pool


def entire_pool(data: Path) -> Pool:
    """What users and agents said in coding sessions; asked by commit subject and by a later session's first prompts.

    An answer is a whole session, so all of its rows are gold; group: the (first) session that answers.
    """
    root = data / "real/entire_cli"
    pool, owned, when = Pool("entire", []), dict[str, list[int]](), dict[str, str]()
    for session in lines(root / "sessions_slim.jsonl.xz"):
        name = session["session_id"]
        rows = [row for event in session["events"] for row in _said(event, name)]
        owned[name] = _add(pool, _evenly(rows, SESSION_ROWS))
        when[name] = session["first_checkpoint"]
    for row in lines(root / "commit_to_session.jsonl"):
        gold = frozenset(at for name in row["gold"] for at in owned.get(name, []))
        if gold and not row["subject_verbatim_in_session"]:
            pool.asks.append(Ask("entire.commit", user(row["query"]), gold, group=row["gold"][0]))
    for row in lines(root / "prompt_to_earlier_sessions.jsonl"):
        named = [name for name, weight in row["gold"].items() if weight >= 0.5 and name in owned]
        mine = when.get(row["session_id"], "")
        hidden = frozenset(at for name, then in when.items() if then >= mine for at in owned[name])
        if gold := frozenset(at for name in named for at in owned[name]) - hidden:
            pool.asks.append(Ask("entire.prompt", user(row["query"]), gold, hidden, group=named[0]))
    return pool


def qmsum_pools(data: Path, splits: tuple[str, ...] = ("train", "val", "test")) -> list[Pool]:
    """One pool a meeting: its turns of MEETING_WORDS words or more; asked by question and by topic. Group: the meeting.

    An answer is a stretch of many turns; where the question names one of the speakers, only theirs in it. The data
    has no dates: each meeting is given one, a week apart, so that turns look as messages do.
    """
    found = []
    for number, meeting in enumerate(lines(data / "ir/qmsum.jsonl.xz")):
        if meeting["split"] not in splits:
            continue
        name = meeting["meeting_id"]
        pool, turns = Pool(f"qmsum {name}", []), dict[int, int]()
        then = datetime(2019, 1, 7, tzinfo=UTC).timestamp() + number * 7 * 86400
        for at, (speaker, text) in enumerate(meeting["turns"]):
            words = text.split()
            if len(words) >= MEETING_WORDS:
                turns[at] = len(pool.rows)
                pool.rows.append(Row(" ".join(words[: 2 * CHUNK_WORDS]), name, speaker, written_at=then))
        asks = [("qmsum.question", row["query"], row["spans"]) for row in meeting["queries"]]
        asks += [("qmsum.topic", row["topic"], row["spans"]) for row in meeting["topics"]]
        for kind, query, spans in asks:
            inside = {turns[at] for first, last in spans for at in range(first, last + 1) if at in turns}
            if gold := _of_the_named(query, inside, pool.rows):
                pool.asks.append(Ask(kind, user(query), frozenset(gold), group=name))
        found.append(pool)
    return found


def unrepeated(pool: Pool) -> Pool:
    """Each text once: a store keeps one passage of those that say the very same. Answers move to the first of them."""
    first: dict[str, int] = {}
    rows, now = list[Row](), []
    for row in pool.rows:
        key = embedded_text(row.heading, row.speaker, row.text, row.written_at)
        if key not in first:
            first[key] = len(rows)
            rows.append(row)
        now.append(first[key])
    return pool if len(rows) == len(pool.rows) else _moved(pool, rows, now)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON-lines file, xz or plain."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def chunks(text: str) -> list[str]:
    """A text's paragraphs, gathered to about CHUNK_WORDS words; very long ones are cut.

    >>> chunks("one two\\n\\nthree"), [len(chunk.split()) for chunk in chunks("\\n\\n".join(["word " * 50] * 3))]
    (['one two\\n\\nthree'], [50, 50, 50])
    """
    found: list[str] = []
    held: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        words = paragraph.split()
        if held and len(" ".join(held).split()) + len(words) > CHUNK_WORDS:
            found.append("\n\n".join(held))
            held = []
        held.append(" ".join(words[: 2 * CHUNK_WORDS]) if len(words) > 2 * CHUNK_WORDS else paragraph.strip())
    return [chunk for chunk in [*found, "\n\n".join(held)] if chunk.strip()]


def _add(pool: Pool, rows: list[Row]) -> list[int]:
    pool.rows += rows
    return list(range(len(pool.rows) - len(rows), len(pool.rows)))


def _said(event: dict[str, Any], session: str) -> list[Row]:
    if event["role"] not in ("user", "assistant") or event.get("meta"):
        return []
    at = datetime.fromisoformat(event["ts"]).timestamp() if event.get("ts") else None
    return [Row(text, session, event["role"], written_at=at) for text in chunks(event["text"])]


def _evenly(rows: list[Row], most: int) -> list[Row]:
    """At most `most`, the first and the last among them, in order."""
    if len(rows) <= most:
        return rows
    return [rows[at * (len(rows) - 1) // (most - 1)] for at in range(most)]


def _of_the_named(query: str, inside: set[int], rows: list[Row]) -> set[int]:
    """The rows of the speaker that the query names ("PhD F" is also "F"); all when it names none, or two."""
    words = re.findall(r"\w+", query)
    named = {
        speaker
        for speaker in {row.speaker for row in rows}
        if re.search(rf"\b{re.escape(speaker)}\b", query) or (speaker[-2:-1] == " " and speaker[-1:] in words)
    }
    theirs = {at for at in inside if rows[at].speaker in named}
    return theirs if len(named) == 1 and theirs else inside


def _moved(pool: Pool, rows: list[Row], now: list[int]) -> Pool:
    asks = [
        replace(ask, gold=frozenset(now[at] for at in ask.gold), hidden=frozenset(now[at] for at in ask.hidden))
        for ask in pool.asks
    ]
    return Pool(pool.name, rows, asks)
