"""Late interaction: every token of the query looks for its best match among a passage's tokens.

A passage's score is the mean over the query's tokens of that best match (max-sim, ColBERT), on the token vectors the
index keeps: 64 dims, int8. The token of highest relevance, around which the snippet is cut, is the one that is most
like the whole query together with its neighbours (`peak`). All of a hundred passages is one matrix product; BLAS runs
on one thread by the process's own setting, since two are slower under load.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import TOKEN_SCALE, Candidate, Float32, TokenBlock

LATE_LIMIT = 100  # candidates that are re-ordered; the rest keep their order below them
FOCUS_DEPTH = 10  # candidates that get a focus: more than the gate judges
PEAK_REACH = 2  # tokens; with 0 the snippet holds .357 of the answers' words, with 1 .386, with 4 .330
LATE_WEIGHT = 3.0  # fused scores reach 1.7. Flat from 1.5 to 5 on notes and pages; talk gains up to 5 (LoCoMo MRR +.10)


def max_sim(query_tokens: Float32, block: TokenBlock) -> Float32:
    """(n,) mean best match of query_tokens (Tq, t), unit rows, in each passage; nan for passages without tokens.

    >>> query = np.eye(4, dtype=np.float32)[:2]  # two tokens: e0, e1
    >>> vectors = np.round(254 * 0.5 * np.eye(4)).astype(np.int8)  # four passage tokens, half of e0..e3
    >>> block = TokenBlock(vectors, np.zeros(4, np.uint16), np.zeros(4, np.uint16), np.array([3, 0, 1]))
    >>> max_sim(query, block).round(2).tolist()
    [0.5, nan, 0.0]
    """
    scores = np.full(len(block.lengths), np.nan, dtype=np.float32)
    full = np.flatnonzero(block.lengths > 0)  # reduceat gives nonsense for empty runs
    if len(full) and len(query_tokens):
        begins = np.cumsum(block.lengths[full]) - block.lengths[full]  # (m,) each passage's first row
        best = np.maximum.reduceat(_sims(query_tokens, block.vectors), begins, axis=0)  # (m, Tq)
        scores[full] = best.mean(axis=1)
    return scores


def peak(query_tokens: Float32, vectors: NDArray[np.int8]) -> int:
    """The row of one passage's tokens (T, t), T > 0, that is the most relevant; of equal ones the first.

    A token's relevance is the sum of its similarities to all of the query's tokens, taken twice, and those of its
    PEAK_REACH neighbours on either side. On 580 questions of NQ, QED and XQuAD the snippet around it holds .395 of the
    answer's words; around the token that wins most of max-sim, often the question's own word, .303; around the query's
    terms .337, around any token .206.

    >>> eye = np.eye(4, dtype=np.float32)
    >>> peak(eye[[0, 0, 1]], (127 * eye[[0, 3, 3, 3, 1, 0, 0]]).astype(np.int8))
    5
    """
    own = _sims(query_tokens, vectors).sum(axis=1, dtype=np.float64)  # (T,)
    sums = np.concatenate([[0.0], np.cumsum(own)])  # (T + 1,)
    rows = np.arange(len(own))
    after, before = np.minimum(rows + PEAK_REACH + 1, len(own)), np.maximum(rows - PEAK_REACH, 0)
    return int((sums[after] - sums[before] + own).round(6).argmax())


def _sims(query_tokens: Float32, vectors: NDArray[np.int8]) -> Float32:
    """(T, Tq) similarities; the scale is taken out of the smaller of the two."""
    scaled = (query_tokens / np.float32(TOKEN_SCALE)).T
    sims: Float32 = vectors.astype(np.float32) @ scaled
    return sims


def deepen(candidates: Sequence[Candidate], query_tokens: Float32, block: TokenBlock) -> list[Candidate]:
    """New candidates, re-ordered: the block's passages are those of the first len(block.lengths) candidates.

    The new order is by fused + LATE_WEIGHT * late, both as the fused list has them; a passage without tokens counts
    as the middle one of those that have some, so that it neither gains nor loses by it. The first FOCUS_DEPTH get their
    focus. The input stays untouched.
    """
    scores = max_sim(query_tokens, block)
    known = scores[~np.isnan(scores)]
    if not len(known):
        return list(candidates)
    middle = float(np.median(known))
    n = len(scores)
    moved = []
    for place, (candidate, score) in enumerate(zip(candidates[:n], scores.tolist(), strict=True)):
        late = None if score != score else score  # nan is the only number that differs from itself
        fused = candidate.fused + LATE_WEIGHT * (middle if late is None else late)
        moved.append((place, Candidate(candidate.passage, candidate.lanes, fused, late)))
    moved.sort(key=lambda row: (-row[1].fused, row[1].passage))
    ends = np.cumsum(block.lengths)
    for place, candidate in moved[:FOCUS_DEPTH]:
        first, last = int(ends[place] - block.lengths[place]), int(ends[place])
        own = first + np.flatnonzero(block.ends[first:last])  # tokens of a heading or speaker end at 0: not in the text
        if len(own):
            token = own[peak(query_tokens, block.vectors[own])]
            candidate.focus = (int(block.starts[token]), int(block.ends[token]))
    return [*(candidate for _, candidate in moved), *candidates[n:]]
