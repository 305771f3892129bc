"""Files that were costly to make and can be made again: written whole or not at all, and checked before use.

Each file lies beside a `.sum` with its SHA-256. A file that is torn, was changed or has no sum counts as absent, and is
made again; so a `kill -9`, a full disk or a foreign hand costs seconds, never a wrong vector.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SUM = ".sum"


def make(path: Path, write: Callable[[Path], None]) -> Path:
    """Make the file by `write(temporary path)`, then put it and its sum in place. Raises what `write` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        _sync(temporary)
        path.with_name(path.name + SUM).unlink(missing_ok=True)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    note = path.with_name(path.name + SUM)
    temporary.write_text(digest(path), "ascii")
    _sync(temporary)
    os.replace(temporary, note)
    return path


def make_text(path: Path, text: str) -> Path:
    """`make` with this text, UTF-8."""
    return make(path, lambda temporary: _write_text(temporary, text))


def intact(path: Path) -> bool:
    """The file is there and is what was written."""
    try:
        return path.with_name(path.name + SUM).read_text("ascii", errors="replace") == digest(path)
    except OSError:
        return False


def drop(path: Path) -> None:
    """Remove the file and its sum."""
    path.with_name(path.name + SUM).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def digest(path: Path) -> str:
    """SHA-256 of the file, hex. 23 MB take some 20 ms."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file for the block; `waiting()` is called before each further try while another holds it.

    The lock ends with the process that holds it, however that ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
        yield


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
