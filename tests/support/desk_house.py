"""A desk with everything real behind it but the sockets and the model: what it sends is kept, and recalls are scripted.

The recaller answers by keyword: a query that holds the word of a passage finds that passage near in meaning and words.
It waits at `gate` first, so a test decides when a recall comes back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
import trio.testing

from recalld_daemon.book import SessionBook
from recalld_daemon.desk import Desk
from recalld_daemon.events import EventFeed
from recalld_daemon.journal import Journal
from recalld_daemon.questions import Answers, Reply
from recalld_daemon.race_events import RaceLimits
from recalld_daemon.recall.budget import UNBOUNDED, Budget
from recalld_daemon.recall.types import Answer, Candidate, Query, View
from recalld_daemon.recalls import Recalls, Settings
from recalld_daemon.sockets import Received
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.writer import open_writer
from recalld_protocol import messages as wire
from recalld_protocol.wire import decode_from_daemon, encode


class KeptRouter:
    """In the router's place: what is sent is decoded and kept, by identity."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, wire.FromDaemon]] = []
        self.gone: set[bytes] = set()

    def send_nowait(self, identity: bytes, frame: bytes) -> bool:
        self.sent.append((identity, decode_from_daemon(frame)))
        return identity not in self.gone


class NoPublisher:
    def __init__(self) -> None:
        self.events: list[wire.Event] = []

    def wanted(self, topic: str) -> bool:
        return False

    def publish_nowait(self, topic: str, body: bytes) -> None:
        raise AssertionError("nobody listens")


@dataclass
class ScriptedRecaller:
    """`words`: keyword -> passage id. `fault`: raised instead of answering."""

    words: dict[str, int] = field(default_factory=dict)
    gate: trio.Event = field(default_factory=trio.Event)
    fault: Exception | None = None
    deeper: trio.Event | None = None  # where there is one, the deep answer waits for it, and holds every passage
    views: list[View] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)

    async def run(
        self,
        query: Query,
        view: View,
        exclude: frozenset[int],
        publish: Callable[[Answer], None],
        close: Callable[[Answer], None] = lambda answer: None,
        budget: Budget = UNBOUNDED,
    ) -> None:
        self.views.append(view)
        self.budgets.append(budget)
        await self.gate.wait()
        await trio.lowlevel.checkpoint()
        if self.fault is not None:
            raise self.fault
        found = [p for word, p in self.words.items() if word in query.text and p not in exclude]
        lanes = {"dense": (1, 0.82), "lexical": (1, 14.0)}
        for stage, late in (("fused", None), ("late", 0.9)):
            candidates = [Candidate(p, lanes=dict(lanes), fused=1.0, late=late, focus=(0, 4)) for p in found]
            answer = Answer(stage, candidates, 1.0, final=stage == "late")  # type: ignore[arg-type]
            if stage == "late" or self.deeper is not None:
                close(answer)
            publish(answer)
            if stage == "fused" and self.deeper is not None:
                await self.deeper.wait()
                found = [p for p in self.words.values() if p not in exclude]


@dataclass
class DeskHouse:
    desk: Desk
    book: SessionBook
    reader: Reader
    journal: Journal
    router: KeptRouter
    recaller: ScriptedRecaller
    answers: Answers
    _ids: int = 0

    def say(self, message: wire.FromAgent, identity: bytes = b"one") -> None:
        self._ids += 1
        if message.id == 0:
            import msgspec

            message = msgspec.structs.replace(message, id=self._ids)
        self.desk.handle(Received(identity, encode(message), None), trio.current_time())

    def raw(self, frame: bytes, identity: bytes = b"one") -> None:
        self.desk.handle(Received(identity, frame, None), trio.current_time())

    def hello(self, session: str = "s", **more: Any) -> None:
        self.say(wire.Hello(session=session, versions=[1], cwd="/", **more))

    def take(self, kind: type[Any]) -> list[Any]:
        """What was sent of a kind since the last look, in order."""
        found = [message for _, message in self.router.sent if isinstance(message, kind)]
        self.router.sent = [(i, m) for i, m in self.router.sent if not isinstance(m, kind)]
        return found

    async def settled(self) -> None:
        """Until no recall is under way and all that followed is written."""
        assert self.desk.recalls is not None
        await trio.testing.wait_all_tasks_blocked()
        await self.desk.recalls.until_idle()
        await self.desk.watching.flush()
        await self.journal.flush()


Body = Callable[[DeskHouse], Awaitable[None]]


def at_the_desk(tmp_path: Path, texts: dict[str, str], body: Body, **limits: Any) -> None:
    """`texts`: keyword -> the passage that a query with this word finds."""

    async def main() -> None:
        with open_writer(tmp_path / "db") as writer, open_reader(tmp_path / "db") as reader:
            words = {}
            for word, text in texts.items():
                _, (words[word],) = writer.remember(text, at=1_700_000_000.0)
            async with trio.open_nursery() as nursery:
                house = _house(writer, reader, words, nursery, limits)
                with trio.fail_after(60):
                    await body(house)
                nursery.cancel_scope.cancel()

    trio.run(main)


async def no_passages(ids: Sequence[int]) -> None:
    """Nobody indexes what is remembered."""


def _house(writer: Any, reader: Reader, words: dict[str, int], nursery: trio.Nursery, limits: Any) -> DeskHouse:
    router, feed, recaller = KeptRouter(), EventFeed(NoPublisher()), ScriptedRecaller(words)
    recaller.gate.set()
    journal = Journal(writer, trio.CapacityLimiter(1))
    nursery.start_soon(journal.serve)
    book = SessionBook(
        "e",
        RaceLimits(),
        5.0,
        60.0,
        limits.get("max_sessions", 8),
        {}.get,
        reader.delivered_passages,
        reader.withheld_passages,
    )
    answers = Answers(book, reader, journal, feed, lambda: recaller, {}, no_passages)  # type: ignore[arg-type,return-value]

    def ask(question: wire.Message, reply: Reply) -> None:
        nursery.start_soon(answers.answer, question, reply)

    welcome = wire.Welcome(version=1, epoch="e", daemon="test", pid=1)
    desk = Desk(router, book, journal, feed, welcome, ask, nursery)  # type: ignore[arg-type]
    settings = Settings(
        threshold_shift=-12.0,  # calibration is the gate's own test
        inject=limits.get("inject", True),
        withheld_share=limits.get("withheld_share", 0.0),
    )
    desk.recalls = Recalls(lambda: recaller, reader, settings, desk.answered, withhold=desk.withheld)  # type: ignore[arg-type,return-value]
    nursery.start_soon(desk.watching.serve)
    return DeskHouse(desk, book, reader, journal, router, recaller, answers)
