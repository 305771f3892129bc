"""Which files count below a root: names, .gitignore, symlinks, and what can't be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recalld_daemon.watchers.tree import Directory, FileStat, Tree, Unreadable


def make(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return root


def check(root: Path, *expected: str, only: str | None = None) -> None:
    """The walk finds exactly these files, and the rules say the same of each path by itself."""
    tree = Tree(root, only)
    found = {item.path for item in tree.walk() if isinstance(item, FileStat)}
    assert {os.path.relpath(path, root) for path in found} == set(expected)
    again = Tree(root, only)
    for directory, _, names in os.walk(root):
        for path in (os.path.join(directory, name) for name in names):
            if not os.path.islink(path):
                assert again.counts_file(path) == (path in found), path


def test_ignored_directories_and_dotted_names(tmp_path: Path) -> None:
    make(
        tmp_path,
        "a.md",
        "sub/b.md",
        ".git/c.md",
        "node_modules/x/d.md",
        ".venv/e.md",
        "venv/f.md",
        "x/__pycache__/g.md",
    )
    make(tmp_path, ".obsidian/h.md", ".trash/i.md", "target/j.md", "dist/k.md", ".hidden/l.md", ".hidden.md")
    check(tmp_path, "a.md", "sub/b.md")


def test_a_dotted_root_counts(tmp_path: Path) -> None:
    root = make(tmp_path / ".claude" / "node_modules", "a.md")
    check(root, "a.md")


def test_sync_conflicts_and_temporary_files(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "a.sync-conflict-20260302-101010-ABC.md", "a (Ada's conflicted copy 2026-03-02).md", "a.md~")
    make(tmp_path, "#a.md#", ".#a.md", ".a.md.swp", "a.md.tmp", "b.md___jb_tmp___", "a.bak", "x.part")
    check(tmp_path, "a.md")


def test_gitignore_of_a_repository_nested_and_negated(tmp_path: Path) -> None:
    make(
        tmp_path,
        "r/.git/HEAD",
        "r/a.md",
        "r/secret.md",
        "r/build/x.md",
        "r/docs/y.tmp.md",
        "r/docs/keep.tmp.md",
        "r/docs/z.md",
    )
    (tmp_path / "r" / ".gitignore").write_text("secret.md\nbuild/\n*.tmp.md\n")
    (tmp_path / "r" / "docs" / ".gitignore").write_text("!keep.tmp.md\n/z.md\n")
    check(tmp_path, "r/a.md", "r/docs/keep.tmp.md")
    check(tmp_path / "r" / "docs", "keep.tmp.md")  # the rules above a root count too


def test_gitignore_says_nothing_outside_a_repository(tmp_path: Path) -> None:
    make(tmp_path, "a.md")
    (tmp_path / ".gitignore").write_text("a.md\n")
    check(tmp_path, "a.md")


def test_a_root_that_is_itself_ignored_counts(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "notes/a.md")
    (tmp_path / ".gitignore").write_text("notes/\n")
    check(tmp_path)
    check(tmp_path / "notes", "a.md")


def test_an_inner_repository_has_its_own_rules(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "in/.git/HEAD", "in/a.md", "a.md")
    (tmp_path / ".gitignore").write_text("a.md\n")
    check(tmp_path, "in/a.md")


def test_rules_are_read_anew_when_told(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "a.md")
    tree = Tree(tmp_path)
    assert tree.counts_file(str(tmp_path / "a.md"))
    (tmp_path / ".gitignore").write_text("a.md\n")
    tree.forget_rules()
    assert not tree.counts_file(str(tmp_path / "a.md"))


def test_symlinks_lead_out_once_and_never_round(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    make(root, "a.md", "sub/b.md")
    make(out, "deep/c.md", "d.md")
    (root / "loop").symlink_to(root)
    (root / "up").symlink_to(tmp_path)
    (root / "sub" / "inside.md").symlink_to(root / "a.md")
    (root / "out").symlink_to(out)
    (out / "back").symlink_to(out / "deep")
    (out / "round").symlink_to(root)
    (root / "single.md").symlink_to(out / "d.md")
    (root / "nowhere.md").symlink_to(tmp_path / "gone")
    found = [os.path.relpath(i.path, root) for i in Tree(root).walk() if isinstance(i, FileStat)]
    assert sorted(found, key=str) in (
        ["a.md", "out/d.md", "out/deep/c.md", "single.md", "sub/b.md"],
        ["a.md", "out/back/c.md", "out/d.md", "single.md", "sub/b.md"],
    )


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, "a.md")
    os.mkfifo(tmp_path / "pipe.md")
    assert [i.path for i in Tree(tmp_path).walk() if isinstance(i, FileStat)] == [str(tmp_path / "a.md")]


def test_what_cannot_be_read_is_told_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.md", "bad/b.md", "good/c.md")
    scandir = os.scandir

    def refusing(path: str) -> object:
        if path.endswith("bad"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = list(Tree(tmp_path).walk())
    assert [i for i in found if isinstance(i, Unreadable)] == [Unreadable(str(tmp_path / "bad"), "Permission denied")]
    assert {os.path.basename(i.path) for i in found if isinstance(i, FileStat)} == {"a.md", "c.md"}


def test_a_name_that_is_no_utf8_is_told(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.md", "w") as file:
        file.write("x")
    (found,) = [item for item in Tree(tmp_path).walk() if not isinstance(item, Directory)]
    assert isinstance(found, Unreadable)
    assert "UTF-8" in found.reason
    found.path.encode()


def test_a_directory_whose_name_is_no_utf8_is_told_and_not_entered(tmp_path: Path) -> None:
    """It could not be watched: the call would raise for all the other directories too."""
    bad = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(bad)
    with open(bad + b"/a.md", "w") as file:
        file.write("x")
    make(tmp_path, "good/b.md")
    found = list(Tree(tmp_path).walk())
    assert ["UTF-8" in item.reason for item in found if isinstance(item, Unreadable)] == [True]
    assert [i.path for i in found if isinstance(i, Directory)] == [str(tmp_path), str(tmp_path / "good")]
    assert [os.path.basename(i.path) for i in found if isinstance(i, FileStat)] == ["b.md"]


def test_a_root_of_one_file(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "b.md", "sub/a.md")
    check(tmp_path, "a.md", only="a.md")
    tree = Tree(tmp_path, "a.md")
    assert tree.holds(str(tmp_path / "a.md"))
    assert not tree.holds(str(tmp_path / "b.md"))


def test_a_root_of_one_file_may_be_a_symlink_to_its_neighbour(tmp_path: Path) -> None:
    make(tmp_path, "a-2.md")
    (tmp_path / "a.md").symlink_to("a-2.md")
    check(tmp_path, "a.md", only="a.md")


def test_a_walk_may_begin_below_the_root(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "sub/b.md", "node_modules/c.md")
    tree = Tree(tmp_path)
    assert [i.path for i in tree.walk(str(tmp_path / "sub")) if isinstance(i, FileStat)] == [
        str(tmp_path / "sub" / "b.md")
    ]
    assert list(tree.walk(str(tmp_path / "node_modules"))) == []
    assert [i.path for i in tree.walk(files=False)] == [str(tmp_path), str(tmp_path / "sub")]
