"""Where each host looks for its settings, and whether the host is on this machine at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Scope = Literal["user", "project"]
HOSTS = ("claude-code", "codex", "copilot", "gemini", "opencode")
PROGRAMS: Mapping[str, str] = {
    "claude-code": "claude",
    "codex": "codex",
    "copilot": "copilot",
    "gemini": "gemini",
    "opencode": "opencode",
}
PROJECT_FILES: Mapping[str, str] = {
    "claude-code": ".claude/settings.local.json",  # the one of the two that is meant for this machine
    "codex": ".codex/hooks.json",
    "copilot": ".github/hooks/recalld.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".opencode/plugins/recalld.js",
}


class NoHome(Exception):
    """HOME is not set, and nothing else says where the host's settings lie."""


@dataclass(frozen=True, slots=True)
class Place:
    host: str
    scope: Scope
    path: Path


def place_of(host: str, scope: Scope, env: Mapping[str, str], project: Path) -> Place:
    """`project`: the project's directory, for that scope. Raises NoHome."""
    path = project / PROJECT_FILES[host] if scope == "project" else _user_file(host, env)
    return Place(host, scope, Path(os.path.abspath(path)))


def program_of(host: str, env: Mapping[str, str]) -> str:
    """The host's program on PATH, "" where there is none."""
    return shutil.which(PROGRAMS[host], path=env.get("PATH")) or ""


def _user_file(host: str, env: Mapping[str, str]) -> Path:
    match host:
        case "claude-code":
            return _given(env, "CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
        case "codex":
            return _given(env, "CODEX_HOME", ".codex") / "hooks.json"
        case "copilot":
            return _given(env, "COPILOT_HOME", ".copilot") / "hooks" / "recalld.json"
        case "gemini":
            return _given_home(env) / ".gemini" / "settings.json"
    return _given(env, "XDG_CONFIG_HOME", ".config") / "opencode" / "plugins" / "recalld.js"


def _given(env: Mapping[str, str], name: str, otherwise: str) -> Path:
    return Path(env[name]).expanduser() if env.get(name) else _home(env) / otherwise


def _given_home(env: Mapping[str, str]) -> Path:
    return Path(env["GEMINI_CLI_HOME"]) if env.get("GEMINI_CLI_HOME") else _home(env)


def _home(env: Mapping[str, str]) -> Path:
    if not os.path.isabs(env.get("HOME", "")):
        raise NoHome("HOME is not set, so there is no telling where the settings lie: set it, or use --scope project")
    return Path(env["HOME"])
