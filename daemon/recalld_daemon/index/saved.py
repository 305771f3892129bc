"""The index on disk: a directory per saved state, the token files beside it, and a manifest that names what is valid.

A save writes a new directory, syncs it, and then replaces the manifest by rename: at any moment the manifest names a
complete state, or there is none. Whatever it does not name is left over from a process that was killed, and is swept.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import faiss
import msgspec
import numpy as np

from recalld_daemon.index.scope_index import ROW, ScopeIndex, lookup_of
from recalld_daemon.index.token_file import Place, TokenFile, names_of

if TYPE_CHECKING:
    from recalld_daemon.index.faiss_index import FaissIndex

FORMAT = 2  # 1: another kind of bytes
MANIFEST = "manifest.json"
PLACES = "places.npy"
_OURS = re.compile(r"state-\d+(\.tmp)?|(tokens|spans)-\d+\.bin|manifest\.json(\.tmp)?")

log = logging.getLogger(__name__)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the directory holds. checksums: file name within the state's directory -> blake2b-16, hex."""

    format: int
    fingerprint: str  # of the encoder
    snapshot: int
    dims: int
    token_dims: int
    number: int  # of the state
    token_number: int
    token_rows: int
    token_checksum: int
    scopes: list[int]
    checksums: dict[str, str]


def save(index: FaissIndex) -> None:
    """Write the index's state and swap it in. Its scopes must be merged. Raises OSError; the last state then stays."""
    number = index.saves + 1
    final = index.directory / f"state-{number}"
    temporary = final.with_suffix(".tmp")
    for leftover in (temporary, final):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir(mode=0o700)
    files = {PLACES: _places_bytes(index.token_file)}
    for id, scope in index.scopes.items():
        files[f"{id}.rows"] = scope.rows.tobytes()
        files[f"{id}.faiss"] = faiss.serialize_index(scope.base).tobytes()
    for name, data in files.items():
        write_synced(temporary / name, data)
    index.token_file.sync()
    sync_directory(temporary)
    temporary.rename(final)
    manifest = Manifest(
        format=FORMAT,
        fingerprint=index.encoder.fingerprint,
        snapshot=index.snapshot,
        dims=index.encoder.dims,
        token_dims=index.encoder.token_dims,
        number=number,
        token_number=index.token_file.number,
        token_rows=index.token_file.rows,
        token_checksum=index.token_file.checksum(),
        scopes=list(index.scopes),
        checksums={name: checksum(data) for name, data in files.items()},
    )
    write_synced(index.directory / f"{MANIFEST}.tmp", msgspec.json.encode(manifest))
    (index.directory / f"{MANIFEST}.tmp").rename(index.directory / MANIFEST)
    sync_directory(index.directory)
    index.saves = number
    sweep(index.directory, manifest)


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest, or None where there is none that can be read."""
    try:
        manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s: can't be read (%s): the index is built anew", directory / MANIFEST, error)
        return None
    return manifest if manifest.format == FORMAT else None


def load(index: FaissIndex, manifest: Manifest) -> str:
    """Fill a new index from its saved state; returns why that can't be done, or "". A torn state is not taken."""
    about = (manifest.fingerprint, manifest.snapshot, manifest.dims, manifest.token_dims)
    if about != (index.encoder.fingerprint, index.snapshot, index.encoder.dims, index.encoder.token_dims):
        return "it holds the vectors of another encoder or snapshot"
    state = index.directory / f"state-{manifest.number}"
    try:
        files = {name: (state / name).read_bytes() for name in manifest.checksums}
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    for name, data in files.items():
        if checksum(data) != manifest.checksums[name]:
            return f"{state / name} is torn"
    places = np.frombuffer(files[PLACES], "<i8").reshape(-1, 3).tolist()
    token_places = {id: Place(first, count) for id, first, count in places}
    if not index.token_file.restore(token_places, manifest.token_rows, manifest.token_checksum):
        return "the token files are torn"
    index.scopes = {scope: _scope_of(index, files, scope) for scope in manifest.scopes}
    index.scope_of = {id: scope for scope, held in index.scopes.items() for id in held.rows["id"].tolist()}
    index.saves = manifest.number
    return ""


def sweep(directory: Path, manifest: Manifest | None) -> None:
    """Delete what the manifest does not name: leftovers of a process that was killed. Other files are not touched."""
    kept = {MANIFEST, f"state-{manifest.number}", *names_of(manifest.token_number)} if manifest else set()
    for entry in directory.iterdir():
        if entry.name in kept or not _OURS.fullmatch(entry.name):
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _scope_of(index: FaissIndex, files: dict[str, bytes], scope: int) -> ScopeIndex:
    rows = np.frombuffer(files[f"{scope}.rows"], ROW)
    return ScopeIndex(
        dims=index.encoder.dims,
        base=faiss.deserialize_index(np.frombuffer(files[f"{scope}.faiss"], np.uint8)),
        rows=rows,
        alive=np.ones(len(rows), np.bool_),
        block=np.empty((0, index.encoder.dims), np.float32),
        base_ids=lookup_of(rows),
    )


def _places_bytes(tokens: TokenFile) -> bytes:
    table = [(id, place.first, place.length) for id, place in tokens.places.items()]
    return np.array(table, dtype="<i8").tobytes()


def checksum(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def write_synced(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
