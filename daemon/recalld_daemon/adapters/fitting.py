"""The nightly fit: f_Q alone, with f_K, or with f_K and f_V, on all pairs, with early stopping on others.

A batch of queries is told apart from the golds of the batch, from negatives mined for them, and from a sample of the
whole memory; what is probably right as well is no negative (`loss.others`). After each epoch the MRR over the whole
memory is taken on pairs the fit never learns from, and the best epoch is kept: those pairs say when to stop, so who
judges the result needs others still. The curve holds what each epoch did, |W2| and |b2| apart, since an adapter that
learned only its bias has learned one direction for everything (a fault of the reference system).

f_V is trained on the summed score: cos(f_Q(q), f_K(m)) + w_s (u_slow . f_V(f_K(m))) + w_f (u_fast . f_V(f_K(m))), with
the interests as they were before each query (`interests_before`), so that it learns what likeness misses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from recalld_daemon.adapters.loss import masked, others, three_parts
from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.adapters.residual import Residual, tensor
from recalld_daemon.adapters.settings import FitSettings
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32, Int64

Parts = Literal["q", "qk", "qkv"]


class NothingToLearn(ValueError):
    """There are no pairs: nothing is trained, and nobody may say it was."""


class Overlap(ValueError):
    """Pairs to learn from are among those that say when to stop."""


@dataclass(frozen=True, slots=True)
class Interests:
    """slow, fast: (n, d), one row per query, from what was used before it; zero rows where nothing was."""

    slow: Float32
    fast: Float32

    def rows(self, chosen: Int64) -> Interests:
        return Interests(self.slow[chosen], self.fast[chosen])


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass: mean loss, MRR on the pairs that say when to stop, |W2| and |b2| of f_Q, pairs learned from."""

    loss: float
    mrr: float
    w2: float
    b2: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """The best epoch's adapters (best: its number from 1; 0: as it began) and the curve of all."""

    query: Adapter
    key: Adapter | None = None
    value: Adapter | None = None
    curve: Sequence[Epoch] = ()
    best: int = 0
    why_stopped: str = ""
    start_mrr: float = math.nan


USUAL = FitSettings()


@dataclass(frozen=True, slots=True)
class Progress:
    epoch: int  # done
    epochs: int  # at most
    mrr: float


def fit(
    pairs: PairSet,
    held: PairSet,
    parts: Parts = "q",
    settings: FitSettings = USUAL,
    progress: Callable[[Progress], None] = lambda progress: None,
    interests: tuple[Interests, Interests] | None = None,
    start: Adapter | None = None,
) -> Fitted:
    """Learn from `pairs`, stop by `held`. interests: of both, needed for "qkv"; start: f_Q to go on from.

    Raises NothingToLearn for no pairs, Overlap where a held question is among the pairs. `progress` may raise to stop.
    """
    if not len(pairs):
        raise NothingToLearn("there is no pair to learn from")
    _refuse_overlap(pairs, held)
    if parts == "qkv" and interests is None:
        raise ValueError("f_V is trained on interests: give those of both pair sets")
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    fitting = _Fitting(pairs, held, parts, settings, interests, start)
    return fitting.run(progress)


def _refuse_overlap(pairs: PairSet, held: PairSet) -> None:
    if pairs.names and held.names:
        both = set(pairs.names) & set(held.names)
        if both:
            raise Overlap(f"{len(both)} questions to learn from are held out as well, such as {min(both)[:60]!r}")


