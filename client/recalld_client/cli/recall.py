"""`recallctl recall`: all that is known about something, as one block that fits a model's context."""

from __future__ import annotations

import argparse

from recalld_protocol.messages import Pack, Packed

from .asking import Daemon
from .command import Command, checked_text
from .document import document
from .screen import Screen
from .search import QUERY_LIMIT, directory, moment, nothing
from .show import safe, span

LEAST, MOST, USUAL = 50, 1_500, 1_000  # tokens, the wire's bounds and default


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    message = Pack(
        query=checked_text(" ".join(options.query), "query", QUERY_LIMIT),
        token_budget=options.tokens,
        cwd=directory(options.cwd),
        all_scopes=options.all_projects,
        as_of=options.as_of,
    )
    packed = daemon.ask(message, Packed)
    if options.json:
        screen.document(document(packed))
        return 0
    for line in packed.text.splitlines():
        screen.line(safe(line))
    facts = [f"{packed.tokens} tokens", f"{packed.passages} passages"] if packed.text else [nothing(daemon)]
    facts += [f"{packed.left_out} more would not fit"] if packed.left_out else []
    screen.note(screen.paint(f"{', '.join(facts)} ({packed.stage}, {span(packed.ms / 1e3)})", "dim"))
    return 0


def _tokens(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not LEAST <= number <= MOST:
        raise argparse.ArgumentTypeError(f"a number from {LEAST} to {MOST:,}, not {text!r}")
    return number


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="+", help="about what; several words need no quotes")
    parser.add_argument(
        "--tokens", metavar="N", type=_tokens, default=USUAL,
        help=f"at most N tokens, {LEAST} to {MOST:,} (default {USUAL:,})",
    )  # fmt: skip
    parser.add_argument("--cwd", metavar="DIR", help="the project of this directory (default: the present one)")
    parser.add_argument("--all-projects", action="store_true", help="every project's memory")
    parser.add_argument(
        "--as-of", metavar="ISO", type=moment, help="only what was written before; local time unless it says otherwise"
    )


COMMAND = Command(
    name="recall",
    usage="recall [options] QUERY...",
    summary="all that is known about something, for a model's context",
    teaches="Prints quoted facts with their dates and sources, oldest first, each event once, in whole lines "
    "within the tokens given (3.5 characters count as one). Nothing is held back by the gate.",
    example="recallctl recall --tokens 600 which port does the staging database use",
    arguments=_arguments,
    run=run,
)
