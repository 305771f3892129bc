"""The learned ranker as a stage of the cascade: one order from all that is known of the first candidates.

It stands after late interaction and before the cross-encoder. Its artefact is a JSON text with its provenance; where
there is none, or it was fitted on other features, the hand-weighted order stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from recalld_daemon.ranking.features import FEATURES, features_of
from recalld_daemon.ranking.forest import Forest, read_forest
from recalld_daemon.ranking.sheet import Gatherer
from recalld_daemon.recall.types import Candidate, Query, QueryEncoding, Stage

RANK_LIMIT = 100  # candidates that are ranked; the rest keep their order below them
SHIPPED = "ranker.json"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The deepener. Its scores become the candidates' `ranked` and, since they order now, their `fused`."""

    gatherer: Gatherer
    forest: Forest
    limit: int = RANK_LIMIT
    name: str = "ranked"
    stage: Stage | None = None

    def deepen(
        self, query: Query, encoding: QueryEncoding | None, candidates: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        head = candidates[: self.limit]
        if not head:
            return list(candidates)
        scores = self.forest.scores(features_of(self.gatherer.sheet(query, encoding, head))).tolist()
        ranked = [
            Candidate(c.passage, c.lanes, score, c.late, score, c.cross, c.focus)
            for c, score in zip(head, scores, strict=True)
        ]
        ranked.sort(key=lambda c: -c.fused)  # stable: where it can't tell them apart, the order before it stands
        below = ranked[-1].fused
        rest = [
            Candidate(c.passage, c.lanes, below - place, c.late, None, c.cross, c.focus)
            for place, c in enumerate(candidates[self.limit :], start=1)
        ]
        return [*ranked, *rest]


@lru_cache(maxsize=1)
def shipped() -> Forest:
    """The ranker of this package, fitted on permissively licensed data alone. Raises ForestError."""
    return read_forest(resources.files(__package__).joinpath(SHIPPED).read_text(encoding="utf-8"), FEATURES)
