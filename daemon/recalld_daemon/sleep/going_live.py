"""Seventh phase: the running daemon is asked to search by the new version; where none runs, it is declared live here.

Whether one runs is told by its lock. It is asked over its socket, as any client asks; that the one that answers is the
one that holds the lock is checked by its process id, since another home's daemon may sit at this address.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from recalld_client.link import Link
from recalld_daemon.lock import AlreadyRunning, held_lock
from recalld_daemon.paths import Home
from recalld_daemon.sleep.ports import Answer
from recalld_daemon.store.reader import open_reader
from recalld_daemon.store.writer import open_writer
from recalld_daemon.versions import NoSuchVersion, VersionRefused, set_live_unattended
from recalld_protocol.endpoints import endpoints
from recalld_protocol.errors import EndpointError
from recalld_protocol.messages import Activate, Activated, FromAgent, FromDaemon, Ping, Pong, Problem

ANSWER_SECONDS = 5.0
ACTIVATE_SECONDS = 600.0  # it opens the new index and compares it with the store first

TRIES = 4
PAUSE_SECONDS = 5.0  # a daemon that has just started loads its encoder meanwhile

Ask = Callable[[FromAgent, float], FromDaemon | None]


def activate(home: Home, encoder: int, version: int, pause: Callable[[float], None] = time.sleep) -> Answer:
    """Asks again a few times where that may help. Raises StoreError, OSError."""
    answer = _once(home, encoder, version)
    for _ in range(TRIES - 1):
        if not answer.again:
            break
        pause(PAUSE_SECONDS)
        answer = _once(home, encoder, version)
    return answer


def _once(home: Home, encoder: int, version: int) -> Answer:
    try:
        with held_lock(home.data / "lock"):
            return _here(home, encoder, version)
    except AlreadyRunning as held:
        return _there(held.pid, version)


def _here(home: Home, encoder: int, version: int) -> Answer:
    with open_writer(home.database) as writer, open_reader(home.database) as reader:
        try:
            set_live_unattended(writer, reader, encoder, version)
        except (VersionRefused, NoSuchVersion) as error:
            return Answer(False, "here", str(error))
    return Answer(True, "here")


def _there(pid: int, version: int) -> Answer:
    try:
        with Link(endpoints(os.environ)) as link:
            if not link.open(ANSWER_SECONDS):
                return Answer(False, "daemon", link.problem, again=True)
            return asked(link.request, pid, version)
    except EndpointError as error:
        return Answer(False, "daemon", str(error), again=True)


def asked(ask: Ask, pid: int, version: int) -> Answer:
    """pid: whose lock it is; 0: not written yet."""
    pong = ask(Ping(), ANSWER_SECONDS)
    if not isinstance(pong, Pong):
        return Answer(False, "daemon", f"the running daemon (pid {pid}) does not answer", again=True)
    if pid and pong.pid != pid:
        text = f"the daemon that answers (pid {pong.pid}) is not the one of this home (pid {pid})"
        return Answer(False, "daemon", f"{text}: set RECALLD_RUNTIME_DIR as for that one", again=True)
    match ask(Activate(version=version), ACTIVATE_SECONDS):
        case Activated():
            return Answer(True, "daemon")
        case Problem(text=text):
            return Answer(False, "daemon", text, again=_may_pass(text))
        case _:
            return Answer(False, "daemon", "the daemon did not answer in time", again=True)


def _may_pass(text: str) -> bool:
    """Whether a refusal says nothing about the version: the daemon has only just started."""
    return "ask again" in text
