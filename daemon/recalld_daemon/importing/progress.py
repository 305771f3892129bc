"""How far an import is: one line that is written over; where that can't be, a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

EVERY_SECONDS = 0.1  # between two lines that are written over
EVERY_LINE_SECONDS = 10.0  # between two that are not
WIDTH = 110
BAR = 20  # characters


@dataclass(slots=True)
class ProgressLine:
    """Call `say` as often as you like, `end` before anything else is written."""

    to: TextIO
    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    _last: float = field(default=-1e9)
    _what: str = ""
    _open: bool = False

    def say(self, what: str, done: int, total: int, unit: str = "") -> None:
        """total 0: not known. A new `what` is told at once."""
        now, terminal = self.clock(), self.to.isatty()
        every = EVERY_SECONDS if terminal else EVERY_LINE_SECONDS
        if self.quiet or (what == self._what and now - self._last < every):
            return
        self._last, self._what = now, what
        line = line_of(what, done, total, unit)
        self.to.write(f"\r\x1b[K{line[:WIDTH]}" if terminal else f"{line}\n")
        self._open = terminal
        self.to.flush()

    def end(self) -> None:
        """Leave the terminal clean."""
        if self._open:
            self.to.write("\r\x1b[K")
            self.to.flush()
            self._open = False


def line_of(what: str, done: int, total: int, unit: str = "") -> str:
    """
    >>> line_of("reading", 25, 100, "MB")
    'reading [#####...............] 25/100 MB'
    >>> line_of("loading the model", 0, 0)
    'loading the model'
    """
    if not total:
        return what
    share = min(1.0, done / total)
    bar = "#" * int(BAR * share)
    return f"{what} [{bar:.<{BAR}}] {done:,}/{total:,} {unit}".rstrip()
