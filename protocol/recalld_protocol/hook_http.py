"""The HTTP hook's port and token: made once, by whoever needs them first, and read by the other side.

A host's settings name the port and the token, and the daemon must serve just these after every restart, so they are a
file of their own in `state_dir`: two lines, 0600. The port is chosen below the range from which systems take ports for
outgoing connections, so that none of those is ever in its place.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .endpoints import state_dir
from .errors import EndpointError

FILE = "http-hook"
FIRST_PORT, LAST_PORT = 20_000, 29_999  # Linux hands out 32768 and above by itself, the IANA range begins at 49152
TRIES = 50


@dataclass(frozen=True, slots=True)
class HttpHook:
    port: int
    token: str = field(repr=False)

    def url(self, host: str) -> str:
        """Where that host's hooks are posted to."""
        return f"http://127.0.0.1:{self.port}/hooks/{host}"


def http_hook_file(env: Mapping[str, str]) -> Path:
    """Raises EndpointError."""
    return state_dir(env) / FILE


def read_http_hook(env: Mapping[str, str]) -> HttpHook | None:
    """None: nobody has asked for one yet. Raises EndpointError for a file that is not ours alone, or makes no sense."""
    path = http_hook_file(env)
    try:
        if path.stat().st_mode & 0o077:
            raise EndpointError(f"{path}: holds a token and can be read by others: chmod 600 it")
        lines = path.read_text().split()
        port, token = int(lines[0]), lines[1]
        if not 0 < port < 65_536:
            raise ValueError(f"{port} is no port")
        return HttpHook(port, token)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, IndexError) as error:
        raise EndpointError(f"{path}: can't be read ({error}): remove it and install the hooks again") from error


def make_http_hook(env: Mapping[str, str]) -> HttpHook:
    """The one that is there, else a new one on a port that is free now. Raises EndpointError."""
    if known := read_http_hook(env):
        return known
    path, made = http_hook_file(env), HttpHook(_free_port(), secrets.token_urlsafe(24))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_name(f"{FILE}.{os.getpid()}.tmp")
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{made.port}\n{made.token}\n")
        try:
            os.link(beside, path)  # whoever is first wins; the file is whole from its first moment
        except FileExistsError:
            return read_http_hook(env) or made
        finally:
            beside.unlink()
    except OSError as error:
        raise EndpointError(f"{path}: can't be written: {error.strerror}") from error
    return made


def _free_port() -> int:
    for _ in range(TRIES):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT + 1)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise EndpointError(f"no free port between {FIRST_PORT} and {LAST_PORT} on 127.0.0.1")
