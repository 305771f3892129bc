"""With a daemon running: it is asked to follow the path, over its socket, as any client asks; and waited for.

That the one that answers is the one that holds this home's lock is checked by its process id, as `recalld sleep` does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recalld_client.link import Link
from recalld_daemon.importing.here import Noted, Say
from recalld_protocol.endpoints import endpoints
from recalld_protocol.errors import EndpointError
from recalld_protocol.messages import Follow, Following, FromAgent, FromDaemon, Ping, Pong, Problem, Status, StatusAsk

ANSWER_SECONDS = 5.0
FOLLOW_SECONDS = 30.0  # it waits for its turn to write
POLL_SECONDS = 0.2
GREETINGS = 10  # a daemon that has taken its lock binds its socket a moment later
START_TRIES = 60  # of a daemon that has only just started, each a pause apart
PATIENT_POLLS = 30  # unanswered questions for its state, until it counts as gone

Ask = Callable[[FromAgent, float], FromDaemon | None]


class NoAnswer(Exception):
    """The daemon that holds the lock can't be asked; the text says why."""


class NotTaken(Exception):
    """It answered that it will not follow this; the text is its own."""


@dataclass(slots=True)
class Daemon:
    """The running one. pid: whose lock it is; 0: not written yet."""

    link: Link
    pid: int
    pause: Callable[[float], None] = time.sleep

    def greet(self) -> None:
        """Raises NoAnswer."""
        pong = None
        for _ in range(GREETINGS):
            if self.link.open(ANSWER_SECONDS) and (pong := self.link.request(Ping(), ANSWER_SECONDS)):
                break
            self.pause(POLL_SECONDS)
        if not isinstance(pong, Pong):
            raise NoAnswer(f"the running daemon (pid {self.pid}) does not answer: {self.link.problem}")
        if self.pid and pong.pid != self.pid:
            raise NoAnswer(
                f"the daemon that answers (pid {pong.pid}) is not the one of this home (pid {self.pid}): "
                "set RECALLD_RUNTIME_DIR as for that one"
            )

    def note(self, path: str, kind: str) -> Noted:
        """Raises NotTaken, NoAnswer."""
        for _ in range(START_TRIES):
            match self.link.request(Follow(path=path, source_kind=kind), FOLLOW_SECONDS):
                case Following(path=root, known=known):
                    return Noted(path, known, "" if root == path else root)
                case Problem(code="busy"):
                    self.pause(POLL_SECONDS)
                case Problem(text=text):
                    raise NotTaken(text)
                case _:
                    raise NoAnswer(f"the daemon did not answer: {self.link.problem}")
        raise NoAnswer("the daemon is busy: try again in a moment")

    def wait(self, say: Say) -> str:
        """Until all is read and embedded. Returns "", or why nothing can be embedded. Raises NoAnswer."""
        missing, silent = 0, 0
        while True:
            status = self.link.request(StatusAsk(), ANSWER_SECONDS)
            if not isinstance(status, Status):
                silent += 1
                if silent > PATIENT_POLLS:
                    raise NoAnswer(f"the daemon does not answer any more: {self.link.problem}")
                self.pause(POLL_SECONDS)
                continue
            silent = 0
            index, models, queue = (status.topics.get(name, {}) for name in ("index", "models", "queue"))
            state = str(index.get("state"))
            missing = max(missing, _number(queue.get("passages_to_embed")))
            if state == "ready":
                return ""
            if state != "indexing" and models.get("state") == "failed":
                return str(models.get("phase"))
            if state == "indexing":
                say("reading", _number(index.get("files_done")), _number(index.get("files_total")), "files")
            elif state == "embedding":
                say("embedding", missing - _number(queue.get("passages_to_embed")), missing, "passages")
            else:
                say(f"the daemon: {state}", 0, 0, "")
            self.pause(POLL_SECONDS)


def running(pid: int, environ: Mapping[str, str] = os.environ) -> Daemon:
    """The daemon that holds the lock. Raises NoAnswer. Close its link."""
    try:
        return Daemon(Link(endpoints(environ)), pid)
    except EndpointError as error:
        raise NoAnswer(str(error)) from error


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
