"""What is learned, as the running daemon uses it: one version's artefacts, read once and checked.

A version is whole in the store or not at all; still, an artefact that can't be used here (another width, other
ranker features) costs itself only: it is logged and left out, and plain search, or the shipped ranker, stands in.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from recalld_daemon.ranking.features import FEATURES
from recalld_daemon.ranking.forest import Forest, ForestError, read_forest
from recalld_daemon.recall.adapter import Adapter, AdapterUnreadable
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN, Artefact

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Learned:
    """One version. vectors: the snapshot it searches. None: nothing learned of that kind."""

    version: int = FROZEN
    vectors: int = FROZEN
    query: Adapter | None = None  # f_Q
    key: Adapter | None = None  # f_K, which made the snapshot's vectors
    value: Adapter | None = None  # f_V, over the snapshot's vectors
    usefulness: bytes | None = None  # its weights; read by recall.usefulness
    ranker: Forest | None = None


PLAIN = Learned()


def read_learned(reader: Reader, encoder: int, version: int) -> Learned:
    """A version as it stands in the store; PLAIN for one that is not there. Raises StoreError."""
    record = reader.version(encoder, version)
    if record is None or version == FROZEN:
        return PLAIN
    dims = record_dims(reader, encoder)
    return Learned(
        version, record.vectors, _adapter(reader, encoder, version, "query", dims),
        _adapter(reader, encoder, record.vectors, "key", dims), _adapter(reader, encoder, version, "value", dims),
        _bytes(reader, encoder, version, "usefulness"), _ranker(reader, encoder, version),
    )  # fmt: skip


def record_dims(reader: Reader, encoder: int) -> int:
    record = reader.encoder(encoder)
    return 0 if record is None else record.dims


def _bytes(reader: Reader, encoder: int, version: int, name: Artefact) -> bytes | None:
    found = reader.artefact(encoder, version, name)
    return None if found is None else found[1]


def _adapter(reader: Reader, encoder: int, version: int, name: Artefact, dims: int) -> Adapter | None:
    data = _bytes(reader, encoder, version, name)
    if data is None:
        return None
    try:
        adapter = Adapter.from_bytes(data)
        if adapter.dims != dims:
            raise AdapterUnreadable(f"it is {adapter.dims} wide, the encoder {dims}")
    except AdapterUnreadable as error:
        log.error("version %d: the %s adapter is left out: %s", version, name, error)
        return None
    return adapter


def _ranker(reader: Reader, encoder: int, version: int) -> Forest | None:
    data = _bytes(reader, encoder, version, "ranker")
    if data is None:
        return None
    try:
        return read_forest(data.decode(), FEATURES)
    except (ForestError, UnicodeDecodeError) as error:
        log.error("version %d: its ranker is left out, the shipped one stands: %s", version, error)
        return None
