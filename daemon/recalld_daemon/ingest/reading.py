"""One file's state in the store, brought up to what is on disk: parsed by the bulk worker, written batch by batch.

Whoever dies of it, refuses it or finds it gone, this file's outcome is told with its path and stops nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import trio

from recalld_daemon.ingest.compare import INODE_BITS, POISON, is_current
from recalld_daemon.ingest.formats.kinds import grows, names_project
from recalld_daemon.ingest.keeping import Keeping, Pass
from recalld_daemon.ingest.parse import goes_on, kind_below
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


@dataclass(slots=True)
class _Look:
    """What a look at a path found. kind: "" for none of ours; error: why it can't be told."""

    watched: Watched | None
    file: FileStat | None
    source: Source | None
    is_current: bool = False
    kind: str = ""
    append: bool = False
    error: str = ""


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
        look = await trio.to_thread.run_sync(self._look, path)
        if look.is_current:
            return
        if look.watched is None or look.file is None or not (look.kind or look.error):
            await self._forget(path, look.source)
        elif look.error:
            await self._fail(look.watched, look.file, look.error, look.source.kind if look.source else "text")
        else:
            await self._parse_patiently(look.watched, look.file, look.kind, look)

    def _look(self, path: str) -> _Look:
        """In a thread of its own, since it touches the disk and reads the store."""
        look = _Look(self._roots.owner(path), file_stat(path), self._reader.source(path))
        if look.watched is None or look.file is None:
            return look
        if look.source is not None and is_current(look.source, look.file):
            look.is_current = belonging(look.watched.root, self._reader.scopes())(look.source, path)
        if not look.is_current:
            try:
                look.kind = kind_below(look.watched.root, path) or ""
                look.append = _appends(look.file, look.kind, look.source)
            except OSError as error:
                look.error = error.strerror or str(error)
        return look

    async def _parse_patiently(self, watched: Watched, file: FileStat, kind: str, look: _Look) -> None:
        """Parse; when the worker dies meanwhile once more, with nobody beside; when it dies again, give the file up."""
        for alone in (False, True):
            try:
                async with self._worker.take(alone=alone):
                    await self._parse(
                        watched, Pass(file, watched.shown_path(file.path), kind, look.append), look.source
                    )
                return
            except EncoderUnavailable as error:
                failure = f"{POISON}: {error}"
            except RequestFailed as error:
                failure = str(error)
                break
        if await trio.to_thread.run_sync(file_stat, file.path) is None:
            await self._forget(file.path, look.source)
        else:
            await self._fail(watched, file, failure, kind)

    async def _parse(self, watched: Watched, under_way: Pass, source: Source | None) -> None:
        path = under_way.file.path
        cursor = source.cursor if source is not None and under_way.append else 0
        async with self._bulk.parse(path, under_way.kind, cursor) as stream:
            async for parsed in stream:
                await self._gate()
                if self._roots.owner(path) is not watched:
                    raise NoSuchRow(f"{path}: its root was removed, or another holds it now")
                self._tell_problems(path, parsed)
                await self._turn(partial(self._write, watched, under_way, parsed, source))
        self._report("ingest.file", path=path, new=under_way.new, gone=under_way.gone, problems=under_way.problems)

    def _write(self, watched: Watched, under_way: Pass, parsed: Parsed, source: Source | None) -> None:
        """In the writer's thread."""
        if not under_way.codec and parsed.passages:
            under_way.codec = parsed.passages[0].codec
        self._place(watched, under_way, parsed.project, source)
        self._keeping.take(under_way, parsed)

    def _place(self, watched: Watched, under_way: Pass, project: str, source: Source | None) -> None:
        """Say in which scope the source is kept. A transcript that names its project only now moves there."""
        place = partial(scope_key, watched.root, under_way.file.path, under_way.kind)
        if not under_way.source and not under_way.append:
            under_way.scope = place(project)
        elif names_project(under_way.kind) and project and not under_way.placed:
            nowhere = place("")
            if source is not None and under_way.append:
                unplaced = source.scope in (GLOBAL_SCOPE, self._reader.scopes().get(nowhere))
            else:
                unplaced = under_way.scope == nowhere
            under_way.move_to = place(project) if unplaced else ""
        under_way.placed = under_way.placed or bool(project)

    async def _forget(self, path: str, source: Source | None) -> None:
        if source is not None:
            gone = await self._turn(lambda: self._keeping.remove(path))
            self._report("ingest.removed", path=path, passages=gone)

    async def _fail(self, watched: Watched, file: FileStat, error: str, kind: str) -> None:
        if self._roots.owner(file.path) is not watched:
            return
        log.warning("%s: %s", file.path, error)
        self._report("ingest.failed", path=file.path, error=error)
        shown = watched.shown_path(file.path)
        await self._turn(lambda: self._keeping.fail(file, error, shown, kind))

    def _tell_problems(self, path: str, parsed: Parsed) -> None:
        for problem in parsed.problems:
            log.info("%s:%d: %s", path, problem.line, problem.text)
            self._report("ingest.problem", path=path, line=problem.line, text=problem.text)


def _appends(file: FileStat, kind: str, source: Source | None) -> bool:
    """Whether what is known of a transcript still stands, so that only what came after it must be read."""
    if not grows(kind) or source is None or source.kind != kind or source.state == "failed":
        return False
    grown = 0 < source.cursor <= file.size and source.inode == file.inode & INODE_BITS
    try:
        return grown and goes_on(file.path, source.cursor, kind)
    except OSError:
        return False
