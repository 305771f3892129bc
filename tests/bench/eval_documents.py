"""Real work as pools: notes, coding sessions and chats with an assistant, cut by the product's own chunker.

What is asked is what an agent has at hand: a commit's subject, a session's first prompts, the words around a link. What
answers is a whole note, session or turn, whose rank is that of its best passage. Titles and file names are taken away
where they would give the answer away. Paths come from --data alone; each set is optional there.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from eval_pools import DataMissing, Judged, lines, moment, realtalk
from pool_types import Ask, Pool, Row, user

from recalld_daemon.ingest.documents import Dates, parse_document
from recalld_daemon.ingest.formats.records import LEAST_WORDS
from recalld_daemon.ingest.passages import Stretch, passages
from recalld_daemon.worker_wire import ParsedPassage

FORGED = 4  # words: a commit subject with fewer says too little to be found by
UNLIKE = 0.2  # title_overlap below which a commit subject does not repeat the note's title


def til(root: Path) -> Judged:
    """Notes without H1 and file name; kinds: til.commit, til.crosslink, til.title. The link's own note is hidden."""
    vault = _existing(root / "vault")
    names = sorted(str(path.relative_to(vault)) for path in vault.rglob("*.md") if path.name != "README.md")
    judged = _documents("til", vault, names)
    owned = _owned(judged)
    for kind in ("commit", "crosslink", "title"):
        for row in lines(root / f"labels_{kind}.jsonl"):
            source = row.get("source", "")
            gold = frozenset(row["gold"]) - {source}
            if gold:
                ask = Ask(f"til.{kind}", user(row["query"]), _rows(owned, gold), frozenset(owned.get(source, ())))
                _add(judged, ask, gold, row, frozenset(names) - {source} if source else None)
                if kind == "commit" and row["title_overlap"] < UNLIKE:
                    judged.also[len(judged.golds) - 1] = ("til.commit_unlike",)
    return judged


def bukzor(root: Path) -> Judged:
    """Agents' session notes, asked by the subjects of the commits that brought them."""
    vault = _existing(root / "vault")
    names = sorted(str(path.relative_to(vault)) for path in vault.rglob("*.md") if path.parent != vault)
    judged = _documents("bukzor", vault, names)
    owned = _owned(judged)
    for row in lines(root / "labels_commit.jsonl"):
        if gold := frozenset(row["gold"]) & frozenset(names):
            _add(judged, Ask("bukzor.commit", user(row["query"]), _rows(owned, gold)), gold, row, None)
    return judged


def entire(root: Path) -> Judged:
    """What users and agents said in coding sessions; asked by commit subjects, and by later sessions' first prompts."""
    sessions = list(lines(root / "sessions_slim.jsonl.xz"))
    judged = Judged(Pool("entire", []), [], [], {})
    began: dict[str, float] = {}
    for session in sessions:
        name = session["session_id"]
        said = [event for event in session["events"] if _is_said(event)]
        judged.floor[name] = "\n".join(event["text"] for event in said)
        began[name] = min((at for event in said if (at := moment(event.get("ts", "")))), default=0.0)
        _put(judged, name, (row for event in said for row in _spoken(event, name)))
    owned = _owned(judged)
    for row in lines(root / "commit_to_session.jsonl"):
        if gold := frozenset(row["gold"]) & judged.floor.keys():
            _add(judged, Ask("entire.commit", user(row["query"]), _rows(owned, gold)), gold, row, None)
            if not row["subject_verbatim_in_session"] and len(row["query"].split()) >= FORGED:
                judged.also[len(judged.golds) - 1] = ("entire.commit_unlike",)
    order = {session["session_id"]: datetime.fromisoformat(session["first_checkpoint"]) for session in sessions}
    for row in lines(root / "prompt_to_earlier_sessions.jsonl"):
        mine = row["session_id"]
        earlier = frozenset(name for name, at in order.items() if mine in order and at < order[mine])
        if gold := frozenset(row["gold"]) & earlier:
            ask = Ask("entire.prompt", user(row["query"]), _rows(owned, gold), at=began[mine] or None)
            _add(judged, ask, gold, row, earlier)
    return judged


def beam(root: Path) -> list[Judged]:
    """Long chats with an assistant, one pool each; a turn is the unit, its kind the ability that is asked for."""
    pools: dict[str, Judged] = {}
    owned: dict[str, dict[Any, list[int]]] = {}
    for path in _some(root, "beam*_chats.jsonl*"):
        for chat in lines(path):
            judged = pools[chat["chat_id"]] = Judged(Pool(f"beam {chat['chat_id']}", []), [], [], {})
            for source, turns in _batches(chat["turns"]):
                _beam_batch(judged, source, turns)
            owned[chat["chat_id"]] = _owned(judged)
    for path in _some(root, "beam*_labels.jsonl*"):
        for row in lines(path):
            judged = pools.get(row["chat_id"])  # type: ignore[assignment]
            if judged is not None and (gold := frozenset(row["gold"]) & judged.floor.keys()):
                ask = Ask(f"beam.{row['ability']}", user(row["query"]), _rows(owned[row["chat_id"]], gold))
                _add(judged, ask, gold, row, None)
    return list(pools.values())


def realtalk_pools(root: Path) -> list[Judged]:
    """REALTALK's chats, all kinds of question as one."""
    found = realtalk(root)
    for judged in found:
        judged.pool.asks = [Ask("realtalk", ask.focus, ask.gold, group=ask.group) for ask in judged.pool.asks]
    return found


