"""`recallctl status`: the daemon's state by topic, as it comes: a topic that a later daemon adds is shown as well."""

from __future__ import annotations

import argparse

from recalld_protocol.messages import Status, StatusAsk

from .asking import Daemon
from .command import Command, no_arguments
from .document import document
from .screen import Screen
from .show import Topics, cut, name, safe, value

FIRST = ("daemon", "versions", "models", "index", "counts", "queue", "races", "memory")  # what people ask for first
LAST = ("paths",)


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    status = daemon.ask(StatusAsk(), Status)
    if options.json:
        screen.document(document(status))
        return 0
    screen.line(cut(headline(status.topics), screen.width))
    for topic in _ordered(status.topics):
        screen.line()
        screen.line(screen.heading(safe(topic)))
        screen.pairs(
            ((safe(name(key).replace("_", " ")), value(key, part), "") for key, part in status.topics[topic].items()),
            indent="  ",
        )
    return 0


def headline(topics: Topics) -> str:
    """What most people look for, in one line; what a daemon does not tell is left out.

    >>> headline({"daemon": {"version": "0.1.0"}, "models": {"state": "ready"}, "races": {"won": 3, "silent": 14}})
    'recalld 0.1.0: model ready; races 3 won, 14 silent'
    """
    daemon, models, index, races = (topics.get(topic, {}) for topic in ("daemon", "models", "index", "races"))
    state = [f"model {value('state', models['state'])}"] if "state" in models else []
    state += [f"index {value('state', index['state'])}"] if "state" in index else []
    state += [f"{value('passages', index['passages'])} passages"] if "passages" in index else []
    raced = [f"{value(end, races[end])} {end}" for end in ("won", "slipped", "silent") if end in races]
    line = f"recalld {value('version', daemon['version'])}" if "version" in daemon else "recalld"
    line += f": {', '.join(state)}" if state else ""
    return line + (f"; races {', '.join(raced)}" if raced else "")


def _ordered(topics: Topics) -> list[str]:
    """The topics known to matter first, the paths last, all others between, as the daemon ordered them."""
    known = [topic for topic in FIRST if topic in topics]
    others = [topic for topic in topics if topic not in FIRST and topic not in LAST]
    return known + others + [topic for topic in LAST if topic in topics]


COMMAND = Command(
    name="status",
    usage="status [options]",
    summary="versions, models, index, queue, memory, races",
    teaches="Shows the daemon's state in one line, then by topic: versions, models, what is indexed and what still "
    "waits, memory, the races won, slipped and silent, and the paths in use.",
    example="recallctl status --json | jq .topics.races",
    arguments=no_arguments,
    run=run,
)
