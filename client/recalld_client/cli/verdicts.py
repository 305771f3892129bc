"""`recallctl good` and `recallctl bad`: a verdict on a snippet, on disk once it is acknowledged."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable
from typing import Literal

from recalld_protocol.messages import Acked, Feedback

from .asking import Daemon
from .command import Command, checked_text
from .document import document
from .screen import Screen
from .show import safe

ID_LIMIT = 256  # as messages.ShortText


def _run(verdict: Literal["good", "bad"]) -> Callable[[argparse.Namespace, Daemon, Screen], int]:
    def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
        impression = checked_text(options.id, "id", ID_LIMIT)
        acked = daemon.ask(Feedback(impression=impression, verdict=verdict, key=uuid.uuid4().hex), Acked)
        if options.json:
            screen.document(document(acked) | {"impression": impression, "verdict": verdict})
        else:
            screen.line(f"{safe(impression)}: {verdict}, noted")
        return 0

    return run


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the impression's id, as `recallctl tail` shows it")


GOOD = Command(
    name="good",
    usage="good [options] ID",
    summary="that snippet was useful",
    teaches="Tells the daemon that a snippet it showed was useful.",
    example="recallctl good 5256e8c5.2.1-7",
    arguments=_arguments,
    run=_run("good"),
)
BAD = Command(
    name="bad",
    usage="bad [options] ID",
    summary="that snippet was not useful",
    teaches="Tells the daemon that a snippet it showed was of no use there.",
    example="recallctl bad 5256e8c5.2.1-7",
    arguments=_arguments,
    run=_run("bad"),
)
