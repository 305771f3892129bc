"""`recallctl versions` and `recallctl rollback`: what was learned, and going back to what was learned before."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from recalld_protocol.messages import Activate, Activated, VersionRow, Versions, VersionsAsk

from .asking import Daemon
from .command import Command, no_arguments
from .document import document
from .screen import Screen
from .show import moment, safe, size, table, value

PATIENCE_SECONDS = 600.0  # for an index that must be built from the store first; else it is there in a moment
HEADS = ("version", "", "made", "why", "drift", "|W2|", "|b2|", "size", "on held-out pairs")
WIDEST_WHY = 32  # characters, beside figures that matter more


def list_versions(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    found = daemon.ask(VersionsAsk(), Versions)
    if options.json:
        screen.document(document(found))
        return 0
    if not found.versions:
        screen.line("no versions yet: the encoder is being loaded")
        return 0
    rows = (_row(row) for row in found.versions)
    head, *lines = table(HEADS, rows, screen.width, flexible=8, numbers=(0, 4, 5, 6, 7))
    screen.line(screen.heading(head))
    screen.lines(lines)
    return 0


def roll_back(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    daemon.timeout_seconds = max(daemon.timeout_seconds, PATIENCE_SECONDS)
    activated = daemon.ask(Activate(version=options.version), Activated)
    if options.json:
        screen.document(document(activated))
    else:
        plain = ", plain search," if not activated.version else ""
        screen.line(f"version {activated.version}{plain} is live ({activated.ms:.1f} ms)")
    return 0


def _row(row: VersionRow) -> tuple[str, ...]:
    why = safe(row.why)
    return (
        str(row.version),
        "live" if row.live else "",
        moment(row.created_at),
        why if len(why) <= WIDEST_WHY else f"{why[: WIDEST_WHY - 1]}…",
        *(f"{figure:.3f}" if row.version else "-" for figure in (row.drift, row.w2, row.b2)),
        size(row.bytes),
        ", ".join(_figures(row)) or "-",
    )


def _figures(row: VersionRow) -> Iterator[str]:
    """Its own; those of the others it was judged beside ("judged.f_Q.mrr") are in the JSON."""
    for name, figure in row.metrics.items():
        if name == "learned_until" and isinstance(figure, int | float):
            yield f"learned until {moment(figure)}"
        elif not name.startswith("judged."):
            yield f"{safe(name)} {value(name, figure)}"


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 2**53:
        raise argparse.ArgumentTypeError(f"the number of a version, as `recallctl versions` lists them, not {text!r}")
    return number


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", metavar="N", type=_number, help="the version's number; 0 is plain search")


VERSIONS = Command(
    name="versions",
    usage="versions [options]",
    summary="what was learned, and when",
    teaches="Lists the versions of what was learned, oldest first, and which one is live: when and why each was made, "
    "how far its keys have moved since the last re-projection (drift), the size of what its query adapter learned for "
    "each query (|W2|) and for all alike (|b2|), bytes on disk, and how it did on held-out pairs. Version 0 is plain "
    "search.",
    example="recallctl versions",
    arguments=no_arguments,
    run=list_versions,
)
ROLLBACK = Command(
    name="rollback",
    usage="rollback [options] N",
    summary="search by another version of what was learned",
    teaches="Makes a version live as it was made, an older one or a newer one again; 0 is plain search. What was "
    "learned since, snippet by snippet, is dropped, also where the version is live already. Nothing is trained, and "
    "recalls go on meanwhile. Where its index has to be built first, this waits for it, "
    f"{PATIENCE_SECONDS:.0f} seconds at most.",
    example="recallctl rollback 2",
    arguments=_arguments,
    run=roll_back,
)
