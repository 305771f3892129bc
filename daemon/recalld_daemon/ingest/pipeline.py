"""The follower of everything: what is on disk gets into the store, then into the index, and what is gone leaves both.

At start, and whenever a root must be looked at anew, disk and store are compared; after that the watchers say where to
look. A file that changed is parsed by the bulk worker and written batch by batch, which makes it searchable by words
at once (`reading`); its vectors follow (`embedding`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import trio

from recalld_daemon.ingest.compare import Difference, compare
from recalld_daemon.ingest.embedding import Embedding
from recalld_daemon.ingest.keeping import Keeping
from recalld_daemon.ingest.paths import PathQueue
from recalld_daemon.ingest.ports import Bulk, Gate, PassageCatalogue, PassageExtracts, PassageIndex, Report, Root, Space
from recalld_daemon.ingest.projects import belonging
from recalld_daemon.ingest.reading import Reading
from recalld_daemon.ingest.roots import Roots, Watched, look_at
from recalld_daemon.ingest.turns import Turns
from recalld_daemon.store.errors import StoreBusy, StoreError, StoreFull
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import Source
from recalld_daemon.store.writer import Writer
from recalld_daemon.watchers.database import DatabaseTree
from recalld_daemon.watchers.follow import Changed, Rescan, follow

READERS = 3  # files under way at a time: one is parsed, one is written, one is looked at
PAUSE_SECONDS = 10.0  # until a full or locked disk is tried again
PROGRESS_SECONDS = 0.5

T = TypeVar("T")

log = logging.getLogger(__name__)


async def open_gate() -> None:
    """A gate that is never shut."""


class Ingest:
    """Keeps store and index equal to the files below `roots`, while `run` runs.

    `turns` is the limiter (of one) shared by all that write. `gate` is awaited before each batch of work. `report`
    is called in the trio thread with events named "ingest.*" (see docs/events.md). `looked_at`: keys of the only roots
    that are read and followed; the others are known as owners, and nothing is forgotten for lying below none.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        *,
        writer: Writer,
        reader: Reader,
        bulk: Bulk,
        turns: trio.CapacityLimiter,
        report: Report,
        gate: Gate = open_gate,
        pause_seconds: float = PAUSE_SECONDS,
        undated: float | None = None,
        looked_at: frozenset[str] | None = None,
    ) -> None:
        self._reader = reader
        self._turn_limiter = turns
        self._report = report
        self._pause_seconds = pause_seconds
        self._roots = Roots(roots)
        self._keeps_others = looked_at is not None
        self._unseen = set(self._roots.by_key if looked_at is None else looked_at)
        self._following: dict[str, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None  # while it runs
        self._one_look = trio.Lock()  # what a look found is carried out before a root may go
        self._seen = trio.Event()
        self._keeping = Keeping(writer, reader, undated)
        self._files = PathQueue()
        self.paused = ""  # why nothing is written at the moment
        worker = Turns()
        self._embedding = Embedding(self._keeping, bulk, worker, self._files, self._turn, gate, report)
        self._reading = Reading(
            self._roots, self._files, reader=reader, keeping=self._keeping, bulk=bulk, worker=worker,
            turn=self._turn, gate=gate, report=report, on_read=self._embedding.wake,
        )  # fmt: skip

    async def attach(self, space: Space, index: PassageIndex) -> None:
        """Embed into `space` and keep `index` from now on; it must hold what the store holds of `space`, or less.

        May be called again, with another space or a rebuilt index.
        """
        await self._turn(lambda: self._keeping.attach(space, index))
        self._embedding.wake()

    @property
    def keeping(self) -> Keeping:
        """Through which another snapshot is prepared and swapped in: in the writer's thread only."""
        return self._keeping

    def attach_catalogue(self, catalogue: PassageCatalogue) -> None:
        """Keep `catalogue` from now on; it must hold what the store holds. In the writer's thread."""
        self._keeping.catalogue = catalogue

    def attach_extracts(self, extracts: PassageExtracts) -> None:
        """Keep `extracts` from now on; it may be filled meanwhile. In the writer's thread."""
        self._keeping.extracts = extracts

    def catch_up(self) -> None:
        """Tell the index what a full disk kept from it. In the writer's thread."""
        self._keeping.catch_up()

    def wake(self) -> None:
        """The store has passages that came by another way: embed them too."""
        self._embedding.wake()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Compare, then follow, until cancelled. Started once every source outside the roots has been forgotten."""
        if not self._keeps_others:
            await self._forget_unwatched()
        task_status.started()
        self._send, receive = trio.open_memory_channel[Changed | Rescan](64)
        async with trio.open_nursery() as self._nursery:
            for watched in [w for key, w in self._roots.by_key.items() if key in self._unseen]:
                self._nursery.start_soon(self._follow, watched)
            for _ in range(READERS):
                self._nursery.start_soon(self._reading.run)
            self._nursery.start_soon(self._embedding.run)
            self._nursery.start_soon(self._tell_progress)
            async for change in receive:
                async with self._one_look:
                    await self._take(change)

    # ------------------------------------------------------------ roots that come and go

    @property
    def roots(self) -> Roots:
        """What is followed now."""
        return self._roots

    async def add_root(self, root: Root) -> str:
        """Read it, and follow it from now on; one with the same key goes. Returns its key, the absolute path.

        `progress()["idle"]` is false from now on until it was looked through. Before `run`: it is one of the first.
        """
        watched = self._roots.add(root)
        key = watched.tree.key
        self._unseen.add(key)
        if before := self._following.pop(key, None):
            before.cancel()
        if self._nursery is not None:
            self._nursery.start_soon(self._follow, watched)
        return key

    async def remove_root(self, key: str) -> bool:
        """Follow it no longer; on return nothing more is read of it. False: no root has this key.

        What was read of it stays in the store, for the caller to remove (`keeping`), unless it lies below another root:
        that one owns it from now on, and looks through what it has.
        """
        async with self._one_look:
            removed = self._roots.remove(key)
            self._unseen.discard(key)
        if removed is None:
            return False
        if scope := self._following.pop(key, None):
            scope.cancel()
        await self._files.drop(lambda path: removed.tree.holds(path) and self._roots.owner(path) is None)
        outer = self._roots.owner(key)
        if outer is not None and self._nursery is not None:
            await self._send.send(Rescan(outer.tree.key, f"{key} is not followed by itself any more"))
        return True

    async def _follow(self, watched: Watched) -> None:
        if self._roots.by_key.get(watched.tree.key) is not watched:
            return
        with trio.CancelScope() as self._following[watched.tree.key]:
            await follow(watched.tree, self._send, warn=self._warn, expected=not watched.root.transcripts)

    async def settled(self) -> None:
        """Returns when every root that is there was looked through, every file read and every passage embedded."""
        while True:
            while any(os.path.exists(root) for root in self._unseen):
                await self._seen.wait()
            await self._files.wait_idle()
            await self._embedding.wait_idle()
            if self._files.idle:
                return

    async def read_all(self) -> None:
        """Returns when every root that is there was looked through and every file can be found by its words."""
        while any(os.path.exists(root) for root in self._unseen):
            await self._seen.wait()
        await self._files.wait_idle()

    def progress(self) -> dict[str, int | bool]:
        """For status: files since the start, passages embedded since the start, texts given up."""
        return {
            "files_done": self._files.done_count,
            "files_total": self._files.put_count,
            "passages_embedded": self._embedding.embedded,
            "passages_unembeddable": self._embedding.given_up,
            "idle": self._files.idle and not any(os.path.exists(root) for root in self._unseen),
            "all_embedded": self._embedding.idle,
        }

    # ------------------------------------------------------------ changes on disk

    async def _take(self, change: Changed | Rescan) -> None:
        watched = self._roots.by_key.get(change.root)
        if watched is None:  # it was removed meanwhile
            return
        try:
            difference = await trio.to_thread.run_sync(self._compare, watched, change)
            shown = [watched.shown_path(new) for _, new in difference.moved]
            if difference.moved or difference.gone:
                await self._turn(lambda: self._keeping.apply(difference, shown))
        except StoreError as error:
            log.error("%s: %s", change.root, error)
            self._report("ingest.failed", path=change.root, error=str(error))
            return
        for file in difference.changed:
            self._files.put(file.path)
        self._tell_difference(change, difference)
        if isinstance(change, Rescan):
            self._unseen.discard(change.root)
            seen, self._seen = self._seen, trio.Event()
            seen.set()
        self._embedding.wake()

    def _compare(self, watched: Watched, change: Changed | Rescan) -> Difference:
        """In a thread of its own: walks, stats, and reads of the store."""
        known: dict[str, Source] = {}
        if isinstance(change, Rescan) or isinstance(watched.tree, DatabaseTree):
            found = watched.tree.walk()
            known.update((source.path, source) for source in self._reader.sources(under=watched.tree.root))
        else:
            paths = (*change.touched, *change.gone)
            found = look_at(watched.tree, paths)
            for path in paths:
                one = self._reader.source(path)
                known.update({path: one} if one else {})
                known.update((source.path, source) for source in self._reader.sources(under=path))
        return compare(
            self._roots.own(watched, found),
            self._roots.own_sources(watched, known),
            belonging(watched.root, self._reader.scopes()),
        )

    async def _forget_unwatched(self) -> None:
        """Sources below no root: nobody would tell of their changes. Their vectors are kept until the next prune."""
        sources = await trio.to_thread.run_sync(self._reader.sources)
        gone = [s.path for s in sources if s.kind != "memory" and self._roots.owner(s.path) is None]
        if gone:
            await self._turn(lambda: self._keeping.apply(Difference(gone=gone), ()))

    # ------------------------------------------------------------ turns and reports

    async def _turn(self, work: Callable[[], T]) -> T:
        """Run in the writer's thread. A full or locked disk pauses the work; recall goes on meanwhile."""
        while True:
            try:
                done = await trio.to_thread.run_sync(work, limiter=self._turn_limiter)
                self.paused = ""
                return done
            except (StoreFull, StoreBusy) as error:
                log.error("indexing pauses: %s", error)
                self.paused = str(error)
                self._report("ingest.paused", error=str(error), seconds=self._pause_seconds)
                await trio.sleep(self._pause_seconds)

    async def _tell_progress(self) -> None:
        """While there is work, twice a second; once more when it is done."""
        told: dict[str, int | bool] = {}
        at, embedded, missing = trio.current_time(), 0, 0
        while True:
            now = self.progress()
            if now != told:
                seconds = trio.current_time() - at
                rate = (int(now["passages_embedded"]) - embedded) / seconds if seconds > 0 else 0.0
                with suppress(StoreError):  # what can't be read now is told by those who need it
                    missing = await trio.to_thread.run_sync(self._keeping.count_missing)
                self._report("ingest.progress", **now, passages_missing=missing, passages_per_second=round(rate, 1))
                told = now
            at, embedded = trio.current_time(), int(now["passages_embedded"])
            await trio.sleep(PROGRESS_SECONDS)

    def _tell_difference(self, change: Changed | Rescan, difference: Difference) -> None:
        for unreadable in difference.unreadable:
            log.warning("%s: %s", unreadable.path, unreadable.reason)
            self._report("ingest.failed", path=unreadable.path, error=unreadable.reason)
        for path in difference.gone:
            self._report("ingest.removed", path=path)
        for old, new in difference.moved:
            self._report("ingest.moved", path=old, to=new)
        if isinstance(change, Rescan):
            self._report(
                "ingest.scanned",
                root=change.root,
                reason=change.reason,
                changed=len(difference.changed),
                unchanged=difference.unchanged,
            )

    def _warn(self, text: str) -> None:
        log.warning("%s", text)
        self._report("ingest.warning", text=text)
