"""A replay's figures: each race as a row, and what they come to. Shares are of tool calls; a turn's own boundary is at
once, so it can only slip and is counted apart."""

from __future__ import annotations

from statistics import quantiles
from typing import Any

from recalld_daemon.demo.races import Races, RaceSeen


def report_of(races: Races) -> dict[str, Any]:
    """{"summary": {...}, "races": [...]}; times in milliseconds."""
    calls = [race for race in races.seen if race.call and race.passed]
    times = sorted(race.ms for race in races.seen if race.stage_ms)
    return {
        "summary": {
            "tool_calls": len(calls),
            "ready_any": _share(sum(race.ready_any for race in calls), len(calls)),
            "ready_full": _share(sum(race.ready_full for race in calls), len(calls)),
            "verdicts": dict(races.counts()),
            "snippets": sum(len(race.injections) for race in races.seen),
            "ms": _quantiles(times),
        },
        "races": [row_of(race) for race in races.seen],
    }


def row_of(race: RaceSeen) -> dict[str, Any]:
    return {
        "kind": "call" if race.call else "turn",
        "label": race.label[:300],
        "length_ms": round(race.length * 1000, 3),
        "verdict": race.verdict,
        "ready_any": race.ready_any,
        "ready_full": race.ready_full,
        "recall": race.recall,
        "stage": race.stage,
        "stage_ms": race.stage_ms,
        "ms": race.ms,
        "reason": race.reason,
        "injections": [
            {"id": i.id, "text": i.text, "path": i.path, "start": i.start, "end": i.end, "date": i.date}
            for i in race.injections
        ],
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _quantiles(times: list[float]) -> dict[str, float]:
    if len(times) < 2:
        return {f"p{p}": round(times[0], 3) if times else 0.0 for p in (50, 95, 99)}
    cuts = quantiles(times, n=100, method="inclusive")
    return {"p50": round(cuts[49], 3), "p95": round(cuts[94], 3), "p99": round(cuts[98], 3)}
