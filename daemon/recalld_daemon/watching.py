"""What sessions do with what they were shown, from the desk to the log: events to each session's observer, verdicts on.

Nothing here is on the way from a message to its recall: events are put on a queue, and looked at in a thread of their
own once no recall is under way. A verdict is noted in the journal behind the impression it is of, under the key
"<impression>/<verdict>": once, however often it is told. Invariant: `unknown` is written down, but it is no event and
nobody learns of it, nor of what was withheld.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import trio

from recalld_daemon import observer as ob
from recalld_daemon.book import LiveSession, Trace
from recalld_daemon.events import EventFeed
from recalld_daemon.journal import Journal
from recalld_daemon.store.errors import NoSuchRow
from recalld_daemon.store.rows import ImpressionRecord
from recalld_daemon.store.writer import Writer

QUEUE = 1024  # events that wait to be looked at, up to 32 KB each; beyond it what is watched becomes unknown
IDLE_SECONDS = 1.0  # for which looking gives way to recalls

Told = tuple[str, ob.Verdict]  # session, verdict
Happened = tuple[LiveSession, ob.Event]
OnVerdict = Callable[[str, str], None]


def nobody_learns(impression: str, verdict: str) -> None:
    """Where `on_verdict(impression_id, verdict)` is not set: who learns from verdicts sets one on `Desk.watching` for
    what was seen (acted, used, ignored) and on `Answers` for what was said (good, bad, and what a client tells).

    It is called on the loop's thread, must not wait, and is told of what is on disk. A verdict may come again, but
    `unknown` never comes, nor what was seen of a snippet that was withheld: by that showing is measured. Beware of an
    impression whose outcome is `asked`: a person looked at all of them, so there is no position bias.
    """


class Watching:
    """The observers of all sessions, fed in order. `until_idle`: returns when no recall is under way."""

    def __init__(self, journal: Journal, feed: EventFeed, until_idle: Callable[[], Awaitable[None]]) -> None:
        self._journal, self._feed, self._until_idle = journal, feed, until_idle
        self._send, self._receive = trio.open_memory_channel[Happened | trio.Event](QUEUE)
        self.on_verdict: OnVerdict = nobody_learns

    async def serve(self) -> None:
        """Until cancelled."""
        async for first in self._receive:
            with trio.move_on_after(IDLE_SECONDS):
                await self._until_idle()
            batch = [first, *self._waiting()]
            happened = [item for item in batch if not isinstance(item, trio.Event)]
            await self._tell(await trio.to_thread.run_sync(_observe, happened))
            for item in batch:
                if isinstance(item, trio.Event):
                    item.set()
                elif isinstance(item[1], ob.Shown):
                    item[0].showings -= 1

    async def flush(self) -> None:
        """Returns when all that happened so far was looked at, and what follows from it is noted."""
        done = trio.Event()
        await self._send.send(done)
        await done.wait()

    def happened(self, live: LiveSession, event: ob.Event) -> None:
        """Look at it soon, if anything is watched. Never waits."""
        showing = isinstance(event, ob.Shown)
        if not (showing or live.showings or len(live.observer)):
            return
        try:
            if live.overheard:
                self._send.send_nowait((live, ob.Missed()))
                live.overheard = False
            self._send.send_nowait((live, event))
            live.showings += showing
        except trio.WouldBlock:
            live.overheard = True

    def shown(self, live: LiveSession, trace: Trace | None, records: Sequence[ImpressionRecord]) -> None:
        """Shown, or withheld, all at one boundary: to the log, and watched. Before the conversation hears of them."""
        if not records:
            return
        self._journal.note(lambda writer: writer.record_impressions(records))
        for record in records:
            self._feed.emit(
                f"injection.{record.outcome}", live.id, impression=record.id, recall=record.recall, stage=record.stage,
                text=record.text, path=record.path, start=record.start, end=record.end, probability=record.probability,
            )  # fmt: skip
        paths = {passage.id: passage.path for passage in trace.passages} if trace else {}
        watched = tuple(
            ob.Impression(r.id, r.text, tuple(dict.fromkeys(filter(None, (paths.get(r.passage), r.path)))))
            for r in records
        )
        context = (*live.conversation.texts(), trace.query if trace else "")
        withheld = records[0].outcome == "withheld"
        self.happened(live, ob.Shown(watched, records[0].boundary, context, withheld))

    async def _tell(self, told: Sequence[Told]) -> None:
        at = time.time()
        for session, verdict in told:
            key = f"{verdict.impression}/{verdict.verdict}"
            self._journal.note(partial(_keep, verdict, at, key))
            if verdict.verdict != "unknown":
                self._feed.emit("feedback", session, impression=verdict.impression, verdict=verdict.verdict)
        if told:
            await self._journal.flush()  # who learns reads the store
        for _, verdict in told:
            if verdict.verdict != "unknown" and not verdict.withheld:
                self.on_verdict(verdict.impression, verdict.verdict)

    def _waiting(self) -> list[Happened | trio.Event]:
        found: list[Happened | trio.Event] = []
        while len(found) < QUEUE:
            try:
                found.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        return found


def _observe(happened: Sequence[Happened]) -> list[Told]:
    return [(live.id, verdict) for live, event in happened for verdict in live.observer.handle(event)]


def _keep(verdict: ob.Verdict, at: float, key: str, writer: Writer) -> None:
    with suppress(NoSuchRow):  # what it is of was forgotten meanwhile
        writer.record_feedback(verdict.impression, verdict.verdict, at=at, key=key)
