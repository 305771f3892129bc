"""What the gate knows of a candidate: absolute signals, the same for the daemon and for calibration.

Fused scores are relative to their list: the best of a hundred bad passages looks as good as the best of a hundred good
ones. These do not: how near the passage is in itself, how far it stands out of its own lane's list, how much of what
was asked its words cover, weighted by how telling each word is in any text (`words.weight_of`), and what of it no
passage at all can cover. A name that is asked for and that nothing here knows is the strongest sign that the question
belongs elsewhere. A memory of three notes has no list to stand out of: what is usual in large ones stands in for it, as
USUAL_CANDIDATES more candidates would.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recalld_daemon.recall.query import file_stems
from recalld_daemon.recall.types import Candidate, Passage, Query
from recalld_daemon.recall.words import STOP_WORDS, content_stems, stem, weight_of, words_of

_WORDS = (
    "bm25_per_term", "bm25_over_pool", "coverage", "covered", "best_word", "query_weight", "missing", "worst_missing",
    "missing_here", "names", "name_here", "name_missing", "pool_size", "length", "place",
)  # fmt: skip
_MEANING = ("cosine", "cosine_over_pool", "cosine_over_best", "agreement")
_LATE = ("late", "late_over_pool", "late_over_best")
FEATURES: dict[str, tuple[str, ...]] = {
    "lexical": _WORDS,
    "fused": (*_MEANING, *_WORDS),
    "late": (*_LATE, *_MEANING, *_WORDS),
    "ranked": ("ranked", "ranked_over_best", *_LATE, *_MEANING, *_WORDS),
    "cross": ("cross", "cross_over_best", "ranked", "ranked_over_best", *_LATE, *_MEANING, *_WORDS),
}

ORDINARY = 0.25  # the weight of "run" or "test": every memory about software holds them
USUAL_CANDIDATES = 15  # weight of what is usual in large memories, in candidates
NAME_WEIGHT = 0.6  # a capitalised word less telling than this ("Monday", "API") names nobody in particular
_CAPITALISED = re.compile(r"\b[A-Z][a-z]+(?:'s)?\b")


@dataclass(frozen=True, slots=True)
class Pool:
    """One answer's candidates: what "standing out" is measured against.

    scores: signal -> ascending raw scores; usual: signal -> the middle score in a large memory; places: passage -> its
    place from 0; held: stems that any of the judged passages holds.
    """

    scores: Mapping[str, Sequence[float]]
    usual: Mapping[str, float]
    places: Mapping[int, int]
    held: frozenset[str]

    def worst(self, signal: str) -> float:
        scores = self.scores.get(signal)
        return scores[0] if scores else 0.0

    def others_middle(self, signal: str, own: float) -> float:
        """The median of the others' scores, drawn towards what is usual the more the fewer there are."""
        scores = self.scores.get(signal, ())
        count = max(0, len(scores) - 1)
        usual = self.usual.get(signal, own)
        if not count:
            return usual
        at = (count - 1) // 2
        middle = scores[at] if at < bisect_left(scores, own) else scores[at + 1]
        return (middle * count + usual * USUAL_CANDIDATES) / (count + USUAL_CANDIDATES)

    def over_best(self, signal: str, own: float) -> float:
        """How far `own` is above the best of the others (below: negative); 0 where there are none."""
        scores = self.scores.get(signal, ())
        if len(scores) < 2:
            return 0.0
        return own - (scores[-2] if own >= scores[-1] else scores[-1])


def pool_of(
    candidates: Sequence[Candidate], usual: Mapping[str, float] | None = None, judged: Iterable[str] = ()
) -> Pool:
    """The pool of an answer. judged: the full texts of the passages that are judged."""
    raw: dict[str, list[float]] = {}
    for candidate in candidates:
        for lane, (_, score) in candidate.lanes.items():
            raw.setdefault(lane, []).append(score)
        for signal in ("late", "ranked", "cross"):
            if (score := getattr(candidate, signal)) is not None:
                raw.setdefault(signal, []).append(score)
    if any(candidate.useful for candidate in candidates):  # places too are those by what was asked alone
        candidates = sorted(candidates, key=lambda c: (round(c.useful - c.fused, 9), c.unhelped))
    places = {candidate.passage: place for place, candidate in enumerate(candidates)}
    held = frozenset().union(*map(content_stems, judged))
    return Pool({signal: sorted(scores) for signal, scores in raw.items()}, usual or {}, places, held)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query's words for the gates: telling stems with their weights, those that only file names brought, names."""

    weights: dict[str, float]
    from_files: frozenset[str]
    names: frozenset[str] = frozenset()

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
    speakers = {stem(word) for name in query.hints.speakers for word in words_of(name)}
    return Wanted(weights, frozenset(file_stems(query.text)) & weights.keys(), names_in(query.text) | speakers)


