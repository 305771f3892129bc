"""What a learner keeps between two lives: pairs as arrays, in half precision, and the notes of a safetensors value."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.recall.types import Float32

Tensors = dict[str, np.ndarray]


def packed(name: str, pairs: Sequence[Pair], dims: int) -> Tensors:
    none = np.empty((0, dims), np.float32)
    zero = np.zeros(dims, np.float32)
    return {
        f"{name}.queries": np.array([p.query for p in pairs], np.float16).reshape(-1, dims),
        f"{name}.golds": np.array([p.gold for p in pairs], np.float16).reshape(-1, dims),
        f"{name}.negatives": np.concatenate([none, *(p.negatives for p in pairs)]).astype(np.float16),
        f"{name}.counts": np.array([len(p.negatives) for p in pairs], np.int64),
        f"{name}.subjects": np.array([zero if p.subject is None else p.subject for p in pairs], np.float16).reshape(
            -1, dims
        ),
        f"{name}.has_subject": np.array([p.subject is not None for p in pairs], np.uint8),
        f"{name}.weights": np.array([p.weight for p in pairs], np.float32),
        f"{name}.at": np.array([p.at for p in pairs], np.float64),
    }


def unpacked(name: str, tensors: Tensors, keys: Sequence[str]) -> dict[str, Pair]:
    part = {end: tensors[f"{name}.{end}"] for end in ("queries", "golds", "counts", "weights", "at", "has_subject")}
    ends = np.cumsum(part["counts"]).tolist()
    found = {}
    for n, key in enumerate(keys):
        negatives: Float32 = tensors[f"{name}.negatives"][ends[n] - int(part["counts"][n]) : ends[n]].astype(np.float32)
        subject = tensors[f"{name}.subjects"][n].astype(np.float32) if part["has_subject"][n] else None
        query, gold = part["queries"][n].astype(np.float32), part["golds"][n].astype(np.float32)
        found[key] = Pair(key, query, gold, negatives, subject, float(part["weights"][n]), float(part["at"][n]))
    return found


def notes_of(data: bytes) -> dict[str, str]:
    """A safetensors value's metadata."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return dict(header.get("__metadata__", {}))
