"""The writer: the one object through which anything gets into the store. See its parts for what each keeps."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from recalld_daemon.store.followed import FollowedWrites
from recalld_daemon.store.forgetting import ForgetWrites
from recalld_daemon.store.learning_writes import LearningWrites
from recalld_daemon.store.log_writes import RECALLS_KEPT, SESSIONS_KEPT


class Writer(ForgetWrites, LearningWrites, FollowedWrites):
    """One per database and process. Calls may come from any thread, but one at a time."""

    def prune(self, *, recalls_kept: int = RECALLS_KEPT, sessions_kept: int = SESSIONS_KEPT) -> int:
        """Drop what nothing needs: vectors of nothing that is kept, the log's old end. Returns how many rows went.

        Runs in short transactions. Space in the file is used again; it does not shrink.
        """
        orphans = 0
        while batch := self.drop_unneeded():
            orphans += batch
        return orphans + self.prune_log(recalls_kept, sessions_kept)

    def check(self) -> list[str]:
        """What is wrong with the database, in words; nothing when all is well. Reads all of it: seconds per GB."""
        with self.transaction():
            found = [text for text in self._column("PRAGMA integrity_check") if text != "ok"]
            found += [f"a row of {table} refers to a missing row" for table in self._column("PRAGMA foreign_key_check")]
            try:
                self._run("INSERT INTO passages_fts(passages_fts, rank) VALUES ('integrity-check', 1)")
            except sqlite3.DatabaseError:
                found.append("the full-text index differs from the passages")
        return found


def open_writer(path: Path) -> Writer:
    """Open the store for writing, made (0600) or migrated as needed. Raises StoreError naming file and remedy."""
    return Writer(path)
