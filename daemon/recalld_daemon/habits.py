"""What was shown in vain, read from the log now and then, so that no recall has to ask the disk.

What is handed out is a value that nobody changes: the next reading replaces it. A reading that fails leaves the last
one standing; habituation is a courtesy, and recall goes on without.
"""

from __future__ import annotations

import logging

import trio

from recalld_daemon.recall.gate import words_shown
from recalld_daemon.recall.habituation import NO_HABITS, Habits, Ignored
from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.reader import Reader

READ_SECONDS = 60.0  # a session is longer, and the present one's own impressions are known to its race
MOST_ALIKE = 128  # of the most ignored, whose near-duplicates are known: each costs a recall under a microsecond

log = logging.getLogger(__name__)


class HabitWatch:
    """`now` is the latest reading."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.now = NO_HABITS

    async def serve(self, every_seconds: float = READ_SECONDS) -> None:
        while True:
            try:
                self.now = await trio.to_thread.run_sync(self.read)
            except StoreError as error:
                log.warning("what was shown in vain can't be read: %s", error)
            await trio.sleep(every_seconds)

    def read(self) -> Habits:
        """Raises StoreError."""
        passages = {
            row.passage: Ignored(row.sessions, row.bad)
            for row in self._reader.shown_in_vain()
            if row.sessions or row.bad
        }
        most = sorted(passages, key=lambda passage: -passages[passage].log_odds)[:MOST_ALIKE]
        words = [(words_shown(passage), passages[passage.id]) for passage in self._reader.passages(most)]
        return Habits(passages, words)
