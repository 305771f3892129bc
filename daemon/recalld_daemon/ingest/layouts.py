"""Directories that some program keeps in its own way: how each is told, and what of it is read, as what.

One row per program. A layout is told by names alone, once, when the directory becomes a root; a directory of no known
layout is read by the general rules. To add one: a row here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

OBSIDIAN = "obsidian"  # also the kind of a note in a vault


@dataclass(frozen=True, slots=True)
class Layout:
    """tells: whether a directory, which is there, is laid out so. kind: of a file's path below it, in parts, and the
    kind that it would have anywhere: as which it is read, "" for not at all. keeps: names of directories right below it
    that count although a .gitignore names them. places: below a directory that is not one itself, where such lie.
    transcripts: of a host's sessions, their kind and the name of the directories of notes beside them: each belongs to
    its project (see `ports.Root`).
    """

    name: str
    label: str
    tells: Callable[[str], bool]
    kind: Callable[[Sequence[str], str], str]
    keeps: frozenset[str] = frozenset()
    places: Callable[[str], list[str]] = lambda path: []
    transcripts: tuple[str, str] | None = None


_CLAW_INSTRUCTIONS = frozenset(  # in every prompt of the agent, and about how to behave: nothing to be reminded of
    ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md", "BOOT.md", "BOOTSTRAP.md")
)
_SESSION = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}\.jsonl")
_HOSTS = {  # a host's own directory, and where in it the sessions are
    ".claude": ("projects",),
    ".codex": ("sessions", "archived_sessions"),
    ".copilot": ("session-state",),
    ".gemini": ("tmp",),
}
_STRIX_LOGS = ("open-strix-chat", "open-strix-journal")


def _is_vault(path: str) -> bool:
    return os.path.isdir(os.path.join(path, ".obsidian"))


def _kind_in_vault(below: Sequence[str], kind: str) -> str:
    if below[-1].lower().endswith((".excalidraw.md", ".excalidraw")):  # a drawing, compressed
        return ""
    return OBSIDIAN if kind == "markdown" else kind


def _is_claw(path: str) -> bool:
    has = {name for name in (*_CLAW_INSTRUCTIONS, "USER.md") if os.path.isfile(os.path.join(path, name))}
    remembers = os.path.isfile(os.path.join(path, "MEMORY.md")) or os.path.isdir(os.path.join(path, "memory"))
    return remembers and len(has) >= 2


def _kind_in_claw(below: Sequence[str], kind: str) -> str:
    instruction = len(below) == 1 and below[0] in _CLAW_INSTRUCTIONS
    return "" if instruction or below[0] == "skills" else kind


def _claw_places(path: str) -> list[str]:
    """Of OpenClaw's own directory, each agent's workspace."""
    try:
        names = sorted(name for name in os.listdir(path) if name == "workspace" or name.startswith("workspace-"))
    except OSError:
        return []
    return [place for name in names if _is_claw(place := os.path.join(path, name))]


def _is_strix(path: str) -> bool:
    has = {name for name in ("blocks", "state", "logs") if os.path.isdir(os.path.join(path, name))}
    configured = any(os.path.isfile(os.path.join(path, name)) for name in ("scheduler.yaml", "config.yaml"))
    return "blocks" in has and len(has) >= 2 and configured


def _kind_in_strix(below: Sequence[str], kind: str) -> str:
    match below[0]:
        case "blocks":
            return kind if kind == "open-strix-block" else ""
        case "logs":
            return kind if kind in _STRIX_LOGS and len(below) == 2 else ""
        case "state":
            return kind
        case _:
            return ""


def _is_claude_code(path: str) -> bool:
    """Claude Code's projects, or a copy of them: a directory each, named by the project's path."""
    try:
        with os.scandir(path) as entries:
            return any(entry.name.startswith("-") and entry.is_dir() and _has_sessions(entry.path) for entry in entries)
    except OSError:
        return False


def _has_sessions(path: str) -> bool:
    with os.scandir(path) as entries:
        return any(_SESSION.fullmatch(entry.name) for entry in entries)


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(OBSIDIAN, "Obsidian vault", _is_vault, _kind_in_vault),
        Layout(
            "open-strix", "open-strix agent", _is_strix, _kind_in_strix, keeps=frozenset(("blocks", "state", "logs"))
        ),
        Layout("openclaw", "OpenClaw workspace", _is_claw, _kind_in_claw, places=_claw_places),
        Layout(
            "claude-code-projects",
            "Claude Code projects",
            _is_claude_code,
            lambda below, kind: kind,
            transcripts=("claude-code", "memory"),
        ),
    )
}


def told(path: str) -> str:
    """The name of a directory's layout; "" for none, or no directory."""
    return next((layout.name for layout in LAYOUTS.values() if layout.tells(path)), "")


def places(path: str) -> list[str]:
    """What is to be followed where a user names a program's own directory: the parts of it that are memory."""
    if told(path):
        return [path]
    if os.path.isfile(database := os.path.join(path, "opencode.db")):
        return [database]
    if name := _HOSTS.get(os.path.basename(path)):
        return [place for sub in name if os.path.isdir(place := os.path.join(path, sub))] or [path]
    return [place for layout in LAYOUTS.values() for place in layout.places(path)] or [path]


def kind_in(layout: str, root: str, path: str, kind: str) -> str:
    """As which kind a file below a root of a layout is read; "": not at all."""
    return LAYOUTS[layout].kind(os.path.relpath(path, root).split(os.sep), kind)


def looks_into(layout: str, root: str, directory: str) -> bool:
    """Whether anything in a directory below a root may be read."""
    if not layout or directory == root:
        return True
    kinds = ("markdown", "open-strix-block", *_STRIX_LOGS)
    return any(kind_in(layout, root, os.path.join(directory, "any.md"), kind) for kind in kinds)


def agrees(layout: str, root: str, path: str, kind: str) -> bool:
    """Whether a file that was read as this kind would be read so again."""
    return kind_in(layout, root, path, "markdown" if kind == OBSIDIAN else kind) == kind
