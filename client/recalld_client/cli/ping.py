"""`recallctl ping`: is a daemon there, which one, and how far away."""

from __future__ import annotations

import argparse
import time

from recalld_protocol.messages import PROTOCOL_VERSIONS, Ping, Pong

from .asking import Daemon
from .command import Command, no_arguments
from .document import document
from .screen import Screen
from .show import safe, span


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    daemon.ask(Ping(), Pong)  # the first one pays for the connection
    began = time.perf_counter()
    pong = daemon.ask(Ping(), Pong)
    seconds = time.perf_counter() - began
    if options.json:
        extra = {"protocol": list(PROTOCOL_VERSIONS), "round_trip_us": round(seconds * 1e6), "socket": str(daemon.path)}
        screen.document(document(pong) | extra)
        return 0
    spoken = ", ".join(map(str, PROTOCOL_VERSIONS))
    screen.line(
        f"recalld {safe(pong.daemon) or '(version unknown)'}, pid {pong.pid}, epoch {safe(pong.epoch) or '-'}, "
        f"protocol {spoken}: answered in {span(seconds)}"
    )
    return 0


COMMAND = Command(
    name="ping",
    usage="ping [options]",
    summary="is the daemon there?",
    teaches="Asks the daemon whether it is there, and prints its version, process id, epoch (which "
    "changes with each start), the protocol it answered in, and the time of the round trip.",
    example="recallctl ping || systemctl --user start recalld",
    arguments=no_arguments,
    run=run,
)
