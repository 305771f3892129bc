"""What a night has made so far, kept in the store until it ends: the split, the fits, the rankers, each one's figures.

Kept under the night's key: what another night, of other settings, left behind is not found. No file is written, so
none can be orphaned. What is kept names questions by their keys alone, never by their texts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from recalld_daemon.evaluation.judge import Result
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.sleep.ports import Fit
from recalld_daemon.sleep.recipes import CHAMPION, FITS, RECIPES
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import StateRecord
from recalld_daemon.store.writer import Writer

SPLIT = "split"
_PARTS = ("query", "key", "value")


class Kept:
    """One night's. Raises StoreError."""

    def __init__(self, writer: Writer, reader: Reader, encoder: int, key: str) -> None:
        self._writer, self._reader, self._encoder, self._key = writer, reader, encoder, key

    def get(self, name: str) -> bytes | None:
        found = self._reader.learning_state(f"sleep {name}", self._encoder)
        return found.data if found is not None and found.key == self._key else None

    def put(self, name: str, data: bytes) -> None:
        self._writer.put_state(StateRecord(f"sleep {name}", self._encoder, self._key, data, time.time()))

    def get_json(self, name: str) -> Any:
        data = self.get(name)
        return None if data is None else json.loads(data)

    def put_json(self, name: str, value: Any) -> None:
        self.put(name, json.dumps(value).encode())

    def drop_all(self) -> None:
        """Whatever night it was of."""
        for name in names():
            if self._reader.learning_state(f"sleep {name}", self._encoder) is not None:
                self._writer.drop_state(f"sleep {name}", self._encoder)


def names() -> Iterator[str]:
    """Of everything that is ever kept."""
    yield SPLIT
    for parts in FITS:
        yield from (fit_name(parts), checkpoint_name(parts))
    yield result_name(CHAMPION)
    for recipe in RECIPES:
        yield from (ranker_name(recipe.below.name), usefulness_name(recipe.name))
        yield result_name(recipe.name)


def fit_name(parts: str) -> str:
    return f"fit {parts}"


def checkpoint_name(parts: str) -> str:
    return f"fit {parts} so far"


def ranker_name(recipe: str) -> str:
    return f"ranker of {recipe}"


def usefulness_name(recipe: str) -> str:
    return f"usefulness of {recipe}"


def result_name(candidate: str) -> str:
    return f"figures of {candidate}"


# ---------------------------------------------------------------- as bytes


def fit_to_bytes(fit: Fit) -> bytes:
    """Its adapters, each as safetensors, and what is said about it: some 400 KB each."""
    adapters = {name: getattr(fit, name) for name in _PARTS}
    packed = {name: None if each is None else each.to_bytes() for name, each in adapters.items()}
    return msgspec.msgpack.encode({**packed, "about": fit.about})


def fit_from_bytes(data: bytes) -> Fit:
    """Raises AdapterUnreadable."""
    found = msgspec.msgpack.decode(data)
    query, key, value = (None if found[name] is None else Adapter.from_bytes(found[name]) for name in _PARTS)
    assert query is not None
    return Fit(query, key, value, found["about"])


def result_to_json(result: Result) -> Any:
    sides = {"recall": result.recall, "dense": result.dense}
    return {"name": result.name} | {
        side: {metric: values.tolist() for metric, values in figures.items()} for side, figures in sides.items()
    }


def result_from_json(found: Any) -> Result:
    recall, dense = (
        {metric: np.array(values, np.float64) for metric, values in found[side].items()} for side in ("recall", "dense")
    )
    return Result(found["name"], recall, dense)
