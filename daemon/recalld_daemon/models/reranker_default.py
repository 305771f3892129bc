"""The default cross-encoder: the packaged encoder's lowest layers, plus what was learned, as small differences.

The artefact holds, for each matrix that was trained, the difference to the packaged one as int8 rows with a scale each
(the differences are so small that this rounds away nothing that counts), for each vector the difference in float16, and
the head as it is. The table of word vectors, half of the packaged model, is shared with it and not shipped again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from recalld_daemon.models.files import ModelError
from recalld_daemon.recall.types import Float32

FORMAT = "1"
STEPS = 127  # int8, both ways
ROWS, SCALES, DIFFERENCE, WHOLE = ":rows", ":scales", ":difference", ":whole"
HEAD = "classifier."  # of the model's parts the one that the packaged encoder does not have


@dataclass(frozen=True, slots=True)
class Learned:
    """differences: parameter -> its difference to the packaged one; whole: those that stand alone. base: its hash."""

    layers: int
    base: str
    differences: Mapping[str, Float32]
    whole: Mapping[str, Float32]


def save_learned(learned: Learned, path: Path) -> None:
    """Write the artefact."""
    tensors: dict[str, NDArray[Any]] = {name + WHOLE: value.astype(np.float32) for name, value in learned.whole.items()}
    for name, value in learned.differences.items():
        if value.ndim == 2:
            scales = np.maximum(np.abs(value).max(axis=1), 1e-12) / STEPS  # (rows,)
            tensors[name + ROWS] = np.round(value / scales[:, None]).astype(np.int8)
            tensors[name + SCALES] = scales.astype(np.float32)
        else:
            tensors[name + DIFFERENCE] = value.astype(np.float16)
    save_file(tensors, str(path), {"format": FORMAT, "layers": str(learned.layers), "base": learned.base})


def load_learned(path: Path) -> Learned:
    """Read the artefact. Raises ModelError when it is of another format, and what safetensors raises."""
    differences: dict[str, Float32] = {}
    whole: dict[str, Float32] = {}
    with safe_open(str(path), "np") as file:
        about = file.metadata() or {}
        if about.get("format") != FORMAT:
            raise ModelError(f"{path.name}: format {about.get('format')!r}, this recalld reads {FORMAT}")
        for key in file.keys():  # noqa: SIM118  safetensors' handle is no mapping
            name, _, kind = key.rpartition(":")
            if f":{kind}" == ROWS:
                scales = file.get_tensor(name + SCALES)
                differences[name] = file.get_tensor(key).astype(np.float32) * scales[:, None]
            elif f":{kind}" == DIFFERENCE:
                differences[name] = file.get_tensor(key).astype(np.float32)
            elif f":{kind}" == WHOLE:
                whole[name] = file.get_tensor(key)
    return Learned(int(about["layers"]), about["base"], differences, whole)


def default_module(folder: Path, artefact: Path) -> Any:
    """The cross-encoder as transformers has it: the packaged encoder in `folder`, cut to its layers, plus differences.

    Raises ModelError when the packaged encoder is not the one that the differences belong to.
    """
    import torch

    learned = load_learned(artefact)
    if (found := base_hash(folder)) != learned.base:
        raise ModelError(f"{artefact.name} belongs to encoder {learned.base}, not to {found}")
    module = bare_module(folder, learned.layers)
    with torch.no_grad():
        state = module.state_dict()
        for name, value in learned.differences.items():
            state[name] += torch.from_numpy(value)
        for name, value in learned.whole.items():
            state[name].copy_(torch.from_numpy(value))
    return module.eval()


def bare_module(folder: Path, layers: int) -> Any:
    """The packaged encoder's lowest layers under a head of one label, untrained."""
    import logging

    from transformers import BertForSequenceClassification

    quiet = logging.getLogger("transformers.modeling_utils")
    before, quiet.level = quiet.level, logging.ERROR  # it lists the layers that are left out
    try:
        return BertForSequenceClassification.from_pretrained(
            str(folder), num_hidden_layers=layers, num_labels=1, local_files_only=True
        )
    finally:
        quiet.level = before


def base_hash(folder: Path) -> str:
    """16 hex digits of the packaged weights."""
    from recalld_daemon.models.cache import digest

    return digest(folder / "model.safetensors")[:16]
