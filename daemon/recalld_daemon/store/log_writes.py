"""Sessions, recalls, impressions and feedback: what was asked, shown, and made of it.

The log of recalls is bounded; feedback is not, since learning lives on it: an impression that was judged, and the
recall it came from, are kept for as long as the feedback is. `unknown` is no judgement, and goes with its recall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from recalld_daemon.store.rows import ImpressionRecord, RecallRecord, SessionRecord
from recalld_daemon.store.texts import clean
from recalld_daemon.store.transactions import Transactions

RECALLS_KEPT = 20_000  # about 4 KB each with their explanation: 80 MB
SESSIONS_KEPT = 5_000


def _upsert(table: str, key: str, columns: Sequence[str]) -> str:
    names = ", ".join(f'"{column}"' for column in columns)
    news = ", ".join(f'"{column}" = excluded."{column}"' for column in columns if column != key)
    marks = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table}({names}) VALUES ({marks}) ON CONFLICT({key}) DO UPDATE SET {news}"


_SESSION = _upsert("sessions", "id", [field.name for field in fields(SessionRecord)])
_RECALL = _upsert("recalls", "id", [field.name for field in fields(RecallRecord)])
_IMPRESSION = _upsert("impressions", "id", [field.name for field in fields(ImpressionRecord)])
_FEEDBACK = """INSERT INTO feedback(key, impression, verdict, at) VALUES (?, ?, ?, ?)
    ON CONFLICT(key) DO NOTHING"""
_OLD_UNKNOWN = """DELETE FROM feedback WHERE verdict = 'unknown' AND impression IN
    (SELECT i.id FROM impressions i JOIN recalls r ON r.id = i.recall
     WHERE r.number <= (SELECT number FROM recalls ORDER BY number DESC LIMIT 1 OFFSET ?))"""
_OLD_RECALLS = """DELETE FROM recalls
    WHERE number <= (SELECT number FROM recalls ORDER BY number DESC LIMIT 1 OFFSET ?)
    AND NOT EXISTS (SELECT 1 FROM impressions i JOIN feedback f ON f.impression = i.id WHERE i.recall = recalls.id)"""
_OLD_SESSIONS = """DELETE FROM sessions
    WHERE id IN (SELECT id FROM sessions ORDER BY last_seen_at DESC LIMIT -1 OFFSET ?)
    AND NOT EXISTS (SELECT 1 FROM recalls r WHERE r.session = sessions.id)"""


class LogWrites(Transactions):
    """The part of the writer that keeps the log."""

    def touch_session(self, session: SessionRecord) -> None:
        """Keep a session's state as it is now. `opened_at` stays what it was first."""
        with self.transaction():
            opened = self._one("SELECT opened_at FROM sessions WHERE id = ?", (session.id,))
            values = asdict(session)
            self._run(_SESSION, values if opened is None else values | {"opened_at": opened})

    def note_compaction(self, session: str, at: float) -> None:
        """What this session was shown before `at` (epoch seconds) stands in its context no more."""
        with self.transaction():
            self._run("UPDATE sessions SET compacted_at = ? WHERE id = ?", (at, session))

    def record_recall(self, recall: RecallRecord) -> None:
        """Log a recall; the same id again replaces what was logged. Raises NoSuchRow for an unknown session."""
        with self.transaction():
            self._run(_RECALL, asdict(recall) | {"query": clean(recall.query), "cause": clean(recall.cause)})

    def record_impressions(self, impressions: Sequence[ImpressionRecord]) -> None:
        """Log what was shown or withheld; the same ids again replace. Raises NoSuchRow for an unknown recall."""
        with self.transaction():
            self._db.executemany(_IMPRESSION, [asdict(impression) for impression in impressions])

    def record_feedback(self, impression: str, verdict: str, *, at: float, key: str = "") -> bool:
        """Keep a verdict; on return it is on disk for good. False: this key was here before, nothing is changed.

        Without a key, the same verdict on the same impression counts once. Raises NoSuchRow for an unknown impression.
        """
        values = (key or f"{impression}/{verdict}", impression, verdict, at)
        with self.transaction(durable=True):
            return self._run(_FEEDBACK, values).rowcount == 1

    def prune_log(self, recalls_kept: int, sessions_kept: int) -> int:
        """Drop old recalls with their impressions, then old closed sessions; returns how many recalls went."""
        with self.transaction():
            self._run(_OLD_UNKNOWN, (recalls_kept,))
            gone = self._run(_OLD_RECALLS, (recalls_kept,)).rowcount
            self._run(_OLD_SESSIONS, (sessions_kept,))
        return gone
