"""What the gate knows of a candidate: absolute signals, the same for the daemon and for calibration.

Fused scores are relative to their list: the best of a hundred bad passages looks as good as the best of a hundred good
ones. These do not: how near the passage is in itself, how far it stands out of its own lane's list, and how much of
what was asked its words cover, weighted by how telling each word is in any text (`words.weight_of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recalld_daemon.recall.query import file_stems
from recalld_daemon.recall.types import Candidate, Query
from recalld_daemon.recall.words import content_stems, stem, weight_of, words_of

FEATURES: dict[str, tuple[str, ...]] = {
    "lexical": (
        "bm25_per_term", "bm25_over_pool", "coverage", "covered", "best_word", "query_weight",
    ),
    "fused": (
        "cosine", "cosine_over_pool", "bm25_per_term", "bm25_over_pool", "coverage", "covered", "best_word",
        "query_weight", "agreement",
    ),
    "late": (
        "cosine", "cosine_over_pool", "late", "late_over_pool", "bm25_per_term", "bm25_over_pool", "coverage",
        "covered", "best_word", "query_weight", "agreement",
    ),
}  # fmt: skip


ORDINARY = 0.25  # the weight of "run" or "test": every memory about software holds them


@dataclass(frozen=True, slots=True)
class Pool:
    """The middle and the worst of each signal over one answer's candidates: what "standing out" is measured against."""

    middle: dict[str, float]
    worst: dict[str, float]


def pool_of(candidates: Sequence[Candidate]) -> Pool:
    """The pool of an answer: per lane (and for "late") the median and the minimum of the raw scores."""
    raw: dict[str, list[float]] = {}
    for candidate in candidates:
        for lane, (_, score) in candidate.lanes.items():
            raw.setdefault(lane, []).append(score)
        if candidate.late is not None:
            raw.setdefault("late", []).append(candidate.late)
    return Pool({k: sorted(v)[len(v) // 2] for k, v in raw.items()}, {k: min(v) for k, v in raw.items()})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query's words for the gates: telling stems with their weights, and those that only file names brought."""

    weights: dict[str, float]
    from_files: frozenset[str]

    @property
    def substance(self) -> float:
        """The excess of what is no file name: how much the query can be said to be about anything."""
        return excess(weight for word, weight in self.weights.items() if word not in self.from_files)


def excess(weights: Iterable[float]) -> float:
    """Summed weight above ORDINARY: any number of ordinary words ("run", "test", "file") adds up to little.

    >>> round(excess([0.27, 0.28, 0.19]), 2), round(excess([0.57, 1.0]), 2)
    (0.05, 1.07)
    """
    return sum(max(0.0, weight - ORDINARY) for weight in weights)


def wanted_of(query: Query) -> Wanted:
    """A query's telling words, from its terms; whole identifiers and paths count by their parts."""
    stems = {stem(word) for term in query.terms for word in words_of(term)}
    weights = {word: weight for word in stems if (weight := weight_of(word)) > 0.0}
    return Wanted(weights, frozenset(file_stems(query.text)) & weights.keys())


def shared(wanted: Wanted, text: str) -> dict[str, float]:
    """The query's words that a passage's text holds, with their weights; file names' words among them."""
    stems = content_stems(text)
    return {word: weight for word, weight in wanted.weights.items() if word in stems}


def signals_of(candidate: Candidate, pool: Pool, wanted: Wanted, text: str) -> dict[str, float]:
    """All signals of one candidate whose passage's text (with its heading) is `text`; names as in FEATURES.

    A lane that did not return the passage counts as that lane's worst: the passage can't be better than that.
    """
    both = shared(wanted, text)
    solid = [weight for word, weight in both.items() if word not in wanted.from_files]
    cosine = _score(candidate, "dense", pool)
    bm25 = candidate.lanes["lexical"][1] if "lexical" in candidate.lanes else 0.0
    late = candidate.late if candidate.late is not None else pool.middle.get("late", 0.0)
    ranks = [candidate.lanes[lane][0] if lane in candidate.lanes else 101 for lane in ("dense", "lexical")]
    total = sum(wanted.weights.values())
    return {
        "cosine": cosine,
        "cosine_over_pool": cosine - pool.middle.get("dense", cosine),
        "late": late,
        "late_over_pool": late - pool.middle.get("late", late),
        "bm25_per_term": bm25 / max(1, len(wanted.weights)),
        "bm25_over_pool": math.log1p(bm25) - math.log1p(max(0.0, pool.middle.get("lexical", 0.0))),
        "coverage": sum(solid) / total if total else 0.0,
        "covered": math.log1p(sum(solid)),
        "best_word": max(solid, default=0.0),
        "query_weight": math.log1p(total),
        "agreement": -math.log(max(ranks)),
    }


def _score(candidate: Candidate, lane: str, pool: Pool) -> float:
    if lane in candidate.lanes:
        return candidate.lanes[lane][1]
    return pool.worst.get(lane, 0.0)
