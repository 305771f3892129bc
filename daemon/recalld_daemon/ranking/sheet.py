"""All that one recall knows of its candidates, gathered as columns: the ranker's only input.

A turn is seldom understood alone: an answer carries the fact, the question before it the words. So every scorer is
asked not only for the candidates but for the two passages before and the two after each, in the same source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import (
    Candidate,
    CardReader,
    Cards,
    Float32,
    Query,
    QueryEncoding,
    Scorer,
)

AROUND = 4  # two before, one before, one after, two after: the order of `Cards.around`


@dataclass(frozen=True, slots=True)
class Sheet:
    """n candidates, best first by the hand-weighted order.

    hand: (n,) that order's score. lanes: name -> (n,) raw scores, nan where a lane did not return the passage.
    around: name -> (n, AROUND) raw scores of neighbours, nan where there is none or nothing is known.
    cards: of the candidates; neighbours: cards of all neighbours, flat (n * AROUND,).
    speakers: numbers of the speakers whom the query names.
    """

    query: Query
    hand: Float32
    lanes: Mapping[str, Float32]
    around: Mapping[str, Float32]
    cards: Cards
    neighbours: Cards
    speakers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Makes sheets from what the house offers. scorers: lanes that can score any passage."""

    scorers: Sequence[Scorer]
    cards: CardReader

    def sheet(self, query: Query, encoding: QueryEncoding | None, candidates: Sequence[Candidate]) -> Sheet:
        ids = np.fromiter((c.passage for c in candidates), np.int64, len(candidates))
        cards = self.cards.cards(ids)
        every, place = np.unique(np.concatenate([ids, cards.around.ravel()]), return_inverse=True)
        own, ring = place[: len(ids)], place[len(ids) :].reshape(-1, AROUND)
        gone = cards.around == 0
        columns = {
            scorer.name: scorer.score(query, encoding, every)
            for scorer in self.scorers
            if encoding is not None or not scorer.needs_encoding
        }
        columns["hand"] = _spread([c.fused for c in candidates], own, len(every))
        if any(c.late is not None for c in candidates):
            columns["late"] = _spread([np.nan if c.late is None else c.late for c in candidates], own, len(every))
        around = {name: np.where(gone, np.float32(np.nan), column[ring]) for name, column in columns.items()}
        lanes = {name: column[own] for name, column in columns.items()}
        for name in {lane for candidate in candidates for lane in candidate.lanes} - lanes.keys():
            lanes[name] = _column([c.lanes[name][1] if name in c.lanes else np.nan for c in candidates])
        known = self.cards.speakers() if query.hints.speakers else {}
        named = frozenset(known[name] for name in query.hints.speakers if name in known)
        hand = lanes.pop("hand")
        return Sheet(query, hand, lanes, around, cards, self.cards.cards(cards.around.ravel()), named)


def _column(values: Sequence[float]) -> Float32:
    return np.array(values, np.float32)


def _spread(values: Sequence[float], places: NDArray[np.intp], size: int) -> Float32:
    """Values of some places as a column over all; nan elsewhere."""
    column = np.full(size, np.nan, np.float32)
    column[places] = values
    return column
