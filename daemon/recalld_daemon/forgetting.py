"""Forgetting on request: out of what is searched, out of sessions under way, out of the store, off the disk; then said.

First it is withdrawn from sessions: no offer of it is delivered any more, and recalls that found it before offer and
log nothing of it. Then its rows go; many of them in several transactions behind a note, so that a daemon that is killed
meanwhile ends it at its next start. Then the files are purged (`purging`). Only then it is acknowledged.

What goes: texts, facts, names and times taken from them, vectors of every version that no other text has, index rows,
impressions and verdicts on them, their place in explanations, and what was learned online from their vectors. The
user's questions stay in the log, but for what they quote (`recall.quotes`). What stays: weights of a version that was
trained with it, which hold no text, until the versions of before are dropped; and what another source says as well.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from recalld_daemon import observer as ob
from recalld_daemon import race_events as ev
from recalld_daemon.book import LiveSession, SessionBook
from recalld_daemon.desk import Desk
from recalld_daemon.events import EventFeed
from recalld_daemon.followed_paths import FollowedPaths, Refused, held_by
from recalld_daemon.importing.copies import place_of
from recalld_daemon.journal import Journal
from recalld_daemon.learner import Learner
from recalld_daemon.memory import Memory
from recalld_daemon.purging import purge
from recalld_daemon.recall.quotes import NO_QUOTES
from recalld_daemon.records import without
from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.forgetting import LogGone, SourcesGone
from recalld_daemon.store.rows import Source
from recalld_daemon.store.writer import Writer
from recalld_protocol import messages as wire

AT_ONCE = 2_000  # passages that go in one transaction: 20 MB of log
OPEN_SECONDS = 60.0  # for which a purge that is owed waits for the index, which it would else delete
RETRY_SECONDS = 30.0  # until a purge that failed is tried again

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be forgotten. sources: those there are now; names: under which they are shown, also in the log;
    imported: their path is followed, and is to be no more."""

    path: str
    sources: tuple[Source, ...]
    names: tuple[str, ...]
    imported: bool = False
    stays: str = ""  # why some of it is not forgotten: another root reads it

    @property
    def known(self) -> bool:
        return bool(self.sources) or self.imported


