"""Made things for the ranker's tests: cards of a small conversation, lanes that score as told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from recalld_daemon.recall.types import Cards, Float32, Int64, Query, QueryEncoding


@dataclass
class MadeCards:
    """Passages 1..n of one source, spoken by turns; `speaker_of` names who says what."""

    size: int
    speaker_of: Mapping[int, str] = field(default_factory=dict)

    def speakers(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(sorted(set(self.speaker_of.values())), start=1)}

    def cards(self, ids: Int64) -> Cards:
        known = (ids >= 1) & (ids <= self.size)
        numbers = self.speakers()
        around = np.stack([ids - 2, ids - 1, ids + 1, ids + 2], axis=1)
        around = np.where((around >= 1) & (around <= self.size) & known[:, None], around, 0)
        return Cards(
            sources=known.astype(np.int64),
            places=np.where(known, ids - 1, 0),
            speakers=np.array([numbers.get(self.speaker_of.get(int(id), ""), 0) for id in ids], np.int32),
            written_at=np.where(known, 1e9 + ids, 0.0),
            words=np.where(known, 10, 0).astype(np.int32),
            traits=np.zeros(len(ids), np.uint32),
            around=around,
        )


@dataclass
class MadeScorer:
    """Scores as told, nan for what it was not told of; remembers what it was asked for."""

    name: str
    scores: Mapping[int, float]
    needs_encoding: bool = False
    asked: list[list[int]] = field(default_factory=list)

    def score(self, query: Query, encoding: QueryEncoding | None, ids: Int64) -> Float32:
        self.asked.append(ids.tolist())
        return np.array([self.scores.get(int(id), np.nan) for id in ids], np.float32)
