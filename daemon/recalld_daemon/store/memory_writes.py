"""Memories: texts that a client gave, kept whole in the database. Each is a source of its own, `memory:<n>`."""

from __future__ import annotations

from collections.abc import Sequence

from recalld_daemon.extract.passages import extracted
from recalld_daemon.recall.types import GLOBAL_SCOPE
from recalld_daemon.store.source_writes import SourceWrites
from recalld_daemon.store.texts import clean
from recalld_daemon.worker_wire import ParsedPassage


class MemoryWrites(SourceWrites):
    """The part of the writer that keeps memories."""

    def remember(
        self, text: str, *, at: float, scope: int = GLOBAL_SCOPE, title: str = "", key: str = "",
        passages: Sequence[ParsedPassage] | None = None,
    ) -> tuple[str, list[int]]:  # fmt: skip
        """Keep a text; on return it is on disk for good. Returns its path and the ids an index must learn.

        `passages`: the text cut up, start and end in bytes of its UTF-8; None: one passage, the whole of it; either way
        facts, subjects and times are extracted here (half a millisecond per passage). `at`:
        epoch seconds. A `key` seen before returns the path of then and no ids, whatever the text.
        """
        with self.transaction(durable=True):
            known = self._one("SELECT id FROM memories WHERE key = ?", (key,)) if key else None
            if known is not None:
                return f"memory:{known}", []
            number = (self._one("SELECT seq FROM sqlite_sequence WHERE name = 'memories'") or 0) + 1
            path = f"memory:{number}"
            text, title = clean(text), clean(title)
            size = len(text.encode())
            source = self.begin_source(
                path, shown_path=path, kind="memory", scope=scope, size=size, mtime_ns=int(at * 1e9)
            )
            self._run(
                "INSERT INTO memories(id, source, key, title, text, at) VALUES (?, ?, ?, ?, ?, ?)",
                (number, source, key or None, title, text, at),
            )
            whole = ParsedPassage(start=0, end=size, text=text, codec="utf-8", heading=title, written_at=at)
            given = [whole] if passages is None else passages
            found = [item for item in extracted(given, path) if isinstance(item, ParsedPassage)]
            ids = self.add_passages(source, found)
            self.finish_source(source, cursor=size, codec="utf-8")
        return path, ids
