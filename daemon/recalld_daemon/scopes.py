"""Which project a directory belongs to: the work tree it lies in, so that all of a project's sessions share one memory.

The rule, in order: the main work tree of the git repository that holds the directory (a linked worktree counts as the
repository it was made from, a submodule as itself); else the directory itself. Symlinks are resolved first. The key
of a scope is that absolute path; the global scope's is "".
"""

from __future__ import annotations

from pathlib import Path

from recalld_protocol.wire import clip

KEY_CHARS = 4096  # PATH_MAX; the wire carries no longer one


def project_of(cwd: str) -> str:
    """The scope key for a session or a file in `cwd`; "" (global) for an empty, relative or missing directory.

    Reads a few directory entries and at most one small file; never raises. What no file system has (a zero byte) is
    missing; bytes of a name that are no UTF-8 are replaced, since neither the store nor the wire can hold them.
    """
    return clip(_project_of(cwd), KEY_CHARS) if cwd.startswith("/") else ""


def _project_of(cwd: str) -> str:
    try:
        here = Path(cwd).resolve()
        for directory in (here, *here.parents):
            mark = directory / ".git"
            if mark.is_dir():
                return str(directory)
            if mark.is_file():
                return str(_main_tree(mark) or directory)
    except (OSError, RuntimeError, ValueError):
        return ""
    return str(here)


def in_work_tree(path: str) -> str:
    """Like `project_of`, but "" where no repository holds the path."""
    project = project_of(path)
    return project if project and (Path(project) / ".git").exists() else ""


def _main_tree(mark: Path) -> Path | None:
    """A linked worktree's `.git` file says `gitdir: <main>/.git/worktrees/<name>`; a submodule's points elsewhere."""
    text = mark.read_text(errors="replace")[:4096].strip()
    if not text.startswith("gitdir:"):
        return None
    target = (mark.parent / text.removeprefix("gitdir:").strip()).resolve()
    if target.parent.name == "worktrees" and target.parent.parent.name == ".git":
        return target.parent.parent.parent
    return None
