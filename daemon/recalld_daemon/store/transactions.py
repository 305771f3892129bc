"""Transactions of the one writer: nested ones are savepoints, and each that changed passages or vectors counts up.

The index compares that count, `generation`, with the one it was saved at. The writer may wander between threads, but
never be used by two at the same time: that is refused, not waited for, since it means a fault in the wiring.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from recalld_daemon.store.connections import BUSY_SECONDS, connect_writer
from recalld_daemon.store.errors import StoreError, WriterInUse, named
from recalld_daemon.store.rows import Checkpoint

CHECKPOINT_WAIT_MS = 50  # for readers to finish; the next checkpoint gets what this one could not


class Transactions:
    """The connection that writes. Raises StoreError (see `errors`); after one, nothing of that transaction is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect_writer(path)
        self._lock = threading.RLock()
        self._depth = 0
        self._changed = False
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """All or nothing. Inside another one: a savepoint of it. `durable` (outermost only) survives a power cut."""
        if not self._lock.acquire(blocking=False):
            raise WriterInUse(f"{self.path}: the one writer is used from two threads at once: take turns")
        try:
            if self._closed:
                raise StoreError(f"{self.path}: the writer is closed")
            with named(self.path), self._savepoint() if self._depth else self._outermost(durable):
                yield
        finally:
            self._lock.release()

    def checkpoint(self) -> Checkpoint:
        """Move the log into the database and cut it, as far as readers allow; waits for them 50 ms at most."""
        with self._exclusive():
            self._db.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT_MS}")
            try:
                blocked, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        return Checkpoint(bool(blocked), self.log_bytes())

    def log_bytes(self) -> int:
        """The size of the write-ahead log on disk; callable from any thread."""
        try:
            return self.path.with_name(self.path.name + "-wal").stat().st_size
        except OSError:
            return 0

    def close(self) -> None:
        """Closes for good; a second call does nothing. The last connection to close removes the log."""
        if not self._closed:
            with self._exclusive():
                with suppress(sqlite3.Error):  # it writes statistics, for which a full disk has no room
                    self._db.execute("PRAGMA optimize")
                self._db.close()
                self._closed = True

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """The connection outside any transaction."""
        if not self._lock.acquire(blocking=False):
            raise WriterInUse(f"{self.path}: the one writer is used from two threads at once: take turns")
        try:
            if self._depth or self._closed:
                raise WriterInUse(f"{self.path}: the writer is closed, or a transaction is open: finish it first")
            with named(self.path):
                yield
        finally:
            self._lock.release()

    @contextmanager
    def _outermost(self, durable: bool) -> Iterator[None]:
        self._db.execute("PRAGMA synchronous = " + ("FULL" if durable else "NORMAL"))
        self._db.execute("BEGIN IMMEDIATE")
        self._depth, self._changed = 1, False
        try:
            yield
            if self._changed:
                self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has rolled back already
                self._db.execute("ROLLBACK")
            raise
        finally:
            self._depth = 0

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        name = f"nested{self._depth}"
        self._db.execute(f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute(f"ROLLBACK TO {name}")
                self._db.execute(f"RELEASE {name}")
            raise
        else:
            self._db.execute(f"RELEASE {name}")
        finally:
            self._depth -= 1

    def _one(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> Any:
        """The first row's first column, or None."""
        row = self._db.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def _column(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        return [row[0] for row in self._db.execute(sql, values)]

    def _run(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Cursor:
        return self._db.execute(sql, values)
