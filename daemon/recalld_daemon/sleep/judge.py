"""Third phase: champion and challengers answer the same held-out questions, and the simplest one that is better wins.

Better is what the whole recall finds: the gain in MRR has a lower bound of zero or more (paired bootstrap, 95 %).
Dense search alone is kept for the record. A challenger that was fitted on one of these questions is refused before it
answers any. Each one's figures are kept when it has answered, so an interrupted night asks nobody twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recalld_daemon.evaluation.judge import (
    Candidate,
    Report,
    Result,
    answered,
    marks_of,
    refuse_trained,
    report_of,
    trained_among,
)
from recalld_daemon.evaluation.metrics import MAIN, NAMES
from recalld_daemon.evaluation.questions import Question, read_log
from recalld_daemon.learned import Learned
from recalld_daemon.sleep.kept import result_from_json, result_name, result_to_json
from recalld_daemon.sleep.night import Failed, Night, marks_before
from recalld_daemon.sleep.recipes import CHAMPION, RECIPES, Recipe
from recalld_daemon.sleep.train import fits_of, learned_with, with_more
from recalld_daemon.versions import flat


def judge(night: Night) -> bool:
    """The report says who won. False: the champion stays. Raises TrainedOn, Failed, Interrupted, StoreError."""
    held = night.questions("held")
    champion, challengers = _champion(night), challengers_of(night)
    if not challengers:
        raise Failed("there is no challenger: nothing could be trained")
    for _, candidate in challengers:
        refuse_trained(candidate, held)
    results = [_answered(night, each, held) for each in (champion, *(candidate for _, candidate in challengers))]
    report = report_of(results, held)
    night.report["judged"] = {
        **_as_json(report, challengers), "champion_knows": len(trained_among(champion, held))
    }  # fmt: skip
    night.report["chosen"] = report.chosen
    if report.chosen is None:
        night.report["result"] = f"{_name(night)} stays: no challenger is better for sure on {len(held)} questions"
    return report.chosen is not None


def challengers_of(night: Night) -> list[tuple[Recipe, Candidate]]:
    """Simplest first; those of which every part could be fitted."""
    trained, learned = marks_of(night.questions("train")), learned_with(night, fits_of(night))
    found = []
    for recipe in RECIPES:
        own = learned.get(recipe.parts)
        own = None if own is None else with_more(night, recipe, own)
        if own is not None:
            found.append((recipe, Candidate(recipe.name, own, trained)))
    return found


def chosen_of(night: Night) -> tuple[Recipe, Learned] | None:
    """Who won, as it would be searched with."""
    name = night.report.get("chosen")
    found = {recipe.name: (recipe, candidate.learned) for recipe, candidate in challengers_of(night)} if name else {}
    return found.get(str(name))


def metrics_of(night: Night) -> dict[str, Any]:
    """What stands with the version: its own figures first, then those of all that were judged."""
    judged, name = night.report["judged"], str(night.report["chosen"])
    own = judged["candidates"][name]
    gain = own["gain"][MAIN]
    rows = {each: _in_short(row) for each, row in judged["candidates"].items()}
    figures = {metric: own[metric] for metric in (MAIN, *(each for each in NAMES if each != MAIN))}
    return {
        **figures, "gain": gain["gain"], "low": gain["low"], "high": gain["high"], "n": judged["n"],
        "learned_until": night.report["collected"]["learned_until"], "judged": rows,
    }  # fmt: skip


def _in_short(row: Mapping[str, Any]) -> dict[str, float]:
    gain = row["gain"].get(MAIN)
    return {MAIN: row[MAIN]} | ({} if gain is None else {"gain": gain["gain"], "low": gain["low"]})


def _champion(night: Night) -> Candidate:
    """With what it may have learned from: all that was asked before its night held something out."""
    record = night.reader.version(night.encoder, night.live)
    until = dict(flat(record.metrics)).get("learned_until") if record is not None else None
    seen = marks_before(read_log(night.reader).questions, float(until)) if isinstance(until, int | float) else []
    return Candidate(CHAMPION, night.champion(), marks_of(seen))


def _answered(night: Night, candidate: Candidate, held: Sequence[Question]) -> Result:
    name = result_name(candidate.name)
    kept = night.kept.get_json(name)
    if kept is not None and len(kept["recall"][MAIN]) == len(held):
        return result_from_json(kept)

    def tick(done: int, total: int) -> None:
        night.tell(f"judging {candidate.name}", done, total)

    result = answered(night.ground(), candidate, held, tick)
    night.kept.put_json(name, result_to_json(result))
    return result


def _as_json(report: Report, challengers: Sequence[tuple[Recipe, Candidate]]) -> dict[str, Any]:
    found = report.to_json()
    for _, candidate in challengers:
        learned = candidate.learned
        found["candidates"][candidate.name]["vectors"] = "new" if _is_new(learned) else learned.vectors
    return found


def _is_new(learned: Learned) -> bool:
    """Whether its keys are a challenger's, for which there is no snapshot yet."""
    return learned.key is not None and learned.vectors == 0


def _name(night: Night) -> str:
    return f"version {night.live}" if night.live else "plain search"
