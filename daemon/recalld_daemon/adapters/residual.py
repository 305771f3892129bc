"""The adapter with gradients: `recall.adapter.Adapter`, parameter for parameter, as a torch module.

All parameters are views of one flat tensor, and their gradients of another, so that what is done to every number alike
(Adam, clipping, going back) is a handful of operations and not one per part: at this size the number of operations is
what a step costs.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32


class Residual(nn.Module):
    """f(x) = normalize(x + alpha * (W2 @ gelu(W1 @ x + b1) + b2)); x: (n, d), of unit rows or not.

    flat, flat_gradient: (2 h d + h + d,), what the parameters w1, b1, w2, b2 are views of, in this order. dropout: of
    the hidden layer, while training; `chance` draws it, and nobody else draws from it.
    """

    def __init__(self, adapter: Adapter, dropout: float = 0.0) -> None:
        super().__init__()
        self.alpha, self.dropout, self.chance = adapter.alpha, dropout, torch.Generator()
        self.flat = flat_of(adapter)
        self.flat_gradient = torch.zeros_like(self.flat)
        parameters = []
        for part, gradient in zip(_parts(self.flat, adapter), _parts(self.flat_gradient, adapter), strict=True):
            parameter = nn.Parameter(part)  # shares the flat tensor's memory
            parameter.grad = gradient
            parameters.append(parameter)
        self.w1, self.b1, self.w2, self.b2 = parameters

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(functional.linear(x, self.w1, self.b1), approximate="tanh")  # (n, h)
        if self.dropout and self.training:
            kept = torch.rand(hidden.shape, generator=self.chance) >= self.dropout
            hidden = hidden * kept / (1.0 - self.dropout)
        return functional.normalize(x + self.alpha * functional.linear(hidden, self.w2, self.b2), dim=-1)  # (n, d)

    def to_adapter(self) -> Adapter:
        w1, b1, w2, b2 = (part.detach().numpy().copy() for part in (self.w1, self.b1, self.w2, self.b2))
        return Adapter(w1, b1, w2, b2, self.alpha)


def flat_of(adapter: Adapter) -> Tensor:
    """(2 h d + h + d,), a copy."""
    parts = (adapter.w1, adapter.b1, adapter.w2, adapter.b2)
    return torch.from_numpy(np.concatenate([np.asarray(part, np.float32).ravel() for part in parts]))


def _parts(flat: Tensor, adapter: Adapter) -> list[Tensor]:
    """Views of the flat tensor in the adapter's shapes."""
    shapes = [part.shape for part in (adapter.w1, adapter.b1, adapter.w2, adapter.b2)]
    pieces = torch.split(flat, [int(np.prod(shape)) for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def tensor(array: Float32) -> Tensor:
    """A copy: torch must not write into what numpy holds for read-only."""
    return torch.tensor(array, dtype=torch.float32)
