"""Versions of what was learned: which one is searched, which may be, and where its index lies.

A version is searched only as a whole. One that was not finished, whose key is absent, or whose adapters can't be read
is not searched at all: asked for, it is refused with the reason; found live at start, the last good one stands in for
it, in the end plain search, which is version 0 and always there.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recalld_daemon.learned import PLAIN, Learned, read_learned
from recalld_daemon.recall.adapter import Adapter, AdapterUnreadable
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN, Artefact, VersionRecord
from recalld_daemon.store.writer import Writer
from recalld_protocol.messages import VersionRow, Versions

ROWS = 100  # versions that an answer lists at most, the newest
METRICS = 64  # figures of one version
_INDEX = re.compile(r"encoder-(\d+)(?:-v(\d+))?")

log = logging.getLogger(__name__)


class NoSuchVersion(Exception):
    """There is no version of that number."""


class VersionRefused(Exception):
    """It is there and can't be searched; the text says why."""


class NotLoaded(VersionRefused):
    """The daemon has only just started; asking again helps."""


def searchable(reader: Reader, encoder: int, version: int) -> Learned:
    """A version with all that it consists of. Raises NoSuchVersion, VersionRefused, StoreError."""
    if version == FROZEN:
        return PLAIN
    record = reader.version(encoder, version)
    if record is None:
        raise NoSuchVersion(f"there is no version {version}: `recallctl versions` lists those there are")
    if record.state != "ready":
        raise VersionRefused(f"version {version} is not finished, or is about to be dropped")
    learned = read_learned(reader, encoder, version)
    parts: dict[Artefact, Adapter | None] = {
        "query": learned.query, "key": learned.key, "value": learned.value
    }  # fmt: skip
    for name, adapter in parts.items():
        home = record.vectors if name == "key" else version
        if adapter is None and reader.artefact(encoder, home, name) is not None:
            raise VersionRefused(f"version {version}: its {name} adapter can't be read")
    if (record.vectors == FROZEN) != (learned.key is None):
        what = "has a key, and" if learned.key else "has no key, but"
        raise VersionRefused(f"version {version} {what} searches the vectors of version {record.vectors}")
    return learned


def searched_at_start(reader: Reader, encoder: int) -> Learned:
    """The live version of an encoder, or the last good one before it, or PLAIN. Raises StoreError."""
    live = reader.live_version(encoder)
    numbers = [record.version for record in reader.versions(encoder) if FROZEN < record.version <= live]
    for version in sorted(numbers, reverse=True):
        try:
            return searchable(reader, encoder, version)
        except VersionRefused as error:
            log.error("%s: an older version stands in for it", error)
    return PLAIN


def set_live_unattended(writer: Writer, reader: Reader, encoder: int, version: int) -> Learned:
    """Set a version live where no daemon runs, under its lock: the next one to start searches it.

    Raises NoSuchVersion, VersionRefused, StoreError.
    """
    learned = searchable(reader, encoder, version)
    missing = 0 if learned.vectors == FROZEN else reader.count_unprojected(encoder, learned.vectors)
    if missing:
        log.info(
            "version %d: %d texts have no vectors in it yet; the daemon makes them when it starts", version, missing
        )
    writer.set_live(encoder, version)
    return learned


def index_directory(root: Path, encoder: int, vectors: int) -> Path:
    """Where the index of a snapshot lies below the index directory."""
    return root / (f"encoder-{encoder}" if vectors == FROZEN else f"encoder-{encoder}-v{vectors}")


def index_directories(root: Path, reader: Reader) -> list[Path]:
    """Those of finished snapshots, and of such as are not known any more. Raises StoreError."""
    found = [(entry, match) for entry in _entries(root) if (match := _INDEX.fullmatch(entry.name))]
    return [
        entry
        for entry, match in found
        if (version := reader.version(int(match[1]), int(match[2] or FROZEN))) is None or version.state == "ready"
    ]


def sweep_indexes(root: Path, reader: Reader) -> list[str]:
    """Delete the indexes of snapshots that the store does not have any more; returns their names.

    Other files are not touched. What is looked at first is the directory: a snapshot that is made meanwhile has its
    row before it has an index. Raises StoreError.
    """
    found = [(entry, match) for entry in _entries(root) if (match := _INDEX.fullmatch(entry.name))]
    known = reader.version_numbers() if found else set()
    gone = [entry for entry, match in found if (int(match[1]), int(match[2] or FROZEN)) not in known]
    for entry in gone:
        shutil.rmtree(entry, ignore_errors=True)
    return sorted(entry.name for entry in gone)


def _entries(root: Path) -> Iterator[Path]:
    try:
        yield from [entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink()]
    except FileNotFoundError:
        return


# ---------------------------------------------------------------- for `recallctl versions`


def versions_of(reader: Reader, encoder: int, live: int) -> Versions:
    """All finished versions of an encoder. live: the one that is searched. Raises StoreError."""
    records = [record for record in reader.versions(encoder) if record.state == "ready"]
    return Versions(versions=[_row(reader, record, live) for record in records[-ROWS:]])


def _row(reader: Reader, record: VersionRecord, live: int) -> VersionRow:
    w2, b2 = _norms(reader, record)
    plain = record.version == FROZEN
    return VersionRow(
        version=record.version, live=record.version == live, created_at=record.created_at,
        why=(record.why or ("plain search" if plain else ""))[:512], vectors=record.vectors,
        drift=round(record.drift, 6), metrics=dict(flat(record.metrics)), w2=round(w2, 6), b2=round(b2, 6),
        bytes=record.size,
    )  # fmt: skip


def _norms(reader: Reader, record: VersionRecord) -> tuple[float, float]:
    """|W2| and |b2| of f_Q; nought where nothing is learned of it."""
    found = reader.artefact(record.encoder, record.version, "query")
    try:
        return Adapter.from_bytes(found[1]).norms if found else (0.0, 0.0)
    except AdapterUnreadable:
        return (0.0, 0.0)


def flat(metrics: str) -> Iterator[tuple[str, str | int | float | bool | None]]:
    """The figures of a JSON object, those of objects in it as "outer.inner"; METRICS at most.

    >>> list(flat('{"mrr": 0.5, "gain": {"low": 0.01, "of": [1, 2]}}'))
    [('mrr', 0.5), ('gain.low', 0.01)]
    >>> list(flat('no JSON'))
    []
    """
    try:
        found: Any = json.loads(metrics)
    except json.JSONDecodeError:
        return
    pairs = list(_pairs("", found)) if isinstance(found, dict) else []
    yield from pairs[:METRICS]


def _pairs(prefix: str, found: dict[str, Any]) -> Iterator[tuple[str, str | int | float | bool | None]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _pairs(f"{prefix}{name}.", value)
        elif isinstance(value, str):
            yield f"{prefix}{name}", value[:256]
        elif value is None or isinstance(value, bool | int | float):
            yield f"{prefix}{name}", value
