"""Where the daemon keeps its things, by the XDG rules: data that must not be lost, and caches that may.

`Home` is a value: tests and `recalld demo` put everything under one temporary directory. All directories are made 0700.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    data: Path  # recalld.db (the truth) and index/ (a cache beside it)
    models: Path  # measured runtimes, exported graphs: made anew when lost
    config_file: Path

    @property
    def database(self) -> Path:
        return self.data / "recalld.db"

    @property
    def index(self) -> Path:
        return self.data / "index"

    @property
    def imported(self) -> Path:
        """Copies of what was imported, where the user wished one: as much the truth as the database."""
        return self.data / "imported"

    def make(self) -> None:
        """Create the directories, 0700. Raises OSError naming the path."""
        for directory in (self.data, self.models):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            directory.chmod(0o700)


def default_home(environ: Mapping[str, str] = os.environ) -> Home:
    """The user's own: $XDG_DATA_HOME, $XDG_CACHE_HOME and $XDG_CONFIG_HOME, each followed by /recalld."""
    user = Path(environ.get("HOME") or Path.home())

    def place(variable: str, fallback: str) -> Path:
        value = environ.get(variable, "")
        return (Path(value) if os.path.isabs(value) else user / fallback) / "recalld"

    return Home(
        data=place("XDG_DATA_HOME", ".local/share"),
        models=place("XDG_CACHE_HOME", ".cache") / "models",
        config_file=place("XDG_CONFIG_HOME", ".config") / "config.toml",
    )


def home_under(directory: Path) -> Home:
    """Everything below one directory."""
    return Home(data=directory / "data", models=directory / "models", config_file=directory / "config.toml")


def transcripts_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where Claude Code writes its sessions."""
    user = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("CLAUDE_CONFIG_DIR") or user / ".claude") / "projects"
