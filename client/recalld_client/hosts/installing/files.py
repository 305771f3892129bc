"""A whole file read, and a whole file put in its place at one moment.

Who reads it meanwhile sees the old one or the new one. A symlink stays one: what it points to is written. Owner and
mode are kept, and nothing is written over a change that somebody else made since we read. Every fault names the file,
the cause and the remedy.
"""

from __future__ import annotations

import glob
import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

BESIDE = ".recalld"  # how the names of files end that are to take another one's place
SIZE_LIMIT = 16 * 1024 * 1024  # bytes; settings have some thousands


class FileFault(Exception):
    """What stands in the way, with the file's name and the remedy."""


class Changed(FileFault):
    """Somebody else wrote the file since it was read."""


@dataclass(frozen=True, slots=True)
class Found:
    """What lies at a path. `path`: with symlinks resolved. `data`: None where there is no file. `mode`: of the file."""

    path: Path
    data: bytes | None = None
    mode: int | None = None
    uid: int = -1
    gid: int = -1


def look(path: Path) -> Found:
    """Raises FileFault."""
    target = Path(os.path.realpath(path))
    try:
        with open(os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # a pipe must not block
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise FileFault(f"{target} is no regular file: move it away")
            if about.st_size > SIZE_LIMIT:
                raise FileFault(f"{target} has {about.st_size:,} bytes, which no settings have: move it away")
            return Found(target, file.read(), stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid)
    except FileNotFoundError:
        return Found(target)
    except OSError as error:
        raise FileFault(f"{target} can't be read: {error.strerror}: mend that, or run this as its owner") from error


def replace(found: Found, data: bytes, mode: int | None = None) -> tuple[Path, ...]:
    """Put `data` where `found` was; the directories that had to be made, outermost first.

    mode: None keeps the file's, or for a new one takes what the umask gives. Raises FileFault; Changed if the file is
    not as it was found.
    """
    made = make_directories(found.path.parent)
    sweep(found.path)
    try:
        beside = _written_beside(found, data, mode)
        try:
            unchanged(found)
            os.replace(beside, found.path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
        _sync(found.path.parent)
    except OSError as error:
        remove_directories(made)
        raise FileFault(_unwritable(found.path, error)) from error
    except FileFault:
        remove_directories(made)
        raise
    return made


def remove(found: Found) -> None:
    """Raises FileFault; Changed if the file is not as it was found."""
    unchanged(found)
    sweep(found.path)
    try:
        found.path.unlink()
        _sync(found.path.parent)
    except OSError as error:
        raise FileFault(_unwritable(found.path, error)) from error


def set_mode(found: Found, mode: int) -> None:
    """Raises FileFault."""
    try:
        found.path.chmod(mode)
    except OSError as error:
        raise FileFault(_unwritable(found.path, error)) from error


def unchanged(found: Found) -> None:
    """Raises Changed."""
    if look(found.path).data != found.data:
        raise Changed(f"{found.path} was changed by somebody else meanwhile: run this again")


def make_directories(directory: Path) -> tuple[Path, ...]:
    """Make it and its parents; those that were missing, outermost first. Raises FileFault."""
    missing = [part for part in (directory, *directory.parents) if not part.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileFault(f"{directory} can't be made: {error.strerror}: make it by hand, or set HOME") from error
    return tuple(reversed(missing))


def remove_directories(made: Sequence[Path]) -> None:
    """Those of them that are empty, innermost first."""
    for directory in reversed(made):
        try:
            directory.rmdir()
        except OSError:  # somebody has put something into it, or removed it
            return


def sweep(path: Path) -> None:
    """What one of us that was killed left beside it, maybe with the token in it; only one of us writes at a time."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{BESIDE}"):
        with suppress(OSError):
            left.unlink()


def owner_of(path: Path) -> tuple[Path, int]:
    """The nearest place on the way to `path` that exists, and whose it is (uid)."""
    place = Path(os.path.abspath(path))
    while not place.exists() and place != place.parent:
        place = place.parent
    return place, place.stat().st_uid


def _written_beside(found: Found, data: bytes, mode: int | None) -> Path:
    """A new file in the same directory, on disk as a whole."""
    handle, name = tempfile.mkstemp(prefix=f".{found.path.name}.", suffix=BESIDE, dir=found.path.parent)
    beside = Path(name)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), found.mode if mode is None and found.mode is not None else mode or _usual_mode())
            _keep_owner(found, file.fileno())
            os.fsync(file.fileno())
    except BaseException:
        beside.unlink()
        raise
    return beside


def _keep_owner(found: Found, handle: int) -> None:
    if found.data is None:
        return
    made = os.fstat(handle)
    if made.st_uid != found.uid:
        os.fchown(handle, found.uid, found.gid)  # root alone may; whoever may not leaves the file alone
    elif made.st_gid != found.gid:
        with suppress(PermissionError):  # a group that is not ours: the owner counts
            os.fchown(handle, -1, found.gid)


def _usual_mode() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _sync(directory: Path) -> None:
    """So that the new name is on disk too; a filesystem that can't say so is no fault."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _unwritable(path: Path, error: OSError) -> str:
    return (
        f"{path} can't be written: {error.strerror}: run this as its owner; where another program makes that file, "
        "let it hold the lines that --dry-run shows"
    )
