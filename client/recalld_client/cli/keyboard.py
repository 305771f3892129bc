"""Answers to one question after the other: single keys of a terminal, or lines of anything else.

Both give a question's answer as a run of keys that ends with the one that ends the question ("\\n" for enter); the run
of an input that has ended just ends. The terminal is left as it was found, whatever happens.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TextIO

ENTER = "\n"
END_OF_INPUT = ("", "\x04")  # the other side has gone; Ctrl-D


class Keyboard:
    """A terminal whose keys come one by one, unseen."""

    echoes = True  # what a key did must be shown

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def answer(self) -> Iterator[str]:
        while (key := os.read(self._descriptor, 1).decode("ascii", "replace")) not in END_OF_INPUT:
            yield ENTER if key == "\r" else key.lower()


class Lines:
    """A pipe or a file: one line answers one question. None: standard input is closed, which is one that has ended."""

    echoes = False

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def answer(self) -> Iterator[str]:
        if self._stream is not None and (line := self._stream.readline()):
            yield from [key for key in line.lower() if not key.isspace()]
            yield ENTER


@contextlib.contextmanager
def open_keyboard(stdin: TextIO | None, out: TextIO) -> Iterator[Keyboard | Lines]:
    """Keys where both are a terminal, else lines."""
    if stdin is None or not (stdin.isatty() and out.isatty()):
        yield Lines(stdin)
        return
    import termios
    import tty

    descriptor = stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
