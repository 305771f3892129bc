"""How far a night is: the phase, what is done in it, its share, the time left; and the wish to stop, heard there.

On a terminal one line is written over; elsewhere a line is written when something else begins, and now and then while
it lasts. Every place that tells how far it is is a safe place to stop: nothing is half written there.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from recalld_daemon.sleep.phases import PHASES, Phase
from recalld_daemon.sleep.ports import Interrupted

EVERY_SECONDS = 0.2  # between two lines that are written over
EVERY_LINE_SECONDS = 30.0  # between two that are not
BAR = 20  # characters


@dataclass(slots=True)
class Told:
    """Called as `ports.Tell`; `phase` as `cycle.Said`. Raises Interrupted once `stop` is set."""

    to: TextIO
    clock: Callable[[], float] = time.monotonic
    stop: bool = False
    _phase: Phase = "collect"
    _what: str = ""
    _began: float = 0.0
    _last: float = field(default=-1e9)
    _open: bool = False

    def phase(self, phase: Phase) -> None:
        self._phase, self._what = phase, ""

    def __call__(self, what: str, done: int, total: int) -> None:
        if self.stop:
            raise Interrupted
        now, new = self.clock(), what != self._what
        if new:
            self._what, self._began = what, now
        every = EVERY_SECONDS if self.to.isatty() else EVERY_LINE_SECONDS
        if not new and now - self._last < every:
            return
        self._last = now
        line = line_of(self._phase, what, done, total, now - self._began)
        self.to.write(f"\r\x1b[K{line[:120]}" if self.to.isatty() else f"{line}\n")
        self._open = self.to.isatty()
        self.to.flush()

    def end(self) -> None:
        """Leave the terminal clean."""
        if self._open:
            self.to.write("\r\x1b[K")
            self.to.flush()
            self._open = False


def line_of(phase: Phase, what: str, done: int, total: int, seconds: float) -> str:
    """seconds: since `what` began.

    >>> line_of("judge", "judging f_Q", 25, 100, 10.0)
    '[3/8 judge] judging f_Q [#####...............] 25 % (25/100), 30 s left'
    >>> line_of("train", "train", 0, 0, 0.0)
    '[2/8 train]'
    """
    head = f"[{PHASES.index(phase) + 1}/{len(PHASES)} {phase}]"
    text = head if what == phase else f"{head} {what}"
    if not total:
        return text
    share = min(1.0, done / total)
    bar = "#" * int(BAR * share)
    left = f", {_span(seconds / share * (1.0 - share))} left" if share > 0 else ""
    return f"{text} [{bar:.<{BAR}}] {share:.0%} ({done}/{total}){left}".replace("%", " %", 1)


def _span(seconds: float) -> str:
    """
    >>> _span(12.4), _span(200.0), _span(9_000.0)
    ('12 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"


@contextmanager
def stopped_by_signals(told: Told) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the night to stop at the next safe place; a second one of them stops it there and then."""

    def ask(number: int, frame: object) -> None:
        if told.stop:
            raise KeyboardInterrupt
        told.stop = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
