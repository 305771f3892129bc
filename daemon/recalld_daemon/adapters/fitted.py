"""What the nightly fit made, and how far it came: values, as one safetensors blob. No torch here.

A fit gives one of these after each epoch; the last one given is all that is needed to go on after a kill -9: the
weights as they are now, Adam's moments, the best epoch's adapters so far and the curve. Randomness is not kept: each
epoch draws from its own number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import safetensors
import safetensors.numpy

from recalld_daemon.adapters.state import Tensors, notes_of
from recalld_daemon.recall.adapter import Adapter, AdapterUnreadable

NAMES = ("query", "key", "value")  # f_Q, f_K, f_V, as a version's artefacts are called


class FittedUnreadable(Exception):
    """The bytes hold no fit, or only a part of one."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass: mean loss, MRR on the pairs that say when to stop, |W2| and |b2| of f_Q, pairs learned from."""

    loss: float
    mrr: float
    w2: float
    b2: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Going:
    """Where a fit stands. key: names its settings, parts and pairs; tensors: by name, Adam's moments and the adapters
    after the last epoch; steps: of Adam."""

    key: str
    tensors: Tensors
    steps: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """The best epoch's adapters (best: its number from 1; 0: as it began) and the curve of all.

    why_stopped: "" while it has not. start_mrr: before the first epoch. resumed: epochs that an earlier run had done.
    """

    query: Adapter
    key: Adapter | None = None
    value: Adapter | None = None
    curve: Sequence[Epoch] = ()
    best: int = 0
    why_stopped: str = ""
    start_mrr: float = math.nan
    resumed: int = 0
    going: Going | None = field(default=None, repr=False)

    @property
    def epochs(self) -> int:
        return len(self.curve)

    @property
    def best_mrr(self) -> float:
        return self.curve[self.best - 1].mrr if self.best else self.start_mrr

    @property
    def adapters(self) -> dict[str, Adapter]:
        """By name, those that were fitted."""
        found = {"query": self.query, "key": self.key, "value": self.value}
        return {name: adapter for name, adapter in found.items() if adapter is not None}

    def to_bytes(self) -> bytes:
        """As safetensors, with the rest as JSON in its header."""
        tensors = named("best", self.adapters)
        notes: dict[str, Any] = {
            "curve": [asdict(epoch) for epoch in self.curve], "best": self.best, "why_stopped": self.why_stopped,
            "start_mrr": self.start_mrr, "resumed": self.resumed,
        }  # fmt: skip
        if self.going is not None:
            tensors |= self.going.tensors
            notes["going"] = {"key": self.going.key, "steps": self.going.steps}
        whole = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        return safetensors.numpy.save(whole, {"fitted": json.dumps(notes)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises FittedUnreadable."""
        try:
            tensors = safetensors.numpy.load(data)
            notes = json.loads(notes_of(data)["fitted"])
            best = adapters_of("best", tensors)
            curve = tuple(Epoch(**epoch) for epoch in notes["curve"])
            going = None
            if "going" in notes:
                rest = {name: array for name, array in tensors.items() if not name.startswith("best.")}
                going = Going(notes["going"]["key"], rest, int(notes["going"]["steps"]))
            return cls(
                best["query"], best.get("key"), best.get("value"), curve, int(notes["best"]), notes["why_stopped"],
                float(notes["start_mrr"]), int(notes["resumed"]), going,
            )  # fmt: skip
        except (safetensors.SafetensorError, AdapterUnreadable, LookupError, TypeError, ValueError) as error:
            raise FittedUnreadable(f"no fit: {error}") from error


def named(stage: str, adapters: Mapping[str, Adapter]) -> Tensors:
    """Each part under "stage.name.part"."""
    return {
        f"{stage}.{name}.{part}": np.asarray(getattr(adapter, part), np.float32)
        for name, adapter in adapters.items()
        for part in ("w1", "b1", "w2", "b2", "alpha")
    }


def adapters_of(stage: str, tensors: Tensors) -> dict[str, Adapter]:
    """The reverse. Raises KeyError, AdapterUnreadable."""
    found = {}
    for name in NAMES:
        if f"{stage}.{name}.w1" in tensors:
            w1, b1, w2, b2, alpha = (tensors[f"{stage}.{name}.{part}"] for part in ("w1", "b1", "w2", "b2", "alpha"))
            found[name] = Adapter.from_bytes(Adapter(w1, b1, w2, b2, alpha.item()).to_bytes())  # which checks it
    return found
