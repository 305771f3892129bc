"""Reads of the log: what was asked, shown and judged."""

from __future__ import annotations

from dataclasses import dataclass, fields

from recalld_daemon.store.reads import Reads
from recalld_daemon.store.rows import FeedbackRecord, ImpressionRecord, RecallRecord, SessionRecord


def _columns(record: type) -> str:
    return ", ".join(f'"{field.name}"' for field in fields(record))


_SESSION, _RECALL, _IMPRESSION, _FEEDBACK = map(
    _columns, (SessionRecord, RecallRecord, ImpressionRecord, FeedbackRecord)
)


_IN_VAIN = """WITH praised(passage, at) AS (
        SELECT i.passage, max(f.at) FROM feedback f JOIN impressions i ON i.id = f.impression
        WHERE f.verdict IN ('good', 'used', 'acted') GROUP BY i.passage),
    blamed(passage, at) AS (
        SELECT i.passage, f.at FROM feedback f JOIN impressions i ON i.id = f.impression
        WHERE f.verdict = 'bad' AND i.outcome IN ('won', 'slipped'))  -- of one asked about: no answer to that question
    SELECT i.passage, count(DISTINCT i.session),
        (SELECT count(*) FROM blamed b WHERE b.passage = i.passage AND b.at > coalesce(max(p.at), 0))
    FROM impressions i LEFT JOIN praised p ON p.passage = i.passage
    WHERE i.outcome IN ('won', 'slipped') AND i.shown_at > coalesce(p.at, 0) GROUP BY i.passage"""


@dataclass(frozen=True, slots=True)
class InVain:
    """sessions: in which a passage was shown and not used since; bad: verdicts since it was last found good."""

    passage: int
    sessions: int
    bad: int


_DELIVERED = """SELECT DISTINCT passage FROM impressions WHERE session = ? AND outcome IN ('won', 'slipped')
    AND shown_at > coalesce((SELECT compacted_at FROM sessions WHERE id = ?), 0)"""


class LogReads(Reads):
    """The part of the reader that knows the log."""

    def session(self, id: str) -> SessionRecord | None:
        rows = self._all(f"SELECT {_SESSION} FROM sessions WHERE id = ?", (id,))
        return SessionRecord(*rows[0]) if rows else None

    def sessions(self, limit: int = 100) -> list[SessionRecord]:
        """The most recently seen first."""
        rows = self._all(f"SELECT {_SESSION} FROM sessions ORDER BY last_seen_at DESC LIMIT ?", (limit,))
        return [SessionRecord(*row) for row in rows]

    def recall(self, id: str) -> RecallRecord | None:
        rows = self._all(f"SELECT {_RECALL} FROM recalls WHERE id = ?", (id,))
        return RecallRecord(*rows[0]) if rows else None

    def recalls(self, session: str, limit: int = 100) -> list[RecallRecord]:
        """A session's, newest first."""
        sql = f"SELECT {_RECALL} FROM recalls WHERE session = ? ORDER BY number DESC LIMIT ?"
        return [RecallRecord(*row) for row in self._all(sql, (session, limit))]

    def impression(self, id: str) -> ImpressionRecord | None:
        rows = self._all(f"SELECT {_IMPRESSION} FROM impressions WHERE id = ?", (id,))
        return ImpressionRecord(*rows[0]) if rows else None

    def impressions(self, recall: str) -> list[ImpressionRecord]:
        """A recall's, best first."""
        rows = self._all(f"SELECT {_IMPRESSION} FROM impressions WHERE recall = ? ORDER BY rank, id", (recall,))
        return [ImpressionRecord(*row) for row in rows]

    def delivered_passages(self, session: str) -> set[int]:
        """The ids of passages this session was shown, won or slipped, since its context was last compacted."""
        return {int(row[0]) for row in self._all(_DELIVERED, (session, session))}

    def withheld_passages(self, session: str) -> set[int]:
        """The ids of passages that were withheld from this session at random."""
        sql = "SELECT DISTINCT passage FROM impressions WHERE session = ? AND outcome = 'withheld'"
        return {int(row[0]) for row in self._all(sql, (session,))}

    def shown_in_vain(self) -> list[InVain]:
        """Of every passage that was shown after it was last used or found good."""
        return [InVain(*row) for row in self._all(_IN_VAIN)]

    def feedback(self, impression: str) -> list[FeedbackRecord]:
        """The verdicts on one impression, oldest first."""
        rows = self._all(f"SELECT {_FEEDBACK} FROM feedback WHERE impression = ? ORDER BY id", (impression,))
        return [FeedbackRecord(*row) for row in rows]