@dataclass(slots=True)
class Forgetting:
    """`forget` answers one wish after the other; `serve` ends what was begun."""

    memory: Memory
    journal: Journal
    book: SessionBook
    desk: Desk
    learner: Learner
    followed: FollowedPaths
    feed: EventFeed
    configured: frozenset[str]  # paths that are watched because the configuration says so
    _rows: trio.Lock = field(default_factory=trio.Lock)
    _files: trio.Lock = field(default_factory=trio.Lock)
    _asked: int = 0  # forgettings whose rows are gone
    _purged: int = 0  # of those, whose traces in files are gone too
    _wake: bool = False  # names are to be embedded anew

    async def forget(self, wish: wire.Forget) -> wire.FromDaemon:
        """Raises StoreError, OSError; then it may be asked again."""
        began = time.monotonic()
        try:
            async with self._rows:
                target = await trio.to_thread.run_sync(self._target, wish.path)
                if target.imported:
                    target = await self._unfollow(target)
                gone = await (self._forget(target) if target.known else self._forget_log(target))
                self._asked += 1
        except Refused as error:
            return wire.Problem(code=error.code, text=str(error)[:1024], of="forget")
        await self._purge()
        ms = round((time.monotonic() - began) * 1000)
        self.feed.emit("memory.forgotten", wish.session, path=wish.path, passages=gone, ms=ms)
        log.info("forgotten: %d passages, in %d ms", gone, ms)
        if target.stays:
            return wire.Problem(code="failed", text=target.stays[:1024], of="forget")
        return wire.Forgotten(path=wish.path, passages=gone)

    async def serve(self) -> None:
        """Purge what an earlier process, or a reader elsewhere, kept from being purged; until cancelled."""
        with trio.move_on_after(OPEN_SECONDS):
            while self.memory.index is None:
                await trio.sleep(1.0)
        while True:
            try:
                owed = await self._turn(self.memory.writer.purge_owed)
                if owed and self._asked == self._purged:
                    self._asked += 1
                if self._asked > self._purged:
                    await self._purge()
                    log.info("what was forgotten before is purged from the files")
            except (StoreError, OSError) as error:
                log.warning("%s", error)
            await trio.sleep(RETRY_SECONDS)

    # ------------------------------------------------------------ what is meant

    def _target(self, path: str) -> Target:
        """In a thread. Raises Refused, StoreError."""
        reader = self.memory.reader
        if path.startswith("memory:"):
            source = reader.source(path)
            return Target(path, (source,) if source else (), (path,))
        full = os.path.abspath(os.path.expanduser(path))
        known = [one for one in (reader.source(full),) if one] + reader.sources(under=full)
        imported = full in {one.path for one in reader.followed()}
        if full in self.configured:
            raise Refused("failed", _watched(full, full))
        for source in [] if imported else known or reader.sources_shown_as(path):
            if holder := self._holder(source):
                raise Refused("failed", self._why_not(source.path, holder))
        if not (known or imported) and (copy := self._copy_of(full)):
            raise Refused("failed", f"{full}: recalld keeps a copy of it, which is forgotten by its own path: {copy}")
        names = dict.fromkeys([path, full, *(source.shown_path for source in known)])
        return Target(full, tuple(known), tuple(names), imported)

    def _copy_of(self, path: str) -> str:
        """Where a copy of what was imported from this path is followed; "" for none."""
        copies = self.followed.copies
        place = place_of(copies, path) if copies is not None else None
        return next((one.path for one in self.memory.reader.followed() if Path(one.path).parent == place), "")

    def _holder(self, source: Source) -> str:
        """The root that reads it; "" if none does."""
        ingest = self.memory.ingest
        return held_by(ingest.roots, source.path, True, "") if ingest is not None else ""

    def _why_not(self, path: str, holder: str) -> str:
        """`holder`: the root that reads it."""
        if holder in self.configured or holder not in {one.path for one in self.memory.reader.followed()}:
            return _watched(path, holder)
        if path == holder:
            return f"{path} was imported: forget it by that path"
        return (
            f"{path} is watched (below {holder}, which was imported) and would be read again: delete it and ask again, "
            f"or forget all of {holder}"
        )

    async def _unfollow(self, target: Target) -> Target:
        """Nothing more is read of it; what of it another root reads stays. Raises Refused, StoreError."""
        await self._note(target)
        await self.followed.unfollow(target.path)
        found = await trio.to_thread.run_sync(self._target_of, target.path)
        held = [(source, self._holder(source)) for source in found.sources]
        stays = next((self._why_not(source.path, holder) for source, holder in held if holder), "")
        left = dataclasses.replace(found, sources=tuple(source for source, holder in held if not holder), stays=stays)
        await self._note(left)
        return left

    def _target_of(self, path: str) -> Target:
        known = [one for one in (self.memory.reader.source(path),) if one] + self.memory.reader.sources(under=path)
        return Target(path, tuple(known), tuple(dict.fromkeys([path, *(one.shown_path for one in known)])), True)

    async def _note(self, target: Target) -> None:
        paths = [source.path for source in target.sources]
        await self.journal.promised(lambda writer: writer.note_forgetting(target.path, paths, target.names))

    # ------------------------------------------------------------ rows

    async def _forget(self, target: Target) -> int:
        """Returns how many passages are gone. Raises Refused, StoreError."""
        ids = await trio.to_thread.run_sync(self._passages, target)
        await self.learner.unlearn(ids)
        told, gone = NOTHING_TOLD, 0
        with self._withdrawn(ids):
            for first, batch in enumerate(batches(target.sources)):
                take = partial(self._take, target, batch, not first, self._said())
                here, taken = await self.journal.promised(take)
                told, gone = here or told, gone + len(taken.passages)
            await self._unsaid(target, told)
        if target.imported:
            await self.journal.promised(lambda writer: writer.forgotten(target.path))
        return gone

    async def _forget_log(self, target: Target) -> int:
        """There is no such source (any more): what the log has of it. Raises Refused, StoreError."""
        said = self._said()
        told = await self.journal.promised(lambda writer: writer.forget_log([], target.names, without, said))
        owed = await self._turn(self.memory.writer.purge_owed)
        if not (told.impressions or told.explanations or target.path in owed):
            text = (
                f"nothing is known of {target.path!r}: `recalld import --list` shows the paths that were imported, "
                "`recallctl search` what is remembered"
            )
            raise Refused("not_found", text)
        await self._unsaid(target, told)
        return 0

    def _take(
        self, target: Target, batch: Sequence[str], first: bool, said: Sequence[str], writer: Writer
    ) -> tuple[LogGone | None, SourcesGone]:
        """In the writer's thread: with the first batch all of it leaves the log."""
        with writer.transaction(durable=True):
            paths = [source.path for source in target.sources]
            told = writer.forget_log(paths, target.names, without, said) if first else None
            gone = writer.forget_sources(batch)
        if self.memory.ingest is not None:
            self.memory.ingest.keeping.forgotten(gone.passages, gone.renamed)
            self._wake = self._wake or bool(gone.renamed)
        return told, gone

    def _passages(self, target: Target) -> list[int]:
        return [id for source in target.sources for id in self.memory.reader.passage_ids(source.path)]

    # ------------------------------------------------------------ sessions under way

    @contextmanager
    def _withdrawn(self, ids: Sequence[int]) -> Iterator[None]:
        """Before its rows go and after: a recall that begins meanwhile may still find it."""
        gone = frozenset(ids)
        with self.desk.recalls.forgetting(gone):
            self._withdraw(gone)
            yield
            self._withdraw(gone)

    def _withdraw(self, gone: frozenset[int]) -> None:
        now = trio.current_time()
        for live in self.book:
            live.pending = {id: held for id, held in live.pending.items() if held.offer.passage not in gone}
            for trace in live.traces.values():
                trace.passages = [passage for passage in trace.passages if passage.id not in gone]
            self.desk.tell(live, ev.Forgotten(gone), now)

    def _said(self) -> list[str]:
        """What may come into the log yet."""
        return [text for live in self.book for text in (*live.conversation.texts(), *_asked(live))]

    async def _unsaid(self, target: Target, told: LogGone) -> None:
        """Sessions say nothing of it any more; and what they said while it went is masked too."""
        impressions = frozenset(told.impressions)
        for live in self.book:
            live.conversation.mask(told.quotes.mask)
            for trace in live.traces.values():
                trace.query = told.quotes.mask(trace.query)
            self.desk.watching.happened(live, ob.Forgotten(impressions))
        names = frozenset(target.names)
        await self.journal.promised(lambda writer: writer.mask_log(names, told.quotes, without))
        if self._wake and self.memory.ingest is not None:
            self.memory.ingest.wake()

    # ------------------------------------------------------------ files

    async def _purge(self) -> None:
        """Returns once all that was forgotten until now is purged; one for all who wait. Raises StoreError, OSError."""
        mine = self._asked
        async with self._files:
            if self._purged >= mine:
                return
            reached = self._asked
            await purge(self.memory.writer, self._turn, self.memory.purge_indexes)
            self._purged = reached

    async def _turn(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self.memory.turns)


NOTHING_TOLD = LogGone([], NO_QUOTES, 0, 0)


def batches(sources: Sequence[Source]) -> list[list[str]]:
    """Paths, at most AT_ONCE passages together unless one source alone has more; at least one batch."""
    found: list[list[str]] = [[]]
    room = AT_ONCE
    for source in sources:
        if found[-1] and source.passages > room:
            found.append([])
            room = AT_ONCE
        found[-1].append(source.path)
        room -= source.passages
    return found


def _asked(live: LiveSession) -> list[str]:
    return [trace.query for trace in live.traces.values()]


def _watched(path: str, root: str) -> str:
    return (
        f"{path} is watched (below {root}) and would be read again: delete it, or take it out of [sources] in the "
        "configuration, and ask again: then what the log still has of it goes as well"
    )
