"""What lies at a path that is to be imported, told before anything is written.

A file is counted by running its parser over it; of a directory the files that would be read are counted by kind, and
exports among them (few, and one file holds all) are counted by what is in them too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from recalld_daemon.followed_paths import Refused, readable
from recalld_daemon.ingest import layouts
from recalld_daemon.ingest.formats import kinds
from recalld_daemon.ingest.formats.tally import Tally
from recalld_daemon.ingest.parse import kind_below, kind_of
from recalld_daemon.ingest.ports import Root
from recalld_daemon.ingest.roots import Roots
from recalld_daemon.ingest.survey import label_of, survey
from recalld_daemon.store import opencode
from recalld_daemon.watchers.tree import FileStat, Unreadable

PROBLEMS_KEPT = 50
LOOKED_INTO = 20  # exports in one directory
_ONE_THING = ("open-strix-block",)
_ONE_OF_MANY = ("whatsapp", "letta")  # a file for each chat, each agent: two of them are no two states of one

Progress = Callable[[str, int, int, str], None]  # what, done, of how many (0: not known), of what


@dataclass(slots=True)
class Find:
    """What there is. kind: a file's, or the one that was forced; label: for people. files: label -> how many, of a
    directory. size: bytes of what would be read. tally: of conversations; its counts are 0 where there are none."""

    path: str
    is_file: bool
    kind: str = ""
    label: str = ""
    size: int = 0
    passages: int = 0
    files: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0

    @property
    def empty(self) -> bool:
        return not self.files and not self.is_file

    def complain(self, text: str) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(text)


def find(path: str, kind: str, progress: Progress) -> Find:
    """Look at what is there. `kind`: how to read it, "" for told by looking. Raises Refused, OSError."""
    if readable(path, kind):
        return _file(path, kind, progress)
    found = _directory(path, kind, progress)
    if found.empty:
        raise Refused("failed", f"{path}: no file in it is one that recalld reads")
    return found


def _file(path: str, kind: str, progress: Progress) -> Find:
    found = Find(path, True)
    _survey(found, path, kind, progress)
    if kind and not (found.passages or found.tally.messages):
        raise Refused("failed", f"{path}: nothing in it can be read as {kind}: leave --kind out")
    return found


def _survey(found: Find, path: str, kind: str, progress: Progress) -> None:
    """Add what one file holds."""
    name = PurePath(path).name
    if (kind or kind_of(path)) == opencode.KIND:
        _sessions(found, path, progress)
        return

    def told(done: int, total: int) -> None:
        progress(f"looking at {name}", done >> 20, total >> 20, "MB")

    surveyed = survey(Path(path), told, kind)
    found.size += surveyed.size
    found.passages += surveyed.passages
    add(found.tally, surveyed.tally)
    found.problem_count += surveyed.problem_count - len(surveyed.problems)
    for problem in surveyed.problems:
        found.complain(f"{name}:{problem.line}: {problem.text}")
    if found.is_file:
        found.kind, found.label = surveyed.kind, surveyed.label


def _sessions(found: Find, path: str, progress: Progress) -> None:
    """Of OpenCode's database."""
    found.kind, found.label = opencode.KIND, "OpenCode sessions"
    found.size += os.stat(path).st_size
    states = opencode.sessions(path)
    for n, state in enumerate(states):
        progress("looking at the sessions", n, len(states), "")
        found.tally.conversations += 1
        for part in opencode.parts(path, state.id):
            found.tally.message("user" if part.by_user else "assistant", part.at)


def _directory(path: str, kind: str, progress: Progress) -> Find:
    watched = Roots([Root(Path(path), kind=kind)]).by_key[path]
    root, layout = watched.root, watched.root.layout
    label = layouts.LAYOUTS[layout].label if layout else "directory"
    found = Find(path, False, kind or layout, label)
    exports: list[tuple[str, str]] = []
    seen = 0
    for item in watched.tree.walk():
        if isinstance(item, Unreadable):
            found.complain(f"{item.path}: {item.reason}")
        if not isinstance(item, FileStat):
            continue
        seen += 1
        progress("looking through the directory", seen, 0, "")
        try:
            told = kind_below(root, item.path)
        except OSError as error:
            found.complain(f"{item.path}: {error.strerror or error}")
            continue
        if told:
            found.files[label_of(told)] += 1
            found.size += item.size
            exports += [(item.path, told)] if is_export(told) else []
    for file, told in exports[:LOOKED_INTO]:
        size = found.size
        _survey(found, file, told, progress)
        found.size = size
    return found


def is_export(kind: str) -> bool:
    """Whether a file of this kind holds many conversations and was made at one time."""
    return kind in kinds.KINDS and not (kinds.grows(kind) or kinds.names_project(kind) or kind in _ONE_THING)


def takes_the_place(kind: str) -> bool:
    """Whether a later export of this kind holds what an earlier one holds."""
    return is_export(kind) and kind not in _ONE_OF_MANY


def add(total: Tally, more: Tally) -> None:
    total.conversations += more.conversations
    total.messages += more.messages
    total.by.update(more.by)
    total.dated(more.first)
    total.dated(more.last)


def is_archive(path: str) -> bool:
    return os.path.isfile(path) and PurePath(path).suffix.lower() == ".zip"
