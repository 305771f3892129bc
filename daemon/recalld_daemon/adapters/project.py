"""f_K over everything stored: the adapter's forward pass in batches, at the precision that is faster on this machine.

GELU is taken by the error function, several times as fast here as by tanh and at most 5e-4 from it; at bfloat16 only
the shift is computed so, and the sum and its length are float32. A result lies within 3e-3 of the daemon's own, a
fraction of the shift. Processors with AMX multiply bfloat16 four to eight times as fast as float32, others emulate it
and are slower: which one holds here is measured once, on the first batch. What takes the time is not the products but
the passes between them; both are a few hundredths of what the database takes to give and to keep the rows.
"""

from __future__ import annotations

import time
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32

ROWS = 1_024  # at a time: 1.5 MB in float32, which stays in the processor's cache from one step to the next
TRIALS = 3  # of each precision; the best counts, since a neighbour only ever makes one slower

Precision = Literal["float32", "bfloat16"]


class Projector:
    """One adapter. precision None: whichever is faster here. Runs on one thread."""

    def __init__(self, adapter: Adapter, precision: Precision | None = None) -> None:
        torch.set_num_threads(1)
        self._weights = {name: _Weights(adapter, dtype) for name, dtype in _TYPES.items()}
        self._precision = precision

    @property
    def how(self) -> str:
        """The precision, once it is known."""
        return self._precision or "not measured yet"

    def __call__(self, vectors: NDArray[np.float16] | Float32) -> NDArray[np.float16]:
        """(n, d) unit rows, as stored or widened -> (n, d) float16 unit rows."""
        if self._precision is None:
            self._precision = fastest(self._weights, vectors[:ROWS])
        return projected(self._weights[self._precision], vectors)


class _Weights:
    """Transposed and scaled once. w1: (d, h), b1: (h,), w2: (h, d), b2: (d,); the rest is room to work on ROWS rows."""

    def __init__(self, adapter: Adapter, dtype: torch.dtype) -> None:
        alpha = np.float32(adapter.alpha)
        parts = (adapter.w1.T, adapter.b1, (alpha * adapter.w2).T, alpha * adapter.b2)
        self.w1, self.b1, self.w2, self.b2 = (torch.tensor(part).to(dtype).contiguous() for part in parts)
        hidden, dims = adapter.w1.shape
        self._narrow, self._shift = (torch.empty(ROWS, dims, dtype=dtype) for _ in range(2))
        self._hidden, self._moved = torch.empty(ROWS, hidden, dtype=dtype), torch.empty(ROWS, dims)

    def moved(self, x: Tensor) -> Tensor:
        """x: (n, d) float32, n at most ROWS; returns (n, d) float32 unit rows, which the next call writes over.

        Step by step into the same memory: conversions within an operation take ten times as long as before it.
        """
        n = len(x)
        narrow = self._narrow[:n].copy_(x)
        torch.addmm(self.b1, narrow, self.w1, out=self._hidden[:n])  # (n, h)
        hidden = functional.gelu(self._hidden[:n])
        torch.addmm(self.b2, hidden, self.w2, out=self._shift[:n])  # (n, d)
        moved = self._moved[:n].copy_(self._shift[:n]).add_(x)
        return moved.mul_(torch.linalg.vector_norm(moved, dim=1, keepdim=True).clamp_(min=1e-12).reciprocal_())


_TYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def projected(weights: _Weights, vectors: NDArray[np.float16] | Float32) -> NDArray[np.float16]:
    """f(x) = normalize(x + alpha * (W2 @ gelu(W1 @ x + b1) + b2)), ROWS at a time."""
    found = np.empty(vectors.shape, np.float16)
    with torch.inference_mode():
        into = torch.from_numpy(found)
        for at in range(0, len(vectors), ROWS):
            rows = np.require(vectors[at : at + ROWS], np.float32, ["C", "W"])
            into[at : at + ROWS].copy_(weights.moved(torch.from_numpy(rows)))
    return found


def fastest(weights: dict[Precision, _Weights], sample: NDArray[np.float16] | Float32) -> Precision:
    """The precision at which the sample is projected in less time."""

    def best(own: _Weights) -> float:
        projected(own, sample)  # the first call sets up kernels
        took = []
        for _ in range(TRIALS):
            began = time.perf_counter()
            projected(own, sample)
            took.append(time.perf_counter() - began)
        return min(took)

    seconds = {name: best(own) for name, own in weights.items()}
    return min(seconds, key=lambda name: seconds[name])
