"""f_Q, one step after each query that was answered: Adam on the new pair and a few earlier ones.

The step is bounded in four ways. The gradient's norm is clipped. A pair that comes again, while the buffer has it,
takes the old one's place and is no step. The mean shift of the latest and the held queries from where the PROMOTED
version puts them (not the step before) may not pass a bound: beyond it the weights are drawn back towards that version.
And each eighth pair is never learned from: on this slice the weights are compared with the promoted ones after every
step, and when they have become worse, what was learned since is thrown away, the buffer with it, since it may hold what
did it.

All of it, Adam's moments and the pairs too, is one safetensors value under a key of every setting that shaped it and of
the promoted weights; under another key it is refused.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import safetensors
import safetensors.numpy
import torch

from recalld_daemon.adapters.adam import Adam
from recalld_daemon.adapters.held import SAME, HeldSlice
from recalld_daemon.adapters.loss import Subjects, masked, others, three_parts
from recalld_daemon.adapters.pairs import MOST_WEIGHT, Pair, kept_negatives
from recalld_daemon.adapters.residual import Residual, flat_of, tensor
from recalld_daemon.adapters.settings import OnlineSettings, key_of
from recalld_daemon.adapters.shelf import GOLD, QUERY, Shelf
from recalld_daemon.adapters.state import Tensors, notes_of
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32

DRAWN_BACK = 6  # times, at most, until the drift is within its bound; then the promoted weights themselves
LATEST = 16  # pairs of the buffer over whose queries drift is measured, beside the held ones
RIVALS = 64  # latest golds of the buffer among which the held ones are ranked
UNIT = 0.05  # by which a vector's length may differ from 1: half precision is much nearer


@dataclass(frozen=True, slots=True)
class Step:
    """adapter: what to use from now on. loss: nan where no step was made. held: the pair went to the slice, nothing was
    learned from it. reverted: why what was learned was thrown away, or "". drift: mean |f(q) - promoted(q)|. The two
    mrr: of the slice under these weights (before they were thrown away) and under the promoted version's; nan while it
    is empty. steps: taken since the state was new."""

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
    """A pair that can't be learned from: vectors of another width, not of unit length, or not finite."""


class StateUnusable(ValueError):
    """A state that is broken, or was saved under another key."""


