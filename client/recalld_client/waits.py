"""What may wait, written once for all event loops: generators that yield how many seconds they may still rest.

The driver rests (on the socket, in asyncio, in trio) for that long or shorter and resumes; what the generator returns
is the result. Between two steps no lock is held and nothing is in flight, so a driver may abandon one at any yield:
what had not been taken stays in the buffer, and an outbox's late answer is kept for the next outbox.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from recalld_client.correspondence import Correspondence
from recalld_client.injection import Injection
from recalld_protocol.messages import (
    FromAgent,
    FromDaemon,
    Hit,
    Hits,
    Injections,
    Outbox,
    Pack,
    Packed,
    Remember,
    Remembered,
    Search,
)  # fmt: skip

T = TypeVar("T")
Steps = Generator[float, None, T]


def connecting(correspondence: Correspondence, wait_seconds: float) -> Steps[bool]:
    """Until the daemon has welcomed the session, or the time is over."""
    deadline = correspondence.clock() + wait_seconds
    while True:
        with correspondence.lock:
            connected = correspondence.connected
            hopeless = correspondence.closed or bool(correspondence.handshake.refusal)
        left = deadline - correspondence.clock()
        if connected or hopeless or left <= 0:
            return connected
        yield left


def boundary(correspondence: Correspondence, wait_seconds: float) -> Steps[list[Injection]]:
    """Until something is there, or all that could come is over, or the time is; then pass the boundary."""
    deadline = correspondence.clock() + wait_seconds
    while True:
        with correspondence.lock:
            correspondence.pulse()
            left = deadline - correspondence.clock()
            buffer = correspondence.buffer
            if left <= 0 or buffer.ready or not (buffer.awaiting and correspondence.worth_waiting()):
                return correspondence.take()
        yield left


def outbox(correspondence: Correspondence, wait_seconds: float) -> Steps[list[Injection]]:
    """Ask for what is there. What an earlier outbox was too impatient for comes first."""
    with correspondence.lock:
        correspondence.pulse()
        if late := correspondence.late_snippets():
            return late
    question = Outbox(session=correspondence.session, id=correspondence.next_id())
    answer = yield from _answer(correspondence, question, wait_seconds)
    with correspondence.lock:
        return correspondence.buffer.give(answer.snippets) if isinstance(answer, Injections) else []


def search(correspondence: Correspondence, question: Search, wait_seconds: float) -> Steps[list[Hit]]:
    """Ask for plain hits, best first."""
    answer = yield from _answer(correspondence, question, wait_seconds)
    return answer.hits if isinstance(answer, Hits) else []


def packing(correspondence: Correspondence, question: Pack, wait_seconds: float) -> Steps[str]:
    """Ask for all that is known of something, as one block."""
    answer = yield from _answer(correspondence, question, wait_seconds)
    return answer.text if isinstance(answer, Packed) else ""


def remembering(correspondence: Correspondence, parts: list[Remember], wait_seconds: float) -> Steps[str]:
    """Hand a memory over; where its first part lies, if the daemon says so in time. All parts reach it in any case."""
    first = parts[0].id
    try:
        with correspondence.lock:
            correspondence.expect(first)
            for part in parts:
                correspondence.pledge(part)
        answer = yield from _until(correspondence, first, wait_seconds)
        return answer.memory if isinstance(answer, Remembered) else ""
    finally:
        with correspondence.lock:
            correspondence.forget(first)


def _answer(correspondence: Correspondence, question: FromAgent, wait_seconds: float) -> Steps[FromDaemon | None]:
    try:
        with correspondence.lock:
            correspondence.expect(question.id)
            if not correspondence.send(question):
                return None
        return (yield from _until(correspondence, question.id, wait_seconds))
    finally:
        with correspondence.lock:
            correspondence.forget(question.id)


def _until(correspondence: Correspondence, id: int, wait_seconds: float) -> Steps[FromDaemon | None]:
    """Until the answer is there, or none can be hoped for."""
    deadline = correspondence.clock() + wait_seconds
    while True:
        with correspondence.lock:
            correspondence.pulse()
            answer = correspondence.answer(id)
            left = deadline - correspondence.clock()
            if answer is not None or left <= 0 or not correspondence.worth_waiting():
                return answer
        yield left
