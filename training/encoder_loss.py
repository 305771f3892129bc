"""What the tuning minimises: the answer before the others, by max-sim and by the pooled vector, from one pass.

Both are InfoNCE over the passages of a batch: the answer of each query, the answers of the others, and mined hard
negatives. A passage that also answers a query is left out of that query's row. A third, small term keeps the pooled
similarities near those of the frozen encoder, so that what it knew of texts that are not trained on stays.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

FAR = -1e4  # the logit of what is left out


def max_sims(queries: Tensor, of_queries: Tensor, passages: Tensor, of_passages: Tensor) -> Tensor:
    """(B, P): the mean over a query's kept tokens of the best match among a passage's, as in `recall.late`.

    queries (B, Tq, t), passages (P, Tp, t): unit rows; of_queries (B, Tq), of_passages (P, Tp): which are kept.

    >>> e = torch.eye(3)
    >>> yes = torch.ones(1, 2, dtype=torch.bool)
    >>> max_sims(e[None, :2], yes, e[None, 1:], yes).tolist()
    [[0.5]]
    """
    b, p = len(queries), len(passages)
    rows = queries[of_queries]  # (Q, t) kept query tokens, one query after the other
    sims = rows @ passages.reshape(-1, passages.shape[-1]).T  # (Q, P * Tp)
    sims = sims.view(len(rows), p, -1).masked_fill(~of_passages, FAR)
    best = sims.amax(dim=2)  # (Q, P)
    counts = of_queries.sum(1)
    owner = torch.repeat_interleave(torch.arange(b), counts)
    return torch.zeros(b, p).index_add(0, owner, best) / counts.clamp_min(1)[:, None]


def info_nce(scores: Tensor, gold: Tensor, left_out: Tensor, temperature: float) -> Tensor:
    """scores (B, P), gold (B,) the column of each query's answer, left_out (B, P) bool -> the mean loss.

    >>> scores = torch.tensor([[1.0, 0.0, 1.0]])
    >>> float(info_nce(scores, torch.tensor([0]), torch.tensor([[False, False, True]]), 0.05)) < 1e-6
    True
    """
    return cross_entropy((scores / temperature).masked_fill(left_out, FAR), gold)


def drift(scores: Tensor, before: Tensor, temperature: float) -> Tensor:
    """How far each query's distribution over the batch's passages moved from the frozen encoder's; 0: not at all."""
    right = softmax(before / temperature, dim=1)
    return kl_div(log_softmax(scores / temperature, dim=1), right, reduction="batchmean")