def names_in(text: str) -> frozenset[str]:
    """Stems of what a text seems to name: capitalised words within its sentences that are no ordinary words.

    >>> sorted(names_in("When did Melisande go to Paris? Then Ada wrote")), sorted(names_in("Fix the Test"))
    (['ada', 'melisande', 'pari'], [])
    """
    found = set()
    for match in _CAPITALISED.finditer(text):
        before = text[: match.start()].rstrip()
        word = stem(match.group().lower())
        if before and before[-1] not in '.!?:"(' and word not in STOP_WORDS and weight_of(word) >= NAME_WEIGHT:
            found.add(word)
    return frozenset(found)


def full_text(passage: Passage) -> str:
    """What a passage's words are compared by: heading, speaker and text, as the lexical index has them."""
    said = f"{passage.speaker}: {passage.text}" if passage.speaker else passage.text
    return f"{passage.heading}\n{said}" if passage.heading else said


def shared(wanted: Wanted, text: str) -> dict[str, float]:
    """The query's words that a passage's text holds, with their weights; file names' words among them."""
    stems = content_stems(text)
    return {word: weight for word, weight in wanted.weights.items() if word in stems}


def signals_of(candidate: Candidate, pool: Pool, wanted: Wanted, text: str) -> dict[str, float]:
    """All signals of one candidate whose passage's full text is `text`; names as in FEATURES.

    A lane that did not return the passage counts as that lane's worst: the passage can't be better than that.
    """
    return {
        **_meaning(candidate, pool),
        **_words(candidate, pool, wanted, text),
        "pool_size": math.log1p(len(pool.places)),
        "length": math.log1p(len(text.split())),
        "place": math.log1p(pool.places.get(candidate.passage, 0)),
    }


def _meaning(candidate: Candidate, pool: Pool) -> dict[str, float]:
    found = {"cosine": candidate.lanes["dense"][1] if "dense" in candidate.lanes else pool.worst("dense")}
    middle = (len(pool.scores.get("late", ())) - 1) // 2
    found["late"] = (
        candidate.late if candidate.late is not None else pool.scores["late"][middle] if middle >= 0 else 0.0
    )
    for signal, own in (("ranked", candidate.ranked), ("cross", candidate.cross)):
        found[signal] = own if own is not None else pool.worst(signal)
    for signal, lane in (("cosine", "dense"), ("late", "late")):
        found[f"{signal}_over_pool"] = found[signal] - pool.others_middle(lane, found[signal])
    for signal, lane in (("cosine", "dense"), ("late", "late"), ("ranked", "ranked"), ("cross", "cross")):
        found[f"{signal}_over_best"] = pool.over_best(lane, found[signal])
    ranks = [candidate.lanes[lane][0] if lane in candidate.lanes else 101 for lane in ("dense", "lexical")]
    return found | {"agreement": -math.log(max(ranks))}


def _words(candidate: Candidate, pool: Pool, wanted: Wanted, text: str) -> dict[str, float]:
    stems, bm25 = content_stems(text), candidate.lanes["lexical"][1] if "lexical" in candidate.lanes else 0.0
    total = sum(wanted.weights.values())
    plain = {word: weight for word, weight in wanted.weights.items() if word not in wanted.from_files}
    solid = [weight for word, weight in plain.items() if word in stems]
    lexical = pool.scores.get("lexical", ())
    usual = lexical[len(lexical) // 2] if lexical else 0.0
    unheld = [weight for word, weight in plain.items() if word not in pool.held]
    return {
        "bm25_per_term": bm25 / max(1, len(wanted.weights)),
        "bm25_over_pool": math.log1p(bm25) - math.log1p(max(0.0, usual)),
        "coverage": sum(solid) / total if total else 0.0,
        "covered": math.log1p(sum(solid)),
        "best_word": max(solid, default=0.0),
        "query_weight": math.log1p(total),
        "missing": sum(unheld) / total if total else 0.0,
        "worst_missing": max(unheld, default=0.0),
        "missing_here": max((weight for word, weight in plain.items() if word not in stems), default=0.0),
        "names": float(bool(wanted.names)),
        "name_here": float(not wanted.names.isdisjoint(stems)),
        "name_missing": float(bool(wanted.names) and wanted.names.isdisjoint(pool.held)),
    }
