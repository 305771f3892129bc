"""Which scope a file's passages belong to: everybody's, or one project's.

A transcript belongs to the project in which it was held (its cwd), wherever it lies; so does an agent's memory beside
it. One that names no project is nobody's but its own directory's: never everybody's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from recalld_daemon.ingest import layouts
from recalld_daemon.ingest.formats.kinds import names_project
from recalld_daemon.ingest.ports import Root
from recalld_daemon.recall.types import GLOBAL_SCOPE
from recalld_daemon.scopes import in_work_tree, project_of
from recalld_daemon.store.rows import Source

HEAD_BYTES = 64 * 1024  # of a transcript that are searched for its cwd
TRANSCRIPTS_LOOKED_AT = 5

_CWD = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')


def scope_key(root: Root, path: str, kind: str, project: str) -> str:
    """The key of the scope, "" for the global one. `project`: the directory that the source itself names, if any."""
    directory = os.path.dirname(path)
    if names_project(kind):
        return project_of(project) or directory
    if root.transcripts:
        return project_of(project_beside(root.path, path)) or directory
    return in_work_tree(directory) if root.project_scope else ""


def belonging(root: Root, scopes: Mapping[str, int]) -> Callable[[Source, str], bool]:
    """A function that tells whether a source, if it stands at a path, is in the scope that the root's rule gives it,
    and, of a root that is one file read in a certain way, or a directory of some program, whether it was read so.

    The rule may have changed since, or the source may move. Of a transcript, and what lies beside one, its own text
    decides: that is looked at when it is read, and not here. `scopes`: all known ones, key -> id.
    """
    work_tree = cache(in_work_tree)

    def belongs(source: Source, path: str) -> bool:
        if root.kind and root.is_file and source.kind != root.kind:
            return False
        if root.layout and not layouts.agrees(root.layout, os.path.abspath(root.path), path, source.kind):
            return False
        if root.transcripts or names_project(source.kind):
            return True
        key = work_tree(os.path.dirname(path)) if root.project_scope else ""
        return source.scope == (scopes.get(key) if key else GLOBAL_SCOPE)

    return belongs


def project_beside(root: Path, path: str) -> str:
    """The cwd of a transcript in the same project's directory (the one right below the root); "" if none tells."""
    below = os.path.relpath(path, root).split(os.sep)
    directory = root / below[0] if len(below) > 1 else root
    try:
        transcripts = sorted(directory.glob("*.jsonl"), key=os.path.getmtime, reverse=True)
    except OSError:
        return ""
    return next(filter(None, map(_cwd_in, transcripts[:TRANSCRIPTS_LOOKED_AT])), "")


def _cwd_in(transcript: Path) -> str:
    try:
        with transcript.open("rb") as file:
            match = _CWD.search(file.read(HEAD_BYTES))
        return str(json.loads(match[1])) if match else ""
    except (OSError, ValueError):
        return ""
