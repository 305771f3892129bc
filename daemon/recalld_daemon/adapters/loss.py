"""The design's loss: be near the memory that helped, a little near its subject, and not far from where the query was.

L = w * (InfoNCE(f(q), m+) + 0.2 * InfoNCE(f(q), s+) + 0.5 * |f(q) - q|^2), temperature 0.05. InfoNCE (van den Oord et
al. 2018) tells the right one apart from all others in the batch; another gold of the same query, or what says nearly
the same as the gold, is no other. The 0.95 rule (`pairs.kept_negatives`) is for negatives that were mined near the
query; on the golds of other queries it takes away just what is ranked too high: with it f_Q and f_K found less on
conversations never seen (MRR .376 against .400), f_Q alone as much. The third part keeps the adapter a small shift:
without it the first may turn the whole space.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from recalld_daemon.adapters.settings import LossSettings

_NEVER = float("-inf")

Subjects = tuple[Tensor, Tensor, Tensor]  # which queries have one (k,); vectors (s, d); right row of each (k,)


def info_nce(scores: Tensor, right: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Weighted mean of -log softmax(scores / temperature) at the right column.

    scores: (n, c), -inf where a column is no other; right: (n,) column; weights: (n,).
    """
    losses = functional.cross_entropy(scores / temperature, right, reduction="none")  # (n,)
    return (losses * weights).sum() / weights.sum()


def others(golds: Tensor, columns: Tensor, right: Tensor, known: Tensor | None, same: float) -> Tensor:
    """(n, c) bool: which columns each query is told apart from; its right one too.

    golds: (n, d) and columns: (c, d), plain; known: (n, c) bool, columns that are right as well; same: cosine to the
    gold from which on a column says the same.
    """
    allowed = golds @ columns.T < same
    if known is not None:
        allowed &= ~known
    return allowed.scatter(1, right[:, None], torch.ones_like(right[:, None], dtype=torch.bool))


def masked(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, _NEVER)


def three_parts(
    scores: Tensor,
    right: Tensor,
    shifted: Tensor,
    plain: Tensor,
    weights: Tensor,
    settings: LossSettings,
    subjects: Subjects | None = None,
) -> Tensor:
    """The loss of a batch. scores: (n, c), masked; shifted: (n, d) f(q); plain: (n, d) q.

    subjects: of those queries whose gold has one.
    """
    near = (shifted - plain).square().sum(dim=1)  # (n,)
    loss = info_nce(scores, right, weights, settings.temperature)
    loss = loss + settings.near_weight * (near * weights).sum() / weights.sum()
    if subjects is not None and settings.subject_weight:
        asked, vectors, own = subjects
        if len(vectors) > 1:
            by_subject = shifted[asked] @ vectors.T  # (k, s)
            part = info_nce(by_subject, own, weights[asked], settings.temperature)
            loss = loss + settings.subject_weight * part
    return loss
