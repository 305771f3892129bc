"""Which paths are followed because the user had them imported: written and read, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.reads import Reads
from recalld_daemon.store.texts import is_clean
from recalld_daemon.store.transactions import Transactions


@dataclass(frozen=True, slots=True)
class FollowedPath:
    """kind: how it is read, "" for told by looking. at: epoch seconds."""

    path: str
    kind: str
    is_file: bool
    at: float


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store holds of a path and all below it. newer: passages with an id above the one that was asked for."""

    files: int
    failed: int  # files that could not be read
    unfinished: int  # files that were being read when the daemon stopped
    problems: int  # lines that could not be read
    passages: int
    newer: int


class FollowedWrites(Transactions):
    """The part of the writer that keeps followed paths."""

    def follow(self, path: str, *, kind: str, is_file: bool, at: float) -> bool:
        """Keep a path; on return it is on disk for good. Returns whether it is new; a known one takes over `kind`."""
        if not is_clean(path):
            raise StoreError(f"{path!a}: the name is not valid UTF-8: rename it to have it indexed")
        with self.transaction(durable=True):
            known = self._one("SELECT 1 FROM followed WHERE path = ?", (path,)) is not None
            self._run(
                """INSERT INTO followed(path, kind, is_file, at) VALUES (?, ?, ?, ?)
                ON CONFLICT(path) DO UPDATE SET kind = excluded.kind, is_file = excluded.is_file""",
                (path, kind, int(is_file), at),
            )
        return not known

    def unfollow(self, path: str) -> bool:
        """Returns whether it was followed."""
        if not is_clean(path):
            return False
        with self.transaction(durable=True):
            return self._run("DELETE FROM followed WHERE path = ?", (path,)).rowcount > 0


class FollowedReads(Reads):
    """The part of the reader that knows them."""

    def followed(self) -> list[FollowedPath]:
        """All of them, by path."""
        rows = self._all("SELECT path, kind, is_file, at FROM followed ORDER BY path")
        return [FollowedPath(path, kind, bool(is_file), at) for path, kind, is_file, at in rows]

    def last_passage(self) -> int:
        """The highest id so far; 0 where there is none."""
        return int(self._all("SELECT coalesce(max(id), 0) FROM passages")[0][0])

    def kept_below(self, path: str, after: int = 0) -> Kept:
        """Of a file, or of a directory with all below it. `after`: a passage's id."""
        if not is_clean(path):
            return Kept(0, 0, 0, 0, 0, 0)
        prefix = path.rstrip("/") + "/"
        where = (path, prefix, prefix[:-1] + "0")
        files = self._all(
            """SELECT count(*), coalesce(sum(state = 'failed'), 0), coalesce(sum(state = 'indexing'), 0),
            coalesce(sum(problems), 0) FROM sources WHERE path = ? OR (path >= ? AND path < ?)""",
            where,
        )[0]
        passages = self._all(
            """SELECT count(*), coalesce(sum(p.id > ?), 0) FROM passages p JOIN sources s ON s.id = p.source
            WHERE s.path = ? OR (s.path >= ? AND s.path < ?)""",
            (after, *where),
        )[0]
        return Kept(*map(int, files), *map(int, passages))
