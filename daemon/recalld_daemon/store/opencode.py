"""OpenCode's own database, read and never written: sessions, what was said in them, one part's text.

It belongs to a program that may be running (WAL, many small transactions), so each question opens it, asks and closes
it (0.4 ms), and holds no lock between two. Where no log lies beside it nobody has it open: then it is read as
immutable, since an ordinary read-only connection would leave a log's empty files behind. What SQLite refuses comes out
as OSError, as of any file that can't be read.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

KIND = "opencode"
WAIT_SECONDS = 1.0  # for a lock of OpenCode's: it holds none for longer than some milliseconds
QUICK_SECONDS = 0.02  # the same, where a recall waits
MOST_BYTES = 4 * 1024 * 1024  # of a part that is read; what a person or a model says in one stays far below
_MAGIC = b"SQLite format 3\0"
_TABLES = {"session", "message", "part"}
_PLACE = re.compile(r"(.+\.db)/(ses_[^/]+)\Z", re.DOTALL)

_SESSIONS = """SELECT s.id, s.time_updated, (SELECT count(*) FROM message m WHERE m.session_id = s.id),
    (SELECT coalesce(max(m.time_created), 0) FROM message m WHERE m.session_id = s.id) FROM session s"""
_ONE = " WHERE s.id = ?"
_SESSION = "SELECT directory, title, parent_id IS NOT NULL FROM session WHERE id = ?"
_PARTS = """SELECT p.id, m.data, p.time_created, length(CAST(p.data AS BLOB)), iif(length(p.data) <= ?, p.data, NULL)
    FROM message m CROSS JOIN part p ON p.message_id = m.id
    WHERE m.session_id = ? AND CASE WHEN json_valid(p.data) THEN json_extract(p.data, '$.type') END = 'text'
    ORDER BY m.time_created, m.id, p.id"""
_PART = "SELECT data FROM part WHERE id = ?"


@dataclass(frozen=True, slots=True)
class SessionState:
    """What changes when the session goes on. changed_ms: epoch milliseconds; messages: how many."""

    id: str
    changed_ms: int
    messages: int


@dataclass(frozen=True, slots=True)
class Session:
    """directory: where it was held. child: a subagent's, whose "user" is an agent."""

    directory: str
    title: str
    child: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One text that was said. at: epoch seconds. size: bytes in the database; text "": too long, and left out."""

    id: str
    by_user: bool
    text: str
    at: float
    size: int


def place_of(path: str) -> tuple[str, str] | None:
    """The database and the session that a source's path names; None for any other path.

    >>> place_of("/d/opencode.db/ses_1"), place_of("/d/opencode.db")
    (('/d/opencode.db', 'ses_1'), None)
    """
    match = _PLACE.match(path)
    return (match[1], match[2]) if match else None


def is_opencode(path: str) -> bool:
    """Whether a file is such a database. Raises OSError where it can't be read."""
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False
    try:
        with _opened(path) as db:
            names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except OSError:
        return False  # damaged, or encrypted
    return names >= _TABLES


def sessions(path: str) -> list[SessionState]:
    """All of them. Raises OSError."""
    with _opened(path) as db:
        return [_state(row) for row in db.execute(_SESSIONS)]


def session_state(path: str, session: str) -> SessionState | None:
    """None: there is no such session (any more). Raises OSError."""
    with _opened(path) as db:
        row = db.execute(_SESSIONS + _ONE, (session,)).fetchone()
    return None if row is None else _state(row)


def session(path: str, id: str) -> Session | None:
    """Raises OSError."""
    with _opened(path) as db:
        row = db.execute(_SESSION, (id,)).fetchone()
    return None if row is None else Session(str(row[0]), str(row[1]), bool(row[2]))


def parts(path: str, session: str) -> Iterator[Part]:
    """What was said in a session, in order: no tool's output, no summary of a compaction, nothing that a program added
    ("synthetic": our snippets are; "ignored": the model never saw it). Raises OSError."""
    with _opened(path) as db:
        for id, message, at_ms, size, data in db.execute(_PARTS, (MOST_BYTES, session)):
            about = _object(message)
            part = _object(data) if data is not None else {}
            if about.get("summary") is True or part.get("synthetic") or part.get("ignored"):
                continue
            text = part.get("text")
            yield Part(str(id), about.get("role") == "user", text if isinstance(text, str) else "", at_ms / 1e3, size)


def part_text(path: str, part: str) -> str | None:
    """A part's text as it is now; None: it is gone. Raises OSError."""
    with _opened(path, QUICK_SECONDS) as db:
        row = db.execute(_PART, (part,)).fetchone()
    text = _object(row[0]).get("text") if row is not None else None
    return text if isinstance(text, str) else None


def as_bytes(text: str) -> bytes:
    """A part's text as offsets count it; what no UTF-8 can hold is replaced."""
    return text.encode("utf-8", "replace")


def _state(row: tuple[str, int, int, int]) -> SessionState:
    id, updated, messages, last = row
    return SessionState(id, max(updated, last), messages)


def _object(data: str) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _opened(path: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[sqlite3.Connection]:
    unused = "" if os.path.exists(path + "-wal") else "&immutable=1"
    try:
        db = sqlite3.connect(
            f"file:{quote(path)}?mode=ro{unused}", uri=True, timeout=wait_seconds, isolation_level=None
        )
        try:
            yield db
        finally:
            db.close()
    except sqlite3.Error as error:
        raise OSError(None, f"OpenCode's database can't be read: {error}", path) from error
