"""What has to be asked of other programs before a host is installed. Bounded in time; no answer is an answer too."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .entries import Version

PATIENCE_SECONDS = 5.0


def claude_version(program: str, env: Mapping[str, str]) -> Version | None:
    """Of that `claude`; None where it does not say.

    It starts as a child of ours, so hooks of ours that it might run are told to be quiet.
    """
    said = _said([program, "--version"], env)
    found = re.match(r"\s*(\d+)\.(\d+)\.(\d+)", said or "")
    return tuple(map(int, found.groups())) if found else None


def git_would_commit(path: Path, env: Mapping[str, str]) -> bool:
    """Whether the path lies in a git work tree that does not ignore it."""
    place = path.parent
    while not place.is_dir():
        place = place.parent
    inside = _said(["git", "-C", str(place), "rev-parse", "--is-inside-work-tree"], env)
    return (inside or "").strip() == "true" and _said(["git", "-C", str(place), "check-ignore", str(path)], env) is None


def _said(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """What it printed, if it ended well."""
    try:
        ended = subprocess.run(
            command,
            env={**env, "RECALLD_OFF": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.decode("utf-8", "replace")
