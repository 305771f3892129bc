"""A learner's pairs, each once. When it is full, the oldest pair goes of the gold that has the most.

So one memory, however many questions it is said to answer, never takes the place of all others: a thousand wrong
lessons with one gold would else become the whole of what is replayed, and of what is judged by.

They are rounded to half precision, as they are saved, so that a learner that was resumed computes with the very numbers
it would have had without. What is computed with lies beside, in full and of unit length. No torch here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.adapters.state import Tensors
from recalld_daemon.recall.adapter import unit
from recalld_daemon.recall.types import Float32

QUERY, GOLD, SUBJECT, NEGATIVES = range(4)  # places of a pair's vectors; negatives from there on


class Shelf:
    """At most `most` pairs of at most `negatives` negatives each; a pair with more loses its last."""

    def __init__(self, dims: int, most: int, negatives: int) -> None:
        self._vectors: NDArray[np.float16] = np.zeros((most, NEGATIVES + negatives, dims), np.float16)
        self._rows: Float32 = np.zeros(self._vectors.shape, np.float32)  # the same, of unit length
        self._counts = np.zeros(most, np.int64)  # of negatives
        self._has_subject = np.zeros(most, np.uint8)
        self._figures = np.zeros((most, 2), np.float64)  # weight, at
        self._slots: dict[str, int] = {}  # by key, the oldest first
        self._golds: dict[str, bytes] = {}  # by key, which gold

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: str) -> bool:
        return key in self._slots

    @property
    def keys(self) -> list[str]:
        return list(self._slots)

    def put(self, pair: Pair) -> None:
        """As the newest, in the place of one with the same key."""
        slot = self._slots.pop(pair.key, len(self._slots))
        if slot == len(self._vectors):
            slot = self._slots.pop(self._superfluous())
        self._slots[pair.key] = slot
        negatives = pair.negatives[: self._vectors.shape[1] - NEGATIVES]
        self._vectors[slot] = 0
        self._vectors[slot, QUERY], self._vectors[slot, GOLD] = pair.query, pair.gold
        self._has_subject[slot] = pair.subject is not None
        if pair.subject is not None:
            self._vectors[slot, SUBJECT] = pair.subject
        self._counts[slot] = len(negatives)
        self._vectors[slot, NEGATIVES : NEGATIVES + len(negatives)] = negatives
        self._rows[slot] = unit(self._vectors[slot].astype(np.float32))
        self._golds[pair.key] = self._vectors[slot, GOLD].tobytes()
        self._figures[slot] = pair.weight, pair.at

    def _superfluous(self) -> str:
        """The oldest pair of the gold that has the most; no longer known then."""
        counts = Counter(self._golds[key] for key in self._slots)
        most = max(counts.values())
        key = next(key for key in self._slots if counts[self._golds[key]] == most)
        del self._golds[key]
        return key

    def pair(self, key: str) -> Pair:
        slot = self._slots[key]
        rows = self._rows[slot]
        weight, at = self._figures[slot].tolist()
        negatives = rows[NEGATIVES : NEGATIVES + int(self._counts[slot])]
        subject = rows[SUBJECT] if self._has_subject[slot] else None
        return Pair(key, rows[QUERY], rows[GOLD], negatives, subject, weight, at)

    def vectors(self, place: int, last: int | None = None) -> Float32:
        """(n, d) of all pairs, or of the last so many: QUERY or GOLD."""
        slots = self._order[-last:] if last else self._order
        rows: Float32 = self._rows[slots, place]
        return rows

    @property
    def _order(self) -> NDArray[np.int64]:
        return np.fromiter(self._slots.values(), np.int64, len(self._slots))

    # ------------------------------------------------------------ kept

    def tensors(self, name: str) -> Tensors:
        order = self._order
        return {
            f"{name}.vectors": self._vectors[order], f"{name}.counts": self._counts[order],
            f"{name}.has_subject": self._has_subject[order], f"{name}.figures": self._figures[order],
        }  # fmt: skip

    def filled(self, name: str, tensors: Tensors, keys: Sequence[str]) -> Self:
        """Itself, holding what was saved. Raises KeyError, ValueError: that is another shelf's."""
        n = len(keys)
        for array, end in (
            (self._vectors, "vectors"), (self._counts, "counts"), (self._has_subject, "has_subject"),
            (self._figures, "figures"),
        ):  # fmt: skip
            saved = tensors[f"{name}.{end}"]
            if saved.shape != (n, *array.shape[1:]) or n > len(array) or not np.isfinite(saved).all():
                raise ValueError(f"{name}.{end}: {saved.shape} for {n} pairs, or numbers that are not finite")
            array[:n] = saved
        self._rows[:n] = unit(self._vectors[:n].astype(np.float32))
        self._slots = {key: slot for slot, key in enumerate(keys)}
        self._golds = {key: self._vectors[slot, GOLD].tobytes() for slot, key in enumerate(keys)}
        return self
