"""Sources and their passages: a pass over a file replaces what it held, and keeps every passage that is still there.

A pass is begin_source, any number of add_passages, finish_source. Passages are matched by content: one that is found
again keeps its id and thereby its vectors, wherever in the file it stands now; what was not found again is removed at
the end. An appending pass only replaces what starts at the file's cursor or later. A pass that is interrupted leaves
the source `indexing`: the next pass over it, of whichever sort, puts everything right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from recalld_daemon.recall.types import GLOBAL_SCOPE
from recalld_daemon.store.errors import NoSuchRow, StoreError
from recalld_daemon.store.extraction_writes import ExtractionWrites
from recalld_daemon.store.rows import NO_STAT
from recalld_daemon.store.texts import clean, content_hash, is_clean, moved_shown_path, path_words, searched_parts
from recalld_daemon.worker_wire import ParsedPassage

INODE_BITS = 0x7FFF_FFFF_FFFF_FFFF  # SQLite's integers are signed

_UNINDEX = """INSERT INTO passages_fts(passages_fts, rowid, text, heading, speaker, path, parts)
    SELECT 'delete', id, text, heading, speaker, path, parts FROM passage_fields
    WHERE id IN (SELECT value FROM json_each(?))"""
_INDEX = """INSERT INTO passages_fts(rowid, text, heading, speaker, path, parts)
    SELECT id, text, heading, speaker, path, parts FROM passage_fields WHERE id IN (SELECT value FROM json_each(?))"""
_UPSERT = """INSERT INTO sources(path, shown_path, path_words, kind, scope, size, mtime_ns, inode, state)
    VALUES (:path, :shown, :words, :kind, :scope, :size, :mtime_ns, :inode, 'indexing')
    ON CONFLICT(path) DO UPDATE SET kind = :kind, size = :size, mtime_ns = :mtime_ns, inode = :inode,
        scope = iif(:append, scope, :scope), state = 'indexing', error = '',
        generation = generation + 1, base = iif(:append, cursor, 0), cursor = iif(:append, cursor, 0),
        problems = iif(:append, problems, 0)
    RETURNING id"""
_AGAIN = """SELECT id, written_at, scope FROM passages INDEXED BY passages_hash
    WHERE hash = ? AND source = ? AND generation <> ? AND start >= ? AND text = ? AND heading = ? AND speaker = ?
    ORDER BY start LIMIT 1"""
_NEW = """INSERT INTO passages(source, scope, written_at, hash, generation, ordinal, start, "end", codec,
    heading, speaker, dated, parts, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


@dataclass(frozen=True, slots=True)
class _Pass:
    """What add_passages needs to know of the pass under way."""

    source: int
    scope: int
    mtime: float
    generation: int
    base: int
    ordinal: int


class SourceWrites(ExtractionWrites):
    """The part of the writer that keeps sources and passages."""

    def scope_id(self, key: str) -> int:
        """The id of a scope (a project's directory, or "global"), made at first mention."""
        with self.transaction():
            found = self._one("SELECT id FROM scopes WHERE key = ?", (key,))
            if found is None:
                found = self._run("INSERT INTO scopes(key) VALUES (?)", (_path(key),)).lastrowid
        return int(found)

    def begin_source(
        self, path: str, *, shown_path: str, kind: str, scope: int = GLOBAL_SCOPE, size: int = 0, mtime_ns: int = 0,
        inode: int = 0, append: bool = False,
    ) -> int:  # fmt: skip
        """Start a pass over a file; returns the source's id. `append` keeps what is before the cursor, and the scope.

        size in bytes, mtime in nanoseconds since the epoch; the mtime dates passages that have no date of their own.
        """
        with self.transaction():
            self._reshow(path, shown_path)
            values = {
                "path": _path(path), "shown": _path(shown_path), "words": path_words(shown_path), "kind": kind,
                "scope": scope, "size": size, "mtime_ns": mtime_ns, "inode": inode & INODE_BITS, "append": append,
            }  # fmt: skip
            source = int(self._one(_UPSERT, values))
            self._run(
                """UPDATE sources SET ordinals = coalesce((SELECT max(p.ordinal) + 1 FROM passages p
                WHERE p.source = sources.id AND p.start < sources.base), 0) WHERE id = ?""",
                (source,),
            )
        return source

    def add_passages(self, source: int, batch: Sequence[ParsedPassage]) -> list[int]:
        """Add what was parsed, in file order; returns the ids an index must learn: new ones, newly dated, scoped, or
        extracted from.

        A passage already in the source (same text, heading, speaker and day, not yet seen in this pass) keeps its id;
        its date becomes the earlier one. Raises NoSuchRow when no pass is under way.
        """
        with self.transaction():
            under_way = self._pass(source)
            touched = [self._add(under_way, n, passage) for n, passage in enumerate(batch)]
            self._run("UPDATE sources SET ordinals = ordinals + ? WHERE id = ?", (len(batch), source))
            new = [id for id, is_new in touched if is_new]
            self._run(_INDEX, (json.dumps(new),))
            renewed = self._keep_extracted([id for id, _ in touched], batch)
            self._changed |= bool(batch)
        return [id for id, is_new in touched if is_new is not None or id in renewed]

    def finish_source(self, source: int, *, cursor: int, problems: int = 0, codec: str = "") -> list[int]:
        """End the pass; returns the ids of passages that are gone. An appending pass adds its `problems`."""
        with self.transaction():
            under_way = self._pass(source)
            gone = self._column(
                "SELECT id FROM passages WHERE source = ? AND start >= ? AND generation <> ?",
                (source, under_way.base, under_way.generation),
            )
            self._drop(gone)
            self._run(
                "UPDATE sources SET state = 'ok', cursor = ?, problems = problems + ?, codec = ? WHERE id = ?",
                (cursor, problems, codec, source),
            )
        return gone

    def fail_source(
        self, path: str, error: str, *, shown_path: str = "", kind: str = "text", scope: int = GLOBAL_SCOPE,
        stat: tuple[int, int, int] = NO_STAT,
    ) -> None:  # fmt: skip
        """Note that a file can't be read, and why. What it held before stays, since it may come back.

        stat: (size in bytes, mtime in ns, inode) it had when it failed, so that it isn't tried again unchanged.
        """
        with self.transaction():
            size, mtime_ns, inode = stat
            self._run(
                """INSERT INTO sources(path, shown_path, path_words, kind, scope, size, mtime_ns, inode, state, error)
                VALUES (:path, :shown, :words, :kind, :scope, :size, :mtime_ns, :inode, 'failed', :error)
                ON CONFLICT(path) DO UPDATE SET
                    size = :size, mtime_ns = :mtime_ns, inode = :inode, state = 'failed', error = :error, cursor = 0""",
                {
                    "path": _path(path), "shown": shown_path or path, "words": path_words(shown_path or path),
                    "kind": kind, "scope": scope, "size": size, "mtime_ns": mtime_ns, "inode": inode & INODE_BITS,
                    "error": clean(error),
                },
            )  # fmt: skip

    def set_scope(self, source: int, scope: int) -> list[int]:
        """Move a source to another scope; returns the ids an index must learn again."""
        with self.transaction():
            self._run("UPDATE sources SET scope = ? WHERE id = ?", (scope, source))
            moved = self._column("SELECT id FROM passages WHERE source = ? AND scope <> ?", (source, scope))
            self._run("UPDATE passages SET scope = ? WHERE source = ? AND scope <> ?", (scope, source, scope))
            self._changed |= bool(moved)
        return moved

    def remove_source(self, path: str) -> list[int]:
        """Forget a file or a memory; returns the ids of its passages. Unknown paths are no error."""
        if not is_clean(path):
            return []
        with self.transaction():
            gone = self._column(
                "SELECT p.id FROM passages p JOIN sources s ON s.id = p.source WHERE s.path = ?", (path,)
            )
            self._drop(gone)
            self._run("DELETE FROM sources WHERE path = ?", (path,))
        return gone

    def remove_under(self, directory: str) -> list[int]:
        """Forget all files below a directory; returns the ids of their passages."""
        with self.transaction():
            return [id for path in self._paths_under(directory) for id in self.remove_source(path)]

    def rename_source(self, old: str, new: str, *, shown_path: str = "") -> list[int]:
        """A file moved: its passages and vectors stay. Returns the ids of what was at `new` before and is overwritten.

        Without `shown_path` it is shown relative to the same directory as before. An unknown `old` is no error.
        """
        with self.transaction():
            sql = "SELECT shown_path FROM sources WHERE path = ?"
            shown = self._one(sql, (old,)) if is_clean(old) else None
            if shown is None or old == new:
                return []
            gone = self.remove_source(new)
            self._reshow(old, shown_path or moved_shown_path(old, shown, new))
            self._run("UPDATE sources SET path = ? WHERE path = ?", (_path(new), old))
        return gone

    def rename_under(self, old: str, new: str) -> list[int]:
        """A directory moved, with all files below it; like `rename_source` for each."""
        with self.transaction():
            moved = self._paths_under(old)
            return [
                id for path in moved for id in self.rename_source(path, new.rstrip("/") + path[len(old.rstrip("/")) :])
            ]

    def _paths_under(self, directory: str) -> list[str]:
        prefix = directory.rstrip("/") + "/"
        return self._column("SELECT path FROM sources WHERE path >= ? AND path < ?", (prefix, prefix[:-1] + "0"))

    def _reshow(self, path: str, shown_path: str) -> None:
        """Show a source's path another way, full-text index included."""
        row = self._run("SELECT id, shown_path FROM sources WHERE path = ?", (_path(path),)).fetchone()
        if row is None or row[1] == shown_path:
            return
        ids = json.dumps(self._column("SELECT id FROM passages WHERE source = ?", (row[0],)))
        self._run(_UNINDEX, (ids,))
        self._run(
            "UPDATE sources SET shown_path = ?, path_words = ? WHERE id = ?",
            (_path(shown_path), path_words(shown_path), row[0]),
        )
        self._run(_INDEX, (ids,))
        self._changed = True

    def _drop(self, ids: Sequence[int]) -> None:
        """Remove passages, from the full-text index first: it must be given exactly what it once took."""
        if ids:
            self._run(_UNINDEX, (json.dumps(ids),))
            self._drop_extracted(ids)
            self._run("DELETE FROM passages WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),))
            self._changed = True

    def _pass(self, source: int) -> _Pass:
        row = self._run(
            "SELECT scope, mtime_ns, generation, base, ordinals FROM sources WHERE id = ? AND state = 'indexing'",
            (source,),
        ).fetchone()
        if row is None:
            raise NoSuchRow(f"{self.path}: no pass over source {source} is under way: call begin_source first")
        return _Pass(source, row[0], row[1] / 1e9, row[2], row[3], row[4])

    def _add(self, under_way: _Pass, offset: int, passage: ParsedPassage) -> tuple[int, bool | None]:
        """Its id, and what an index must learn of it: True, it is new; False, another date or scope; None, nothing."""
        text, heading, speaker = clean(passage.text), clean(passage.heading), clean(passage.speaker)
        dated = bool(speaker and passage.written_at)  # 0.0 is "always", no date
        spoken_at = passage.written_at if dated else None
        hash = content_hash(heading, speaker, text, spoken_at)
        written_at = under_way.mtime if passage.written_at is None else passage.written_at
        place = (under_way.generation, under_way.ordinal + offset, passage.start, passage.end, passage.codec)
        again = self._run(
            _AGAIN, (hash, under_way.source, under_way.generation, under_way.base, text, heading, speaker)
        ).fetchone()
        if again is None:
            parts = searched_parts(heading, speaker, text, spoken_at)
            values = (under_way.source, under_way.scope, written_at, hash, *place, heading, speaker, dated, parts, text)
            return int(self._run(_NEW, values).lastrowid or 0), True
        id, before, scope = again
        earlier = min(before, written_at)
        self._run(
            """UPDATE passages SET generation = ?, ordinal = ?, start = ?, "end" = ?, codec = ?, scope = ?,
            written_at = ? WHERE id = ?""",
            (*place, under_way.scope, earlier, id),
        )
        return id, None if (before, scope) == (earlier, under_way.scope) else False


def _path(path: str) -> str:
    """The path, if it can be kept: SQLite's texts are UTF-8."""
    if not is_clean(path):
        raise StoreError(f"{path!r}: the name is not valid UTF-8: rename it to have it indexed")
    return path
