"""What can go wrong with the store, as a tree; each error names the file and the remedy.

StoreError
├── NewerSchema      the database was written by a later recalld
├── StoreCorrupt     not a recalld database, or a damaged one
├── StoreFull        the disk is full; nothing of this write was kept
├── StoreBusy        another process holds a lock for longer than the store waits
├── StoreUnreadable  permissions, or the device fails
├── WriterInUse      two threads use the one writer at the same time
└── NoSuchRow        what the call refers to does not exist
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StoreError(Exception):
    """Anything the store refuses or fails to do."""


class NewerSchema(StoreError):
    pass


class StoreCorrupt(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreBusy(StoreError):
    pass


class StoreUnreadable(StoreError):
    pass


class WriterInUse(StoreError):
    pass


class NoSuchRow(StoreError):
    pass


_KINDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "it is damaged: move it away, or restore a copy, and start again"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "it is not a recalld database: move it away and start again"),
    sqlite3.SQLITE_FULL: (StoreFull, "the disk is full: free some space; nothing of this write was kept"),
    sqlite3.SQLITE_BUSY: (StoreBusy, "another process holds a lock on it: close that process"),
    sqlite3.SQLITE_LOCKED: (StoreBusy, "another connection holds a lock on it: close it"),
    sqlite3.SQLITE_IOERR: (StoreUnreadable, "the disk or the file system fails"),
    sqlite3.SQLITE_CANTOPEN: (StoreUnreadable, "it can't be opened: check that it and its directory are yours"),
    sqlite3.SQLITE_READONLY: (StoreUnreadable, "it can't be written: check that it and its directory are yours"),
    sqlite3.SQLITE_PERM: (StoreUnreadable, "it can't be opened: check its permissions"),
    sqlite3.SQLITE_CONSTRAINT: (StoreError, "a value is not one that may stand there: this is a fault in recalld"),
    sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY: (NoSuchRow, "a row that this write refers to does not exist"),
}


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into the store's, with file and remedy. Programming errors pass as they are."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        found = _KINDS.get(code) or _KINDS.get(code & 0xFF)  # the low byte is the primary code
        if found is None:
            raise
        kind, remedy = found
        raise kind(f"{path}: {error}; {remedy}") from error
