"""The follower of everything: what is on disk gets into the store, then into the index, and what is gone leaves both.

At start, and whenever a root must be looked at anew, disk and store are compared; after that the watchers say where to
look. A file that changed is parsed by the bulk worker and written batch by batch, which makes it searchable by words
at once; its vectors follow (`embedding`). One file's failure is told with its path and stops nothing else.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from recalld_daemon.ingest.compare import INODE_BITS, POISON, Difference, compare, is_current
from recalld_daemon.ingest.embedding import Embedding
from recalld_daemon.ingest.keeping import Keeping
from recalld_daemon.ingest.parse import goes_on, kind_of
from recalld_daemon.ingest.paths import PathQueue
from recalld_daemon.ingest.ports import Bulk, Gate, PassageIndex, Report, Root, Space
from recalld_daemon.ingest.projects import belonging, scope_key
from recalld_daemon.ingest.turns import Turns
from recalld_daemon.recall.types import GLOBAL_SCOPE, EncoderUnavailable
from recalld_daemon.store.errors import NoSuchRow, StoreBusy, StoreError, StoreFull
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import Source
from recalld_daemon.store.writer import Writer
from recalld_daemon.watchers.follow import Changed, Rescan, follow
from recalld_daemon.watchers.tree import FileStat, Found, Tree, Unreadable
from recalld_daemon.worker_link import RequestFailed
from recalld_daemon.worker_wire import Parsed

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
    is called in the trio thread with events named "ingest.*" (see docs/events.md).
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
    ) -> None:
        self._reader = reader
        self._bulk = bulk
        self._turn_limiter = turns
        self._report = report
        self._gate = gate
        self._pause_seconds = pause_seconds
        self._roots = {tree.key: (root, tree) for root, tree in map(_rooted, roots)}
        self._unseen = set(self._roots)
        self._seen = trio.Event()
        self._keeping = Keeping(writer, reader, undated)
        self._files = PathQueue()
        self._worker = Turns()
        self._embedding = Embedding(self._keeping, bulk, self._worker, self._files, self._turn, gate, report)

    async def attach(self, space: Space, index: PassageIndex) -> None:
        """Embed into `space` and keep `index` from now on; it must hold what the store holds of `space`, or less.

        May be called again, with another space or a rebuilt index.
        """
        await self._turn(lambda: self._keeping.attach(space, index))
        self._embedding.wake()

    def wake(self) -> None:
        """The store has passages that came by another way: embed them too."""
        self._embedding.wake()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Compare, then follow, until cancelled. Started once every source outside the roots has been forgotten."""
        await self._forget_unwatched()
        task_status.started()
        send, receive = trio.open_memory_channel[Changed | Rescan](64)
        async with trio.open_nursery() as nursery:
            for _, tree in self._roots.values():
                nursery.start_soon(partial(follow, tree, send, warn=self._warn))
            for _ in range(READERS):
                nursery.start_soon(self._read_files)
            nursery.start_soon(self._embedding.run)
            nursery.start_soon(self._tell_progress)
            async for change in receive:
                await self._take(change)

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
        root, tree = self._roots[change.root]
        try:
            difference = await trio.to_thread.run_sync(self._compare, root, tree, change)
            shown = [_shown_path(tree, new) for _, new in difference.moved]
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

    def _compare(self, root: Root, tree: Tree, change: Changed | Rescan) -> Difference:
        """In a thread of its own: walks, stats, and reads of the store."""
        known: dict[str, Source] = {}
        if isinstance(change, Rescan):
            found = tree.walk()
            known.update((source.path, source) for source in self._reader.sources(under=tree.root))
        else:
            paths = (*change.touched, *change.gone)
            found = _look_at(tree, paths)
            for path in paths:
                one = self._reader.source(path)
                known.update({path: one} if one else {})
                known.update((source.path, source) for source in self._reader.sources(under=path))
        return compare(self._own(tree, found), self._own_sources(tree, known), belonging(root, self._reader.scopes()))

    def _own(self, tree: Tree, found: Iterator[Found]) -> Iterator[Found]:
        return (item for item in found if isinstance(item, Unreadable) or self._owner(item.path) is tree)

    def _own_sources(self, tree: Tree, known: dict[str, Source]) -> dict[str, Source]:
        return {path: source for path, source in known.items() if self._owner(path) is tree}

    def _owner(self, path: str) -> Tree | None:
        """Of roots inside each other, the innermost has the file."""
        trees = [tree for _, tree in self._roots.values() if tree.holds(path)]
        return max(trees, key=lambda tree: len(tree.key), default=None)

    async def _forget_unwatched(self) -> None:
        """Sources below no root: nobody would tell of their changes. Their vectors are kept until the next prune."""
        sources = await trio.to_thread.run_sync(self._reader.sources)
        gone = [s.path for s in sources if s.kind != "memory" and self._owner(s.path) is None]
        if gone:
            await self._turn(lambda: self._keeping.apply(Difference(gone=gone), ()))

    # ------------------------------------------------------------ files

    async def _read_files(self) -> None:
        while True:
            async with self._files.take() as path:
                try:
                    await self._read_file(path)
                except NoSuchRow:  # it was moved or deleted while it was read
                    self._files.put(path)
                except Exception as error:  # outermost: one file must not stop the rest
                    log.exception("%s", path)
                    self._report("ingest.failed", path=path, error=f"{type(error).__name__}: {error}")
            self._embedding.wake()

    async def _read_file(self, path: str) -> None:
        """Bring one path's state in the store up to what is on disk."""
        tree = self._owner(path)
        file = await trio.to_thread.run_sync(_stat, path)
        source = await trio.to_thread.run_sync(self._reader.source, path)
        if tree is None or file is None:
            await self._forget(path, source)
            return
        if source is not None and await trio.to_thread.run_sync(self._is_current, tree, source, file):
            return
        try:
            kind = await trio.to_thread.run_sync(kind_of, path)
        except OSError as error:
            await self._fail(tree, file, f"{error.strerror}", source.kind if source else "text")
            return
        if kind is None:
            await self._forget(path, source)
            return
        await self._parse_patiently(tree, file, kind, source)

    def _is_current(self, tree: Tree, source: Source, file: FileStat) -> bool:
        root, _ = self._roots[tree.key]
        return is_current(source, file) and belonging(root, self._reader.scopes())(source, file.path)

    async def _parse_patiently(self, tree: Tree, file: FileStat, kind: str, source: Source | None) -> None:
        """Parse; when the worker dies meanwhile once more, with nobody beside; when it dies again, give the file up."""
        for alone in (False, True):
            try:
                async with self._worker.take(alone=alone):
                    await self._parse(tree, file, kind, source)
                return
            except EncoderUnavailable as error:
                failure = f"{POISON}: {error}"
            except RequestFailed as error:
                failure = str(error)
                break
        if await trio.to_thread.run_sync(_stat, file.path) is None:
            await self._forget(file.path, source)
        else:
            await self._fail(tree, file, failure, kind)

    async def _parse(self, tree: Tree, file: FileStat, kind: str, source: Source | None) -> None:
        append = await trio.to_thread.run_sync(_appends, file, kind, source)
        cursor = source.cursor if source is not None and append else 0
        open_pass: int | None = None
        problems = new = 0
        codec = ""
        async with self._bulk.parse(file.path, kind, cursor) as stream:
            async for parsed in stream:
                await self._gate()
                problems += self._tell_problems(file.path, parsed)
                if open_pass is None:
                    open_pass = await self._begin(tree, file, kind, parsed, append)
                codec = codec or (parsed.passages[0].codec if parsed.passages else "")
                new += await self._turn(partial(self._keeping.add, open_pass, parsed.passages))
                if parsed.done:
                    gone = await self._turn(partial(self._keeping.finish, open_pass, parsed, problems, codec))
                    await self._rescope(tree, file.path, kind, parsed, open_pass)
                    self._report("ingest.file", path=file.path, new=new, gone=gone, problems=problems)

    async def _begin(self, tree: Tree, file: FileStat, kind: str, first: Parsed, append: bool) -> int:
        root, _ = self._roots[tree.key]
        key = await trio.to_thread.run_sync(scope_key, root, file.path, kind, first.project)
        shown = _shown_path(tree, file.path)
        return await self._turn(lambda: self._keeping.begin(file, shown, kind, self._keeping.scope_id(key), append))

    async def _rescope(self, tree: Tree, path: str, kind: str, last: Parsed, source: int) -> None:
        """A transcript that did not name its project at first, and now does, moves there."""
        if kind != "claude-code" or not last.project:
            return
        root, _ = self._roots[tree.key]
        unknown = await trio.to_thread.run_sync(scope_key, root, path, kind, "")
        known = await trio.to_thread.run_sync(scope_key, root, path, kind, last.project)
        stored = await trio.to_thread.run_sync(self._reader.source, path)
        scopes = await trio.to_thread.run_sync(self._reader.scopes)
        if stored is not None and stored.scope in (GLOBAL_SCOPE, scopes.get(unknown)) and known != unknown:
            await self._turn(lambda: self._keeping.move_to_scope(source, self._keeping.scope_id(known)))

    async def _forget(self, path: str, source: Source | None) -> None:
        if source is not None:
            gone = await self._turn(lambda: self._keeping.remove(path))
            self._report("ingest.removed", path=path, passages=gone)

    async def _fail(self, tree: Tree, file: FileStat, error: str, kind: str) -> None:
        log.warning("%s: %s", file.path, error)
        self._report("ingest.failed", path=file.path, error=error)
        shown = _shown_path(tree, file.path)
        await self._turn(lambda: self._keeping.fail(file, error, shown, kind))

    # ------------------------------------------------------------ turns and reports

    async def _turn(self, work: Callable[[], T]) -> T:
        """Run in the writer's thread. A full or locked disk pauses the work; recall goes on meanwhile."""
        while True:
            try:
                return await trio.to_thread.run_sync(work, limiter=self._turn_limiter)
            except (StoreFull, StoreBusy) as error:
                log.error("indexing pauses: %s", error)
                self._report("ingest.paused", error=str(error), seconds=self._pause_seconds)
                await trio.sleep(self._pause_seconds)

    async def _tell_progress(self) -> None:
        """While there is work, twice a second; once more when it is done."""
        told: dict[str, int | bool] = {}
        at, embedded = trio.current_time(), 0
        while True:
            now = self.progress()
            if now != told:
                seconds = trio.current_time() - at
                rate = (int(now["passages_embedded"]) - embedded) / seconds if seconds > 0 else 0.0
                missing = await trio.to_thread.run_sync(self._keeping.count_missing)
                self._report("ingest.progress", **now, passages_missing=missing, passages_per_second=round(rate, 1))
                told = now
            at, embedded = trio.current_time(), int(now["passages_embedded"])
            await trio.sleep(PROGRESS_SECONDS)

    def _tell_problems(self, path: str, parsed: Parsed) -> int:
        for problem in parsed.problems:
            log.info("%s:%d: %s", path, problem.line, problem.text)
            self._report("ingest.problem", path=path, line=problem.line, text=problem.text)
        return len(parsed.problems)

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


