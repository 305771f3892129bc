"""Adam (Kingma and Ba 2014) over flat tensors, with decoupled weight decay (Loshchilov and Hutter 2019).

torch's own is not taken since its first use imports a compiler (seconds, and 100 MB in a process that otherwise needs
little more than this), and since what it remembers must be saved and found again number by number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from recalld_daemon.adapters.residual import Residual

BETAS = (0.9, 0.999)  # Adam's usual
EPSILON = 1e-8


class Adam:
    """Steps on all modules alike. means, squares: the moments, one flat tensor per module, in the modules' order."""

    def __init__(self, modules: Sequence[Residual], learning_rate: float, weight_decay: float = 0.0) -> None:
        self._modules, self._rate, self._decay = list(modules), learning_rate, weight_decay
        self.means = [torch.zeros_like(module.flat) for module in modules]
        self.squares = [torch.zeros_like(module.flat) for module in modules]
        self._roots = [torch.zeros_like(module.flat) for module in modules]  # where a step computes
        self.steps = 0

    def zero_gradients(self) -> None:
        for module in self._modules:
            module.flat_gradient.zero_()

    @torch.no_grad()
    def step(self, most_gradient: float = math.inf) -> bool:
        """One step on the gradients, their norm clipped. False: they are no numbers, and nothing has changed."""
        norm = math.sqrt(sum(float(module.flat_gradient.dot(module.flat_gradient)) for module in self._modules))
        if not math.isfinite(norm):
            return False
        self.steps += 1
        for n, module in enumerate(self._modules):
            if norm > most_gradient:
                module.flat_gradient.mul_(most_gradient / norm)
            self._step(module, self.means[n], self.squares[n], self._roots[n])
        return True

    def _step(self, module: Residual, mean: Tensor, square: Tensor, root: Tensor) -> None:
        gradient = module.flat_gradient
        first, second = (1 - beta**self.steps for beta in BETAS)  # both moments begin at zero
        mean.lerp_(gradient, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        torch.sqrt(square, out=root)
        root.div_(math.sqrt(second)).add_(EPSILON)
        if self._decay:
            module.flat.mul_(1 - self._rate * self._decay)
        module.flat.addcdiv_(mean, root, value=-self._rate / first)
