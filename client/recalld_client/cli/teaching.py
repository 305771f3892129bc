"""How --help is laid out, and how a mistake on the command line is told: in one line that names the help to read.

Prose is wrapped to the width, examples and lists stay as they were written.
"""

from __future__ import annotations

import argparse
import textwrap
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors take one line, and which guesses what an unknown command was meant to be."""

    def error(self, message: str) -> NoReturn:
        """Ends in SystemExit with code 2."""
        self.exit(2, f"{self.prog}: error: {message} (see `{self.prog} --help`)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(f"there is no command {value!r}{_meant(value, list(action.choices))}")
        super()._check_value(action, value)


class HelpFormatter(argparse.HelpFormatter):
    """Wraps each paragraph of a description or an epilog, except those with an indented line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(_laid_out(paragraph, width) for paragraph in text.strip().split("\n\n"))


def _meant(word: str, known: list[str]) -> str:
    """A question to append, "" where nothing is near.

    >>> _meant("serach", ["search", "tail"]), _meant("frobnicate", ["search", "tail"])
    ('; did you mean `search`?', '')
    """
    import difflib  # only for who mistyped

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _laid_out(paragraph: str, width: int) -> str:
    return paragraph if "\n  " in paragraph else textwrap.fill(paragraph, width, break_on_hyphens=False)
