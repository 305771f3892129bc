"""A daemon made of a script, for recallctl: real sockets in a private directory, answers out of a table.

It runs in a thread, since what is tested waits in this one. What it was asked is kept in `asked`. Events are published
when somebody has subscribed, in one go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import msgspec
import zmq

from recalld_protocol.endpoints import endpoints_in, prepare_runtime_dir
from recalld_protocol.messages import Event, FromAgent, FromDaemon, Message, Ping, Pong
from recalld_protocol.wire import decode_from_agent, encode

Answer = FromDaemon | bytes | None  # None: silence; bytes: a frame as it is
Answers = Mapping[type[Message], Answer | Callable[[FromAgent], Answer]]
PONG = Pong(epoch="e7f3", daemon="0.1.0", pid=4711)


class ScriptedControl:
    """ROUTER and XPUB in `directory`. A question of a type not in `answers` gets none."""

    def __init__(self, directory: Path, answers: Answers, events: Sequence[Event | bytes] = ()) -> None:
        self.asked: list[FromAgent] = []
        self._answers: Answers = {Ping: PONG, **answers}
        self._events = events
        prepare_runtime_dir(directory)
        where = endpoints_in(directory)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._bound(zmq.ROUTER, where.request)
        self._publisher = self._bound(zmq.XPUB, where.events)
        self._stopped = self._bound(zmq.PAIR, "inproc://stopped")
        self._stop = self._context.socket(zmq.PAIR)
        self._stop.connect("inproc://stopped")
        self._thread = threading.Thread(target=self._serve, name="scripted control")

    def __enter__(self) -> ScriptedControl:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.send(b"")
        self._thread.join()
        self._context.destroy(0)

    def _bound(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(address)
        return socket

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._router, self._publisher, self._stopped):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._stopped in ready:
                return
            if self._router in ready:
                self._answer(*self._router.recv_multipart())
            if self._publisher in ready and self._publisher.recv()[:1] == b"\x01":
                self._publish()

    def _answer(self, route: bytes, frame: bytes) -> None:
        question = decode_from_agent(frame)
        self.asked.append(question)
        answer = self._answers.get(type(question))
        if callable(answer):
            answer = answer(question)
        if isinstance(answer, Message):
            self._router.send_multipart([route, encode(msgspec.structs.replace(answer, re=question.id))])
        elif answer is not None:
            self._router.send_multipart([route, answer])

    def _publish(self) -> None:
        for event in self._events:
            body = event if isinstance(event, bytes) else encode(event)
            self._publisher.send_multipart([b"", body])


@contextmanager
def stale_socket_files(directory: Path) -> Iterator[None]:
    """What a daemon that was killed leaves behind: a directory with socket files that nobody listens at."""
    with ScriptedControl(directory, {}):
        kept = directory / "kept"
        (directory / "req.sock").rename(kept)
    kept.rename(directory / "req.sock")
    yield
