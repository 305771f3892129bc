"""Which hook in a host's settings is ours. By its structure, never by a word in it: a user's own hook may well run
something under a directory called recalld.

Ours is a Python that is given code, our hook's directory and the host's name, or a request to /hooks/HOST on this
machine with our header. Where it is, of which version, and by which interpreter it runs does not matter: that is how
an older installation's entries are found.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from .entries import MARK_HEADER

HOOK_PLACE = ("recalld_client", "hosts")  # the last parts of the directory the hook lies in
PLUGIN_MARK = "// recalld's plugin for OpenCode"  # how our plugin's file begins


def is_ours(handler: Any, host: str) -> bool:
    """`handler`: one hook of the settings, parsed; anything may stand there."""
    if not isinstance(handler, dict):
        return False
    if handler.get("type") == "http":
        return _is_our_request(handler, host)
    return _is_our_command(command_of(handler), host)


def command_of(handler: Any) -> list[str]:
    """The arguments a command hook is run with, [] where it is none that can be told."""
    if not isinstance(handler, dict):
        return []
    line, args = handler.get("command", handler.get("bash")), handler.get("args")
    if not isinstance(line, str):
        return []
    if isinstance(args, list):
        return [line, *map(str, args)]
    try:
        return shlex.split(line)
    except ValueError:  # a quote that is not closed
        return []


def hook_directory(command: Sequence[str]) -> str:
    """Where the hook that this command runs lies."""
    return command[command.index("-c") + 2] if "-c" in command[:-2] else ""


def _is_our_command(command: Sequence[str], host: str) -> bool:
    if "-c" not in command[:-3]:
        return False
    directory, named = command[command.index("-c") + 2 : command.index("-c") + 4]
    return named == host and PurePosixPath(directory).parts[-2:] == HOOK_PLACE


def _is_our_request(handler: dict[str, Any], host: str) -> bool:
    url, headers = handler.get("url"), handler.get("headers")
    if not isinstance(url, str) or not isinstance(headers, dict) or MARK_HEADER not in headers:
        return False
    try:
        parts = urlsplit(url)
        here = parts.hostname == "127.0.0.1" and parts.port is not None
    except ValueError:  # no address, or no number for a port
        return False
    return here and parts.path == f"/hooks/{host}"
