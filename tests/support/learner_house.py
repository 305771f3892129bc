"""A learner over a real store with a log; steps come from a script, or from the real process with torch."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import trio

from log_house import DIMS, LogHouse
from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.adapters.state import notes_of
from recalld_daemon.events import EventFeed
from recalld_daemon.journal import Journal
from recalld_daemon.learn_worker import Opening
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.learner import Learner
from recalld_daemon.lessons import Ground
from recalld_daemon.online_kept import lessons_of
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32, Int64, QueryEncoding, View
from recalld_daemon.worker_state import WorkerState
from recalld_daemon.worker_wire import LearnStepped
from recalld_protocol.messages import Event
from recalld_protocol.wire import decode_event


def state_of(steps: int, lessons: Sequence[str] = ()) -> bytes:
    """As far as the daemon reads one: a safetensors header that tells which lessons it knows."""
    notes = {"buffer": json.dumps(list(lessons)), "steps": str(steps)}
    header = json.dumps({"__metadata__": notes}).encode()
    return len(header).to_bytes(8, "little") + header


def steps_in(state: bytes) -> int:
    return int(notes_of(state)["steps"]) if state else 0


Script = Callable[[Opening, Pair, int], LearnStepped | Awaitable[LearnStepped]]


def adapter_with(bias: float) -> Adapter:
    return replace(Adapter.born(DIMS, hidden=4), b2=np.full(DIMS, bias, np.float32))


def stepped(steps: int, adapter: Adapter | None = None, *, adapter_bytes: bytes = b"", **more: Any) -> LearnStepped:
    """What the process answers after so many steps: an adapter whose bias says how many there were."""
    fields: dict[str, Any] = {
        "id": 1, "state": state_of(steps), "loss": 1.0, "drift": 0.25, "ms": 2.0, "steps": steps, "held": False,
        "reverted": "", "held_mrr": 0.5, "promoted_mrr": 0.5, "held_pairs": 9,
    }  # fmt: skip
    fields |= more
    notes = {name: repr(fields[name]) for name in ("steps", "drift", "held_pairs", "held_mrr", "promoted_mrr")}
    data = adapter_bytes or (adapter or adapter_with(float(steps))).to_bytes(notes)
    return LearnStepped(adapter=data, **fields)


@dataclass
class ScriptedSteps:
    """In the place of LearnWorker. `script`: what a step answers, with the number of steps so far."""

    script: Script = lambda opening, pair, steps: stepped(steps)
    state: WorkerState = field(default_factory=lambda: WorkerState(phase="resting"))
    asked: list[tuple[Opening, Pair]] = field(default_factory=list)
    rests: int = 0
    distrusted: int = 0

    async def step(self, opening: Opening, pair: Pair) -> LearnStepped:
        await trio.lowlevel.checkpoint()
        self.asked.append((opening, pair))
        found = self.script(opening, pair, steps_in(opening.state) + 1)
        answer = found if isinstance(found, LearnStepped) else await found
        known = lessons_of(opening.state) if opening.state else []
        return msgspec.structs.replace(answer, state=state_of(steps_in(answer.state), [*known, pair.key]))

    async def run(self) -> None:
        await trio.sleep_forever()

    def rest(self) -> None:
        self.rests += 1

    def distrust(self) -> None:
        self.distrusted += 1


class Heard:
    """In the publisher's place: what is said of learning."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def wanted(self, topic: str) -> bool:
        return True

    def publish_nowait(self, topic: str, body: bytes) -> None:
        event = decode_event(body)
        assert isinstance(event, Event)
        self.events.append(event)

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        found = [(event.what, dict(event.data)) for event in self.events]
        self.events.clear()
        return found


@dataclass
class LearnerHouse:
    learner: Learner
    log: LogHouse
    heard: Heard
    journal: Journal
    ground: Ground
    steps: Any

    async def judged(self, *impressions: str, verdict: str = "good") -> None:
        """The verdicts, which the log holds already, are told, and learned from."""
        for impression in impressions:
            self.learner.on_verdict(impression, verdict)
        await self.rest()

    async def rest(self) -> None:
        """Until nothing waits, and all is written."""
        await self.learner.until_done()
        await self.journal.flush()


class Encoding:
    """The made encoder as the live worker is asked."""

    def __init__(self, log: LogHouse) -> None:
        self._log = log

    async def encode_query(self, text: str) -> QueryEncoding:
        await trio.lowlevel.checkpoint()
        return QueryEncoding(*self._log.live.encode_query(text))


def ground_of(log: LogHouse, learned: Learned = PLAIN) -> Ground:
    return Ground(log.encoder, log.live.fingerprint, DIMS, learned)


def with_learner(
    directory: Path,
    body: Callable[[LearnerHouse], Awaitable[None]],
    *,
    steps: Any = None,
    until_idle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    learned: Learned = PLAIN,
    **options: Any,
) -> None:
    """Run a conversation with a learner over the store below `directory`, which stays for the next one."""

    async def main(log: LogHouse) -> None:
        heard = Heard()
        journal = Journal(log.writer, trio.CapacityLimiter(1))
        own = steps or ScriptedSteps()

        def nearest(vector: Float32, view: View, limit: int) -> Int64:
            return np.arange(1, 40)

        learner = Learner(
            log.reader, journal, EventFeed(heard), Encoding(log), own, nearest, until_idle, **options
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.serve)
            nursery.start_soon(learner.serve)
            house = LearnerHouse(learner, log, heard, journal, ground_of(log, learned), own)
            learner.stand_on(house.ground, anew=False)
            with trio.fail_after(60):
                await house.rest()
                await body(house)
            nursery.cancel_scope.cancel()

    with LogHouse(directory) as log:
        trio.run(main, log)
