"""The schema's history: numbered files, each run once, in its own transaction. `PRAGMA user_version` counts them.

A database of a later version than this package knows is refused, since writing to it could lose what it holds.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from recalld_daemon.store.errors import NewerSchema, StoreCorrupt

from . import m001_initial, m002_extraction, m003_learning, m004_followed

MIGRATIONS: tuple[str, ...] = (m001_initial.SQL, m002_extraction.SQL, m003_learning.SQL, m004_followed.SQL)
VERSION = len(MIGRATIONS)
APPLICATION_ID = 0x72636C64  # "rcld", in the file's header: tells ours from any other SQLite database


def refuse_foreign(db: sqlite3.Connection, path: Path) -> int:
    """The database's schema version. Raises NewerSchema, or StoreCorrupt when it is some other program's."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and tables:
        raise StoreCorrupt(f"{path}: this SQLite database is not recalld's: name another file, or move it away")
    if version > VERSION:
        raise NewerSchema(
            f"{path}: its schema is version {version}, this recalld knows up to {VERSION}: "
            "upgrade recalld, or move the file away to start anew"
        )
    return int(version)


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring a database to VERSION. An interrupted migration leaves it as it was."""
    version = refuse_foreign(db, path)
    for name, (arguments, function) in m002_extraction.FUNCTIONS.items() if version < VERSION else ():
        db.create_function(name, arguments, function, deterministic=True)
    for number, sql in enumerate(MIGRATIONS[version:], version + 1):
        header = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number};"
        born = "INSERT INTO meta VALUES ('scrubbed', 1);" if number == 1 else ""  # no delete was ever insecure
        db.executescript(f"BEGIN IMMEDIATE; {sql} {born} {header} COMMIT;")
