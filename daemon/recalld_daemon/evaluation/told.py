"""The survey as a person reads it: what was judged, each figure with how sure it is, and what the figures can't say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recalld_daemon.evaluation.metrics import MAIN, NAMES

SAYS = {
    "chronological": "learned from the older, judged on the newest questions: what it is worth in use",
    "random": "judged on random questions: flatters what is learned, since its subjects were learned from",
    "untrained": "nothing was trained",
}
_HEAD = f"{'':18}" + "".join(f"{name:>7}" for name in NAMES) + "   gain in MRR (95 %)"


def told(document: Mapping[str, Any]) -> str:
    """The whole text, ending in a line break."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    memory, log = document["memory"], document["log"]
    yield f"memory: {memory['passages']} passages, encoder {memory['encoder']}, version {memory['version']} live"
    yield (
        f"log: {log['questions']} questions with an answer, {log['unanswered']} without; "
        f"{log['unlabelled']} impressions that tell nothing, {log['gone']} passages that are gone"
    )
    yield from (f"note: {note}" for note in document["notes"])
    for name, split in document.get("splits", {}).items():
        yield ""
        yield from _split(name, split)
    if document.get("curve"):
        yield ""
        yield "learning curve, f_Q by cosine alone on the newest questions, MRR and gain:"
        yield from (f"  {row['questions']:5} questions  {row['mrr']:.3f}   {_gain(row)}" for row in document["curve"])
    yield ""
    yield from _rest(document)


def _split(name: str, split: Mapping[str, Any]) -> Iterator[str]:
    learned = "/".join(str(n) for n in split["learned_from"] if n)
    source = f"{learned} to learn from, " if learned else ""
    yield f"{name}: {source}{split['n']} judged, in {split['groups']} groups; {SAYS[name]}"
    for title, which, gains in (("whole recall", None, "gain"), ("cosine alone", "dense", "dense_gain")):
        yield f"{title:18}{_HEAD[18:]}"
        for candidate, row in split["candidates"].items():
            figures = row if which is None else row[which]
            numbers = "".join(f"{figures[metric]:7.3f}" for metric in NAMES)
            yield f"  {candidate:16}{numbers}   {_gain(row[gains].get(MAIN))}".rstrip()
    if len(split["candidates"]) > 1:
        yield f"better than plain for sure: {', '.join(split['better']) or 'none'}"


def _rest(document: Mapping[str, Any]) -> Iterator[str]:
    passing, effect, reliability = document["passing"], document["effect"], document["reliability"]
    if passing["unanswered"]["n"]:
        yield f"questions without an answer: something passes the gate for {_share(passing['unanswered'])}"
    if passing["answered"]["n"]:
        yield f"questions with an answer: something passes the gate for {_share(passing['answered'])}"
    if effect["shown"]["n"]:
        yield f"used where shown: {_share(effect['shown'])}; where withheld: {_share(effect['withheld'])}"
    if effect["difference"]["n"]:
        yield f"effect of showing: {_gain(effect['difference'])}"
    if reliability["n"]:
        error = reliability["error"]
        yield f"gate: mean distance of probability and share that helped {error:.3f}, of {reliability['n']} shown"


def _gain(gain: Mapping[str, float] | None) -> str:
    if gain is None:
        return ""
    return f"{gain['gain']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"


def _share(row: Mapping[str, float]) -> str:
    if not row["n"]:
        return "nothing known"
    return f"{row['share']:.3f} [{row['low']:.3f}, {row['high']:.3f}] of {row['n']}"
