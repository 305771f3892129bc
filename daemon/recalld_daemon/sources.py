"""What is read and followed: the directories that the user named, and where each host keeps its sessions.

A host that is not installed costs nothing: a root that does not exist is waited for. Each host's place can be moved by
the variable that the host itself obeys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from recalld_daemon.config import Config
from recalld_daemon.ingest.ports import Root
from recalld_daemon.paths import transcripts_dir


def roots_of(config: Config, environ: Mapping[str, str]) -> list[Root]:
    """The watched directories, and the hosts' transcripts that are not left out."""
    roots = [Root(Path(path), project_scope=config.project_scope) for path in config.watch]
    return roots + [Root(place, transcripts=True) for place in transcript_places(config, environ)]


def transcript_places(config: Config, environ: Mapping[str, str]) -> list[Path]:
    """Where the hosts that are not left out write their sessions, whether there are any or not."""
    return [transcripts_dir(environ)] if config.transcripts and config.claude_code else []
