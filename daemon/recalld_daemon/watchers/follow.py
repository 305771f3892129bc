"""Follows one root for ever: what changes below it comes out as paths, whatever the file system's events looked like.

Only directories that count are watched, each by itself (not recursively), so ignored ones cost no watch; a new
directory extends the list: the new watch is opened before the old one is closed, and the directory is reported whole.
A root that is missing, deleted or made again is waited for. Events say only where to look: whether a path is there is
looked up, so an atomic save is one touched path. Where the system has no watches left, polling takes over, with one
warning; and a full look every ten minutes finds what any of this may have missed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import trio
from watchfiles import Change
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from recalld_daemon.watchers.tree import Directory, Tree

DEBOUNCE_MS = 400  # changes are gathered for so long at most
STEP_MS = 50  # and told when there were none for so long
LOOK_MS = 5_000  # how often the root itself is looked at, when nothing happens
POLL_MS = 2_000  # between two looks at everything, where watches can't be had
WAIT_SECONDS = 1.0  # between two looks for a root that is missing
RESCAN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Changed:
    """`touched` is there (a file, or a directory to be looked through), `gone` is not (a file, or all below it)."""

    root: str
    touched: tuple[str, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rescan:
    """Anything below the root may have changed: compare all of it."""

    root: str
    reason: str


RawChanges = set[tuple[int, str]] | Literal["signal", "stop", "timeout"]


class Watch(Protocol):
    """A watch on a list of directories, as watchfiles' Rust side has it."""

    def watch(
        self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: threading.Event | None
    ) -> RawChanges: ...

    def close(self) -> None: ...


OpenWatch = Callable[[Sequence[str], bool], Watch]


def open_watch(directories: Sequence[str], polling: bool) -> Watch:
    """Watch these directories, not what is below them. Raises OSError, FileNotFoundError if one is gone."""
    return RustNotify(list(directories), False, polling, POLL_MS, False, True)


async def follow(
    tree: Tree,
    changes: trio.MemorySendChannel[Changed | Rescan],
    *,
    warn: Callable[[str], None],
    expected: bool = True,
    open_watch: OpenWatch = open_watch,
    wait_seconds: float = WAIT_SECONDS,
    rescan_seconds: float = RESCAN_SECONDS,
) -> None:
    """Send what changes below the root until cancelled; first of all a Rescan, once it is watched.

    A root that is not there is waited for, with a warning where it was `expected`.
    """
    follower = _Follower(tree, changes, warn, open_watch, rescan_seconds)
    waiting = False
    while True:
        if os.path.isdir(tree.root):
            waiting = False
            await follower.run()
        elif not waiting:
            waiting = True
            if expected:
                warn(f"{tree.root}: not there: waiting for it")
        await trio.sleep(wait_seconds)


