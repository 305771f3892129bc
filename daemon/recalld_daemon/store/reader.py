"""The reader: everything the house asks of the store, from any number of threads, each call one short transaction.

Connections are read-only and lent from a pool, so a read never waits for the writer, and no read keeps the log from
being cut for longer than one call (long walks go in batches).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from recalld_daemon.recall.types import LaneHits, Passage, View
from recalld_daemon.store.connections import Pool
from recalld_daemon.store.extraction_reads import ExtractionReads
from recalld_daemon.store.followed import FollowedReads
from recalld_daemon.store.learning_reads import LearningReads
from recalld_daemon.store.lexical import LexicalSearch
from recalld_daemon.store.log_reads import LogReads
from recalld_daemon.store.passage_reads import PassageReads
from recalld_daemon.store.rows import Source
from recalld_daemon.store.texts import clean, is_clean
from recalld_daemon.store.training_reads import TrainingReads
from recalld_daemon.store.vector_reads import VectorReads

_PASSAGES = """SELECT p.id, s.path, s.shown_path, p.start, p."end", p.text, p.codec, p.heading, p.speaker,
    p.written_at, p.scope, s.kind FROM passages p JOIN sources s ON s.id = p.source WHERE p.id IN ({marks})"""
_SOURCES = """SELECT id, scope, kind, path, shown_path, size, mtime_ns, inode, cursor, state, error, problems,
    (SELECT count(*) FROM passages p WHERE p.source = sources.id) FROM sources"""
_COUNTS = {
    "passages": "SELECT count(*) FROM passages",
    "sources": "SELECT count(*) FROM sources",
    "sources_failed": "SELECT count(*) FROM sources WHERE state = 'failed'",
    "sources_indexing": "SELECT count(*) FROM sources WHERE state = 'indexing'",
    "problems": "SELECT coalesce(sum(problems), 0) FROM sources",
    "memories": "SELECT count(*) FROM memories",
    "scopes": "SELECT count(*) FROM scopes",
    "sessions": "SELECT count(*) FROM sessions",
    "recalls": "SELECT count(*) FROM recalls",
    "impressions": "SELECT count(*) FROM impressions",
    "feedback": "SELECT count(*) FROM feedback",
    "generation": "SELECT value FROM meta WHERE key = 'generation'",
    "bytes": "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
}
BATCH = 500  # ids per statement


class Reader(VectorReads, PassageReads, ExtractionReads, LogReads, LearningReads, TrainingReads, FollowedReads):
    """Reads of the store. Raises StoreError; an id or path that does not exist is left out or None, never an error."""

    def __init__(self, path: Path) -> None:
        self._pool = Pool(path)
        self._frontiers = {}
        self._lexical = LexicalSearch(self._pool)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; those in use follow when their read ends."""
        self._pool.close()

    def lexical(self, terms: Sequence[str], view: View, limit: int) -> LaneHits:
        """The passages that best match some of the terms, by bm25 (higher is better here). See `lexical`."""
        return self._lexical.search(terms, view, limit)

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """Those that still exist, in the order asked for."""
        rows: dict[int, tuple[Any, ...]] = {}
        with self._pool.lend() as db:
            for batch in (list(ids[at : at + BATCH]) for at in range(0, len(ids), BATCH)):
                sql = _PASSAGES.format(marks=",".join("?" * len(batch)))
                rows.update((row[0], row) for row in db.execute(sql, [int(id) for id in batch]))
        return [Passage(*rows[int(id)]) for id in ids if int(id) in rows]

    def passage_ids(self, path: str) -> list[int]:
        """A source's passages in the order they stand in it; none for an unknown path."""
        sql = "SELECT p.id FROM passages p JOIN sources s ON s.id = p.source WHERE s.path = ? ORDER BY p.ordinal, p.id"
        return [int(row[0]) for row in self._all(sql, (path,))]

    def source(self, path: str) -> Source | None:
        rows = self._all(f"{_SOURCES} WHERE path = ?", (path,)) if is_clean(path) else []
        return Source(*rows[0]) if rows else None

    def sources(self, *, under: str = "", state: str = "", kind: str = "") -> list[Source]:
        """Sources by path; below a directory, of one state or of one kind where these are given."""
        prefix = under.rstrip("/") + "/"
        rows = self._all(
            f"""{_SOURCES} WHERE (? = '' OR (path >= ? AND path < ?)) AND (? = '' OR state = ?) AND (? = '' OR kind = ?)
            ORDER BY path""",
            (under, prefix, prefix[:-1] + "0", state, state, kind, kind),
        )
        return [Source(*row) for row in rows]

    def sources_shown_as(self, shown_path: str) -> list[Source]:
        """Those that are shown under this path: of two roots there may be several."""
        return [Source(*row) for row in self._all(f"{_SOURCES} WHERE shown_path = ?", (clean(shown_path),))]

    def memory_text(self, path: str) -> str | None:
        """The whole text of a memory (`memory:17`); None once it is forgotten."""
        rows = self._all("SELECT m.text FROM memories m JOIN sources s ON s.id = m.source WHERE s.path = ?", (path,))
        return str(rows[0][0]) if rows else None

    def scopes(self) -> dict[str, int]:
        """All known scopes: key -> id."""
        return dict(self._all("SELECT key, id FROM scopes ORDER BY id"))

    def scope_ids(self, keys: Sequence[str]) -> list[int]:
        """The ids of those scopes that are known; an unknown one has no passages, so nothing is missed without it."""
        known = self.scopes()
        return [known[key] for key in keys if key in known]

    def written_before(self, moment: float) -> int:
        """How many passages were written before a moment (epoch seconds)."""
        return int(self._all("SELECT count(*) FROM passages WHERE written_at < ?", (moment,))[0][0])

    def generation(self) -> int:
        """Grows with each transaction that changed passages or vectors."""
        return int(self._all(_COUNTS["generation"])[0][0])

    def counts(self) -> dict[str, int]:
        """How much there is of each, for `status`; `bytes` is the database file's size."""
        with self._pool.lend() as db:
            return {name: int(db.execute(sql).fetchone()[0]) for name, sql in _COUNTS.items()}


def open_reader(path: Path) -> Reader:
    """Open an existing store for reading. Raises StoreError: absent, foreign, damaged, or of a newer schema."""
    reader = Reader(path)
    reader.generation()
    return reader
