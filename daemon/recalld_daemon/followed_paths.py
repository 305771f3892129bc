"""What a user had imported: kept in the store, a root of the running ingest, and a root again after each start.

A path is looked at before it is noted, so that who asks is told at once what will not work. One that lies below what is
followed already, and counts there, needs no root of its own; one that is left out there (in a dotted directory, named
by a .gitignore) is followed because the user named it.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from recalld_daemon.config import Config
from recalld_daemon.events import EventFeed
from recalld_daemon.ingest import layouts, parse
from recalld_daemon.ingest.pipeline import Ingest
from recalld_daemon.ingest.ports import Root
from recalld_daemon.ingest.roots import Roots
from recalld_daemon.store.followed import FollowedPath
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.writer import Writer
from recalld_protocol import messages as wire

T = TypeVar("T")


class Refused(Exception):
    """A path that can't be followed; the text says why, and what would help."""

    def __init__(self, code: wire.ProblemCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def roots_followed(followed: Sequence[FollowedPath], config: Config) -> list[Root]:
    """The roots that the store's followed paths are."""
    return [
        Root(Path(one.path), project_scope=config.project_scope, kind=one.kind, is_file=one.is_file) for one in followed
    ]


@dataclass(slots=True)
class FollowedPaths:
    """`turn` runs a function in the writer's thread; `ingest` is None until the memory is served."""

    reader: Reader
    writer: Writer
    turns: trio.CapacityLimiter
    config: Config
    feed: EventFeed
    ingest: Callable[[], Ingest | None]
    copies: Path | None = None  # where copies of what was imported are kept

    async def follow(self, wish: wire.Follow) -> wire.Following:
        """Note the path, and have it read. Raises Refused, StoreError."""
        path = os.path.abspath(os.path.expanduser(wish.path))
        is_file = await trio.to_thread.run_sync(readable, path, wish.source_kind)
        ingest = self._running()
        known = {one.path: one for one in await trio.to_thread.run_sync(self.reader.followed)}
        before = known.get(path)
        if before is not None and wish.source_kind in ("", before.kind) and before.is_file == is_file:
            return wire.Following(path=path, known=True)
        if before is None and (holder := held_by(ingest.roots, path, is_file, wish.source_kind)):
            return wire.Following(path=holder, known=True)
        keep = partial(self.writer.follow, path, kind=wish.source_kind, is_file=is_file, at=time.time())
        await self._turn(keep)
        root = Root(Path(path), project_scope=self.config.project_scope, kind=wish.source_kind, is_file=is_file)
        await ingest.add_root(root)
        self.feed.emit("ingest.followed", wish.session, path=path, source_kind=wish.source_kind)
        return wire.Following(path=path, known=before is not None)

    async def unfollow(self, path: str) -> bool:
        """Take back `follow`: on return nothing more is read of it, and what was read is still in the store. Was it a
        copy that recalld kept, it is deleted.

        False: it is not followed by the user's wish (it may be watched, as configured).
        """
        path = os.path.abspath(os.path.expanduser(path))
        followed = await self._turn(partial(self.writer.unfollow, path))
        if followed:
            await self._running().remove_root(path)
        if self.copies is not None:
            await trio.to_thread.run_sync(drop_copy, self.copies, path)
        return followed

    def _running(self) -> Ingest:
        ingest = self.ingest()
        if ingest is None:
            raise Refused("busy", "the memory is not open yet: ask again in a moment")
        return ingest

    async def _turn(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self.turns)


def readable(path: str, source_kind: str) -> bool:
    """Whether it is a file (else a directory) that can be followed. Raises Refused: not there, not ours to read, or
    nothing that is read."""
    if source_kind and source_kind not in parse.all_kinds():
        raise Refused("malformed", f"there is no kind {source_kind!r}: known are {', '.join(parse.all_kinds())}")
    try:
        if os.path.isdir(path):
            with os.scandir(path):
                return False
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refused("failed", f"{path}: is neither a file nor a directory")
        with open(path, "rb"):
            pass
        kind = source_kind or parse.kind_of(path)
    except FileNotFoundError:
        raise Refused("not_found", f"{path}: there is no such file or directory") from None
    except OSError as error:
        raise Refused("failed", f"{path}: {error.strerror or error}") from None
    except UnicodeEncodeError:
        raise Refused("failed", f"{path!a}: the name is not valid UTF-8: rename it") from None
    if not kind:
        known = ", ".join(parse.all_kinds())
        raise Refused("failed", f"{path}: nothing that is read here: name a directory, or a file of one of {known}")
    return True


def drop_copy(copies: Path, path: str) -> None:
    """Delete a copy that was kept below `copies` (see `importing.copies`), with the directory that is its own."""
    place = Path(path).parent
    if place.parent == copies:
        shutil.rmtree(place, ignore_errors=True)


def held_by(roots: Roots, path: str, is_file: bool, kind: str) -> str:
    """The root that reads this path anyway, in the same way; "" if none does."""
    owner = roots.owner(path)
    if owner is None or (kind and kind != owner.root.kind):
        return ""
    if is_file:
        read = owner.tree.counts_file(path) and _read_below(owner.root, path)
    else:
        read = owner.tree.counts_directory(path) and layouts.looks_into(owner.root.layout, owner.tree.root, path)
    return owner.tree.key if read and owner.tree.follows(path) else ""


def _read_below(root: Root, path: str) -> bool:
    try:
        return bool(parse.kind_below(root, path))
    except OSError:
        return True  # it would be, could it be read
