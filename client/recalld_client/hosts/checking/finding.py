"""One thing that was looked at: what it is about, how it stands, and how it is mended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`about`: a host's name, "daemon" or "machine". `remedy`: what to do; "" where all is well.

    "note": works, but the user may want to know.
    """

    about: str
    state: State
    text: str
    remedy: str = ""


def ok(about: str, text: str) -> Finding:
    return Finding(about, "ok", text)


def note(about: str, text: str, remedy: str = "") -> Finding:
    return Finding(about, "note", text, remedy)


def wrong(about: str, text: str, remedy: str) -> Finding:
    return Finding(about, "wrong", text, remedy)


def split(told: str) -> tuple[str, str]:
    """What is wrong, and the remedy that stands after its last colon.

    >>> split("no daemon at /x: start it")
    ('no daemon at /x', 'start it')
    """
    what, _, remedy = told.rpartition(": ")
    return (what, remedy) if what else (told, "")
