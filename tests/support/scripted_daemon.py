"""A daemon that plays a script over a real ROUTER socket: by hand, in a thread, or in a process of its own.

By hand (`Puppet`) a test reads as a conversation: `hear()` what the client sent, `say()` what it shall get. `served`
runs the stock script in a thread, `child_daemon` in a process, which can be stopped like a hung daemon and killed.
Every wait is for a socket and bounded by PATIENCE_SECONDS.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import zmq

from recalld_protocol.endpoints import Endpoints, endpoints_in
from recalld_protocol.messages import (
    Acked,
    Boundary,
    Feedback,
    FromAgent,
    Hello,
    Hit,
    Hits,
    Inject,
    Injections,
    Message,
    Outbox,
    Pack,
    Packed,
    Ping,
    Pong,
    Remember,
    Remembered,
    Search,
    Settled,
    Snippet,
    ToolStarted,
    Turn,
    Welcome,
)
from recalld_protocol.wire import decode_from_agent, encode

PATIENCE_SECONDS = 10.0  # a test that waits so long has failed
M = TypeVar("M", bound=Message)
Script = Callable[[FromAgent], Sequence[Message]]


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """A private directory with a path short enough for a socket in it, which pytest's own may not have."""
    directory = Path(tempfile.mkdtemp(prefix="rd"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def snippet(id: str, probability: float = 0.5, path: str = "", start: int = 0, end: int = 40) -> Snippet:
    """A snippet of a file of its own, unless `path` says otherwise."""
    return Snippet(
        id=id, text=f"words of {id}", path=path or f"notes/{id}.md", start=start, end=end, probability=probability
    )


class Puppet:
    """A daemon's request socket, moved by the test. One thread at a time."""

    def __init__(self, where: Endpoints, epoch: str = "first") -> None:
        self.epoch = epoch
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.bind(where.request)
        self._routes: dict[str, bytes] = {}
        self._latest = b""

    def hear(self, seconds: float = PATIENCE_SECONDS) -> FromAgent:
        """The next message of a client. Fails the test when none comes."""
        assert self._socket.poll(round(seconds * 1000)), "the client sent nothing"
        self._latest, frame = self._socket.recv_multipart()
        message = decode_from_agent(frame)
        self._routes[message.session] = self._latest
        return message

    def hear_a(self, kind: type[M]) -> M:
        """The next message, which must be of this kind."""
        message = self.hear()
        assert isinstance(message, kind), f"{message} is no {kind.__name__}"
        return message

    def hear_until(self, kind: type[M]) -> M:
        """The next message of this kind; what comes before it is skipped."""
        while not isinstance(message := self.hear(), kind):
            pass
        return message

    def say(self, *messages: Message, to: str | None = None) -> None:
        """Send to the client that was heard last, or to the session `to`."""
        for message in messages:
            self.say_raw(encode(message), to)  # type: ignore[arg-type]

    def say_raw(self, frame: bytes, to: str | None = None) -> None:
        self._socket.send_multipart([self._latest if to is None else self._routes[to], frame])

    def welcome(self) -> Hello:
        """Hear a hello and answer it."""
        hello = self.hear_a(Hello)
        self.say(self.welcome_to(hello))
        return hello

    def welcome_to(self, hello: Hello) -> Welcome:
        return Welcome(session=hello.session, re=hello.id, version=1, epoch=self.epoch, daemon="0.1.0", pid=1)

    def play(self, script: Script, stop: threading.Event | None = None) -> None:
        """Answer by the script until told to stop."""
        while stop is None or not stop.is_set():
            if self._socket.poll(20):
                for answer in script(self.hear()):
                    with contextlib.suppress(zmq.ZMQError):  # the client has gone meanwhile
                        self.say(answer)

    def close(self) -> None:
        self._socket.close()
        self._context.destroy(0)

    def __enter__(self) -> Puppet:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Stock:
    """The stock script: every turn and tool call brings something to mind at once, every question has an answer."""

    def __init__(self, epoch: str = "first") -> None:
        self._epoch = epoch
        self._turn = self._boundary = self._count = 0
        self.heard: list[FromAgent] = []

    def __call__(self, message: FromAgent) -> list[Message]:
        self.heard = [*self.heard[-999:], message]
        session, re = message.session, message.id
        match message:
            case Hello():
                self._turn, self._boundary = message.turn, message.boundary
                return [Welcome(session=session, re=re, version=1, epoch=self._epoch, daemon="0.1.0", pid=1)]
            case Turn():
                self._turn = message.turn
                return self._recall(session, turn=message.turn)
            case ToolStarted():
                return self._recall(session, calls=[message.call])
            case Boundary():
                self._boundary = message.number
        return self._answer(message, session, re)

    def _recall(self, session: str, turn: int = 0, calls: list[str] | None = None) -> list[Message]:
        self._count += 1
        name = f"{self._epoch}-{self._count}"
        inject = Inject(
            session=session,
            recall=name,
            stage="late",
            turn=self._turn,
            boundary=self._boundary,
            snippets=[snippet(f"i-{name}")],
        )
        return [inject, Settled(session=session, recall=name, turn=turn, calls=calls or [], outcome="ready")]

    def _answer(self, message: FromAgent, session: str, re: int) -> list[Message]:
        match message:
            case Ping():
                return [Pong(session=session, re=re, epoch=self._epoch)]
            case Feedback():
                return [Acked(session=session, re=re)]
            case Remember():
                return [Remembered(session=session, re=re, memory="memory:17")]
            case Pack():
                text = f"{message.token_budget} tokens about {message.query}"
                return [Packed(session=session, re=re, text=text, tokens=9, passages=1)]
            case Search():
                return [Hits(session=session, re=re, hits=[Hit(path="a.md", start=0, end=9, text=message.query)])]
            case Outbox():
                self._count += 1
                return [Injections(session=session, re=re, snippets=[snippet(f"o-{self._epoch}-{self._count}")])]
        return []


@contextlib.contextmanager
def served(where: Endpoints, script: Script | None = None) -> Iterator[Puppet]:
    """The script (by default the stock one) in a thread."""
    stop = threading.Event()
    puppet = Puppet(where)
    thread = threading.Thread(target=puppet.play, args=(script or Stock(), stop))
    thread.start()
    try:
        yield puppet
    finally:
        stop.set()
        thread.join()
        puppet.close()


class ChildDaemon:
    """The stock script in a process of its own."""

    def __init__(self, directory: Path, epoch: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(directory), epoch], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "READY\n"

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def child_daemon(directory: Path, epoch: str = "first") -> Iterator[ChildDaemon]:
    """A scripted daemon as a process; killed in the end."""
    daemon = ChildDaemon(directory, epoch)
    try:
        yield daemon
    finally:
        daemon.kill()


def main(directory: str, epoch: str) -> None:
    with Puppet(endpoints_in(Path(directory)), epoch) as puppet:
        print("READY", flush=True)
        puppet.play(Stock(epoch))


if __name__ == "__main__":
    main(*sys.argv[1:])
