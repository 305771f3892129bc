"""`recallctl`: look into a running daemon, and tell it things. One file per command.

Light on purpose: argparse, the protocol and the client's link; nothing here loads a model or numpy. Whatever is wrong
ends in exactly one line on stderr and an exit code that a script can tell apart (see `command`).
"""

from __future__ import annotations

import argparse
import functools
import logging
import math
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from recalld_protocol.errors import ProtocolError

from . import (
    forget,
    host_commands,
    mcp,
    ping,
    recall,
    remember,
    search,
    sessions,
    status,
    tail,
    train,
    verdicts,
    versions,
    why,
)
from .asking import Daemon, find_endpoints
from .command import EXIT_CODES, INTERRUPTED, PIPE_CLOSED, USAGE, Command, Fault, NoDaemon
from .command import package_version as package_version
from .screen import Screen, open_screen
from .show import safe
from .teaching import HelpFormatter, Parser

COMMANDS: tuple[Command, ...] = (
    ping.COMMAND,
    status.COMMAND,
    sessions.COMMAND,
    tail.COMMAND,
    search.COMMAND,
    recall.COMMAND,
    remember.COMMAND,
    forget.COMMAND,
    why.COMMAND,
    verdicts.GOOD,
    verdicts.BAD,
    train.COMMAND,
    versions.VERSIONS,
    versions.ROLLBACK,
    host_commands.INSTALL,
    host_commands.UNINSTALL,
    host_commands.DOCTOR,
    mcp.COMMAND,
)
TIMEOUT_SECONDS = 2.0
TIMEOUT_LIMIT = 3600.0  # seconds; more is a mistake


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. `argv`: without the program's name, by default the process's own.

    Raises nothing; usage errors and --help end in SystemExit, as argparse has it.
    """
    logging.getLogger("recalld").addHandler(logging.NullHandler())  # stderr has one line, and it is ours
    for stream in (sys.stdout, sys.stderr):
        _bear_any_text(stream)
    screen = open_screen(sys.stdout, sys.stderr, os.environ)
    try:
        parser = build_parser()
        options, unknown = parser.parse_known_args(argv)
        place = options.place or parser
        if unknown:
            place.error(f"unrecognized arguments: {' '.join(map(safe, unknown))}")
        if options.command is None:
            parser.print_help(sys.stderr)
            return USAGE
        code = _run(options, screen)
        screen.flush()
    except Fault as fault:
        screen.note(f"recallctl: {safe(str(fault))}")
        return fault.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return PIPE_CLOSED
    return code


def build_parser(width: int | None = None) -> Parser:
    """The whole command line. `width`: columns of the help, by default the terminal's."""
    formatter = functools.partial(HelpFormatter, width=width, max_help_position=26)
    parser = Parser(
        prog="recallctl",
        usage="recallctl [options] COMMAND ...",
        description="Looks into the recalld daemon that runs for you, and tells it things.",
        epilog=f"example:\n  recallctl status\n\n`recallctl COMMAND --help` tells more.\n\n{EXIT_CODES}",
        formatter_class=formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"recallctl {package_version()}")
    _add_common(parser, suppress=False)
    places = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    parser.set_defaults(place=None)
    for command in COMMANDS:
        place = places.add_parser(
            command.name,
            prog=f"recallctl {command.name}",
            usage=f"recallctl {command.usage}",
            help=command.summary,
            description=command.teaches,
            epilog=f"example:\n  {command.example}\n\n{command.exit_codes}",
            formatter_class=formatter,
            allow_abbrev=False,
        )
        command.arguments(place)
        place.add_argument("--json", action="store_true", help="print JSON, with stable keys")
        _add_common(place, suppress=True)
        place.set_defaults(run=command.run, place=place)
    return parser


def _run(options: argparse.Namespace, screen: Screen) -> int:
    try:
        endpoints = find_endpoints(options.runtime_dir, os.environ)
    except ProtocolError as error:
        raise NoDaemon(str(error)) from None
    with Daemon(endpoints, options.timeout) as daemon:
        code: int = options.run(options, daemon, screen)
        return code


def _add_common(parser: argparse.ArgumentParser, *, suppress: bool) -> None:
    """Options that may stand before or after the command; after it they must not overwrite what stood before."""
    parser.add_argument(
        "--runtime-dir",
        metavar="DIR",
        default=argparse.SUPPRESS if suppress else None,
        help="where the daemon's sockets lie (default: $RECALLD_RUNTIME_DIR, else $XDG_RUNTIME_DIR/recalld)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=argparse.SUPPRESS if suppress else TIMEOUT_SECONDS,
        help=f"how long to wait for an answer (default {TIMEOUT_SECONDS:g})",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= TIMEOUT_LIMIT:
        raise argparse.ArgumentTypeError(f"seconds, above 0 and up to {TIMEOUT_LIMIT:g}, not {text!r}")
    return seconds


def _bear_any_text(stream: TextIO) -> None:
    """A terminal that can't show a character gets it escaped: better than a traceback."""
    if reconfigure := getattr(stream, "reconfigure", None):
        reconfigure(errors="backslashreplace")


def _drop_stdout() -> None:
    """The reader has gone: let the interpreter's last flush go nowhere, silently."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
