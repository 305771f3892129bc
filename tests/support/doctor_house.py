"""A daemon out of a script that remembers, answers hooks at its hook socket, and does so as a test wants it to.

Its hook socket speaks to the real hook process. What is planted is quoted back at a boundary, unless `quote` says
something else; `heard` keeps what hooks told.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from recalld_client.hosts import HOSTS, Heard
from recalld_protocol.endpoints import HOOK_SOCKET
from recalld_protocol.messages import Bye as ByeMessage
from recalld_protocol.messages import (
    Event,
    Forget,
    Forgotten,
    FromAgent,
    FromDaemon,
    Hit,
    Hits,
    Remember,
    Remembered,
    Search,
    Status,
    StatusAsk,
)
from scripted_control import Answers, ScriptedControl

Quote = Callable[[str, Heard, int], bytes | None]  # a planted text, what was heard, how often: None for the usual
TOPICS: dict[str, dict[str, str | int | float | bool | None]] = {
    "models": {"state": "ready"},
    "hooks": {"http": "serving"},
}


@dataclass
class Memory:
    """What the scripted daemon holds."""

    texts: dict[str, str] = field(default_factory=dict)
    planted: int = 0
    heard: list[Heard] = field(default_factory=list)
    quote: Quote = lambda text, heard, count: None
    topics: Mapping[str, Mapping[str, str | int | float | bool | None]] = field(default_factory=lambda: TOPICS)

    def answers(self) -> Answers:
        return {Remember: self._remember, Search: self._search, Forget: self._forget, StatusAsk: self._status}

    def _remember(self, message: FromAgent) -> FromDaemon:
        assert isinstance(message, Remember)
        self.planted += 1
        path = f"memory:{self.planted}"
        self.texts[path] = message.text
        return Remembered(memory=path)

    def _search(self, message: FromAgent) -> FromDaemon:
        return Hits(hits=[Hit(path=p, start=0, end=9, text=t, lanes={"dense": 0.9}) for p, t in self.texts.items()])

    def _forget(self, message: FromAgent) -> FromDaemon:
        assert isinstance(message, Forget)
        return Forgotten(path=message.path, passages=int(self.texts.pop(message.path, "") != ""))

    def _status(self, message: FromAgent) -> FromDaemon:
        return Status(topics={topic: dict(facts) for topic, facts in self.topics.items()})

    def hooked(self, host: str, event: str, payload: bytes) -> bytes:
        """What the hook prints."""
        heard = HOSTS[host].read(event, payload)
        self.heard.append(heard)
        if not heard.boundary or not self.texts:
            return b""
        text = next(iter(self.texts.values()))
        own = self.quote(text, heard, sum(one.boundary for one in self.heard))
        return HOSTS[host].write(heard.event, [f'recalled: "{text}"']) if own is None else own

    @property
    def ended(self) -> list[str]:
        """Sessions that hooks have told the end of."""
        return [heard.session for heard in self.heard if any(isinstance(event, ByeMessage) for event in heard.events)]


@contextmanager
def doctor_house(runtime: Path) -> Iterator[tuple[ScriptedControl, Memory]]:
    """The daemon, with its sockets in `runtime`, and what it holds. Its events tell why nothing was to be said."""
    memory = Memory()
    reasons = {"silent": "injection is switched off", "repeat": "the same question as 1"}
    events = [
        Event(seq=number, at=0.0, what="recall.settled", data={"outcome": outcome, "reason": reason})
        for number, (outcome, reason) in enumerate(reasons.items(), 1)
    ]
    with ScriptedControl(runtime, memory.answers(), events) as control, _hook_socket(runtime / HOOK_SOCKET, memory):
        yield control, memory


@contextmanager
def _hook_socket(path: Path, memory: Memory) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(os.fspath(path))
        listener.listen()
        thread = threading.Thread(target=_serve, args=(listener, memory))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, memory: Memory) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with (
            connection,
            connection.makefile("rb") as stream,
            suppress(OSError, ValueError),
        ):  # a hook whose time was over
            _, host, event, length = stream.readline().decode().split()
            connection.sendall(memory.hooked(host, event.removeprefix("-"), stream.read(int(length))))