def locomo_plus(root: Path) -> Judged:
    """Memories of two lines, asked by what a person says later that shares the thought and hardly a word."""
    judged = Judged(Pool("locomo_plus", []), [], [], {})
    rows = list(lines(root / "cues.jsonl"))
    for row in rows:
        judged.floor[row["memory_id"]] = row["memory"]
        said = [re.match(r"(\w+): (.*)", line, re.DOTALL) for line in row["memory"].split("\n") if line.strip()]
        turns = [Row(found[2], row["memory_id"], found[1]) for found in said if found]
        _put(judged, row["memory_id"], turns)
    owned = _owned(judged)
    for row in rows:
        gold = frozenset([row["memory_id"]])
        trigger = user(re.sub(r"^\w: ", "", row["trigger"]))
        _add(judged, Ask("locomo_plus", trigger, _rows(owned, gold)), gold, row, None)
    return judged


MARKS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "entire": ("commit_to_session.jsonl", entire),
    "til": ("labels_title.jsonl", til),
    "bukzor": ("labels_commit.jsonl", bukzor),
    "beam": ("beam*_labels.jsonl*", beam),
    "realtalk": ("Chat_*.json", realtalk_pools),
    "locomo_plus": ("cues.jsonl", locomo_plus),
}  # kind of set -> the file by which its directory is known, and how it is read


def load(data: Path, wanted: Sequence[str]) -> Iterator[tuple[str, list[Judged]]]:
    """The sets below --data, wherever they lie, in the order of MARKS. Raises DataMissing when there is none at all."""
    found = False
    for name in wanted:
        mark, read = MARKS[name]
        pools: list[Judged] = []
        for root in sorted({path.parent for path in data.rglob(mark)}):
            if name != "bukzor" or not (root / MARKS["til"][0]).exists():
                read_here = read(root)
                pools += read_here if isinstance(read_here, list) else [read_here]
        if pools:
            found = True
            yield name, pools
    if not found:
        marks = ", ".join(MARKS[name][0] for name in wanted)
        raise DataMissing(f"{data}: there is none of {marks} below it: give --data the directory that holds the sets")


def _documents(name: str, vault: Path, names: Iterable[str]) -> Judged:
    """One source a note, its H1 taken away; its file is named by number, within its directory, since names tell all."""
    judged = Judged(Pool(name, []), [], [], {})
    for number, note in enumerate(names):
        text = _without_title((vault / note).read_text(encoding="utf-8", errors="replace"))
        judged.floor[note] = text
        parsed = parse_document(io.BytesIO(text.encode()), "utf-8", 0, Dates(None, 4e9), markdown=True)
        source = str(Path(note).parent / f"{number:05}.md")
        kept = [found for found in parsed if isinstance(found, ParsedPassage)]
        _put(judged, note, [Row(p.text, source, "", p.heading, p.written_at) for p in kept])
    return judged


def _without_title(text: str) -> str:
    """Without the first heading of the first level, outside of a frontmatter."""
    return re.sub(r"^#[ \t][^\n]*\n?", "", text, count=1, flags=re.MULTILINE)


def _is_said(event: dict[str, Any]) -> bool:
    return event["role"] in ("user", "assistant") and not event.get("meta") and bool(event["text"].strip())


def _spoken(event: dict[str, Any], session: str) -> Iterator[Row]:
    speaker = "user" if event["role"] == "user" and not event.get("side") else "assistant"
    yield from _cut(event["text"], session, speaker, moment(event.get("ts") or ""))


def _cut(text: str, source: str, speaker: str, at: float | None) -> Iterator[Row]:
    """A message's passages, as the transcript parser makes them."""
    stretch = Stretch(0, text.encode(), "utf-8", "", speaker, at, host=True, least_words=LEAST_WORDS)
    for found in passages(stretch):
        yield Row(found.text, source, found.speaker, found.heading, found.written_at)


def _batches(turns: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Runs of turns of one batch: what a day's session would be."""
    number, held = 0, list[dict[str, Any]]()
    for turn in turns:
        if held and turn["batch"] != held[-1]["batch"]:
            number += 1
            yield f"session_{number}", held
            held = []
        held.append(turn)
    yield f"session_{number + 1}", held


def _beam_batch(judged: Judged, source: str, turns: list[dict[str, Any]]) -> None:
    at = next((moment(turn["time_anchor"]) for turn in turns if turn.get("time_anchor")), None)
    for turn in turns:
        at = moment(turn["time_anchor"]) if turn.get("time_anchor") else at
        judged.floor[turn["id"]] = turn["text"]
        _put(judged, turn["id"], _cut(turn["text"], source, turn["role"], at))


def _put(judged: Judged, unit: Any, rows: Iterable[Row]) -> None:
    new = list(rows)
    judged.pool.rows += new
    judged.units += [unit] * len(new)


def _add(judged: Judged, ask: Ask, gold: frozenset[Any], row: dict[str, Any], allowed: frozenset[Any] | None) -> None:
    judged.pool.asks.append(ask)
    judged.golds.append(gold)
    judged.qids.append(row["qid"])
    judged.allowed.append(allowed)


def _owned(judged: Judged) -> dict[Any, list[int]]:
    owned: dict[Any, list[int]] = {}
    for at, unit in enumerate(judged.units):
        owned.setdefault(unit, []).append(at)
    return owned


def _rows(owned: dict[Any, list[int]], units: Iterable[Any]) -> frozenset[int]:
    return frozenset(row for unit in units for row in owned.get(unit, ()))


def _some(root: Path, pattern: str) -> list[Path]:
    found = sorted(root.glob(pattern))
    if not found:
        raise DataMissing(f"{root}: there is no {pattern} in it")
    return found


def _existing(path: Path) -> Path:
    if not path.is_dir():
        raise DataMissing(f"{path} is missing: give --data the directory that holds it")
    return path
