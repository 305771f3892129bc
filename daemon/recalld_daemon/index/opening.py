"""Opening the index: take what was saved, then make it agree with the store, row by row.

The store is the truth, so no saved state is believed because a counter fits: ids, dates and content marks are compared
with it (a tenth of a second at 100,000 passages). What is absent, torn, or of another encoder or snapshot is built anew
from the store's vectors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.index.faiss_index import FaissIndex
from recalld_daemon.index.interface import VectorIndex
from recalld_daemon.index.saved import load, read_manifest, sweep
from recalld_daemon.index.scope_index import ROW
from recalld_daemon.store import Encoded, EncoderRecord, NoSuchRow, Reader

BATCH = 1_000  # passages read from the store at a time: about 7 MB

HELD = np.dtype([*ROW.descr, ("scope", "<i8")])

Progress = Callable[[int, int], None]  # passages learnt so far, passages to learn

log = logging.getLogger(__name__)


def open_index(
    directory: Path, reader: Reader, encoder: int, snapshot: int = 0, progress: Progress | None = None
) -> FaissIndex:
    """The index of one snapshot, equal to what the store holds of it. `directory` is made (0700) and is ours alone.

    Raises NoSuchRow for an encoder the store does not know, OSError when the directory can't be used.
    """
    record = reader.encoder(encoder)
    if record is None:
        raise NoSuchRow(f"the store knows no encoder {encoder}: name it with encoder_id first")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    index = _load_or_new(directory, record, snapshot)
    try:
        agree(index, reader, progress or (lambda done, total: None))
    except BaseException:
        index.close()
        raise
    return index


def agree(index: FaissIndex, reader: Reader, progress: Progress) -> None:
    """Forget what the store no longer has, and learn what is missing or has changed. Saves when much was learnt."""
    held, wanted = held_rows(index), reader.encoded(index.encoder.id, index.snapshot)
    index.remove(np.setdiff1d(held["id"], wanted.ids).tolist())
    missing = _unlike(held, wanted)
    for at in range(0, len(missing), BATCH):
        progress(at, len(missing))
        index.add(reader.vectors_for(missing[at : at + BATCH], index.encoder.id, index.snapshot))
    progress(len(missing), len(missing))
    if len(missing) > BATCH:
        index.save()


def learn(index: VectorIndex, reader: Reader, ids: Sequence[int], encoder: int, snapshot: int = 0) -> None:
    """Pass on to an index what the store has of these passages; those without vectors yet are left for later."""
    for at in range(0, len(ids), BATCH):
        index.add(reader.vectors_for(ids[at : at + BATCH], encoder, snapshot))


def _load_or_new(directory: Path, encoder: EncoderRecord, snapshot: int) -> FaissIndex:
    manifest = read_manifest(directory)
    sweep(directory, manifest)
    index = FaissIndex(directory, encoder, snapshot, manifest.token_number if manifest else 0)
    if manifest is None:
        return index
    reason = load(index, manifest)
    if reason:
        log.warning("%s: the index is built anew: %s", directory, reason)
        index.token_file.unlink()
        index = FaissIndex(directory, encoder, snapshot, manifest.token_number + 1)
    return index


def held_rows(index: FaissIndex) -> NDArray[np.void]:
    """(n,) HELD: what the index has, by rising id."""
    parts = []
    for scope, held in index.scopes.items():
        rows = held.live_rows()
        part = np.empty(len(rows), HELD)
        part["scope"] = scope
        for name in ROW.names or ():
            part[name] = rows[name]
        parts.append(part)
    return np.sort(np.concatenate(parts or [np.empty(0, HELD)]), order="id")


def _unlike(held: NDArray[np.void], wanted: Encoded) -> list[int]:
    """The ids of what is wanted and not held exactly so."""
    at = np.searchsorted(held["id"], wanted.ids)
    at[at == len(held)] = 0
    if not len(held):
        return [int(id) for id in wanted.ids]
    same = held[at]
    alike = (
        (same["id"] == wanted.ids)
        & (same["scope"] == wanted.scopes)
        & (same["written_at"] == wanted.written_at)
        & (same["mark"] == wanted.marks)
    )
    return [int(id) for id in wanted.ids[~alike]]
