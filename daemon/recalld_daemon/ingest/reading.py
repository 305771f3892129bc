"""One file's state in the store, brought up to what is on disk: parsed by the bulk worker, written batch by batch.

Whoever dies of it, refuses it or finds it gone, this file's outcome is told with its path and stops nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

import trio

from recalld_daemon.ingest.compare import INODE_BITS, POISON, is_current
from recalld_daemon.ingest.keeping import Keeping
from recalld_daemon.ingest.parse import goes_on, kind_of
from recalld_daemon.ingest.paths import PathQueue
from recalld_daemon.ingest.ports import Bulk, Gate, Report
from recalld_daemon.ingest.projects import belonging, scope_key
from recalld_daemon.ingest.roots import Roots, Watched, file_stat
from recalld_daemon.ingest.turns import Turns
from recalld_daemon.recall.types import GLOBAL_SCOPE, EncoderUnavailable
from recalld_daemon.store.errors import NoSuchRow
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import Source
from recalld_daemon.watchers.tree import FileStat
from recalld_daemon.worker_link import RequestFailed
from recalld_daemon.worker_wire import Parsed

T = TypeVar("T")

log = logging.getLogger(__name__)


class Turn(Protocol):
    """Runs a function in the writer's thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Reading:
    """`on_read` is called after each file: there may be passages to embed."""

    def __init__(
        self,
        roots: Roots,
        files: PathQueue,
        *,
        reader: Reader,
        keeping: Keeping,
        bulk: Bulk,
        worker: Turns,
        turn: Turn,
        gate: Gate,
        report: Report,
        on_read: Callable[[], None],
    ) -> None:
        self._roots = roots
        self._files = files
        self._reader = reader
        self._keeping = keeping
        self._bulk = bulk
        self._worker = worker
        self._turn = turn
        self._gate = gate
        self._report = report
        self._on_read = on_read

    async def run(self) -> None:
        """Take one file after the other from the queue, until cancelled. May run several times at once."""
        while True:
            async with self._files.take() as path:
                try:
                    await self._read_file(path)
                except NoSuchRow:  # it was moved or deleted while it was read
                    self._files.put(path)
                except Exception as error:  # outermost: one file must not stop the rest
                    log.exception("%s", path)
                    self._report("ingest.failed", path=path, error=f"{type(error).__name__}: {error}")
            self._on_read()

    async def _read_file(self, path: str) -> None:
        """Bring one path's state in the store up to what is on disk."""
        watched = self._roots.owner(path)
        file = await trio.to_thread.run_sync(file_stat, path)
        source = await trio.to_thread.run_sync(self._reader.source, path)
        if watched is None or file is None:
            await self._forget(path, source)
            return
        if source is not None and await trio.to_thread.run_sync(self._is_current, watched, source, file):
            return
        try:
            kind = await trio.to_thread.run_sync(kind_of, path)
        except OSError as error:
            await self._fail(watched, file, f"{error.strerror}", source.kind if source else "text")
            return
        if kind is None:
            await self._forget(path, source)
            return
        await self._parse_patiently(watched, file, kind, source)

    def _is_current(self, watched: Watched, source: Source, file: FileStat) -> bool:
        return is_current(source, file) and belonging(watched.root, self._reader.scopes())(source, file.path)

    async def _parse_patiently(self, watched: Watched, file: FileStat, kind: str, source: Source | None) -> None:
        """Parse; when the worker dies meanwhile once more, with nobody beside; when it dies again, give the file up."""
        for alone in (False, True):
            try:
                async with self._worker.take(alone=alone):
                    await self._parse(watched, file, kind, source)
                return
            except EncoderUnavailable as error:
                failure = f"{POISON}: {error}"
            except RequestFailed as error:
                failure = str(error)
                break
        if await trio.to_thread.run_sync(file_stat, file.path) is None:
            await self._forget(file.path, source)
        else:
            await self._fail(watched, file, failure, kind)

    async def _parse(self, watched: Watched, file: FileStat, kind: str, source: Source | None) -> None:
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
                    open_pass = await self._begin(watched, file, kind, parsed, append)
                codec = codec or (parsed.passages[0].codec if parsed.passages else "")
                new += await self._turn(partial(self._keeping.add, open_pass, parsed.passages))
                if parsed.done:
                    gone = await self._turn(partial(self._keeping.finish, open_pass, parsed, problems, codec))
                    await self._rescope(watched, file.path, kind, parsed, open_pass)
                    self._report("ingest.file", path=file.path, new=new, gone=gone, problems=problems)

    async def _begin(self, watched: Watched, file: FileStat, kind: str, first: Parsed, append: bool) -> int:
        key = await trio.to_thread.run_sync(scope_key, watched.root, file.path, kind, first.project)
        shown = watched.shown_path(file.path)
        return await self._turn(lambda: self._keeping.begin(file, shown, kind, self._keeping.scope_id(key), append))

    async def _rescope(self, watched: Watched, path: str, kind: str, last: Parsed, source: int) -> None:
        """A transcript that did not name its project at first, and now does, moves there."""
        if kind != "claude-code" or not last.project:
            return
        unknown = await trio.to_thread.run_sync(scope_key, watched.root, path, kind, "")
        known = await trio.to_thread.run_sync(scope_key, watched.root, path, kind, last.project)
        stored = await trio.to_thread.run_sync(self._reader.source, path)
        scopes = await trio.to_thread.run_sync(self._reader.scopes)
        if stored is not None and stored.scope in (GLOBAL_SCOPE, scopes.get(unknown)) and known != unknown:
            await self._turn(lambda: self._keeping.move_to_scope(source, self._keeping.scope_id(known)))

    async def _forget(self, path: str, source: Source | None) -> None:
        if source is not None:
            gone = await self._turn(lambda: self._keeping.remove(path))
            self._report("ingest.removed", path=path, passages=gone)

    async def _fail(self, watched: Watched, file: FileStat, error: str, kind: str) -> None:
        log.warning("%s: %s", file.path, error)
        self._report("ingest.failed", path=file.path, error=error)
        shown = watched.shown_path(file.path)
        await self._turn(lambda: self._keeping.fail(file, error, shown, kind))

    def _tell_problems(self, path: str, parsed: Parsed) -> int:
        for problem in parsed.problems:
            log.info("%s:%d: %s", path, problem.line, problem.text)
            self._report("ingest.problem", path=path, line=problem.line, text=problem.text)
        return len(parsed.problems)


def _appends(file: FileStat, kind: str, source: Source | None) -> bool:
    """Whether what is known of a transcript still stands, so that only what came after it must be read."""
    if kind != "claude-code" or source is None or source.kind != kind or source.state == "failed":
        return False
    grown = 0 < source.cursor <= file.size and source.inode == file.inode & INODE_BITS
    try:
        return grown and goes_on(file.path, source.cursor)
    except OSError:
        return False