class _Follower:
    """From the moment the root is there until it is gone, or another directory is in its place."""

    def __init__(
        self,
        tree: Tree,
        changes: trio.MemorySendChannel[Changed | Rescan],
        warn: Callable[[str], None],
        open_watch: OpenWatch,
        rescan_seconds: float,
    ) -> None:
        self._tree = tree
        self._changes = changes
        self._warn = warn
        self._open_watch = open_watch
        self._rescan_seconds = rescan_seconds
        self._polling = False
        self._watched: dict[str, int] = {}  # directory -> inode
        self._stop = threading.Event()
        self._limiter = trio.CapacityLimiter(1)

    async def run(self) -> None:
        self._stop = threading.Event()
        identity = _identity(self._tree.root)
        self._tree.forget_rules()
        watch = await self._watch_all()
        try:
            await self._rescan("now watched")
            rescan_at = trio.current_time() + self._rescan_seconds
            while _identity(self._tree.root) == identity:
                raw = await self._wait(watch)
                if isinstance(raw, set):
                    if (Change.deleted, self._tree.root) in raw:
                        await self._tell({path for _, path in raw})
                        break  # a new one in its place may well have the old one's inode
                    watch = await self._take(raw, watch)
                if trio.current_time() >= rescan_at:
                    await self._rescan("from time to time")
                    rescan_at = trio.current_time() + self._rescan_seconds
        except WatchfilesRustInternalError as error:
            self._warn(f"{self._tree.root}: the watch failed and is opened again: {error}")
        finally:
            self._stop.set()

    async def _wait(self, watch: Watch) -> RawChanges:
        """Cancelled, it leaves the thread behind, which sees `_stop` within a step; to close its watch would fail."""
        return await trio.to_thread.run_sync(
            watch.watch, DEBOUNCE_MS, STEP_MS, LOOK_MS, self._stop, abandon_on_cancel=True, limiter=self._limiter
        )

    async def _take(self, raw: set[tuple[int, str]], watch: Watch) -> Watch:
        paths = {path for _, path in raw}
        if any(os.path.basename(path) == ".gitignore" for path in paths):
            self._tree.forget_rules()
            watch = await self._rewatch(watch, paths)
            await self._rescan("a .gitignore changed")
            return watch
        if await trio.to_thread.run_sync(self._watches_change, raw):
            watch = await self._rewatch(watch, paths)
        await self._tell(paths)
        return watch

    async def _tell(self, paths: set[str]) -> None:
        changed = await trio.to_thread.run_sync(self._sort, frozenset(paths))
        if changed.touched or changed.gone:
            await self._changes.send(changed)

    def _watches_change(self, raw: Iterable[tuple[int, str]]) -> bool:
        """Whether a directory that counts came or went (or both: its inode may be the same)."""
        return any(
            path in self._watched or (os.path.isdir(path) and self._tree.counts_directory(path))
            for kind, path in raw
            if kind != Change.modified
        )

    def _sort(self, paths: frozenset[str]) -> Changed:
        touched, gone = [], []
        for path in sorted(paths):
            if not self._tree.holds(path):
                continue
            if os.path.isdir(path):
                if path != self._tree.root and self._tree.counts_directory(path):
                    touched.append(path)
            elif os.path.lexists(path):
                if self._tree.counts_file(path):
                    touched.append(path)
            elif self._tree.counts_file(path) or self._tree.counts_directory(path):
                gone.append(path)
        return Changed(self._tree.key, tuple(touched), tuple(gone))

    async def _rewatch(self, old: Watch, paths: set[str]) -> Watch:
        """Watch what counts now, the new before the old is let go; adds to `paths` what the old still had to say."""
        new = await self._watch_all()
        late = await trio.to_thread.run_sync(old.watch, STEP_MS, 1, 1, self._stop)
        old.close()
        if isinstance(late, set):
            paths |= {path for _, path in late}
        return new

    async def _watch_all(self) -> Watch:
        """A watch on every directory that counts; looks again after opening it, for those made meanwhile."""
        while True:
            directories = await trio.to_thread.run_sync(self._directories)
            watch = await trio.to_thread.run_sync(self._open, list(directories))
            self._watched = directories
            if await trio.to_thread.run_sync(self._directories) == directories:
                return watch
            watch.close()

    def _directories(self) -> dict[str, int]:
        return {found.path: found.inode for found in self._tree.walk(files=False) if isinstance(found, Directory)}

    def _open(self, directories: Sequence[str]) -> Watch:
        """Polling where the system refuses a watch: its limit is reached (ENOSPC), or this file system has none."""
        try:
            return self._open_watch(directories, self._polling)
        except FileNotFoundError:
            return self._open_watch([path for path in directories if os.path.isdir(path)], self._polling)
        except OSError as error:
            if self._polling:
                raise
            self._polling = True
            self._warn(
                f"{self._tree.root}: {error}; looking every {POLL_MS / 1000:g} s instead of being told of changes"
            )
            return self._open_watch(directories, True)

    async def _rescan(self, reason: str) -> None:
        await self._changes.send(Rescan(self._tree.key, reason))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
