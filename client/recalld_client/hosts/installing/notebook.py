"""How each of our entries is undone: noted when it is installed, in `state_dir`, 0600.

One note per settings file: a digest of what we left there, the spans that are ours, the mode the file had, and what we
made. It holds nothing of the user's. Without a note (a new machine, a state directory that was cleared) our entries are
still found by their structure; then only what cannot be told is not undone: a mode, an empty file, a directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from recalld_protocol.endpoints import state_dir

from .files import FileFault, Found, look, make_directories, remove, remove_directories, replace
from .settings import Steps

FILE = "installed.json"


class Note(Struct, frozen=True, omit_defaults=True):
    """`digest`: of the file as we left it. `mode`: it had, where we narrowed it. `created`: the file is of our making,
    as are `directories`, outermost first."""

    host: str
    digest: str = ""
    steps: Steps = ()
    made: tuple[str, ...] = ()
    mode: int | None = None
    created: bool = False
    directories: tuple[str, ...] = ()


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def alone(env: Mapping[str, str], *, make: bool) -> Iterator[None]:
    """One of us at a time, by a lock on the state directory, which ends with the process. Raises FileFault.

    make: where the directory is not there yet; without it there is nothing to keep from anybody.
    """
    directory = state_dir(env)
    if make:
        for made in make_directories(directory):
            made.chmod(0o700)
    if not directory.is_dir():
        yield
        return
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FileFault(f"{directory} can't be opened: {error.strerror}: `chmod 700` it, as its owner") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class Notebook:
    """The notes of this user, by the settings file's path."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """Raises EndpointError."""
        self._path = state_dir(env) / FILE

    def of(self, path: Path) -> Note | None:
        """Raises FileFault."""
        return self._read().get(str(path))

    def hosts(self) -> set[str]:
        """Of which any note is left. Raises FileFault."""
        return {note.host for note in self._read().values()}

    def write(self, path: Path, note: Note | None) -> None:
        """None: there is nothing to undo any more. Raises FileFault."""
        found = look(self._path)
        notes = self._decoded(found)
        if notes.get(str(path)) == note:
            return
        notes = {known: kept for known, kept in notes.items() if known != str(path)}
        if note is not None:
            notes[str(path)] = note
        if notes:
            replace(found, msgspec.json.format(msgspec.json.encode(notes)) + b"\n", 0o600)
        elif found.data is not None:
            remove(found)
            remove_directories([self._path.parent])

    def _read(self) -> dict[str, Note]:
        return self._decoded(look(self._path))

    def _decoded(self, found: Found) -> dict[str, Note]:
        if found.data is None:
            return {}
        try:
            return msgspec.json.decode(found.data, type=dict[str, Note])
        except msgspec.DecodeError as error:
            raise FileFault(
                f"{self._path} is not what recalld wrote there ({error}): move it away; entries of ours are still found"
            ) from error
