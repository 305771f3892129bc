"""f_Q, one step after each query that was answered: Adam on the new pair and a few earlier ones.

The step is small and bounded in four ways. The gradient's norm is clipped; a pair that comes again replaces itself, and
is stepped on again only after others came between; the mean shift of the buffer's queries from where the PROMOTED
version puts them (not the step before) may not pass a bound: beyond it the weights are drawn back to that version. And
each eighth pair is never learned from: on this slice the weights are compared with the promoted ones after every step,
and when they have become worse, what was learned since is thrown away.

All of it, Adam's moments and the buffer too, is one safetensors value under the key of every setting that shaped it;
under another key a state is not resumed. A prototype's step took 1.3 ms without and 5.7 with a replay of 7.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import safetensors
import safetensors.numpy
import torch

from recalld_daemon.adapters.loss import masked, others, three_parts
from recalld_daemon.adapters.pairs import Pair, kept_negatives
from recalld_daemon.adapters.residual import Residual, tensor
from recalld_daemon.adapters.settings import OnlineSettings
from recalld_daemon.adapters.state import Tensors, notes_of, packed, unpacked
from recalld_daemon.recall.adapter import Adapter

BETAS = (0.9, 0.999)  # Adam's usual
EPSILON = 1e-8
DRAWN_BACK = 8  # halvings, at most, until the drift is within its bound


@dataclass(frozen=True, slots=True)
class Step:
    """adapter: what to use from now on. held: the pair went to the slice, nothing was learned from it. reverted: why
    what was learned was thrown away, or "". drift: mean |f(q) - promoted(q)| over the buffer. The two mrr: of the slice
    under these weights and under the promoted version's; nan while it is empty."""

    adapter: Adapter
    loss: float
    drift: float
    ms: float
    held: bool
    reverted: str
    held_mrr: float
    promoted_mrr: float
    steps: int


class BadPair(ValueError):
    """A pair that can't be learned from: numbers that are not finite, or of another width."""


