"""`recallctl why`: what made a snippet appear, or a silence.

One table of the candidates, with each lane's rank and score, and under it each candidate's way through the gates.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from recalld_protocol.messages import Why, WhyAsk, WhyCandidate

from .asking import Daemon
from .command import Command, checked_text
from .document import document
from .screen import Screen, style_of
from .show import cut, safe, span, table

ID_LIMIT = 256  # as messages.ShortText


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    why = daemon.ask(WhyAsk(target=checked_text(options.id, "id", ID_LIMIT)), Why)
    if options.json:
        screen.document(document(why))
        return 0
    screen.pairs(_facts(why))
    if why.candidates:
        screen.line()
        head, *rows = _table(why.candidates, screen.width)
        screen.line(screen.heading(head))
        for row, candidate in zip(rows, why.candidates, strict=True):
            screen.line(row)
            screen.lines(_details(candidate, screen))
    else:
        screen.line("no candidates")
    return 0


def _facts(why: Why) -> Iterator[tuple[str, str, str]]:
    yield "recall", safe(why.recall), ""
    yield "cause", safe(why.cause) or "-", ""
    yield "query", safe(why.query) or "-", ""
    reason = f": {safe(why.reason)}" if why.reason else ""
    yield "outcome", (safe(why.outcome) or "-") + reason, style_of(why.outcome)
    times = ", ".join(f"{safe(stage)} {span(ms / 1e3)}" for stage, ms in why.stage_ms.items())
    yield "stage", safe(why.stage) + (f" ({times})" if times else ""), ""


def _table(candidates: list[WhyCandidate], width: int | None) -> list[str]:
    lanes = list(dict.fromkeys(lane for candidate in candidates for lane in candidate.lanes))
    heads = ("rank", "passage", *map(safe, lanes), "p", "shown as")
    numbers = (0, *range(2, 3 + len(lanes)))
    return table(heads, (_row(candidate, lanes) for candidate in candidates), width, flexible=1, numbers=numbers)


def _row(candidate: WhyCandidate, lanes: list[str]) -> tuple[str, ...]:
    """A candidate that ranked too low to be fetched has a number for its path, no place in it and no p."""
    place = f":{candidate.start}-{candidate.end}" if candidate.end else ""
    return (
        str(candidate.fused_rank or "-"),
        safe(candidate.path + place),
        *(_lane(candidate.lanes.get(lane)) for lane in lanes),
        f"{candidate.probability:.2f}" if candidate.gates else "-",
        safe(candidate.impression) or "-",
    )


def _lane(found: tuple[int, float] | None) -> str:
    """A lane's rank and score.

    >>> _lane((2, 0.6123)), _lane(None)
    ('#2 0.612', '-')
    """
    return f"#{found[0]} {found[1]:.3g}" if found else "-"


def _details(candidate: WhyCandidate, screen: Screen) -> Iterator[str]:
    room = None if screen.width is None else max(screen.width - 6, 8)
    if candidate.text:
        yield "      " + screen.paint(cut(f'"{safe(candidate.text)}"', room), "dim")
    for gate, decision in candidate.gates.items():
        style = "green" if decision.startswith("passed") else "red" if decision.startswith("stopped") else ""
        yield "      " + screen.paint(cut(f"{safe(gate)} {safe(decision)}", room), style)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id",
        metavar="ID",
        help="a snippet's id (such as 5256e8c5.2.1-7) or a recall's (5256e8c5.2.1), as `recallctl tail` shows them",
    )


COMMAND = Command(
    name="why",
    usage="why [options] ID",
    summary="why was this shown, or nothing?",
    teaches="Explains a snippet, or a silence: what started the recall and with which query, how far "
    "it came in which time, and for each candidate its fused rank, each lane's rank and score, "
    "the probability p, and what each gate decided.",
    example="recallctl why 5256e8c5.2.1-7",
    arguments=_arguments,
    run=run,
)
