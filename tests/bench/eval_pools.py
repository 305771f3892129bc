"""Evaluation-only data as pools: conversations, for judging and never for a fit that ships. All paths come from --data.

LoCoMo and REALTALK are conversations whose turns are passages, BEAM's long answers are cut by the product's chunker.
A `Judged` pool knows, beside the pool, what is ranked (`units`: a row's own number, or its document) and what answers
each question (`golds`, in units): where a document is the answer, its best passage's rank is its rank.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pool_types import Ask, Pool, Row, user

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL = "adversarial"
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")


class DataMissing(SystemExit):
    """What was to be read is not there, or is something else; said in one line, with the remedy."""


@dataclass(slots=True)
class Judged:
    """units: (n rows) what each row counts as; golds: one set of units per ask; floor: (n units) texts for BM25.

    allowed: for each ask the units that it may find, None: all. also: ask -> further kinds that it counts for.
    """

    pool: Pool
    units: list[Any]
    golds: list[frozenset[Any]]
    floor: dict[Any, str]
    qids: list[str] = field(default_factory=list)
    allowed: list[frozenset[Any] | None] = field(default_factory=list)
    also: dict[int, tuple[str, ...]] = field(default_factory=dict)


def locomo(path: Path) -> list[Judged]:
    """Conversations of a LoCoMo file, or of the directory that has one; one pool each. Group: the conversation.

    Evidence is taken from a labels.jsonl beside the file where that knows the conversation (audited where it says so),
    else from the file itself, cleaned. Questions without usable evidence are left out, adversarial ones are a kind of
    their own. Raises DataMissing.
    """
    files = _files(path, "*.json", "a LoCoMo file (a list of entries with `conversation` and `qa`)")
    found = []
    for file in files:
        entries = json.loads(file.read_text(encoding="utf-8"))
        entries = [entry for entry in _listed(entries) if isinstance(entry, dict) and "conversation" in entry]
        labels = _labels(file.with_name("labels.jsonl"), "sample_id")
        for number, entry in enumerate(entries):
            name = str(entry.get("sample_id", f"{file.stem}-{number}"))
            found.append(_locomo_entry(name, entry, labels.get(name)))
    if not found:
        raise DataMissing(f"{path}: no LoCoMo conversation in it: name a file of the LoCoMo schema, or its directory")
    return found


def realtalk(path: Path) -> list[Judged]:
    """REALTALK's chats in a directory (Chat_*.json, with labels.jsonl beside them where there is one)."""
    found = []
    for file in _files(path, "Chat_*.json", "a REALTALK chat (Chat_*.json)"):
        chat = json.loads(file.read_text(encoding="utf-8"))
        labels = _labels(file.with_name("labels.jsonl"), "chat").get(file.name)
        entry = {"conversation": chat, "qa": chat.get("qa", [])}
        found.append(_locomo_entry(file.stem, entry, labels))
    return found


def evidence(raw: Any, known: dict[str, int]) -> list[str]:
    """Turn ids in a question's evidence, cleaned: split, zeros and stray colons dropped, unknown ones left out.

    >>> evidence(["D8:6; D9:17", "D:11:26", "D30:05", "D", "D7:99"], {"D8:6": 0, "D9:17": 1, "D11:26": 2, "D30:5": 3})
    ['D8:6', 'D9:17', 'D11:26', 'D30:5']
    """
    texts = raw if isinstance(raw, list) else [raw] if raw else []
    ids = (f"D{int(session)}:{int(turn)}" for text in texts for session, turn in _TURN_ID.findall(str(text)))
    return [id for id in dict.fromkeys(ids) if id in known]


def moment(text: str) -> float | None:
    """Epoch seconds of a date as these sets write it, read as UTC; None where it is none.

    >>> moment("1:56 pm on 8 May, 2023"), moment("29.12.2023, 11:23:21"), moment("January-05-2024"), moment("soon")
    (1683554160.0, 1703849001.0, 1704412800.0, None)
    """
    for form in ("%I:%M %p on %d %B, %Y", "%d.%m.%Y, %H:%M:%S", "%B-%d-%Y", "%d %B, %Y", "%Y-%m-%d"):
        try:
            return datetime.strptime(text.strip(), form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    try:
        told = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON-lines file, xz or plain. Raises DataMissing."""
    if not path.exists():
        raise DataMissing(f"{path} is missing: give --data the directory that holds it")
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def _locomo_entry(name: str, entry: dict[str, Any], labels: list[dict[str, Any]] | None) -> Judged:
    pool, at = Pool(name, []), dict[str, int]()
    for number, session, date in _sessions(entry["conversation"]):
        for turn in session:
            text = turn.get("text") or turn.get("clean_text") or ""
            seen = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            if not (text + seen).strip():
                continue
            at[turn["dia_id"]] = len(pool.rows)
            written = moment(turn.get("date_time", "")) or date
            pool.rows.append(Row((text + seen).strip(), f"session_{number}", turn["speaker"], written_at=written))
    judged = Judged(
        pool, list(range(len(pool.rows))), [], {n: f"{row.speaker}: {row.text}" for n, row in enumerate(pool.rows)}
    )
    for qid, query, category, ids in _questions(name, entry, labels, at):
        gold = frozenset(at[id] for id in ids)
        if gold:
            kind = CATEGORIES.get(category, str(category))
            pool.asks.append(Ask(kind, user(query), gold, group=name))
            judged.golds.append(gold)
            judged.qids.append(qid)
    return judged


def _questions(
    name: str, entry: dict[str, Any], labels: list[dict[str, Any]] | None, at: dict[str, int]
) -> Iterator[tuple[str, str, int, list[str]]]:
    if labels is None:
        for number, row in enumerate(entry["qa"]):
            yield f"{name}_q{number}", row["question"], int(row["category"]), evidence(row.get("evidence"), at)
    else:
        for row in labels:
            gold = row.get("gold_audited") or row["gold"]
            yield row["qid"], row["query"], int(row["category"]), [id for id in gold if id in at]


def _sessions(talk: dict[str, Any]) -> Iterator[tuple[int, list[dict[str, Any]], float | None]]:
    numbers = sorted(int(found[1]) for key in talk if (found := _SESSION.fullmatch(key)))
    for number in numbers:
        session = talk[f"session_{number}"]
        if session:
            yield number, session, moment(str(talk.get(f"session_{number}_date_time", "")))


def _labels(path: Path, key: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in lines(path) if path.exists() else ():
        found.setdefault(str(row.get(key)), []).append(row)
    return found


def _files(path: Path, pattern: str, what: str) -> list[Path]:
    if not path.exists():
        raise DataMissing(f"{path} does not exist: give --data {what}, or the directory that holds it")
    files = sorted(path.glob(pattern)) if path.is_dir() else [path]
    if not files:
        raise DataMissing(f"{path}: there is no {pattern} in it: give --data {what}, or the directory that holds it")
    return files


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
