"""A batch of the nightly fit: queries, what they are told apart from, and the loss.

Beside the golds of the batch stand some negatives mined for each query and a sample of all memories; what is probably
right as well is none of them (`loss.others`). Each epoch draws from its own number, so that a resumed fit draws the
same.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from recalld_daemon.adapters.adam import Adam
from recalld_daemon.adapters.loss import Subjects, masked, others, three_parts
from recalld_daemon.adapters.pairs import PairSet, kept_negatives
from recalld_daemon.adapters.residual import Residual, tensor
from recalld_daemon.adapters.settings import FitSettings
from recalld_daemon.recall.types import Float32, Int64


class Batches:
    """modules: by name, "query" and maybe "key" and "value"; wanted: (n, d) what f_V(m) is multiplied with."""

    def __init__(
        self, pairs: PairSet, modules: Mapping[str, Residual], settings: FitSettings, wanted: Float32 | None
    ) -> None:
        self._pairs, self._modules, self._settings, self._wanted = pairs, modules, settings, wanted
        self._mined = [_kept(pairs, n) for n in range(len(pairs))]

    def epoch(self, adam: Adam, number: int) -> tuple[float, int]:
        """(mean loss, pairs learned from). Every pair, each time. It ends early on a loss that is no number."""
        rng = np.random.default_rng([self._settings.seed, number])
        for n, module in enumerate(self._modules.values()):
            module.train()
            module.chance.manual_seed((self._settings.seed * 1_000_003 + number) * 8 + n)
        order = rng.permutation(len(self._pairs))
        total, seen = 0.0, 0
        for at in range(0, len(order), self._settings.batch):
            rows = order[at : at + self._settings.batch]
            loss = self._loss(rows, rng)
            adam.zero_gradients()
            loss.backward()  # type: ignore[no-untyped-call]
            if not adam.step():
                return float("nan"), seen
            total, seen = total + float(loss.detach()) * len(rows), seen + len(rows)
        return total / seen, seen

    def _loss(self, rows: Int64, rng: np.random.Generator) -> Tensor:
        pairs, settings = self._pairs, self._settings
        golds = np.array([rng.choice(pairs.gold[n]) for n in rows.tolist()], np.int64)
        columns, right = np.unique(np.concatenate([golds, self._further(rows, rng)]), return_inverse=True)
        own = torch.tensor(right[: len(rows)])
        plain, found = tensor(pairs.queries[rows]), tensor(pairs.memories[columns])  # (n, d), (c, d)
        allowed = others(found[own], found, own, self._known(rows, columns), settings.loss.same)
        shifted = self._modules["query"](plain)
        keys = self._modules["key"](found) if "key" in self._modules else found
        scores = shifted @ keys.T  # (n, c)
        if self._wanted is not None:
            scores = scores + tensor(self._wanted[rows]) @ self._modules["value"](keys).T
        weights = tensor(pairs.weights[rows])
        loss = three_parts(masked(scores, allowed), own, shifted, plain, weights, settings.loss, self._subjects(rows))
        if "key" in self._modules:  # f_K too stays a small shift
            loss = loss + settings.loss.near_weight * (keys - found).square().sum(dim=1).mean()
        return loss

    def _further(self, rows: Int64, rng: np.random.Generator) -> Int64:
        """Memories beside the golds: some mined for each query, and a sample of what could be found."""
        pairs, most = self._pairs, self._settings.mined
        own = [self._mined[n] for n in rows.tolist()]
        mined = [rows if len(rows) <= most else rng.choice(rows, most, replace=False) for rows in own]
        if pairs.pools is None:
            sampled = [rng.integers(0, len(pairs.memories), min(self._settings.sampled, len(pairs.memories)))]
        else:
            share = max(1, self._settings.sampled // len(rows))
            sampled = [rng.choice(pairs.pools[n], share) for n in rows.tolist() if len(pairs.pools[n])]
        return np.concatenate([*mined, *sampled]).astype(np.int64)

    def _known(self, rows: Int64, columns: Int64) -> Tensor:
        """(n, c) bool: every gold of each query."""
        known = np.zeros((len(rows), len(columns)), np.bool_)
        for place, n in enumerate(rows.tolist()):
            known[place] = np.isin(columns, self._pairs.gold[n])
        return torch.tensor(known)

    def _subjects(self, rows: Int64) -> Subjects | None:
        subject = self._pairs.subject[rows]
        asked = np.flatnonzero(subject >= 0)
        if not len(asked):
            return None
        distinct, own = np.unique(subject[asked], return_inverse=True)
        return torch.tensor(asked), tensor(self._pairs.subjects[distinct]), torch.tensor(own)


def _kept(pairs: PairSet, n: int) -> Int64:
    """The negatives of a query that are by the 0.95 rule, whoever mined them."""
    rows = pairs.negatives[n]
    if not len(rows):
        return rows
    return rows[kept_negatives(pairs.queries[n], pairs.memories[pairs.gold[n]], pairs.memories[rows])]
