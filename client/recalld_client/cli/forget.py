"""`recallctl forget`: out of the memory and off the disk, when this command ends well."""

from __future__ import annotations

import argparse
import os
import sys

from recalld_protocol.messages import Forget, Forgotten

from .asking import Daemon
from .command import Command, NoDaemon, checked_text
from .document import document
from .keyboard import open_keyboard
from .screen import Screen
from .show import safe

PATH_LIMIT = 4_096  # characters, as messages.PathText
PATIENCE_SECONDS = 600.0  # seconds where much is remembered, more where it is the first time (see docs/forgetting.md)
MEMORY = "memory:"


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    path = named(checked_text(options.path, "path", PATH_LIMIT))
    if not options.yes and sys.stdin is not None and sys.stdin.isatty() and not _agreed(path, screen):
        screen.note("recallctl: nothing was forgotten")
        return 1
    daemon.timeout_seconds = max(daemon.timeout_seconds, PATIENCE_SECONDS)
    try:
        forgotten = daemon.ask(Forget(path=path), Forgotten)
    except NoDaemon as fault:
        raise NoDaemon(f"not acknowledged; {fault}") from None
    if options.json:
        screen.document(document(forgotten))
    else:
        some = "passage" if forgotten.passages == 1 else "passages"
        screen.line(f"forgotten: {safe(forgotten.path)}, {forgotten.passages} {some}; nothing of it is left on disk")
    return 0


def named(path: str) -> str:
    """As the daemon knows it: `memory:N` as it is, a path absolute, and what is no path here as search shows it."""
    if path.startswith(MEMORY) or not (os.path.isabs(os.path.expanduser(path)) or os.path.lexists(path)):
        return path
    return os.path.abspath(os.path.expanduser(path))


def _agreed(path: str, screen: Screen) -> bool:
    screen.note(f"forget {safe(path)} for good, with all that was made of it? y/N")
    with open_keyboard(sys.stdin, sys.stderr) as keyboard:
        return next(iter(keyboard.answer()), "") == "y"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", help="a memory (memory:17), or a path, as `recalld import --list` or search shows it"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask back (asked is only on a terminal)")


COMMAND = Command(
    name="forget",
    usage="forget [options] memory:N | PATH",
    summary="forget a memory, or what was imported, for good",
    teaches="Forgets a memory, or all that was read from a file or directory that was imported, which is followed no "
    "more: texts, vectors, index rows, what the log shows of it, and free pages of the database. When the command ends "
    "with 0, nothing of it is left in recalld's files. A watched file stays its owner's: delete it, or take it out of "
    "the configuration, and then forget what the log has of it. docs/forgetting.md says what goes and what stays.",
    example="recallctl forget memory:17",
    arguments=_arguments,
    run=run,
)
