"""Late interaction: every token of the query looks for its best match among a passage's tokens.

A passage's score is the mean over the query's tokens of that best match (max-sim, ColBERT), on the token vectors the
index keeps: 64 dims, int8. The token of highest relevance, around which the snippet is cut, is the passage token that
wins most: the sum of the similarities of those query tokens whose best match it is. All of a hundred passages is one
matrix product; BLAS runs on one thread by the process's own setting, since two are slower under load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recalld_daemon.recall.types import TOKEN_SCALE, Candidate, Float32, Int64, TokenBlock

LATE_LIMIT = 100  # candidates that are re-ordered; the rest keep their order below them
LATE_WEIGHT = 0.6  # the prototype's; confirmed by tests/bench/gate.py


@dataclass(frozen=True, slots=True)
class MaxSim:
    """scores: (n,) mean best match, nan for passages without tokens; peaks: (n,) the winning token's row, else -1."""

    scores: Float32
    peaks: Int64


def max_sim(query_tokens: Float32, block: TokenBlock) -> MaxSim:
    """Scores the passages of a block against query_tokens (Tq, t), unit rows.

    >>> query = np.eye(4, dtype=np.float32)[:2]  # two tokens: e0, e1
    >>> vectors = np.round(254 * 0.5 * np.eye(4)).astype(np.int8)  # four passage tokens, half of e0..e3
    >>> block = TokenBlock(vectors, np.zeros(4, np.uint16), np.zeros(4, np.uint16), np.array([3, 0, 1]))
    >>> found = max_sim(query, block)
    >>> found.scores.round(2).tolist(), found.peaks.tolist()
    ([0.5, nan, 0.0], [0, -1, 3])
    """
    n = len(block.lengths)
    scores = np.full(n, np.nan, dtype=np.float32)
    peaks = np.full(n, -1, dtype=np.int64)
    full = np.flatnonzero(block.lengths > 0)  # reduceat gives nonsense for empty runs
    if not len(full) or not len(query_tokens):
        return MaxSim(scores, peaks)
    lengths = block.lengths[full]
    begins = np.cumsum(lengths) - lengths  # (m,) each passage's first row
    sims = query_tokens @ (block.vectors.astype(np.float32).T / np.float32(TOKEN_SCALE))  # (Tq, T)
    best = np.maximum.reduceat(sims, begins, axis=1)  # (Tq, m)
    scores[full] = best.mean(axis=0)
    won = np.where(sims == np.repeat(best, lengths, axis=1), sims, 0.0).sum(axis=0)  # (T,)
    top = np.repeat(np.maximum.reduceat(won, begins), lengths)  # (T,)
    rows = np.flatnonzero(won == top)  # at least one per passage
    owners = np.repeat(np.arange(len(full)), lengths)[rows]
    first = np.unique(owners, return_index=True)[1]  # the first of equal ones
    peaks[full] = rows[first]
    return MaxSim(scores, peaks)


def deepen(candidates: Sequence[Candidate], query_tokens: Float32, block: TokenBlock) -> list[Candidate]:
    """New candidates, re-ordered: the block's passages are those of the first len(block.lengths) candidates.

    The new order is by fused + LATE_WEIGHT * late, both as the fused list has them; a passage without tokens counts
    as the middle one of those that have some, so that it neither gains nor loses by it. The input stays untouched.
    """
    found = max_sim(query_tokens, block)
    n = len(block.lengths)
    known = found.scores[~np.isnan(found.scores)]
    if not len(known):
        return list(candidates)
    middle = float(np.median(known))
    moved: list[Candidate] = []
    for candidate, score, peak in zip(candidates[:n], found.scores.tolist(), found.peaks.tolist(), strict=True):
        late = None if peak < 0 else score
        focus = None if peak < 0 else (int(block.starts[peak]), int(block.ends[peak]))
        fused = candidate.fused + LATE_WEIGHT * (middle if late is None else late)
        moved.append(replace(candidate, fused=fused, late=late, focus=focus, gates={}, signals={}))
    moved.sort(key=lambda candidate: (-candidate.fused, candidate.passage))
    return [*moved, *candidates[n:]]
