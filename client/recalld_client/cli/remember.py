"""`recallctl remember`: keep a text. It is on disk when this command ends well."""

from __future__ import annotations

import argparse
import sys
import uuid
from typing import Literal

from recalld_protocol.messages import Remember, Remembered

from .asking import Daemon
from .command import Command, NoDaemon, UsageFault, checked_text
from .document import document
from .screen import Screen
from .search import directory
from .show import safe

TEXT_LIMIT = 32_768  # characters, as messages.Remember.text
TITLE_LIMIT = 256  # as messages.ShortText


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    text = _from_stdin() if options.text == ["-"] else " ".join(options.text)
    scope: Literal["project", "global"] = "global" if options.globally else "project"
    message = Remember(
        text=checked_text(text, "text", TEXT_LIMIT),
        title=checked_text(options.title, "title", TITLE_LIMIT) if options.title is not None else "",
        cwd=directory(options.cwd),
        scope=scope,
        key=uuid.uuid4().hex,
    )
    try:
        remembered = daemon.ask(message, Remembered)
    except NoDaemon as fault:
        raise NoDaemon(f"not acknowledged; {fault}") from None
    if options.json:
        screen.document(document(remembered))
    else:
        where = (
            "for every project" if scope == "global" else f"for the project of {safe(message.cwd) or 'no directory'}"
        )
        screen.line(f"remembered as {safe(remembered.memory)}, {where}")
    return 0


def _from_stdin() -> str:
    """All of stdin. Never holds more than the wire takes. Raises UsageFault when it is not UTF-8, or too long."""
    raw = sys.stdin.buffer.read(TEXT_LIMIT * 4 + 1)  # a character takes four bytes at most
    if len(raw) > TEXT_LIMIT * 4:
        raise UsageFault(f"the text has over {TEXT_LIMIT:,} characters: put it in a file that is watched instead")
    try:
        return raw.decode().strip()
    except UnicodeDecodeError as error:
        raise UsageFault(f"stdin is not UTF-8 at byte {error.start}: convert it first") from None


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", nargs="+", help="what to keep; a single - reads it from stdin")
    parser.add_argument("--title", metavar="TITLE", help="what it is about, in a few words")
    parser.add_argument("--global", dest="globally", action="store_true", help="for every project, not this one alone")
    parser.add_argument("--cwd", metavar="DIR", help="for the project of this directory (default: the present one)")


COMMAND = Command(
    name="remember",
    usage="remember [options] TEXT... | -",
    summary="keep a text",
    teaches="Keeps a text, for this directory's project or with --global for all. When the command "
    "ends with 0, it is on disk. Longer things belong into a file in a watched directory.",
    example="git log -1 --format=%B | recallctl remember --title 'why numeric' -",
    arguments=_arguments,
    run=run,
)
