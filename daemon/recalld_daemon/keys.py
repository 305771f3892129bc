"""Keys for TCP: one secret for the daemon, a list of the clients that may connect, and a file for each client.

All files are readable by their owner only. The daemon's public key stands in its secret file's second line, so that
further clients can be told whom to trust; the daemon reads the first line alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from recalld_daemon.sockets import new_key_pair


def make_keys(directory: Path, client: str) -> list[Path]:
    """Write what is missing for `client`; returns the paths of the three files. Raises FileExistsError, OSError."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret, clients, keys = directory / "daemon.secret", directory / "clients", directory / f"{client}.keys"
    if not secret.exists():
        public, private = new_key_pair()
        _write_new(secret, f"{private}\n{public}\n")
    daemon_public = secret.read_text().split()[1]
    public, private = new_key_pair()
    _write_new(keys, f"daemon {daemon_public}\npublic {public}\nsecret {private}\n")
    with open(clients, "a", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(f"{public}  # {client}\n")
    return [secret, clients, keys]


def read_secret(path: Path) -> bytes:
    """The daemon's secret key. Raises OSError."""
    words = path.read_bytes().split()
    return words[0] if words else b""


def read_clients(path: Path) -> frozenset[bytes]:
    """The public keys that may connect, one a line; a comment begins with a # after a space. Raises OSError."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    return frozenset(words[0] for words in lines if words and words[0] != b"#")


def _write_new(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
