"""Socket files in the runtime directory: a dead daemon's is replaced, nothing else is, and only our own is removed.

The caller holds the daemon's lock, so a socket that is found is nobody's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from recalld_protocol.errors import EndpointError

SOCKET_UMASK = 0o177  # socket files are 0600


@dataclass(frozen=True, slots=True)
class SocketFile:
    """A socket file that we made; once another process has put its own in that place, it is not ours to remove."""

    path: Path
    inode: int

    def remove(self) -> None:
        try:
            if self.path.lstat().st_ino == self.inode:
                self.path.unlink()
        except FileNotFoundError:
            return


@contextmanager
def private_files() -> Iterator[None]:
    """Sockets bound in here get files that only their owner may use."""
    umask = os.umask(SOCKET_UMASK)
    try:
        yield
    finally:
        os.umask(umask)


def made_at(path: Path) -> SocketFile:
    """The file of the socket that was bound to `path` just now."""
    return SocketFile(path, path.lstat().st_ino)


def remove_stale(path: Path) -> None:
    """Make room for a socket. Raises EndpointError where something else than a socket lies there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise EndpointError(f"{path} is in the way and no socket: see what it is, then remove it")
    path.unlink()
