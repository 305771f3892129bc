"""The encoder while it is tuned: frozen MiniLM, low-rank corrections on its linear layers, a learned token projection.

A linear layer W becomes W + up @ down with down (r, in) and up (out, r), up zero at birth, so that the first step
starts from the frozen encoder (LoRA, arXiv 2106.09685; its scale alpha / r is 1 here, the learning rate does that
work). What is learned leaves as a `Tuning` of a few MB that the daemon adds to the packaged weights once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recalld_daemon.models import cache
from recalld_daemon.models.tokens import TokenizedText, padded
from recalld_daemon.models.tuned import WEIGHTS, Tuning
from recalld_daemon.recall.types import Float32

TINY = 1e-6


class Lora(nn.Module):
    """A frozen linear layer and its correction."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Parameter(torch.empty(rank, linear.in_features))
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)"""
        narrow = nn.functional.linear(x, self.down.to(x.dtype))
        out: Tensor = self.linear(x) + nn.functional.linear(narrow, self.up.to(x.dtype))
        return out


class TunedModel(nn.Module):
    """Token ids in; pooled vectors (b, d) and token vectors (b, t, dims) out, both unit length."""

    def __init__(self, folder: Path, projection: Float32, rank: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.body = _frozen(folder)
        self.rank = rank
        self._base = cache.digest(folder / WEIGHTS)
        self._first = torch.from_numpy(projection.copy())
        self.projection = nn.Parameter(self._first.clone())  # (d, dims)
        self._layers: dict[str, Lora] = {}
        for name, layer in list(self.body.encoder.named_modules()):
            if isinstance(layer, nn.Linear):
                self._layers[f"encoder.{name}.weight"] = lora = Lora(layer, rank)
                _put(self.body.encoder, name, lora)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """ids, mask: (b, t)"""
        hidden = self.body(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        weights = mask.unsqueeze(-1).float()
        pooled = (hidden * weights).sum(1) / weights.sum(1)
        return unit(pooled), unit(hidden @ self.projection)

    def learned(self) -> list[nn.Parameter]:
        """What an optimiser may move."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def keep(self, share: float) -> None:
        """Go back towards where the corrections are null and the projection is the first one; 1.0: stay."""
        with torch.no_grad():
            for layer in self._layers.values():
                layer.up.mul_(share)
            self.projection.lerp_(self._first, 1.0 - share)

    def tuning(self) -> Tuning:
        """What was learned so far, as float16, the precision it ships in."""
        deltas = {name: (_half(layer.up), _half(layer.down)) for name, layer in self._layers.items()}
        return Tuning(deltas, _half(self.projection).astype(np.float32), self._base)

    def start_from(self, tuning: Tuning) -> None:
        """Take over what was learned before. ValueError when it is of another shape."""
        with torch.no_grad():
            for name, layer in self._layers.items():
                up, down = tuning.deltas[name]
                if up.shape != layer.up.shape:
                    raise ValueError(f"{name}: the tuning to start from has rank {up.shape[1]}, not {self.rank}")
                layer.up.copy_(torch.from_numpy(up.astype(np.float32)))
                layer.down.copy_(torch.from_numpy(down.astype(np.float32)))
            self.projection.copy_(torch.from_numpy(tuning.projection))


def unit(x: Tensor) -> Tensor:
    """Each last-axis row at length 1."""
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return x / length.clamp_min(TINY)


def tensors(texts: list[TokenizedText]) -> tuple[Tensor, Tensor, Tensor]:
    """ids, mask and kept (b, t): kept marks the tokens that late interaction uses."""
    ids, mask = padded([text.ids for text in texts])
    kept = np.zeros_like(mask, dtype=bool)
    for at, text in enumerate(texts):
        kept[at, text.kept] = True
    return torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(kept)


@contextmanager
def one_thread() -> Iterator[None]:
    """A training owns one core: two threads under load are slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _frozen(folder: Path) -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    # Eager attention: on processors the backward pass of the fused one takes three times as long at these lengths.
    model = AutoModel.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False, attn_implementation="eager"
    )
    return model.eval().requires_grad_(False).to(torch.bfloat16)


def _put(root: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(root.get_submodule(parent), last, layer)


def _half(x: Tensor) -> Any:
    return x.detach().numpy().astype(np.float16)
