"""What is read and followed: the directories that the user named, and where each host keeps its sessions.

A host that is not installed costs nothing: a root that does not exist is waited for. Each host's place can be moved by
the variable that the host itself obeys. Beside its sessions a host keeps much else (tools' outputs, copies of files,
plans): of its place only files of its own kind are read, and the notes that it keeps for the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from recalld_daemon.config import Config
from recalld_daemon.ingest.ports import Root
from recalld_daemon.paths import transcripts_dir
from recalld_daemon.store import opencode


def roots_of(config: Config, environ: Mapping[str, str]) -> list[Root]:
    """The watched directories, and the hosts' transcripts that are not left out."""
    roots = [Root(Path(path), project_scope=config.project_scope) for path in config.watch]
    return roots + host_roots(config, environ)


def host_roots(config: Config, environ: Mapping[str, str]) -> list[Root]:
    """Where the hosts that are not left out write their sessions, whether there are any or not."""
    if not config.transcripts:
        return []
    roots: list[Root] = []
    if config.claude_code:
        roots.append(_sessions(transcripts_dir(environ), "claude-code", notes="memory"))
    if config.codex:
        home = _place(environ, "CODEX_HOME", ".codex")
        roots += [_sessions(home / name, "codex") for name in ("sessions", "archived_sessions")]
    if config.copilot:
        roots.append(_sessions(_place(environ, "COPILOT_HOME", ".copilot") / "session-state", "copilot"))
    if config.gemini:
        home = Path(environ.get("GEMINI_CLI_HOME") or _user(environ))
        roots.append(_sessions(home / ".gemini" / "tmp", "gemini"))
    if config.opencode:
        data = Path(environ.get("XDG_DATA_HOME") or _user(environ) / ".local" / "share")
        roots.append(Root(data / "opencode" / "opencode.db", transcripts=True, kind=opencode.KIND, is_file=True))
    return roots


def _sessions(path: Path, kind: str, notes: str = "") -> Root:
    return Root(path, transcripts=True, only=(kind,), notes=notes)


def _place(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    return Path(environ.get(variable) or _user(environ) / usual)


def _user(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())
