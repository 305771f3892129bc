"""The phases of a night in order, and what becomes of a night that was cut short. Sans-IO: values in, decisions out.

Each phase is idempotent and leaves what it made in the store before the next one is noted, so a process that is killed
at any point finds its place again. A night goes on only as the night it was: under the same settings, encoder and live
version, and not when it is older than a day and a half, since what was asked meanwhile would be missing from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from recalld_daemon.store.rows import CycleRecord

Phase = Literal["collect", "train", "judge", "reproject", "index", "verify", "activate", "tidy"]
PHASES: tuple[Phase, ...] = get_args(Phase)
STALE_SECONDS = 36 * 3_600.0  # a night that was cut short is gone on with the next day, not the day after

Way = Literal["begin", "resume", "finish"]


@dataclass(frozen=True, slots=True)
class Start:
    """How this run starts. begin: a new night; resume: the last one goes on at `phase`; finish: the last one's version
    is live already, only tidying is left. why: of a last night that does not go on, or ""."""

    way: Way
    phase: Phase = "collect"
    why: str = ""


def start_of(last: CycleRecord | None, key: str, live: int, now: float) -> Start:
    """last: the newest night of the store, if any. live: the version that is searched now. now: epoch seconds.

    >>> start_of(None, "k", 0, 0.0)
    Start(way='begin', phase='collect', why='')
    """
    if last is None or last.ended_at is not None:
        return Start("begin")
    if last.phase not in PHASES:
        return Start("begin", why=f"its phase {last.phase!r} is unknown here")
    if last.version is not None and last.version == live:
        return Start("finish", "tidy")
    if last.key != key:
        return Start("begin", why="its settings, encoder or live version were others")
    if not 0.0 <= now - last.began_at <= STALE_SECONDS:
        return Start("begin", why="it is too long ago")
    return Start("resume", last.phase)


def after(phase: Phase) -> Phase | None:
    """The phase that follows; None after the last."""
    at = PHASES.index(phase) + 1
    return PHASES[at] if at < len(PHASES) else None
