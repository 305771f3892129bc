"""The graph lane: one hop over subjects from what was found, and personalised PageRank beside it, for the bench.

Both are off unless they win. Published comparisons, and the design's own reference, have PageRank over such a graph
behind plain addition of subject scores (`lanes.subjects`); it is kept so that this can be measured again, not because
it is used. Common subjects pass on little: a share is divided by how many passages a subject has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from recalld_daemon.recall.lanes.subjects import MOST_PASSAGES, LinkTable
from recalld_daemon.recall.types import Candidate, Float64, Int64, LaneHits, Query, View

GIVERS = 20  # candidates that pass on, best first
RESTART = 0.5  # of PageRank: the share that returns to what was found; HippoRAG's value
STEPS = 12  # RESTART ** 12 is 0.0002: no order changes any more


class Graph(Protocol):
    @property
    def links(self) -> LinkTable: ...


NOTHING = LaneHits(np.empty(0, np.int64), np.empty(0, np.float32))


class GraphLane:
    """A `SpreadingLane`; scores are shares of the givers' fused scores. `walks`: PageRank instead of one hop."""

    name = "graph"

    def __init__(self, graph: Graph, walks: bool = False) -> None:
        self._graph = graph
        self._walks = walks

    def spread(self, query: Query, found: Sequence[Candidate], view: View, limit: int) -> LaneHits:
        """At most `limit` passages within the view that share a subject with what was found, best first."""
        givers = np.array([candidate.passage for candidate in found[:GIVERS]], np.int64)
        shares = np.array([max(0.0, candidate.fused) for candidate in found[:GIVERS]], np.float64)
        if not len(givers) or not shares.any():
            return NOTHING
        passages, subjects, weights = _around(self._graph.links, givers, view)
        if not len(passages):
            return NOTHING
        ids, place = np.unique(np.concatenate([givers, passages]), return_inverse=True)
        start = np.zeros(len(ids))
        np.add.at(start, place[: len(givers)], shares)
        at = place[len(givers) :]
        step = _walk if self._walks else _hop
        scores = step(start, at, subjects, weights)
        order = np.lexsort((-ids, -scores))
        order = order[scores[order] > 0][:limit]
        return LaneHits(ids[order], scores[order].astype(np.float32))


def _around(links: LinkTable, givers: Int64, view: View) -> tuple[Int64, Int64, Float64]:
    """Edges (passage, subject numbered from 0, 1 / the subject's passages) of the subjects of the givers."""
    own, _ = links.subjects_of(givers)
    passages: list[Int64] = []
    subjects: list[Int64] = []
    for number, subject in enumerate(np.unique(own).tolist()):
        rows = links.rows_of_subject(subject)
        if rows.stop - rows.start <= MOST_PASSAGES:
            passages.append(links.seen(rows, view))
            subjects.append(np.full(len(passages[-1]), number, np.int64))
    if not passages:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    numbers = np.concatenate(subjects)
    counts = np.bincount(numbers)
    return np.concatenate(passages), numbers, 1.0 / counts[numbers]


def _hop(start: Float64, at: Int64, subjects: Int64, weights: Float64) -> Float64:
    """From passages to their subjects and on to the passages of those; what came from a passage itself is left out."""
    given = np.bincount(subjects, start[at])
    gained = np.bincount(at, (given[subjects] - start[at]) * weights, len(start))
    positive: Float64 = np.maximum(gained, 0.0)
    return positive


def _walk(start: Float64, at: Int64, subjects: Int64, weights: Float64) -> Float64:
    """Where a walker is who goes from passage to subject to passage and returns to the start now and then."""
    degrees = np.maximum(np.bincount(at, minlength=len(start)), 1)
    home = start / start.sum()
    there = home.copy()
    for _ in range(STEPS):
        given = np.bincount(subjects, there[at] / degrees[at])
        there = RESTART * home + (1 - RESTART) * np.bincount(at, given[subjects] * weights, len(start))
    arrived: Float64 = there
    return arrived
