"""How the database is opened: one connection that writes, a pool of read-only ones, files for the user only.

WAL lets readers go on while the writer writes; `synchronous=NORMAL` survives a killed process, and what a client was
told is on disk is committed with FULL, which survives a power cut too. Sizes are bounded: page caches per connection,
the mapped part of the file, the log left over after a checkpoint.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from recalld_daemon.store.errors import StoreError, StoreUnreadable, named
from recalld_daemon.store.migrations import VERSION, migrate, refuse_foreign

PAGE_BYTES = 8192  # a passage's vectors are about 3-7 KB: one or two pages
WRITER_CACHE_KIB = 16_384
READER_CACHE_KIB = 8_192  # per connection; the mapped file serves the rest from the system's cache
MMAP_BYTES = 256 * 1024 * 1024
WAL_KEPT_BYTES = 16 * 1024 * 1024  # the log file is cut to this after a checkpoint
BUSY_SECONDS = 5.0  # how long the writer waits for another process's lock


def connect_writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes; makes the file (0600) and brings its schema up to date."""
    _claim(path)
    with named(path):
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            refuse_foreign(db, path)
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # takes effect in a new file only
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA foreign_keys = ON")
            db.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
            db.execute(f"PRAGMA mmap_size = {MMAP_BYTES}")
            db.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten: see `forgetting`
            migrate(db, path)
        except BaseException:
            db.close()
            raise
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection. Raises StoreError when the file is absent, foreign or newer."""
    with named(path):
        db = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS,
            isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        try:
            version = refuse_foreign(db, path)
            if version < VERSION:
                raise StoreError(f"{path}: its schema is version {version}, not {VERSION}: start recalld to mend that")
            db.execute("PRAGMA query_only = ON")
            db.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
            db.execute(f"PRAGMA mmap_size = {MMAP_BYTES}")
            db.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            db.close()
            raise
    return db


class Pool:
    """Read-only connections, one per reader at a time, kept for the next. Safe from any number of threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """A connection for one short read; SQLite's errors come out as the store's."""
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.path}: the reader is closed")
            db = self._idle.pop() if self._idle else None
        db = db or connect_reader(self.path)
        try:
            with named(self.path):
                yield db
        finally:
            self._give_back(db)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _give_back(self, db: sqlite3.Connection) -> None:
        if db.in_transaction:  # an iteration that was given up half way
            db.rollback()
        with self._lock:
            if not self._closed:
                self._idle.append(db)
                return
        db.close()


def _claim(path: Path) -> None:
    """Make the file ours alone before SQLite opens it; -wal and -shm take over its mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            if file.exists():
                file.chmod(0o600)
    except OSError as error:
        reason = f"{error.strerror}: check that it and its directory are yours"
        raise StoreUnreadable(f"{path}: can't be opened for writing ({reason})") from error
