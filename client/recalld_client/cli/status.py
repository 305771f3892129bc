"""`recallctl status`: the daemon's state by topic, as it comes: a topic that a later daemon adds is shown as well."""

from __future__ import annotations

import argparse

from recalld_protocol.messages import Status, StatusAsk

from .asking import Daemon
from .command import Command, no_arguments
from .document import document
from .screen import Screen
from .show import name, safe, value

FIRST = ("daemon", "versions", "models", "index", "counts", "queue", "races", "memory")  # what people ask for first
LAST = ("paths",)


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    status = daemon.ask(StatusAsk(), Status)
    if options.json:
        screen.document(document(status))
        return 0
    for number, topic in enumerate(_ordered(status.topics)):
        if number:
            screen.line()
        screen.line(screen.heading(safe(topic)))
        screen.pairs(
            ((safe(name(key).replace("_", " ")), value(key, part), "") for key, part in status.topics[topic].items()),
            indent="  ",
        )
    return 0


def _ordered(topics: dict[str, dict[str, str | int | float | bool | None]]) -> list[str]:
    """The topics known to matter first, the paths last, all others between, as the daemon ordered them."""
    known = [topic for topic in FIRST if topic in topics]
    others = [topic for topic in topics if topic not in FIRST and topic not in LAST]
    return known + others + [topic for topic in LAST if topic in topics]


COMMAND = Command(
    name="status",
    usage="status [options]",
    summary="versions, models, index, queue, memory, races",
    teaches="Shows the daemon's state by topic: versions, models, what is indexed and what still "
    "waits, memory, the races won, slipped and silent, and the paths in use.",
    example="recallctl status --json | jq .topics.races",
    arguments=no_arguments,
    run=run,
)
