"""Reads of what a person may be asked about: past recalls whose query nobody has judged yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from recalld_daemon.store.reads import Reads

_UNJUDGED = """SELECT r.id, coalesce(r.session, ''), coalesce(s.scope, 1), r.query, r.cause, r.explain
    FROM recalls r LEFT JOIN sessions s ON s.id = r.session
    WHERE r.query != '' AND r.outcome IN ('won', 'slipped', 'silent', 'stale', 'withheld', 'ready')
    AND (? IS NULL OR coalesce(s.scope, 1) IN (SELECT value FROM json_each(?)))
    AND r.query NOT IN (SELECT query FROM recalls WHERE id IN (SELECT value FROM json_each(?)))
    AND r.query NOT IN (SELECT o.query FROM feedback f JOIN impressions i ON i.id = f.impression
        JOIN recalls o ON o.id = i.recall WHERE f.verdict IN ('good', 'bad'))
    ORDER BY r.number DESC LIMIT ?"""


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A recall as it was logged. session: "" where it is not known any more; explain: as in RecallRecord."""

    id: str
    session: str
    scope: int
    query: str
    cause: str
    explain: bytes


class TrainingReads(Reads):
    """The part of the reader that knows what may be asked."""

    def unjudged(self, scopes: Sequence[int] | None, skip: Sequence[str], limit: int) -> list[Unjudged]:
        """Of sessions of these scopes (None: all), newest first, each query once.

        Left out are queries that anybody said good or bad of, in whichever recall, and those of the recalls in `skip`.
        """
        wanted = None if scopes is None else json.dumps(list(scopes))
        rows = self._all(_UNJUDGED, (wanted, wanted, json.dumps(list(skip)), limit))
        found: dict[str, Unjudged] = {}
        for row in rows:
            found.setdefault(row[3], Unjudged(*row))
        return list(found.values())