class OnlineLearner:
    """Learns on from `promoted`, or from `state` where that was saved under the same key. Not thread-safe."""

    def __init__(self, promoted: Adapter, settings: OnlineSettings, key: str, state: bytes | None = None) -> None:
        torch.set_num_threads(1)  # a step is a few hundred kFLOP: a second thread costs more than it does
        self.promoted, self.settings, self.key = promoted, settings, key
        self.steps = 0
        self._buffer: dict[str, Pair] = {}
        self._held: dict[str, Pair] = {}
        self._since: list[str] = []  # keys of the last steps' pairs
        self._start(promoted)
        if state:
            self._resume(state)

    def _start(self, adapter: Adapter) -> None:
        self._module = Residual(adapter)
        self._moments = [[torch.zeros_like(p), torch.zeros_like(p)] for p in self._module.parameters()]
        self._adam_steps = 0
        self.adapter = adapter

    @property
    def held_pairs(self) -> int:
        return len(self._held)

    @property
    def resumed(self) -> bool:
        return self.steps > 0

    def learn(self, pair: Pair) -> Step:
        """One step. Raises BadPair, and nothing has changed then."""
        began = time.perf_counter()
        pair = self._checked(pair)
        held = _is_held(pair.key, self.settings.held_every)
        _put(self._held if held else self._buffer, pair, self.settings.held_kept if held else self.settings.kept)
        repeated = pair.key in self._since
        loss = math.nan
        if not held and not repeated:
            loss = self._step([pair, *self._replayed(pair)])
            self._since = [*self._since, pair.key][-self.settings.replay :]
            self.steps += 1
        drift = self._bounded_drift()
        own, theirs = self._slice_mrr(self.adapter), self._slice_mrr(self.promoted)
        reverted = self._fall(own, theirs)
        if reverted:
            self._start(self.promoted)
            self._buffer.clear()
            drift, own = 0.0, theirs
        ms = (time.perf_counter() - began) * 1000.0
        return Step(self.adapter, loss, drift, ms, held, reverted, own, theirs, self.steps)

    # ------------------------------------------------------------ the step

    def _checked(self, pair: Pair) -> Pair:
        """With its nearest kept negatives only."""
        dims = self.promoted.dims
        parts = [pair.query, pair.gold, *([] if pair.subject is None else [pair.subject]), *pair.negatives]
        if any(part.shape != (dims,) or not np.isfinite(part).all() for part in parts):
            raise BadPair(f"pair {pair.key!r}: its vectors are not {dims} finite numbers each")
        if not math.isfinite(pair.weight) or pair.weight <= 0:
            raise BadPair(f"pair {pair.key!r}: its weight is {pair.weight}")
        negatives = pair.negatives.reshape(-1, dims)
        if len(negatives):
            negatives = negatives[kept_negatives(pair.query, pair.gold, negatives)]
            nearest = np.argsort(-(negatives @ pair.query), kind="stable")[: self.settings.negatives]
            negatives = negatives[nearest]
        return Pair(pair.key, pair.query, pair.gold, negatives, pair.subject, pair.weight, pair.at)

    def _replayed(self, pair: Pair) -> list[Pair]:
        """Earlier pairs, drawn by the step's number: the same again after a restart."""
        keys = [key for key in self._buffer if key != pair.key]
        drawn = np.random.default_rng(self.steps).permutation(len(keys))[: self.settings.replay]
        return [self._buffer[keys[n]] for n in drawn.tolist()]

    def _step(self, pairs: Sequence[Pair]) -> float:
        settings = self.settings
        plain = tensor(np.stack([pair.query for pair in pairs]))  # (n, d)
        columns = tensor(np.concatenate([np.stack([p.gold for p in pairs]), *(p.negatives for p in pairs)]))  # (c, d)
        right = torch.arange(len(pairs))
        weights = torch.tensor([pair.weight for pair in pairs], dtype=torch.float32)
        with torch.no_grad():
            known = columns[: len(pairs)] @ columns.T > 1 - 1e-5  # the same memory, as another pair's gold
            allowed = others(plain @ columns.T, right, known, settings.loss.near_gold)
        self._module.zero_grad(set_to_none=True)
        shifted = self._module(plain)
        scores = masked(shifted @ columns.T, allowed)
        loss = three_parts(scores, right, shifted, plain, weights, settings.loss, _subjects(pairs))
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam()
        self.adapter = self._module.to_adapter()
        return float(loss.detach())

    @torch.no_grad()
    def _adam(self) -> None:
        parameters = list(self._module.parameters())
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))
        share = min(1.0, self.settings.most_gradient / max(norm, 1e-12))
        self._adam_steps += 1
        first, second = (1 - beta**self._adam_steps for beta in BETAS)
        for parameter, gradient, (mean, square) in zip(parameters, gradients, self._moments, strict=True):
            mean.lerp_(gradient * share, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=(1 - BETAS[1]) * share * share)
            parameter.addcdiv_(
                mean, (square / second).sqrt_().add_(EPSILON), value=-self.settings.learning_rate / first
            )

    # ------------------------------------------------------------ its bounds

    def _bounded_drift(self) -> float:
        """Mean distance of the buffer's queries from where the promoted version puts them, drawn back where it is too
        much."""
        if not self._buffer:
            return 0.0
        queries = np.stack([pair.query for pair in list(self._buffer.values())[-64:]])
        before = self.promoted.apply(queries)
        for _ in range(DRAWN_BACK):
            drift = float(np.linalg.norm(self.adapter.apply(queries) - before, axis=1).mean())
            if drift <= self.settings.most_drift:
                return drift
            self._draw_back()
        return drift

    @torch.no_grad()
    def _draw_back(self) -> None:
        """Half way to the promoted version."""
        home = Residual(self.promoted)
        for parameter, there in zip(self._module.parameters(), home.parameters(), strict=True):
            parameter.lerp_(there, 0.5)
        self.adapter = self._module.to_adapter()

    def _slice_mrr(self, adapter: Adapter) -> float:
        """Of the held slice: each gold among the golds of the others and its own negatives."""
        if not self._held:
            return math.nan
        pairs = list(self._held.values())
        shifted = adapter.apply(np.stack([pair.query for pair in pairs]))  # (n, d)
        golds = np.stack([pair.gold for pair in pairs])
        across = shifted @ golds.T  # (n, n)
        total = 0.0
        for n, pair in enumerate(pairs):
            better = int((across[n] > across[n, n]).sum()) + int((pair.negatives @ shifted[n] > across[n, n]).sum())
            total += 1.0 / (1 + better)
        return total / len(pairs)

    def _fall(self, own: float, theirs: float) -> str:
        if not np.isfinite(self.adapter.w2).all() or not np.isfinite(self.adapter.b2).all():
            return "its weights are no numbers any more"
        if len(self._held) < self.settings.least_held or own >= theirs - self.settings.most_fall:
            return ""
        return f"on {len(self._held)} pairs held out its MRR is {own:.3f}, the promoted version's {theirs:.3f}"

    # ------------------------------------------------------------ kept

    def state(self) -> bytes:
        """All of it, as safetensors."""
        tensors: Tensors = {
            name: part.detach().numpy() for name, part in zip("abcd", self._module.parameters(), strict=True)
        }
        for n, (mean, square) in enumerate(self._moments):
            tensors |= {f"mean{n}": mean.numpy(), f"square{n}": square.numpy()}
        for name, pairs in (("buffer", self._buffer), ("held", self._held)):
            tensors |= packed(name, list(pairs.values()), self.promoted.dims)
        notes = {
            "key": self.key, "steps": str(self.steps), "adam_steps": str(self._adam_steps),
            "since": json.dumps(self._since), "buffer": json.dumps(list(self._buffer)),
            "held": json.dumps(list(self._held)),
        }  # fmt: skip
        return safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in tensors.items()}, notes)

    def _resume(self, state: bytes) -> None:
        """Go on from a state, if it was saved under this key and is whole; else from the promoted version."""
        try:
            tensors = safetensors.numpy.load(state)
            notes = notes_of(state)
            if notes.get("key") != self.key:
                return
            adapter = Adapter(tensors["a"], tensors["b"], tensors["c"], tensors["d"], self.promoted.alpha)
            if adapter.w1.shape != self.promoted.w1.shape:
                return
            moments = [[tensor(tensors[f"mean{n}"]), tensor(tensors[f"square{n}"])] for n in range(4)]
            buffer = unpacked("buffer", tensors, json.loads(notes["buffer"]))
            held = unpacked("held", tensors, json.loads(notes["held"]))
            steps, adam_steps = int(notes["steps"]), int(notes["adam_steps"])
            since = [str(key) for key in json.loads(notes["since"])]
        except (safetensors.SafetensorError, KeyError, ValueError, IndexError):
            return
        self._start(adapter)
        self._moments, self._adam_steps, self.steps = moments, adam_steps, steps
        self._buffer, self._held, self._since = buffer, held, since


def _is_held(key: str, every: int) -> bool:
    """By the key alone: the same pair is always on the same side."""
    return bool(every) and int.from_bytes(blake2b(key.encode(), digest_size=4).digest()) % every == 0


def _put(pairs: dict[str, Pair], pair: Pair, most: int) -> None:
    """As the newest; the oldest goes."""
    pairs.pop(pair.key, None)
    pairs[pair.key] = pair
    while len(pairs) > most:
        del pairs[next(iter(pairs))]


def _subjects(pairs: Sequence[Pair]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Each distinct subject once: two pairs of the same one must not be told apart."""
    own = [(n, pair.subject) for n, pair in enumerate(pairs) if pair.subject is not None]
    if not own:
        return None
    distinct, rows = np.unique(np.stack([subject for _, subject in own]), axis=0, return_inverse=True)
    return torch.tensor([n for n, _ in own]), tensor(distinct), torch.tensor(rows.reshape(-1))
