"""Which project a directory belongs to (P014: what is a project's stays the project's)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from recalld_daemon.scopes import in_work_tree, project_of


def git(*args: str, cwd: Path) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *args], cwd=cwd, check=True, capture_output=True)


def repository(path: Path) -> Path:
    path.mkdir()
    git("init", "-q", cwd=path)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=path)
    return path


def test_p014_a_directory_inside_a_repository_is_its_project(tmp_path: Path) -> None:
    repo = repository(tmp_path / "a")
    (repo / "src" / "deep").mkdir(parents=True)
    assert project_of(str(repo / "src" / "deep")) == str(repo)
    assert project_of(str(repo)) == str(repo)


def test_p014_a_linked_worktree_is_the_same_project(tmp_path: Path) -> None:
    repo = repository(tmp_path / "a")
    git("worktree", "add", "-q", str(tmp_path / "side"), cwd=repo)
    assert project_of(str(tmp_path / "side")) == str(repo)


def test_p014_a_symlinked_path_is_the_same_project(tmp_path: Path) -> None:
    repo = repository(tmp_path / "a")
    (tmp_path / "link").symlink_to(repo)
    assert project_of(str(tmp_path / "link")) == str(repo)


def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    inner, outer = repository(tmp_path / "inner"), repository(tmp_path / "outer")
    git("submodule", "add", "-q", str(inner), "lib", cwd=outer)
    assert project_of(str(outer / "lib")) == str(outer / "lib")


def test_outside_any_repository_the_directory_itself(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert project_of(str(tmp_path / "plain")) == str(tmp_path / "plain")
    assert in_work_tree(str(tmp_path / "plain")) == ""
    assert in_work_tree(str(repository(tmp_path / "r"))) == str(tmp_path / "r")


def test_what_names_no_directory_is_global(tmp_path: Path) -> None:
    assert project_of("") == ""
    assert project_of("relative/path") == ""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert project_of(str(loop)) == ""


def test_a_key_can_be_stored_and_sent_whatever_the_directory_is_called(tmp_path: Path) -> None:
    bad = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(bad)
    os.symlink(bad, tmp_path / "link")
    assert project_of(str(tmp_path / "link")) == f"{tmp_path}/\ufffd"
    assert project_of("/a\0b") == ""
