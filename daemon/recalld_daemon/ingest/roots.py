"""The roots as they are watched: each with its tree, innermost first where one lies inside another."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recalld_daemon.ingest import layouts
from recalld_daemon.ingest.ports import Root
from recalld_daemon.store import opencode
from recalld_daemon.store.rows import Source
from recalld_daemon.watchers.database import DatabaseTree, session_stat
from recalld_daemon.watchers.tree import FileStat, Found, Tree, Unreadable


@dataclass(frozen=True, slots=True)
class Watched:
    """A root and the rules for what counts below it."""

    root: Root
    tree: Tree

    def shown_path(self, path: str) -> str:
        """As a user would write it: relative to the directory that holds the root."""
        if isinstance(self.tree, DatabaseTree):
            return os.path.relpath(path, self.tree.root)
        if self.tree.only is not None:
            return os.path.basename(path)
        return os.path.relpath(path, os.path.dirname(self.tree.root))


class Roots:
    """All of them. `by_key` is by what the user named, made absolute; each change makes another dict, since threads go
    through it meanwhile, in search of owners."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self.by_key: dict[str, Watched] = {}
        for root in roots:
            self.add(root)

    def add(self, root: Root) -> Watched:
        """One more, or another in the place of one with the same key."""
        if not root.layout and not root.transcripts:
            root = _laid_out(root)
        watched = Watched(root, _tree(root))
        self.by_key = {**self.by_key, watched.tree.key: watched}
        return watched

    def remove(self, key: str) -> Watched | None:
        removed = self.by_key.get(key)
        self.by_key = {other: watched for other, watched in self.by_key.items() if other != key}
        return removed

    def owner(self, path: str) -> Watched | None:
        """Of roots inside each other, the innermost has the file."""
        holding = [one for one in self.by_key.values() if one.tree.holds(path)]
        return max(holding, key=lambda one: len(one.tree.key), default=None)

    def own(self, watched: Watched, found: Iterator[Found]) -> Iterator[Found]:
        """What of the found is this root's, and no inner one's."""
        return (item for item in found if isinstance(item, Unreadable) or self.owner(item.path) is watched)

    def own_sources(self, watched: Watched, sources: dict[str, Source]) -> dict[str, Source]:
        return {path: source for path, source in sources.items() if self.owner(path) is watched}


def look_at(tree: Tree, paths: Sequence[str]) -> Iterator[Found]:
    """What is there of these paths: files, and all that counts below directories; of a database, its sessions."""
    if isinstance(tree, DatabaseTree):
        yield from tree.walk()
        return
    for path in paths:
        if os.path.isdir(path):
            yield from tree.walk(path)
        elif tree.follows(path) and (file := file_stat(path)):
            yield file


def file_stat(path: str) -> FileStat | None:
    """None for what is not there or no regular file; what can't be looked at is left to fail when it is opened."""
    if place := opencode.place_of(path):
        return session_stat(*place)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError:
        return FileStat(path, 0, 0, 0)
    return FileStat(path, status.st_size, status.st_mtime_ns, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _tree(root: Root) -> Tree:
    path = Path(_place(root))
    is_file = os.path.isfile(path) if root.is_file is None else root.is_file  # raises for nothing
    if root.kind == opencode.KIND or (is_file and _is_database(path)):
        return DatabaseTree(path)
    if is_file:
        return Tree(path.parent, only=path.name)
    return Tree(path, keeps=layouts.LAYOUTS[root.layout].keeps if root.layout else frozenset())


def _laid_out(root: Root) -> Root:
    """The root, with what is known of directories of its layout."""
    name = layouts.told(_place(root))
    if not name:
        return root
    if transcripts := layouts.LAYOUTS[name].transcripts:
        kind, notes = transcripts
        return replace(root, layout=name, transcripts=True, only=(kind,), notes=notes)
    return replace(root, layout=name)


def _place(root: Root) -> str:
    return os.path.abspath(os.path.expanduser(root.path))


def _is_database(path: Path) -> bool:
    try:
        return path.suffix == ".db" and opencode.is_opencode(str(path))
    except OSError:
        return False