def _rooted(root: Root) -> tuple[Root, Tree]:
    path = Path(os.path.abspath(os.path.expanduser(root.path)))
    return root, Tree(path.parent, only=path.name) if path.is_file() else Tree(path)


def _shown_path(tree: Tree, path: str) -> str:
    """As a user would write it: relative to the directory that holds the root."""
    return os.path.relpath(path, os.path.dirname(tree.root)) if tree.only is None else os.path.basename(path)


def _look_at(tree: Tree, paths: Sequence[str]) -> Iterator[Found]:
    for path in paths:
        if os.path.isdir(path):
            yield from tree.walk(path)
        elif file := _stat(path):
            yield file


def _stat(path: str) -> FileStat | None:
    """None for what is not there or no regular file; what can't be looked at is left to fail when it is opened."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError:
        return FileStat(path, 0, 0, 0)
    return FileStat(path, status.st_size, status.st_mtime_ns, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _appends(file: FileStat, kind: str, source: Source | None) -> bool:
    """Whether what is known of a transcript still stands, so that only what came after it must be read."""
    if kind != "claude-code" or source is None or source.kind != kind or source.state == "failed":
        return False
    grown = 0 < source.cursor <= file.size and source.inode == file.inode & INODE_BITS
    try:
        return grown and goes_on(file.path, source.cursor)
    except OSError:
        return False
