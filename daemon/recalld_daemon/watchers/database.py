"""OpenCode's database as a root: each of its sessions counts as a file below it, told by when it changed.

SQLite writes to a log beside the database long before it writes to the database, so a change of either is a change;
which sessions changed is asked of the database itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from recalld_daemon.store import opencode
from recalld_daemon.watchers.tree import Directory, FileStat, Found, Tree, Unreadable


class DatabaseTree(Tree):
    """The rules for one database. Its key is the database's path; a session's path is that and the session's id."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent, only=path.name)
        self._written = (self.key, f"{self.key}-wal")

    def holds(self, path: str) -> bool:
        return path in self._written or path.startswith(f"{self.key}/")

    def counts_file(self, path: str) -> bool:
        return self.holds(path)

    def walk(self, start: str | None = None, *, files: bool = True) -> Iterator[Found]:
        """The directory that holds the database, for who watches it; then the sessions."""
        try:
            status = os.stat(self.root)
        except OSError as error:
            yield Unreadable(self.root, error.strerror or str(error))
            return
        yield Directory(self.root, status.st_ino)
        if not files or not os.path.exists(self.key):
            return
        try:
            for state in opencode.sessions(self.key):
                yield _stat(self.key, state)
        except OSError as error:
            yield Unreadable(self.key, error.strerror or str(error))


def session_stat(path: str, session: str) -> FileStat | None:
    """A session as a file. None: it is gone. What can't be looked at is left to fail when it is read."""
    try:
        state = opencode.session_state(path, session)
    except FileNotFoundError:
        return None
    except OSError:
        return FileStat(f"{path}/{session}", 0, 0, 0) if os.path.exists(path) else None
    return None if state is None else _stat(path, state)


def _stat(path: str, state: opencode.SessionState) -> FileStat:
    inode = int.from_bytes(hashlib.blake2b(state.id.encode(), digest_size=8).digest(), "big")
    return FileStat(f"{path}/{state.id}", state.messages, state.changed_ms * 1_000_000, inode)
