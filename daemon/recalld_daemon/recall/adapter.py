"""A residual adapter, applied: f(x) = normalize(x + alpha * (W2 @ gelu(W1 @ x + b1) + b2)).

Search-Adaptor (Yoon et al. 2023, arXiv:2310.08750) on a frozen encoder: a small shift of every vector. The output layer
is zero at birth, so f(x) = normalize(x): on day one an adapted search is plain search, and where the learned path fails
plain vectors are what is left. This is the value and its forward pass in numpy, for the daemon; it is learned elsewhere
(`adapters/`, torch). The three of the design are one shape: f_Q for queries, f_K for what is searched, f_V for how
useful something is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal, Self

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from recalld_daemon.recall.types import Float32

HIDDEN = 128  # h; the design's 128 or 256: the reference system's gain was there at the smaller one already
ALPHA = 0.3  # the design's: the shift of a full output layer stays a third of the vector
_GELU = np.float32(np.sqrt(2.0 / np.pi))
_CHECK = "check"  # the checksum's name among the tensors

Part = Literal["w2", "b2"]


class AdapterUnreadable(Exception):
    """The bytes hold no adapter, or one of another width."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """w1: (h, d), b1: (h,), w2: (d, h), b2: (d,), all float32."""

    w1: Float32
    b1: Float32
    w2: Float32
    b2: Float32
    alpha: float = ALPHA

    @classmethod
    def born(cls, dims: int, hidden: int = HIDDEN, alpha: float = ALPHA, seed: int = 0) -> Self:
        """f(x) = normalize(x): hidden layer random (uniform within 1 / sqrt(d), as torch's Linear), output zero."""
        bound = 1.0 / np.sqrt(dims)
        w1 = np.random.default_rng(seed).uniform(-bound, bound, (hidden, dims)).astype(np.float32)
        b1, w2, b2 = (np.zeros(shape, np.float32) for shape in ((hidden,), (dims, hidden), (dims,)))
        return cls(w1, b1, w2, b2, alpha)

    @property
    def dims(self) -> int:
        return int(self.b2.shape[0])

    @property
    def is_identity(self) -> bool:
        """Whether the output layer is zero."""
        return not (self.w2.any() or self.b2.any())

    @property
    def norms(self) -> tuple[float, float]:
        """|W2| (Frobenius) and |b2|: how much was learned, and how much of it is one direction for everything."""
        return float(np.linalg.norm(self.w2)), float(np.linalg.norm(self.b2))

    def without(self, part: Part) -> Adapter:
        """The same with that part of the output layer zero: for ablations."""
        return replace(self, **{part: np.zeros_like(getattr(self, part))})

    def apply(self, vectors: Float32) -> Float32:
        """Unit rows of vectors (n, d) or one vector (d,): the same shape, float32."""
        hidden = vectors @ self.w1.T + self.b1  # (n, h)
        shift = gelu(hidden) @ self.w2.T + self.b2  # (n, d)
        return unit(vectors + np.float32(self.alpha) * shift)

    def to_bytes(self, notes: Mapping[str, str] | None = None) -> bytes:
        """As safetensors, with `notes` as metadata, and a checksum: a wrong weight is a number like any other."""
        tensors = {"w1": self.w1, "b1": self.b1, "w2": self.w2, "b2": self.b2}
        tensors["alpha"] = np.array([self.alpha], np.float32)
        return safetensors.numpy.save(tensors | {_CHECK: _checksum(tensors)}, dict(notes or {}))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises AdapterUnreadable."""
        try:
            tensors = safetensors.numpy.load(data)
            w1, b1, w2, b2 = (np.asarray(tensors[name], np.float32) for name in ("w1", "b1", "w2", "b2"))
            alpha = float(tensors["alpha"][0])
            check = tensors.pop(_CHECK, None)  # what was written before there was one has none
        except (safetensors.SafetensorError, KeyError, IndexError) as error:
            raise AdapterUnreadable(f"no adapter: {error}") from error
        if check is not None and not np.array_equal(check, _checksum(tensors)):
            raise AdapterUnreadable("an adapter's bytes are not those that were written")
        (hidden, dims), shapes = w1.shape, (b1.shape, w2.shape, b2.shape)
        if shapes != ((hidden,), (dims, hidden), (dims,)):
            raise AdapterUnreadable(f"an adapter's parts do not fit each other: w1 {w1.shape}, others {shapes}")
        if not all(np.isfinite(part).all() for part in (w1, b1, w2, b2)):
            raise AdapterUnreadable("an adapter holds numbers that are not finite")
        return cls(w1, b1, w2, b2, alpha)


def _checksum(tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """(16,) of the values, in the order of their names."""
    digest = blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def gelu(x: Float32) -> Float32:
    """GELU by its tanh form (Hendrycks and Gimpel 2016), as torch's gelu(approximate="tanh").

    >>> gelu(np.array([-1.0, 0.0, 1.0], np.float32)).astype(float).round(3).tolist()
    [-0.159, 0.0, 0.841]
    """
    half = np.float32(0.5)
    result: Float32 = half * x * (1 + np.tanh(_GELU * (x + np.float32(0.044715) * x * x * x)))
    return result


def unit(vectors: Float32) -> Float32:
    """Rows of unit length; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: Float32 = vectors / np.maximum(lengths, np.float32(1e-12))
    return result.astype(np.float32, copy=False)
