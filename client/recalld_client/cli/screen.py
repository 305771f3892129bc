"""Where output goes: one stream, its width, and whether it takes colours.

Colours only on a terminal, and not where NO_COLOR says no. Lines are cut to the terminal's width, or to COLUMNS; a
pipe gets them whole, since what reads it has no columns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from .show import cells, cut

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}  # SGR
OUTCOME_STYLES = {
    "won": "green",
    "slipped": "yellow",
    "silent": "dim",
    "stale": "dim",
    "repeat": "dim",
    "withheld": "dim",
    "failed": "red",
    "reverted": "yellow",
}


@dataclass(frozen=True, slots=True)
class Screen:
    """`width`: columns, None for no bound."""

    out: TextIO
    err: TextIO
    width: int | None
    colours: bool

    def line(self, text: str = "") -> None:
        print(text, file=self.out)

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def flush(self) -> None:
        self.out.flush()

    def note(self, text: str) -> None:
        """One line on stderr, beside the output."""
        print(text, file=self.err, flush=True)

    def document(self, of: Any) -> None:
        """One JSON document on a line of its own; ASCII, so nothing in it can steer a terminal."""
        self.line(json.dumps(of, allow_nan=False))

    def paint(self, text: str, style: str) -> str:
        """`text` in a style of STYLES ("" for none), where colours are on."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.colours and style else text

    def heading(self, text: str) -> str:
        return self.paint(text, "bold")

    def pairs(self, pairs: Iterable[tuple[str, str, str]], indent: str = "") -> None:
        """Names and values in two columns; the third part is the value's style."""
        known = list(pairs)
        widest = max((cells(name) for name, _, _ in known), default=0)
        room = None if self.width is None else max(self.width - len(indent) - widest - 2, 8)
        for name, shown, style in known:
            padding = " " * (widest - cells(name) + 2)
            self.line(f"{indent}{self.paint(name, 'dim')}{padding}{self.paint(cut(shown, room), style)}")


def style_of(outcome: str) -> str:
    """The style of an outcome, or of an event named after one.

    >>> style_of("won"), style_of("injection.slipped"), style_of("ingest.file")
    ('green', 'yellow', '')
    """
    return OUTCOME_STYLES.get(outcome.rpartition(".")[2], "")


def open_screen(out: TextIO, err: TextIO, env: Mapping[str, str]) -> Screen:
    """The screen that `out` is."""
    terminal = out.isatty()
    colours = terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    return Screen(out, err, _width(out, env, terminal), colours)


def _width(out: TextIO, env: Mapping[str, str], terminal: bool) -> int | None:
    if (columns := env.get("COLUMNS", "")).isdecimal() and int(columns) > 0:
        return int(columns)
    if not terminal:
        return None
    try:
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
