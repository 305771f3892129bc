"""`recallctl sessions`: the conversations the daemon knows, the liveliest first."""

from __future__ import annotations

import argparse
import time

from recalld_protocol.messages import SessionRow, Sessions, SessionsAsk

from .asking import Daemon
from .command import Command, no_arguments
from .document import document
from .screen import Screen
from .show import ago, safe, table

HEADS = ("session", "host", "directory", "state", "seen", "turns", "calls", "won", "slipped", "silent")


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    sessions = daemon.ask(SessionsAsk(), Sessions)
    if options.json:
        screen.document(document(sessions))
        return 0
    if not sessions.sessions:
        screen.line("no sessions")
        return 0
    rows = sorted(sessions.sessions, key=lambda row: (not row.connected, -row.last_seen_at))
    now = time.time()
    head, *lines = table(HEADS, (_row(row, now) for row in rows), screen.width, flexible=2, numbers=range(5, 10))
    screen.line(screen.heading(head))
    screen.lines(lines)
    return 0


def _row(row: SessionRow, now: float) -> tuple[str, ...]:
    return (
        safe(row.session),
        safe(row.host or row.client) or "-",
        safe(row.cwd) or "-",
        "connected" if row.connected else "away",
        ago(row.last_seen_at, now),
        *(f"{count:,}" for count in (row.turns, row.calls, row.won, row.slipped, row.silent)),
    )


COMMAND = Command(
    name="sessions",
    usage="sessions [options]",
    summary="the agents' conversations",
    teaches="Lists the sessions the daemon knows, those that are connected first, then those that "
    "went away or ended (the latest 50): their host and directory, when they were last heard of, "
    "their turns and tool calls, and how their races ended.",
    example="recallctl sessions",
    arguments=no_arguments,
    run=run,
)
