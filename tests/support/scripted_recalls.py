"""A scripted daemon for whole runs of an agent: what comes to mind is told by the turn's text and the tool's name.

A recall that is `slow` lets its own boundary pass and answers when a later tool starts: it slips. Everything else is
answered at once and settled, so that a boundary which waits ends as soon as all is there, on any machine.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from recalld_protocol.endpoints import Endpoints, endpoints_in
from recalld_protocol.messages import (
    Boundary,
    FromAgent,
    Hello,
    Inject,
    Message,
    Ping,
    Pong,
    SessionRow,
    Sessions,
    SessionsAsk,
    Settled,
    ToolStarted,
    Turn,
    Welcome,
)
from scripted_daemon import PATIENCE_SECONDS, served, short_directory, snippet

__all__ = ["PATIENCE_SECONDS", "Recalls", "line_of", "remembering"]
M = TypeVar("M", bound=Message)


def line_of(id: str) -> str:
    """The line in which the snippet of this id is shown."""
    return f'recalled: "… words of {id} …" — notes/{id}.md:0-40'


class Recalls:
    """`minds`: text of a turn or name of a tool -> ids of snippets. `slow`: tool -> the tool at whose start it answers.

    `rows`: what the daemon says of its sessions.
    """

    def __init__(
        self,
        minds: Mapping[str, Sequence[str]],
        slow: Mapping[str, str] | None = None,
        rows: Sequence[SessionRow] = (),
    ) -> None:
        self.heard: list[FromAgent] = []
        self._minds = minds
        self._slow = dict(slow or {})
        self._rows = list(rows)
        self._held: dict[tuple[str, str], Inject] = {}  # (session, tool that sets it free)
        self._turns: dict[str, int] = {}
        self._boundaries: dict[str, int] = {}
        self._count = 0
        self._news = threading.Condition()

    def all_of(self, kind: type[M], count: int = 0) -> list[M]:
        """All messages of this kind. `count`: wait for so many: what is told one way arrives later."""
        with self._news:
            self._news.wait_for(lambda: len(self._of(kind)) >= count, PATIENCE_SECONDS)
            return self._of(kind)

    def _of(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    def __call__(self, message: FromAgent) -> Sequence[Message]:
        with self._news:
            self.heard.append(message)
            self._news.notify_all()
        session = message.session
        match message:
            case Hello():
                self._turns[session], self._boundaries[session] = message.turn, message.boundary
                return [Welcome(session=session, re=message.id, version=1, epoch="e", daemon="0.1.0", pid=1)]
            case Ping():
                return [Pong(session=session, re=message.id, epoch="e")]
            case SessionsAsk():
                return [Sessions(session=session, re=message.id, sessions=self._rows)]
            case Boundary():
                self._boundaries[session] = message.number
            case Turn():
                self._turns[session] = message.turn
                return [
                    *self._inject(session, message.text),
                    Settled(session=session, recall="t", turn=message.turn, outcome="ready"),
                ]
            case ToolStarted():
                return [
                    *self._inject(session, message.name),
                    *self._set_free(session, message.name),
                    Settled(session=session, recall="c", calls=[message.call], outcome="ready"),
                ]
        return []

    def _inject(self, session: str, cause: str) -> list[Inject]:
        if not (ids := self._minds.get(cause, ())):
            return []
        self._count += 1
        found = Inject(
            session=session,
            recall=f"r{self._count}",
            stage="late",
            turn=self._turns.get(session, 0),
            boundary=self._boundaries.get(session, 0),
            snippets=[snippet(id, 0.9 - place / 10) for place, id in enumerate(ids)],
        )
        if (tool := self._slow.get(cause)) is None:
            return [found]
        self._held[session, tool] = found
        return []

    def _set_free(self, session: str, tool: str) -> list[Inject]:
        return [found] if (found := self._held.pop((session, tool), None)) else []


@contextlib.contextmanager
def remembering(script: Recalls | None) -> Iterator[Endpoints]:
    """Where this daemon answers; None: where there is none."""
    with short_directory() as directory, contextlib.ExitStack() as stack:
        where = endpoints_in(Path(directory))
        if script is not None:
            stack.enter_context(served(where, script))
        yield where
