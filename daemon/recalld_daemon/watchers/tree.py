"""Which files and directories below a watched root count, and a walk over them in bounded memory.

Left out: directories that hold other people's or machines' files (node_modules and the like), all dotted names, what a
repository's .gitignore names, sync conflicts, editors' temporary files, everything that is no regular file. Symlinks
are followed where they lead out of the root, once. What can't be read is told with its path, and the walk goes on.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

IGNORED_DIRECTORIES = frozenset(
    ("node_modules", "bower_components", "__pycache__", "venv", "site-packages", "target", "dist", "lost+found")
)
GITIGNORE_BYTES = 1024 * 1024  # of a .gitignore that are read

_IGNORED_FILES = re.compile(
    r"\.|#|.*(?:~|\.tmp|\.temp|\.part|\.crdownload|\.swp|\.bak|\.orig|___jb_tmp___|___jb_old___)$"
    r"|.*\.sync-conflict-|.*\bconflicted copy\b|.*\(case conflict",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FileStat:
    """A regular file that counts. mtime_ns since the epoch."""

    path: str
    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Directory:
    path: str
    inode: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    path: str
    reason: str


Found = FileStat | Directory | Unreadable
_Rules = tuple[tuple[str, GitIgnoreSpec], ...]  # (directory of the .gitignore, its patterns), outermost first


class Tree:
    """The rules for one root. `only`: of the root directory, this one file counts and nothing else. `keeps`: names of
    directories right below it for which no .gitignore counts.

    Knows the .gitignore files it has read until `forget_rules`.
    """

    def __init__(self, root: Path, only: str | None = None, keeps: frozenset[str] = frozenset()) -> None:
        self.root = os.path.abspath(root)
        self._keeps = keeps
        self.only = only
        self.key = self.root if only is None else os.path.join(self.root, only)  # what the user named
        self._rules: dict[str, tuple[bool, _Rules]] = {}  # directory -> (lies in a repository, rules)

    def forget_rules(self) -> None:
        """Read .gitignore files anew from now on."""
        self._rules.clear()

    def holds(self, path: str) -> bool:
        """Whether the path lies below the root, or is it; of a root that is one file, whether it is that."""
        if self.only is not None:
            return path == self.key
        return path == self.root or path.startswith(self.root.rstrip("/") + "/")

    def counts_directory(self, path: str) -> bool:
        """Whether a directory below the root (or the root) is looked into. Does not look whether it exists."""
        if path == self.root:
            return True
        if self.only is not None or not self.holds(path):
            return False
        parent, name = os.path.split(path)
        if name.startswith(".") or name in IGNORED_DIRECTORIES or not self.counts_directory(parent):
            return False
        return not self._is_gitignored(parent, name + "/")

    def counts_file(self, path: str) -> bool:
        """Whether a file of that path would count. Does not look whether it exists."""
        parent, name = os.path.split(path)
        if self.only is not None:
            return parent == self.root and name == self.only
        if _IGNORED_FILES.match(name) or not self.counts_directory(parent):
            return False
        return not self._is_gitignored(parent, name)

    def walk(self, start: str | None = None, *, files: bool = True) -> Iterator[Found]:
        """Everything that counts at or below `start` (the root): each directory before what it holds."""
        first = start or self.root
        if not self.counts_directory(first) or (first != self.root and not self.follows(first)):
            return
        seen: set[tuple[int, int]] = set()
        waiting = [first]
        while waiting:
            directory = waiting.pop()
            try:
                status = os.stat(directory)
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                with os.scandir(directory) as entries:
                    yield Directory(directory, status.st_ino)
                    for entry in entries:
                        yield from self._look_at(entry, waiting, files)
            except OSError as error:
                yield Unreadable(directory, error.strerror or str(error))

    def _look_at(self, entry: os.DirEntry[str], waiting: list[str], files: bool) -> Iterator[FileStat | Unreadable]:
        try:
            if entry.is_symlink() and not self.follows(entry.path):
                return
            if entry.is_dir():
                if self.counts_directory(entry.path):
                    entry.path.encode()
                    waiting.append(entry.path)
            elif files and self.counts_file(entry.path):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode):
                    entry.path.encode()
                    yield FileStat(entry.path, status.st_size, status.st_mtime_ns, status.st_ino)
        except UnicodeEncodeError:
            yield Unreadable(
                ascii(entry.path), "its name is not valid UTF-8: rename it"
            )  # no watch, no row can name it
        except FileNotFoundError:
            pass  # gone since, or a link to nothing
        except OSError as error:
            yield Unreadable(entry.path, error.strerror or str(error))

    def follows(self, path: str) -> bool:
        """Not a symlink, or what the user named, or one whose target is not found anyway: outside, not around us."""
        if path == self.key or not os.path.islink(path):
            return True
        target, root = os.path.realpath(path), os.path.realpath(self.root)
        return os.path.commonpath((target, root)) not in (target, root)

    def _is_gitignored(self, directory: str, name: str) -> bool:
        path = os.path.join(directory, name)
        if self._keeps and os.path.relpath(path, self.root).split(os.sep)[0] in self._keeps:
            return False
        return _decide(self._rules_of(directory)[1], path)

    def _rules_of(self, directory: str) -> tuple[bool, _Rules]:
        """Whether the directory lies in a repository, and the rules for what stands directly in it."""
        known = self._rules.get(directory)
        if known is None:
            above = self._rules_above_root() if directory == self.root else self._rules_of(os.path.dirname(directory))
            known = self._rules[directory] = _with_own(directory, *above)
        return known

    def _rules_above_root(self) -> tuple[bool, _Rules]:
        """The surrounding repository's rules, unless they name the root itself: the user chose to watch it."""
        outer = [str(directory) for directory in Path(self.root).parents]
        top = next((n for n, directory in enumerate(outer) if _is_repository(directory)), None)
        if top is None:
            return False, ()
        inside, rules = False, ()  # type: tuple[bool, _Rules]
        for directory in reversed(outer[: top + 1]):
            inside, rules = _with_own(directory, inside, rules)
        return (True, ()) if _decide(rules, self.root + "/") else (True, rules)


def _with_own(directory: str, inside: bool, rules: _Rules) -> tuple[bool, _Rules]:
    if _is_repository(directory):
        inside, rules = True, ()
    spec = _read_rules(directory) if inside else None
    return inside, (*rules, (directory, spec)) if spec else rules


def _is_repository(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, ".git"))


def _read_rules(directory: str) -> GitIgnoreSpec | None:
    """A directory's .gitignore; None if there is none, or none that can be read."""
    try:
        with open(os.path.join(directory, ".gitignore"), "rb") as file:
            lines = file.read(GITIGNORE_BYTES).decode("utf-8", "replace").splitlines()
        return GitIgnoreSpec.from_lines(lines)
    except (OSError, ValueError):
        return None


def _decide(rules: _Rules, path: str) -> bool:
    """The innermost .gitignore that says anything about the path decides; a directory's path ends with a slash."""
    for directory, spec in reversed(rules):
        verdict = spec.check_file(path[len(directory.rstrip("/")) + 1 :]).include
        if verdict is not None:
            return verdict
    return False
