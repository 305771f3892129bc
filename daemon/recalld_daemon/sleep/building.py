"""Fifth and sixth phase: the new snapshot's index is built beside the one that is searched, and both are checked.

Checked are the stored vectors against f_K of the frozen ones, for a sample; the index against the store, by checksum;
what it finds against an exact search, for a sample of queries; and the version against what a daemon would refuse.
Only then is it declared finished, and could go live.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from recalld_daemon.index import finds_nearest, holds_all, open_index
from recalld_daemon.learned import read_learned
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.sleep.night import Failed, Night
from recalld_daemon.sleep.ports import Tell
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN
from recalld_daemon.versions import NoSuchVersion, VersionRefused, index_directory, searchable

TRIES = 3  # a daemon may take passages away between two looks at the store
SAMPLE = 512  # stored vectors that are compared
WIDEST = 5e-3  # distance of a stored vector from f_K of the frozen one: see `adapters.project`


def index(night: Night) -> None:
    """Nothing where the version searches vectors that are there. Raises Interrupted, OSError, StoreError."""
    if not brings_vectors(night):
        return
    assert night.version is not None
    build_index(night.home.index, night.reader, night.encoder, night.version, night.tell)


def build_index(root: Path, reader: Reader, encoder: int, version: int, tell: Tell) -> None:
    """Built from the store, or made to agree with it, and saved. Raises Interrupted, OSError, StoreError."""

    def progress(done: int, total: int) -> None:
        tell("building the index", done, total)

    built = open_index(index_directory(root, encoder, version), reader, encoder, version, progress)
    try:
        tell("saving the index", 0, 0)
        built.save()
    finally:
        built.close()


def verify(night: Night) -> None:
    """Declares the version finished. Raises Failed, Interrupted, OSError, StoreError."""
    assert night.version is not None
    problem = _unreadable(night) or (_wrong(night) if brings_vectors(night) else "")
    if problem:
        raise Failed(f"version {night.version} was not taken: {problem}")
    night.writer.finish_version(
        night.encoder, night.version, metrics=json.dumps(night.report["metrics"]), drift=night.report["drift"]
    )
    try:
        searchable(night.reader, night.encoder, night.version)
    except (VersionRefused, NoSuchVersion) as error:
        raise Failed(str(error)) from error


def brings_vectors(night: Night) -> bool:
    return bool(night.report["reprojected"]["needed"])


def _unreadable(night: Night) -> str:
    """What of it a daemon could not use; "" where all is well."""
    assert night.version is not None
    learned, parts = read_learned(night.reader, night.encoder, night.version), str(night.report["chosen"])
    there = {"f_Q": learned.query, "f_V": learned.value, "ranker": learned.ranker, "usefulness": learned.usefulness}
    wrong = [name for name, part in there.items() if (name in parts) != (part is not None)]
    return f"{', '.join(wrong)} of it can't be read" if wrong else ""


def _wrong(night: Night) -> str:
    assert night.version is not None
    key = read_learned(night.reader, night.encoder, night.version).key
    if key is None:
        return "it has vectors of its own and no f_K"
    if apart := far_from(night.reader, night.encoder, night.version, key):
        return apart
    problem = ""
    for _ in range(TRIES):
        night.tell("verifying the index", 0, 0)
        directory = index_directory(night.home.index, night.encoder, night.version)
        built = open_index(directory, night.reader, night.encoder, night.version)
        try:
            problem = holds_all(built, night.reader) or finds_nearest(built, night.reader)
        finally:
            built.close()
        if not problem:
            return ""
    return problem


def far_from(reader: Reader, encoder: int, version: int, key: Adapter, seed: int = 0) -> str:
    """How a sample of a snapshot differs from f_K of the frozen vectors; "" if it does not. Raises StoreError."""
    ids = reader.encoded(encoder, version).ids
    chosen = np.random.default_rng(seed).choice(ids, min(SAMPLE, len(ids)), replace=False) if len(ids) else ids
    found = [reader.plain_vectors(chosen.tolist(), encoder, snapshot) for snapshot in (FROZEN, version)]
    frozen, stored = (vectors[np.argsort(own, kind="stable")] for own, vectors in found)
    if frozen.shape != stored.shape:
        return ""  # the daemon took some away in between: the index is compared with the store next
    if not len(frozen):
        return ""
    worst = float(np.linalg.norm(key.apply(frozen) - stored, axis=1).max())
    return "" if worst <= WIDEST else f"a stored vector lies {worst:.4f} from what f_K makes of it"
