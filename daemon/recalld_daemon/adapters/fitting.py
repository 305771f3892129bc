"""The nightly fit: f_Q alone, with f_K, or with f_K and f_V, on all pairs, with early stopping on others.

A batch of queries is told apart from the golds of the batch, from negatives mined for them, and from a sample of the
whole memory (`batches`). After each epoch the MRR over the whole memory is taken on pairs the fit never learns from,
and the best epoch is kept: those pairs say when to stop, so who judges the result needs others still. The curve holds
what each epoch did, |W2| and |b2| apart, since an adapter that learned only its bias has learned one direction for
everything (a fault of the reference system).

f_V is trained on the summed score: cos(f_Q(q), f_K(m)) + w_s (u_slow . f_V(f_K(m))) + w_f (u_fast . f_V(f_K(m))), with
the interests as they were before each query (`interests`), so that it learns what likeness misses.

Every epoch sees every pair: nothing is ever marked as used up. The same pairs, settings and seed give the same
adapters, whether the fit ran through or was killed and resumed from what `checkpoint` got last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch

from recalld_daemon.adapters.adam import Adam
from recalld_daemon.adapters.batches import Batches
from recalld_daemon.adapters.fitted import NAMES, Epoch, Fitted, Going, adapters_of, named
from recalld_daemon.adapters.interests import Interests, interests_before
from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.adapters.ranks import reciprocal_ranks
from recalld_daemon.adapters.residual import Residual
from recalld_daemon.adapters.settings import FitSettings, key_of
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32, Int64

__all__ = ["Fitted", "Interests", "NothingToLearn", "Overlap", "Parts", "Progress", "fit", "interests_before", "shared"]

Parts = Literal["q", "qk", "qkv"]


class NothingToLearn(ValueError):
    """There are no pairs: nothing is trained, and nobody may say it was."""


class Overlap(ValueError):
    """Pairs to learn from are among those that say when to stop."""


@dataclass(frozen=True, slots=True)
class Progress:
    epoch: int  # done
    epochs: int  # at most
    mrr: float


def _unheard(value: object) -> None:
    """Nobody wants to know."""


def fit(
    pairs: PairSet,
    held: PairSet,
    parts: Parts = "q",
    settings: FitSettings = FitSettings(),  # noqa: B008 - frozen
    progress: Callable[[Progress], None] = _unheard,
    interests: tuple[Interests, Interests] | None = None,
    start: Fitted | None = None,
    *,
    query: Adapter | None = None,
    checkpoint: Callable[[Fitted], None] = _unheard,
) -> Fitted:
    """Learn from `pairs`, stop by `held`; with none held out, after all epochs.

    interests: of both, needed for "qkv". start: what `checkpoint` got from a run that did not end; one with other
    pairs, parts or settings is not gone on from (`Fitted.resumed` is 0 then). query: f_Q to begin with, in the place
    of a newborn one. `checkpoint`, then `progress`, are called after each epoch; either may raise to stop.

    Raises NothingToLearn for no pairs; Overlap where a held question with the same gold is among the pairs; ValueError
    for weights that are not positive, or missing interests.
    """
    if not len(pairs):
        raise NothingToLearn("there is no pair to learn from")
    both = shared(pairs, held)
    if len(both):
        raise Overlap(f"{len(both)} of the pairs to learn from are held out as well, such as {_name(pairs, both[0])!r}")
    if not (np.isfinite(pairs.weights).all() and (pairs.weights > 0).all()):
        raise ValueError("every pair's weight must be a positive number")
    if parts == "qkv" and interests is None:
        raise ValueError("f_V is trained on interests: give those of both pair sets")
    torch.set_num_threads(1)
    used = interests if parts == "qkv" else None
    run = _Fitting(pairs, held, parts, settings, used, query)
    for fitted in run.epochs(start):
        checkpoint(fitted)
        progress(Progress(fitted.epochs, settings.epochs, fitted.curve[-1].mrr))
    return run.result


def shared(pairs: PairSet, held: PairSet) -> Int64:
    """Rows of `pairs` that are in `held` too: the same question, by name or by vector, with the same gold."""
    theirs = {mark for marks in _marks(held) for mark in marks}
    return np.array([n for n, marks in enumerate(_marks(pairs)) if theirs & marks], np.int64)


def _marks(pairs: PairSet) -> Iterator[set[bytes]]:
    for n, rows in enumerate(pairs.gold):
        asked = [np.ascontiguousarray(pairs.queries[n]).tobytes()]
        if pairs.names:
            asked.append(pairs.names[n].encode())
        golds = [np.ascontiguousarray(pairs.memories[row]).tobytes() for row in rows.tolist()]
        yield {blake2b(question + b"\0" + gold, digest_size=16).digest() for question in asked for gold in golds}


def _name(pairs: PairSet, row: int) -> str:
    return pairs.names[row][:60] if pairs.names else f"pair {row}"


class _Fitting:
    """One run. result: as it stands."""

    def __init__(
        self,
        pairs: PairSet,
        held: PairSet,
        parts: Parts,
        settings: FitSettings,
        interests: tuple[Interests, Interests] | None,
        query: Adapter | None,
    ) -> None:
        shape, dims = settings.shape, pairs.queries.shape[1]
        born = Adapter.born(dims, shape.hidden, shape.alpha, shape.seed)
        self._held, self._settings = held, settings
        self._modules = {
            name: Residual(query if name == "query" and query is not None else born, settings.dropout)
            for name in NAMES
            if name[0] in parts
        }
        weights = (settings.slow_weight, settings.fast_weight)
        wanted = interests[0].weighted(*weights) if interests else None
        self._wanted = interests[1].weighted(*weights) if interests else None
        self._batches = Batches(pairs, self._modules, settings, wanted)
        self._adam = Adam(list(self._modules.values()), settings.learning_rate, settings.weight_decay)
        began = {} if query is None else {"query": blake2b(query.to_bytes(), digest_size=16).hexdigest()}
        self._key = key_of(
            settings, parts=parts, pairs=_digest(pairs, wanted), held=_digest(held, self._wanted), **began
        )
        self.result = _best(Fitted(born), self._adapters())

    def epochs(self, start: Fitted | None) -> Iterator[Fitted]:
        """Each epoch's result, the last with the reason why it is the last."""
        if start is not None and start.going is not None and start.going.key == self._key:
            self._go_on(start, start.going)
        else:
            self.result = replace(self.result, start_mrr=self.mrr())
        while not self.result.why_stopped:
            self._one()
            yield self.result

    def _one(self) -> None:
        before, settings = self.result, self._settings
        number = before.epochs + 1
        loss, seen = self._batches.epoch(self._adam, number)
        mrr = self.mrr() if math.isfinite(loss) else math.nan
        now = self._adapters()
        curve = (*before.curve, Epoch(loss, mrr, *now["query"].norms, seen))
        last = number == settings.epochs
        better = mrr > before.best_mrr if len(self._held) else last and math.isfinite(loss)
        best = number if better else before.best
        why = f"all {settings.epochs} epochs" if last else ""
        if len(self._held) and number - best >= settings.patience:
            why = f"no better for {settings.patience} epochs"
        if not math.isfinite(loss):
            why = f"the loss of epoch {number} is no number"
        going = Going(self._key, {}, self._adam.steps) if why else self._going(now)
        after = replace(before, curve=curve, best=best, why_stopped=why, going=going)
        self.result = _best(after, now) if better else after

    def _adapters(self) -> dict[str, Adapter]:
        return {name: module.to_adapter() for name, module in self._modules.items()}

    def _going(self, now: dict[str, Adapter]) -> Going:
        tensors = named("now", now)
        for name, mean, square in zip(now, self._adam.means, self._adam.squares, strict=True):
            tensors |= {f"mean.{name}": mean.numpy().copy(), f"square.{name}": square.numpy().copy()}
        return Going(self._key, tensors, self._adam.steps)

    def _go_on(self, start: Fitted, going: Going) -> None:
        self.result = replace(start, resumed=start.epochs)
        if start.why_stopped:
            return
        now = adapters_of("now", going.tensors)
        with torch.no_grad():
            for n, (name, module) in enumerate(self._modules.items()):
                module.flat.copy_(Residual(now[name]).flat)
                self._adam.means[n].copy_(torch.from_numpy(going.tensors[f"mean.{name}"]))
                self._adam.squares[n].copy_(torch.from_numpy(going.tensors[f"square.{name}"]))
        self._adam.steps = going.steps

    def mrr(self) -> float:
        """On the pairs that say when to stop, over their whole memory (or pools); nan where there are none."""
        held = self._held
        if not len(held):
            return math.nan
        now, wanted = self._adapters(), self._wanted

        def keys_of(rows: Int64) -> Float32:
            keys = now["key"].apply(held.memories[rows]) if "key" in now else held.memories[rows]
            return np.hstack([keys, now["value"].apply(keys)]) if "value" in now else keys

        queries = now["query"].apply(held.queries)
        if wanted is not None:  # q . k + u . v
            queries = np.hstack([queries, wanted])
        return float(reciprocal_ranks(queries, keys_of, len(held.memories), held.gold, held.pools).mean())


def _best(fitted: Fitted, adapters: dict[str, Adapter]) -> Fitted:
    return replace(fitted, query=adapters["query"], key=adapters.get("key"), value=adapters.get("value"))


def _digest(pairs: PairSet, wanted: Float32 | None) -> str:
    arrays = [
        pairs.queries,
        pairs.memories,
        *pairs.gold,
        *pairs.negatives,
        pairs.weights,
        pairs.subjects,
        pairs.subject,
    ]
    digest = blake2b(digest_size=16)
    for array in [*arrays, *(pairs.pools or ()), *([] if wanted is None else [wanted])]:
        digest.update(np.ascontiguousarray(array).tobytes() + b"|")
    return digest.hexdigest()
