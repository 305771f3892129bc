"""The adapter with gradients: `recall.adapter.Adapter`, parameter for parameter, as a torch module."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32


class Residual(nn.Module):
    """f(x) = normalize(x + alpha * (W2 @ gelu(W1 @ x + b1) + b2)); x: (n, d), of unit rows or not."""

    def __init__(self, adapter: Adapter, dropout: float = 0.0) -> None:
        super().__init__()
        self.alpha, self.dropout = adapter.alpha, dropout
        self.w1, self.b1, self.w2, self.b2 = (
            nn.Parameter(torch.tensor(part)) for part in (adapter.w1, adapter.b1, adapter.w2, adapter.b2)
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(functional.linear(x, self.w1, self.b1), approximate="tanh")  # (n, h)
        if self.dropout and self.training:
            hidden = functional.dropout(hidden, self.dropout)
        return functional.normalize(x + self.alpha * functional.linear(hidden, self.w2, self.b2), dim=-1)  # (n, d)

    def to_adapter(self) -> Adapter:
        w1, b1, w2, b2 = (part.detach().numpy().copy() for part in (self.w1, self.b1, self.w2, self.b2))
        return Adapter(w1, b1, w2, b2, self.alpha)


def tensor(array: Float32) -> Tensor:
    """A copy: torch must not write into what numpy holds for read-only."""
    return torch.tensor(array, dtype=torch.float32)
