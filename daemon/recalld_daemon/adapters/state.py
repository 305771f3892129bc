"""How learned state is kept: safetensors, whose header holds notes as text. Never pickle: reading one runs code."""

from __future__ import annotations

import json

import numpy as np

Tensors = dict[str, np.ndarray]


def notes_of(data: bytes) -> dict[str, str]:
    """A safetensors value's metadata."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return dict(header.get("__metadata__", {}))
