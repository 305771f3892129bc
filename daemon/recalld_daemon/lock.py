"""One daemon per home: an flock held for as long as the process lives.

The kernel drops the lock when the process dies, however it dies, so a lock file that lies about is never in the way;
its text only names the holder for the message. A second bind on the same ipc path would succeed and steal it, so the
lock is taken before any socket is bound.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class AlreadyRunning(Exception):
    """Another daemon holds the lock; `pid` is its process id, 0 if it has not written it yet."""

    def __init__(self, path: Path, pid: int) -> None:
        self.pid = pid
        holder = f"pid {pid}" if pid else "another process that is just starting"
        super().__init__(
            f"recalld is already running: {holder} holds {path}; stop it first, or use that one; "
            "a second daemon needs a --home and a RECALLD_RUNTIME_DIR of its own"
        )


@contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """Hold the lock at `path`. Raises AlreadyRunning at once if another process has it, OSError if it can't be made."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(path, _pid_in(descriptor)) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)  # never unlinked: a waiting starter may already hold the inode


def holder_of(path: Path) -> int | None:
    """The process id of who holds the lock at `path`, 0 if it has not written it yet; None: nobody. Writes nothing.

    Raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(descriptor)
    finally:
        os.close(descriptor)
    return None


def _pid_in(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else 0
