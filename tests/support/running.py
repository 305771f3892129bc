"""A real daemon for system tests: over a home in the test's directory, with the encoder prepared once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from recalld_client import Injection, Session
from recalld_daemon.demo.private import PrivateDaemon, private_daemon, wait_until_indexed
from recalld_protocol.messages import Event, Settled

PATIENCE_SECONDS = 60.0  # bounds a wait that would otherwise never end; no test measures time


@contextmanager
def running(
    home: Path, models: Path, watch: Sequence[Path] = (), flags: Sequence[str] = (), indexed: bool = True
) -> Iterator[PrivateDaemon]:
    with private_daemon(watch, home, ["--model-cache", str(models), *flags]) as daemon:
        if indexed:
            wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)
        yield daemon


def settle(session: Session, call: str = "", turn: int = 0) -> Settled:
    """Wait until the daemon has said what became of this call's or turn's recall."""
    for _ in range(int(PATIENCE_SECONDS / 0.05)):
        for settled in session.outcomes():
            if settled.outcome != "merged" and ((call and call in settled.calls) or (turn and turn == settled.turn)):
                return settled
        session.wait(0.05)
    raise AssertionError(f"never settled: call {call!r} turn {turn}; {session.problem}")


def call_through(session: Session, name: str, args: str) -> tuple[list[Injection], Settled]:
    """One tool call whose recall is waited for; what its boundary brought."""
    call = session.tool_started(name, args)
    settled = settle(session, call=call.id)
    session.tool_ended(call, "done", True)
    return session.boundary(), settled


def wait_event(receive: Callable[[float], Event | None], what: str) -> Event:
    for _ in range(int(PATIENCE_SECONDS)):
        event = receive(1.0)
        if event is not None and event.what == what:
            return event
    raise AssertionError(f"no event {what!r}")
