"""What a night did, or would do, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recalld_daemon.evaluation.metrics import MAIN


def told(report: Mapping[str, Any]) -> str:
    """Of a night's report, or of a plan."""
    lines = _planned(report) if report.get("dry_run") else _done(report)
    return "\n".join(lines) + "\n"


def _done(report: Mapping[str, Any]) -> Iterator[str]:
    if collected := report.get("collected"):
        yield _collected(collected)
    yield from _trained(report.get("trained", {}))
    yield from _judged(report.get("judged", {}))
    if reprojected := report.get("reprojected"):
        yield _reprojected(reprojected, report)
    if report.get("dropped"):
        yield f"dropped old versions {', '.join(map(str, report['dropped']))}"
    yield str(report.get("result", "nothing was done"))


def _collected(found: Mapping[str, Any]) -> str:
    return (
        f"{found['distinct_queries']} distinct queries have an answer: {found['train']} questions ({found['pairs']} "
        f"pairs) to learn from, the newest {found['held']} held out"
    )


def _trained(found: Mapping[str, Any]) -> Iterator[str]:
    for parts, about in found.items():
        if isinstance(about, str):
            yield f"{parts}: {about}"
        elif "why_stopped" in about:
            drift = f", keys move by {about['drift']:.4f}" if about.get("drift") else ""
            yield (
                f"fitted {'+'.join(f'f_{letter.upper()}' for letter in parts)}: {about['epochs']} epochs, best "
                f"{about['best']} ({about['why_stopped']}), {about['seconds']} s{drift}"
            )


def _judged(found: Mapping[str, Any]) -> Iterator[str]:
    if not found:
        return
    yield f"judged on {found['n']} questions by the whole recall ({MAIN.upper()}, gain over the champion, 95 %):"
    for name, row in found["candidates"].items():
        gain = row["gain"].get(MAIN)
        more = f"  {gain['gain']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}]" if gain else ""
        yield f"  {name:<28} {row[MAIN]:.4f}{more}"


def _reprojected(found: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    if not found["needed"]:
        drift = report.get("drift") or 0.0
        small = f": its keys moved by {drift:.4f}, less than {found['least_drift']}" if drift else ": keys are the same"
        return f"stored vectors were not projected again{small}"
    return f"projected {found.get('vectors', 0)} vectors again in {found.get('seconds', 0)} s ({found['precision']})"


def _planned(plan: Mapping[str, Any]) -> Iterator[str]:
    champion = f"version {plan['champion']}" if plan["champion"] else "plain search (version 0)"
    yield f"live is {champion}"
    if plan["running"] is not None:
        yield f"a sleep cycle is running (pid {plan['running'] or 'not known yet'}); this is what it does"
    elif plan["way"] != "begin":
        yield f"would go on with the night that was cut short, from phase {plan['from_phase']}"
    yield _collected(plan["collected"])
    if plan["result"]:
        yield plan["result"].replace("nothing was trained", "nothing would be trained")
        return
    yield f"would train and judge, simplest first: {', '.join(plan['would_train'])}"
    if plan["left_out"]:
        yield f"would leave out {' and '.join(plan['left_out'])}"
    again = plan["reprojection"]
    yield (
        f"would project {again['vectors']} vectors again ({again['bytes'] / 1e6:.1f} MB) only if an f_K wins and moves "
        f"them by {again['least_drift']} or more on average; that is known once it is trained"
    )
    yield f"would keep the last {plan['keep_versions']} versions; nothing was written"