@dataclass(slots=True)
class _Fitting:
    pairs: PairSet
    held: PairSet
    parts: Parts
    settings: FitSettings
    interests: tuple[Interests, Interests] | None
    start: Adapter | None
    modules: dict[str, Residual] = field(default_factory=dict)
    memories: Tensor = field(default_factory=lambda: torch.empty(0))

    def __post_init__(self) -> None:
        shape, dims = self.settings.shape, self.pairs.queries.shape[1]
        for name, letter in (("query", "q"), ("key", "k"), ("value", "v")):
            if letter in self.parts:
                born = Adapter.born(dims, shape.hidden, shape.alpha, shape.seed)
                adapter = self.start if name == "query" and self.start is not None else born
                self.modules[name] = Residual(adapter, self.settings.dropout)
        self.memories = tensor(self.pairs.memories)

    def run(self, progress: Callable[[Progress], None]) -> Fitted:
        settings = self.settings
        parameters = [p for module in self.modules.values() for p in module.parameters()]
        adam = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
        rng = np.random.default_rng(settings.seed)
        curve: list[Epoch] = []
        start_mrr = self.mrr()
        best, kept, best_mrr = 0, self.adapters(), start_mrr
        why = f"all {settings.epochs} epochs"
        for number in range(1, settings.epochs + 1):
            loss, seen = self._epoch(adam, rng)
            mrr = self.mrr()
            now = self.adapters()
            curve.append(Epoch(loss, mrr, *now["query"].norms, seen))
            progress(Progress(number, settings.epochs, mrr))
            if mrr > best_mrr or (not len(self.held) and number == settings.epochs):
                best, kept, best_mrr = number, now, mrr
            if number - best >= settings.patience and len(self.held):
                why = f"no better for {settings.patience} epochs"
                break
        return Fitted(kept["query"], kept.get("key"), kept.get("value"), tuple(curve), best, why, start_mrr)

    def adapters(self) -> dict[str, Adapter]:
        return {name: module.to_adapter() for name, module in self.modules.items()}

    # ------------------------------------------------------------ one epoch

    def _epoch(self, adam: torch.optim.Optimizer, rng: np.random.Generator) -> tuple[float, int]:
        """(mean loss, pairs learned from). Every pair, each time: nothing is marked as used up."""
        for module in self.modules.values():
            module.train()
        order = rng.permutation(len(self.pairs))
        total, steps = 0.0, 0
        for at in range(0, len(order), self.settings.batch):
            loss = self._batch(order[at : at + self.settings.batch], rng)
            adam.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            total, steps = total + float(loss.detach()), steps + 1
        return total / max(1, steps), len(order)

    def _batch(self, rows: Int64, rng: np.random.Generator) -> Tensor:
        pairs, settings = self.pairs, self.settings
        golds = np.array([rng.choice(pairs.gold[n]) for n in rows.tolist()], np.int64)
        columns, right = np.unique(np.concatenate([golds, self._further(rows, rng)]), return_inverse=True)
        own = torch.tensor(right[: len(rows)])
        plain = tensor(pairs.queries[rows])
        found = self.memories[torch.tensor(columns)]
        known = self._known(rows, columns)
        with torch.no_grad():
            allowed = others(plain @ found.T, own, known, settings.loss.near_gold)
        shifted = self.modules["query"](plain)
        keys = self.modules["key"](found) if "key" in self.modules else found
        scores = shifted @ keys.T  # (n, c)
        if "value" in self.modules:
            scores = scores + self._useful(keys, rows)
        weights = torch.tensor(pairs.weights[rows])
        loss = three_parts(masked(scores, allowed), own, shifted, plain, weights, settings.loss, self._subjects(rows))
        if "key" in self.modules:  # f_K too stays a small shift
            loss = loss + settings.loss.near_weight * (keys - found).square().sum(dim=1).mean()
        return loss

    def _further(self, rows: Int64, rng: np.random.Generator) -> Int64:
        """Memories beside the golds: some mined for each query, and a sample of what could be found."""
        pairs, mined = self.pairs, []
        for n in rows.tolist():
            own = pairs.negatives[n]
            mined.append(
                own if len(own) <= self.settings.mined else rng.choice(own, self.settings.mined, replace=False)
            )
        if pairs.pools is None:
            sampled = rng.integers(0, len(pairs.memories), min(self.settings.sampled, len(pairs.memories)))
        else:
            share = max(1, self.settings.sampled // len(rows))
            sampled = np.concatenate([rng.choice(pairs.pools[n], share) for n in rows.tolist()])
        return np.concatenate([*mined, sampled]).astype(np.int64)

    def _known(self, rows: Int64, columns: Int64) -> Tensor:
        """(n, c) bool: every gold of each query."""
        known = np.zeros((len(rows), len(columns)), np.bool_)
        for place, n in enumerate(rows.tolist()):
            at = np.searchsorted(columns, self.pairs.gold[n])
            at = at[at < len(columns)]
            known[place, at[np.isin(columns[at], self.pairs.gold[n])]] = True
        return torch.tensor(known)

    def _useful(self, keys: Tensor, rows: Int64) -> Tensor:
        """(n, c) what interests add."""
        assert self.interests is not None
        own = self.interests[0].rows(rows)
        values = self.modules["value"](keys)
        slow, fast = tensor(own.slow) @ values.T, tensor(own.fast) @ values.T
        useful: Tensor = self.settings.slow_weight * slow + self.settings.fast_weight * fast
        return useful

    def _subjects(self, rows: Int64) -> tuple[Tensor, Tensor, Tensor] | None:
        subject = self.pairs.subject[rows]
        asked = np.flatnonzero(subject >= 0)
        if not len(asked):
            return None
        distinct, own = np.unique(subject[asked], return_inverse=True)
        return torch.tensor(asked), tensor(self.pairs.subjects[distinct]), torch.tensor(own)

    # ------------------------------------------------------------ when to stop

    @torch.no_grad()
    def mrr(self) -> float:
        """On the pairs that say when to stop, over their whole memory (or pools); nan where there are none."""
        held = self.held
        if not len(held):
            return math.nan
        for module in self.modules.values():
            module.eval()
        keys = tensor(held.memories)
        if "key" in self.modules:
            keys = self.modules["key"](keys)
        total = 0.0
        for at in range(0, len(held), 256):
            rows = np.arange(at, min(at + 256, len(held)))
            scores = self.modules["query"](tensor(held.queries[rows])) @ keys.T
            if "value" in self.modules and self.interests is not None:
                values, own = self.modules["value"](keys), self.interests[1].rows(rows)
                scores = scores + self.settings.slow_weight * (tensor(own.slow) @ values.T)
                scores = scores + self.settings.fast_weight * (tensor(own.fast) @ values.T)
            total += sum(1.0 / first for first in first_ranks(scores.numpy(), held, rows))
        return total / len(held)


def first_ranks(scores: Float32, pairs: PairSet, rows: Int64) -> list[int]:
    """The rank (from 1) of the best gold of each query. scores: (n, m) of these rows over all memories."""
    found = []
    for own, n in zip(scores, rows.tolist(), strict=True):
        best = own[pairs.gold[n]].max()
        rivals = own if pairs.pools is None else own[pairs.pools[n]]
        found.append(1 + int((rivals > best).sum()))
    return found


def interests_before(pairs: PairSet, slow_share: float = 0.02, fast_share: float = 0.3) -> Interests:
    """The interests as they were before each query: running means of the golds used before it, never of its own.

    slow_share, fast_share: how far one use moves them. Rows are in the pairs' order, time is `pairs.at`.
    """
    dims = pairs.queries.shape[1]
    slow, fast = np.zeros((len(pairs), dims), np.float32), np.zeros((len(pairs), dims), np.float32)
    now_slow, now_fast = np.zeros(dims, np.float32), np.zeros(dims, np.float32)
    for n in np.argsort(pairs.at, kind="stable").tolist():
        slow[n], fast[n] = now_slow, now_fast
        used = pairs.memories[pairs.gold[n]].mean(axis=0)
        now_slow = (1 - slow_share) * now_slow + slow_share * used
        now_fast = (1 - fast_share) * now_fast + fast_share * used
    return Interests(slow, fast)
