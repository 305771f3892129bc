"""What is on disk against what the store knows, as pure values: which files to read, which have moved, which are gone.

A file is unchanged when size and mtime are; it has moved when a known path is gone and the same inode (or, across file
systems, the same name) stands elsewhere with the same size and mtime. Nothing counts as gone that merely lies below
something that could not be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from recalld_daemon.store.rows import Source
from recalld_daemon.watchers.tree import FileStat, Found, Unreadable

POISON = "the worker died of it"  # how the error of a source begins that is not tried again until it has changed
INODE_BITS = 0x7FFF_FFFF_FFFF_FFFF  # the store's integers are signed


@dataclass(slots=True)
class Difference:
    changed: list[FileStat] = field(default_factory=list)  # new ones among them
    moved: list[tuple[str, str]] = field(default_factory=list)  # (from, to)
    gone: list[str] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    unchanged: int = 0


Belongs = Callable[[Source, str], bool]


def compare(
    found: Iterable[Found], known: Mapping[str, Source], belongs: Belongs = lambda source, path: True
) -> Difference:
    """`found`: what a walk saw; `known`: the sources that it would have seen, by path.

    `belongs(source, path)`: whether a source that stands at `path` would be kept in the scope it is kept in.
    """
    difference = Difference()
    missing = dict(known)
    for item in found:
        if isinstance(item, Unreadable):
            difference.unreadable.append(item)
        elif isinstance(item, FileStat):
            source = missing.pop(item.path, None)
            if source is not None and is_current(source, item) and belongs(source, item.path):
                difference.unchanged += 1
            else:
                difference.changed.append(item)
    for unreadable in difference.unreadable:
        below = unreadable.path.rstrip("/") + "/"
        missing = {path: s for path, s in missing.items() if path != unreadable.path and not path.startswith(below)}
    _pair(difference, missing, known, belongs)
    difference.gone = list(missing)
    difference.changed.sort(key=lambda file: file.mtime_ns, reverse=True)  # what is newest is wanted soonest
    return difference


def is_current(source: Source, file: FileStat) -> bool:
    """Whether the store holds this very state of the file, or knows that it can't be read in this state."""
    settled = source.state == "ok" or (source.state == "failed" and source.error.startswith(POISON))
    return settled and (source.size, source.mtime_ns) == (file.size, file.mtime_ns)


def _pair(difference: Difference, missing: dict[str, Source], known: Mapping[str, Source], belongs: Belongs) -> None:
    """Move what is missing here and new there from `missing` and `changed` to `moved`."""
    by_inode = {(s.inode, s.size, s.mtime_ns): path for path, s in missing.items() if s.state == "ok"}
    by_name = {(os.path.basename(path), *key[1:]): path for key, path in by_inode.items()}
    still_changed = []
    for file in difference.changed:
        old = ""
        if file.path not in known:
            stat = (file.size, file.mtime_ns)
            old = by_inode.get((file.inode & INODE_BITS, *stat)) or by_name.get(
                (os.path.basename(file.path), *stat), ""
            )
        if old in missing and belongs(missing[old], file.path):
            del missing[old]
            difference.moved.append((old, file.path))
        else:
            still_changed.append(file)
    difference.changed = still_changed
