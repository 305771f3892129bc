"""`recallctl tail`: the daemon's events as they happen.

All events are subscribed to and the filters applied here, because the sequence number runs over all of them: only so
does a gap mean that something was missed (the daemon never waits for a slow reader) and not that it was filtered out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from recalld_client.link import Subscription
from recalld_protocol.endpoints import socket_path
from recalld_protocol.messages import Event, Ping, Pong

from .asking import Daemon
from .command import Command
from .document import document
from .screen import Screen, style_of
from .show import clock, cut, name, safe, value

IDLE_SECONDS = 1.0  # a wait may last as long; longer ones are a loop, so that Ctrl-C is always heard
SESSION_SHOWN = 8  # characters of a session's id: enough to tell them apart
WHAT_WIDTH = 18  # columns; the longest common name has as many


@dataclass(frozen=True, slots=True)
class Gap:
    """`missed`: events that never arrived; 0 where that cannot be told, since the count began anew."""

    missed: int
    restarted: bool


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    daemon.ask(Ping(), Pong)  # a subscription to nobody would wait for ever
    left = options.count
    with daemon.events() as subscription:
        if not options.json:
            screen.note(f"listening at {safe(str(socket_path(daemon.endpoints.events)))}; Ctrl-C ends")
        for item in follow(subscription):
            if isinstance(item, Gap):
                _tell_gap(item, options.json, screen)
            elif _wanted(item, options.session, options.what):
                _show(item, options.json, screen)
                left -= 1
            screen.flush()
            if left == 0:
                return 0
    return 0


def follow(subscription: Subscription) -> Iterator[Event | Gap]:
    """Events for ever, and a gap between them where some are missing."""
    seen = 0
    while True:
        event = subscription.receive(IDLE_SECONDS)
        if event is None:
            continue
        if found := gap(seen, event.seq):
            yield found
        seen = event.seq
        yield event


def gap(seen: int, seq: int) -> Gap | None:
    """What lies between the event `seen` (0: none yet) and the event `seq`.

    >>> gap(0, 40), gap(40, 41), gap(41, 45), gap(45, 1)
    (None, None, Gap(missed=3, restarted=False), Gap(missed=0, restarted=True))
    """
    if not seen or seq == seen + 1:
        return None
    return Gap(missed=max(seq - seen - 1, 0), restarted=seq <= seen)


def _wanted(event: Event, session: str, prefixes: list[str]) -> bool:
    return event.session.startswith(session) and (not prefixes or event.what.startswith(tuple(prefixes)))


def _tell_gap(found: Gap, as_json: bool, screen: Screen) -> None:
    if as_json:
        screen.document({"kind": "gap", "missed": found.missed, "restarted": found.restarted})
        return
    missed = f"missed {found.missed:,} event{'' if found.missed == 1 else 's'}"
    screen.line(screen.paint(f"-- {'the daemon was restarted' if found.restarted else missed}", "yellow"))


def _show(event: Event, as_json: bool, screen: Screen) -> None:
    if as_json:
        screen.document(document(event))
        return
    what = safe(event.what)
    lead = f"{clock(event.at)}  {safe(event.session)[:SESSION_SHOWN] or '-':<{SESSION_SHOWN}}  "
    padded = f"{what:<{WHAT_WIDTH}}  "
    room = None if screen.width is None else max(screen.width - len(lead) - len(padded), 8)
    data = "  ".join(f"{safe(name(key))}={value(key, part)}" for key, part in event.data.items())
    end = f"{padded}{cut(data, room)}" if data else what
    screen.line(lead + screen.paint(end[: len(padded)], style_of(what)) + end[len(padded) :])


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on, not {text!r}")
    return number


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--session", metavar="ID", default="", help="only this session (or those whose id begins so)")
    parser.add_argument(
        "--what", metavar="PREFIX", action="append", default=[], help="only events whose name begins so; repeatable"
    )
    parser.add_argument("--count", metavar="N", type=_count, default=-1, help="stop after N events")


COMMAND = Command(
    name="tail",
    usage="tail [options]",
    summary="live events",
    teaches="Prints what the daemon does while it does it: recalls begun and settled, snippets won "
    "and slipped, files indexed. Where this reader was too slow, it says how many events it "
    "missed. It goes on over restarts of the daemon, until it is interrupted.",
    example="recallctl tail --what injection. --what recall.settled",
    arguments=_arguments,
    run=run,
)
