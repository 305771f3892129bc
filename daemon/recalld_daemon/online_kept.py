"""What the online step keeps in the store: the adapter as it is used, and the state that it is learned on from.

Two rows, written together: the daemon reads the adapter without torch and uses it at once, the process that learns gets
the state. Both stand under a key of everything that shaped them; under another key neither is used. The state's key
ends in a checksum, since wrong weights and moments are numbers like any other; an adapter has its own. Beside it stand
the figures of its last step, as text in its safetensors header, so that status tells them after a restart.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import safetensors
import safetensors.numpy

from recalld_daemon.adapters.settings import OnlineSettings, key_of
from recalld_daemon.adapters.state import notes_of
from recalld_daemon.extract.rules import RULES
from recalld_daemon.lessons import RECIPE, Ground
from recalld_daemon.recall.adapter import Adapter, AdapterUnreadable, unit
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import StateRecord
from recalld_daemon.store.writer import Writer
from recalld_daemon.worker_wire import LearnStepped

SAME = 1 - 1e-3  # cosine beyond which two vectors are of one text, half precision allowed for
AT_ONCE = 1_024  # passages compared at a time
STATE, ADAPTER = "online", "online f_Q"  # names in learning_states

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """adapter: what to use, None where nothing was learned; state: for the next step; at: of the last lesson's verdict,
    epoch seconds; figures: of the last step."""

    adapter: Adapter | None = None
    state: bytes = b""
    at: float = 0.0
    figures: Mapping[str, float] | None = None


NOTHING = Kept()


def online_key(settings: OnlineSettings, ground: Ground, extraction: str = RULES.name) -> str:
    """Names every setting, and what else shapes what is learned: encoder, version, its f_Q, how lessons are made."""
    learned = ground.learned
    start = b"" if learned.query is None else learned.query.to_bytes()
    return key_of(
        settings, encoder=ground.fingerprint, dims=ground.dims, version=learned.version, vectors=learned.vectors,
        start=blake2b(start, digest_size=16).hexdigest(), lessons=RECIPE, extraction=extraction,
    )  # fmt: skip


def read_kept(reader: Reader, encoder: int, dims: int, key: str) -> Kept:
    """What was saved under this key; NOTHING where that is none, or can't be used. Raises StoreError."""
    state, adapter = reader.learning_state(STATE, encoder), reader.learning_state(ADAPTER, encoder)
    if state is None or adapter is None:
        return NOTHING
    own, _, checksum = state.key.partition(":")
    if {own, adapter.key} != {key}:
        log.info("what was learned online under other settings, or over another version, is not gone on from")
        return NOTHING
    if checksum != _checksum(state.data):
        log.error("what was learned online is left out: the state's bytes are not those that were written")
        return NOTHING
    try:
        return Kept(adapter_of(adapter.data, dims), state.data, state.at, figures_of(adapter.data))
    except AdapterUnreadable as error:
        log.error("what was learned online is left out: %s", error)
        return NOTHING


def keep(writer: Writer, encoder: int, key: str, stepped: LearnStepped, at: float) -> None:
    """Keep what a step made, in place of what the one before made."""
    with writer.transaction():
        writer.put_state(StateRecord(STATE, encoder, f"{key}:{_checksum(stepped.state)}", stepped.state, at))
        writer.put_state(StateRecord(ADAPTER, encoder, key, stepped.adapter, at))


def holds_any(reader: Reader, ground: Ground, passages: Sequence[int]) -> bool:
    """Whether one of the pairs that were kept to learn on from holds the vector of one of these. Raises StoreError."""
    state = reader.learning_state(STATE, ground.encoder)
    if state is None:
        return False
    try:
        tensors = safetensors.numpy.load(state.data)
    except safetensors.SafetensorError:
        return True  # nobody can tell
    held = [rows.reshape(-1, rows.shape[-1]) for name, rows in tensors.items() if name.endswith(".vectors")]
    rows = np.concatenate(held).astype(np.float32) if held else np.empty((0, ground.dims), np.float32)  # (n, d)
    for at in range(0, len(passages), AT_ONCE):
        _, vectors = reader.plain_vectors(passages[at : at + AT_ONCE], ground.encoder, ground.learned.vectors)
        if len(vectors) and len(rows) and float((rows @ unit(vectors).T).max()) > SAME:
            return True
    return False


def _checksum(data: bytes) -> str:
    """32 hex digits; 3 ms for a full buffer, in the writer's thread."""
    return blake2b(data, digest_size=16).hexdigest()


def forget(writer: Writer, encoder: int) -> None:
    """Nothing of it is gone on from."""
    with writer.transaction():
        for name in (STATE, ADAPTER):
            writer.drop_state(name, encoder)


def adapter_of(data: bytes, dims: int) -> Adapter:
    """Raises AdapterUnreadable: no adapter, another width, or numbers that are not finite."""
    adapter = Adapter.from_bytes(data)
    if adapter.dims != dims:
        raise AdapterUnreadable(f"it is {adapter.dims} wide, the encoder {dims}")
    return adapter


def figures_of(data: bytes) -> dict[str, float]:
    """The figures in a safetensors header; empty where there are none."""
    try:
        return {name: float(text) for name, text in notes_of(data).items()}
    except ValueError:
        return {}


def lessons_of(state: bytes) -> list[str]:
    """The keys of the lessons that a state has learned or holds out, as far back as it knows."""
    try:
        notes = notes_of(state)
        return [str(key) for name in ("buffer", "held", "since") for key in json.loads(notes.get(name, "[]"))]
    except ValueError:
        return []