class OnlineLearner:
    """Learns on from `promoted`, or from `state`. Not thread-safe. Raises StateUnusable.

    key: whatever else shaped the pairs (encoder, recipe); the settings and the promoted weights are added to it.
    """

    def __init__(self, promoted: Adapter, settings: OnlineSettings, key: str, state: bytes | None = None) -> None:
        torch.set_num_threads(1)  # a step is a few MFLOP: a second thread costs more than it does
        self.promoted, self.settings = promoted, settings
        self.key = key_of(settings, key=key, promoted=blake2b(promoted.to_bytes(), digest_size=16).hexdigest())
        self.steps = 0
        self._home = flat_of(promoted)
        self._buffer = self._empty()
        self._held = HeldSlice(promoted, settings)
        self._start()
        self.resumed = bool(state)
        if state:
            self._resume(state)

    def _empty(self) -> Shelf:
        return Shelf(self.promoted.dims, self.settings.kept, self.settings.negatives)

    def _start(self) -> None:
        """At the promoted version, with an optimiser that remembers nothing."""
        self._module = Residual(self.promoted)
        self._adam = Adam([self._module], self.settings.learning_rate)
        self.adapter = self.promoted

    @property
    def held_pairs(self) -> int:
        return len(self._held)

    @property
    def pairs(self) -> int:
        """In the buffer."""
        return len(self._buffer)

    def learn(self, pair: Pair) -> Step:
        """One step. Raises BadPair, and nothing has changed then."""
        began = time.perf_counter()
        pair = self._checked(pair)
        loss, held = math.nan, _is_held(pair.key, self.settings.held_every)
        if held:
            self._held.put(pair)
        else:
            again = pair.key in self._buffer
            self._buffer.put(pair)
            if not again:
                loss = self._step([self._buffer.pair(key) for key in (pair.key, *self._replayed(pair.key))])
        drift, shifted = self._bounded()
        own, theirs, reverted = self._held.judged(shifted, self._buffer.vectors(GOLD, RIVALS))
        if reverted:
            self._start()
            self._buffer = self._empty()
            drift = 0.0
        ms = (time.perf_counter() - began) * 1000.0
        return Step(self.adapter, loss, drift, ms, held, reverted, own, theirs, self.steps)

    # ------------------------------------------------------------ the step

    def _checked(self, pair: Pair) -> Pair:
        """With its nearest negatives only, and a weight within its bound.

        What is near to the plain query is left out where it is learned from, not where it is judged by: else the plain
        query's gold would outrank all negatives by construction, and any shift would look like a fall.
        """
        dims = self.promoted.dims
        parts = [pair.query, pair.gold, *([] if pair.subject is None else [pair.subject]), *pair.negatives]
        if any(part.shape != (dims,) for part in parts):
            raise BadPair(f"pair {pair.key!r}: its vectors are not {dims} numbers each")
        lengths = np.linalg.norm(np.stack(parts).astype(np.float64), axis=1)
        if not (np.abs(lengths - 1.0) <= UNIT).all():  # nan and inf are not
            raise BadPair(f"pair {pair.key!r}: its vectors are not of unit length")
        if not math.isfinite(pair.weight) or pair.weight <= 0:
            raise BadPair(f"pair {pair.key!r}: its weight is {pair.weight}")
        negatives = pair.negatives.reshape(-1, dims)
        if not _is_held(pair.key, self.settings.held_every):
            negatives = negatives[kept_negatives(pair.query, pair.gold, negatives)]
        nearest = np.argsort(-(negatives @ pair.query), kind="stable")[: self.settings.negatives]
        return replace(pair, negatives=negatives[nearest], weight=min(pair.weight, MOST_WEIGHT))

    def _replayed(self, key: str) -> list[str]:
        """Keys of earlier pairs, drawn by the step's number: the same again after a restart."""
        keys = [other for other in self._buffer.keys if other != key]
        drawn = np.random.default_rng(self.steps).permutation(len(keys))[: self.settings.replay]
        return [keys[n] for n in drawn.tolist()]

    def _step(self, pairs: Sequence[Pair]) -> float:
        settings = self.settings.loss
        plain = tensor(np.stack([pair.query for pair in pairs]))  # (n, d)
        beside = self._buffer.vectors(GOLD, self.settings.beside) if self.settings.beside else plain[:0].numpy()
        golds, negatives = np.stack([pair.gold for pair in pairs]), [pair.negatives for pair in pairs]
        columns = tensor(np.concatenate([golds, *negatives, beside]))  # (c, d)
        right = torch.arange(len(pairs))
        weights = torch.tensor([pair.weight for pair in pairs], dtype=torch.float32)
        allowed = others(columns[: len(pairs)], columns, right, None, settings.same)
        self._adam.zero_gradients()
        shifted = self._module(plain)
        scores = masked(shifted @ columns.T, allowed)
        loss = three_parts(scores, right, shifted, plain, weights, settings, _subjects(pairs))
        loss.backward()  # type: ignore[no-untyped-call]
        if self._adam.step(self.settings.most_gradient):
            self.adapter = self._module.to_adapter()
        self.steps += 1
        return float(loss.detach())

    # ------------------------------------------------------------ its bounds

    def _bounded(self) -> tuple[float, Float32]:
        """(drift, the held queries under the weights), drawn back to the promoted version where it was too much."""
        held = len(self._held)
        latest = self._buffer.vectors(QUERY, LATEST)
        queries = np.concatenate([self._held.queries, latest])
        before = np.concatenate([self._held.promoted, self.promoted.apply(latest)])
        for attempt in range(DRAWN_BACK + 1):
            shifted = self.adapter.apply(queries)
            drift = float(np.linalg.norm(shifted - before, axis=1).mean()) if len(queries) else 0.0
            if drift <= self.settings.most_drift:
                break
            self._draw_back(0.95 * self.settings.most_drift / drift if attempt < DRAWN_BACK - 1 else 0.0)
        return drift, shifted[:held]

    @torch.no_grad()
    def _draw_back(self, share: float) -> None:
        """Keep that share of the way from the promoted version."""
        if share > 0:  # a drift that is no number is worth none of it
            self._module.flat.sub_(self._home).mul_(share).add_(self._home)
        else:
            self._module.flat.copy_(self._home)
        self.adapter = self._module.to_adapter()

    # ------------------------------------------------------------ kept

    def state(self) -> bytes:
        """All of it, as safetensors."""
        flat, mean, square = self._module.flat, self._adam.means[0], self._adam.squares[0]
        tensors: Tensors = {"flat": flat.numpy(), "mean": mean.numpy(), "square": square.numpy()}
        tensors |= self._buffer.tensors("buffer") | self._held.shelf.tensors("held")
        notes = {
            "key": self.key, "steps": str(self.steps), "adam_steps": str(self._adam.steps),
            "buffer": json.dumps(self._buffer.keys), "held": json.dumps(self._held.shelf.keys),
        }  # fmt: skip
        return safetensors.numpy.save(tensors, notes)

    def _resume(self, state: bytes) -> None:
        try:
            tensors, notes = safetensors.numpy.load(state), notes_of(state)
            if notes["key"] != self.key:
                raise StateUnusable("it was saved under other settings, or over another version")
            steps, adam_steps = int(notes["steps"]), int(notes["adam_steps"])
            self._buffer.filled("buffer", tensors, json.loads(notes["buffer"]))
            self._held.filled("held", tensors, json.loads(notes["held"]))
            learned = [tensors[name] for name in ("flat", "mean", "square")]
            if any(part.shape != tuple(self._home.shape) or not np.isfinite(part).all() for part in learned):
                raise StateUnusable("its weights do not fit the promoted ones, or are not finite")
        except (safetensors.SafetensorError, LookupError, UnicodeDecodeError, ValueError) as error:
            raise StateUnusable(f"what was learned can't be gone on from: {error}") from error
        for ours, saved in zip((self._module.flat, self._adam.means[0], self._adam.squares[0]), learned, strict=True):
            ours.copy_(torch.from_numpy(saved))
        self.steps, self._adam.steps, self.adapter = steps, adam_steps, self._module.to_adapter()


def _is_held(key: str, every: int) -> bool:
    """By the key alone: the same pair is always on the same side."""
    return bool(every) and int.from_bytes(blake2b(key.encode(), digest_size=4).digest()) % every == 0


def _subjects(pairs: Sequence[Pair]) -> Subjects | None:
    """Each distinct subject once: two pairs of the same one must not be told apart."""
    own = [(n, pair.subject) for n, pair in enumerate(pairs) if pair.subject is not None]
    if not own:
        return None
    vectors = np.stack([subject for _, subject in own])
    first = (vectors @ vectors.T > SAME).argmax(axis=1)  # (k,) where each was first
    distinct, rows = np.unique(first, return_inverse=True)
    return torch.tensor([n for n, _ in own]), tensor(vectors[distinct]), torch.tensor(rows)
