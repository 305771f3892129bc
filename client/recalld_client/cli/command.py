"""What a command of `recallctl` is, and how one can end.

A command is a value: its name, what it teaches, its arguments, and a function from options to an exit code. Whatever
goes wrong is a `Fault`, which carries the exit code and the one line that the user gets on stderr.

    Fault                1   the daemon refused, or failed at it
    ├── UsageFault       2   the command line, or a text too long for the wire
    ├── NoDaemon         3   absent, hung, or of another version
    └── NotFound         4   the daemon knows nothing of that id
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .asking import Daemon
    from .screen import Screen

USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE, as of any tool whose reader has gone
EXIT_CODES = """\
exit codes:
  0    done
  1    the daemon refused, or failed at it
  2    usage
  3    no daemon: absent, hung, or of another version
  4    nothing is known of that id
  130  interrupted
"""
HOST_EXIT_CODES = """\
exit codes:
  0    done; all is well
  1    a file or an entry is not as it should be: the line says how to mend it
  2    usage
  3    no daemon, and one is needed
  130  interrupted
"""


class Fault(Exception):
    """The command can't be carried out; its text is the one line for the user."""

    exit_code = 1


class UsageFault(Fault):
    exit_code = USAGE


class NoDaemon(Fault):
    exit_code = 3


class NotFound(Fault):
    exit_code = 4


@dataclass(frozen=True, slots=True)
class Command:
    """`usage` goes without the program's name; `teaches` is shown above the options, `example` below them."""

    name: str
    usage: str
    summary: str
    teaches: str
    example: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Daemon, Screen], int]
    exit_codes: str = EXIT_CODES


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """For commands that take none of their own."""


def checked_text(text: str, what: str, limit: int) -> str:
    """`text`, if the wire takes it. Raises UsageFault when it is empty, longer than `limit`, or not UTF-8."""
    if not text.strip():
        raise UsageFault(f"the {what} is empty")
    if len(text) > limit:
        raise UsageFault(f"the {what} has {len(text):,} characters, at most {limit:,} are taken: shorten it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageFault(f"the {what} is not valid UTF-8: convert it first") from None
    return text


def package_version() -> str:
    """Of the installed distribution; "unknown" where it runs from bare files."""
    try:
        return importlib.metadata.version("recalld")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
