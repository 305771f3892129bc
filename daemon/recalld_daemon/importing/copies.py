"""A copy of what is imported, kept beside the database: so that a download may be deleted, since quotes are checked
against the file, and what has no file is never shown.

One place per origin: a newer export that lies where the old one lay takes its copy's place. An archive is unpacked
there, as far as its members may be read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from recalld_daemon.followed_paths import Refused
from recalld_daemon.ingest.formats import kinds
from recalld_daemon.ingest.parse import DOCUMENTS

AT_ONCE = 1024 * 1024  # bytes
MOST_BYTES = 16 * 1024**3  # that an archive may unpack to
MOST_MEMBERS = 100_000

Copied = Callable[[int, int], None]  # bytes done, of how many


def place_of(directory: Path, path: str) -> Path:
    """Where the copy of this path is kept, below `directory`: a directory of its own."""
    return directory / hashlib.blake2b(path.encode(), digest_size=6).hexdigest()


def copy_file(directory: Path, path: str, copied: Copied) -> str:
    """Returns the copy's path. Raises OSError."""
    target = _made(place_of(directory, path)) / os.path.basename(path)
    with open(path, "rb") as source, _replacing(target) as copy:
        total = os.fstat(source.fileno()).st_size
        _pour(source, copy, lambda done: copied(done, total))
    shutil.copystat(path, target)
    target.chmod(0o600)
    return str(target)


def unpack(directory: Path, path: str, copied: Copied) -> str:
    """Returns the directory that the archive was unpacked to: only members that recalld may read, none outside it.

    Raises Refused, OSError.
    """
    place = place_of(directory, path) / Path(path).stem
    new = not place.exists()
    try:
        with zipfile.ZipFile(path) as archive:
            written = _unpacked(archive, _made(place), path, copied)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        _undo(place, new=new)
        raise Refused("failed", f"{path}: can't be unpacked: {error}") from error  # RuntimeError: a password
    except BaseException:
        _undo(place, new=new)
        raise
    for old in [file for file in place.rglob("*") if file.is_file() and file not in written]:
        old.unlink()  # of an older archive that lay there
    return str(place)


def drop(place: str) -> None:
    """An unpacked archive of which nothing is kept."""
    shutil.rmtree(Path(place).parent)


def _undo(place: Path, *, new: bool) -> None:
    """What an older archive left stays: it is followed."""
    if new:
        shutil.rmtree(place.parent, ignore_errors=True)


def _unpacked(archive: zipfile.ZipFile, place: Path, path: str, copied: Copied) -> set[Path]:
    members = [member for member in archive.infolist()[:MOST_MEMBERS] if _wanted(member.filename)]
    total = sum(member.file_size for member in members)
    if total > min(MOST_BYTES, shutil.disk_usage(place).free):
        raise Refused("failed", f"{path}: unpacked it takes {total / 1e9:.1f} GB: unpack it yourself")
    before, written = 0, set[Path]()
    for member in members:
        target = place.joinpath(*PurePosixPath(member.filename).parts)
        _made(target.parent)
        with archive.open(member) as source, _replacing(target) as copy:
            _pour(source, copy, partial(_count_on, copied, before, total))
        before += member.file_size
        written.add(target)
    return written


def _count_on(copied: Copied, before: int, total: int, done: int) -> None:
    copied(before + done, total)


def _wanted(name: str) -> bool:
    path = PurePosixPath(name)
    stays = not path.is_absolute() and ".." not in path.parts and not name.endswith("/") and "\\" not in name
    return stays and path.suffix.lower() in kinds.SUFFIXES | DOCUMENTS.keys()


def _pour(source: IO[bytes], to: IO[bytes], poured: Callable[[int], None]) -> None:
    done = 0
    while piece := source.read(AT_ONCE):
        to.write(piece)
        done += len(piece)
        poured(done)


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file that takes the target's place when it is whole and on disk; else nothing changes."""
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory
