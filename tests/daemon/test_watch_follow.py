"""Following a root through all that happens to real directories, with watchfiles really running."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio

from recalld_daemon.watchers.follow import Changed, OpenWatch, RawChanges, Rescan, Watch, follow, open_watch
from recalld_daemon.watchers.tree import Tree


@dataclass
class Follower:
    changes: trio.MemoryReceiveChannel[Changed | Rescan]
    warnings: list[str]
    tree: Tree
    watches: list[Sequence[str]] = field(default_factory=list)

    async def rescan(self) -> Rescan:
        while True:
            change = await self.changes.receive()
            if isinstance(change, Rescan):
                return change

    async def until(self, *, touched: Path | None = None, gone: Path | None = None) -> None:
        """Read on until these were told."""
        waiting = {("touched", str(touched))} if touched else set()
        waiting |= {("gone", str(gone))} if gone else set()
        while waiting:
            change = await self.changes.receive()
            if isinstance(change, Changed):
                assert not [path for path in change.touched if "node_modules" in path or path.endswith(".tmp")]
                waiting -= {("touched", path) for path in change.touched} | {("gone", path) for path in change.gone}


def run(tree: Tree, test: Callable[[Follower], Awaitable[None]], open_watch: OpenWatch = open_watch) -> None:
    async def main() -> None:
        send, receive = trio.open_memory_channel[Changed | Rescan](100)
        follower = Follower(receive, [], tree)

        def watching(directories: Sequence[str], polling: bool) -> Watch:
            follower.watches.append(directories)
            return open_watch(directories, polling)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    partial(follow, tree, send, warn=follower.warnings.append, open_watch=watching, wait_seconds=0.05)
                )
                await test(follower)
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_created_changed_renamed_deleted(tmp_path: Path) -> None:
    async def test(follower: Follower) -> None:
        await follower.rescan()
        file = tmp_path / "a.md"
        file.write_text("one")
        await follower.until(touched=file)
        with file.open("a") as out:
            out.write("two")
        await follower.until(touched=file)
        file.rename(tmp_path / "b.md")
        await follower.until(touched=tmp_path / "b.md", gone=file)
        (tmp_path / "b.md").unlink()
        await follower.until(gone=tmp_path / "b.md")

    run(Tree(tmp_path), test)


def test_p020_atomic_saves_of_one_file(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("zero")

    async def test(follower: Follower) -> None:
        await follower.rescan()
        for n in range(3):
            (tmp_path / "a.md.tmp").write_text(str(n))
            os.replace(tmp_path / "a.md.tmp", file)
            await follower.until(touched=file)

    run(Tree(tmp_path, only="a.md"), test)


def test_a_new_directory_is_told_whole_and_watched(tmp_path: Path) -> None:
    async def test(follower: Follower) -> None:
        await follower.rescan()
        new = tmp_path / "new"
        (new / "deep").mkdir(parents=True)
        await follower.until(touched=new)
        (new / "deep" / "a.md").write_text("x")
        await follower.until(touched=new / "deep" / "a.md")
        new.rename(tmp_path / "other")
        await follower.until(touched=tmp_path / "other", gone=new)
        (tmp_path / "other" / "deep" / "b.md").write_text("x")
        await follower.until(touched=tmp_path / "other" / "deep" / "b.md")

    run(Tree(tmp_path), test)


def test_p021_ignored_directories_get_no_watch(tmp_path: Path) -> None:
    for name in ("notes/sub", "node_modules/a/b", ".git/objects", ".venv/lib", "out"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("out/\n")

    async def test(follower: Follower) -> None:
        await follower.rescan()
        assert sorted(follower.watches[0]) == [str(tmp_path), str(tmp_path / "notes"), str(tmp_path / "notes" / "sub")]

    run(Tree(tmp_path), test)


@pytest.mark.parametrize("refusal", [OSError(errno.ENOSPC, "OS file watch limit reached."), PermissionError(1, "no")])
def test_p021_without_watches_it_polls_with_one_warning(tmp_path: Path, refusal: OSError) -> None:
    def refusing(directories: Sequence[str], polling: bool) -> Watch:
        if not polling:
            raise refusal
        return _FastPoll(directories)

    async def test(follower: Follower) -> None:
        await follower.rescan()
        (tmp_path / "a.md").write_text("x")
        await follower.until(touched=tmp_path / "a.md")
        (tmp_path / "sub").mkdir()
        await follower.until(touched=tmp_path / "sub")
        assert len(follower.warnings) == 1
        assert str(refusal) in follower.warnings[0]

    run(Tree(tmp_path), test, refusing)


class _FastPoll:
    """watchfiles' poller, looking more often than in earnest."""

    def __init__(self, directories: Sequence[str]) -> None:
        from watchfiles._rust_notify import RustNotify

        self._watch = RustNotify(list(directories), False, True, 20, False, True)

    def watch(self, debounce: int, step: int, timeout: int, stop: threading.Event | None) -> RawChanges:
        return self._watch.watch(debounce, step, timeout, stop)

    def close(self) -> None:
        self._watch.close()


def test_a_root_that_is_missing_then_made_then_replaced(tmp_path: Path) -> None:
    root = tmp_path / "root"

    async def test(follower: Follower) -> None:
        while not follower.warnings:
            await trio.lowlevel.checkpoint()
        root.mkdir()
        await follower.rescan()
        (root / "a.md").write_text("x")
        await follower.until(touched=root / "a.md")
        shutil.rmtree(root)
        root.mkdir()
        await follower.rescan()
        (root / "b.md").write_text("x")
        await follower.until(touched=root / "b.md")

    run(Tree(root), test)


def test_a_changed_gitignore_is_obeyed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "private").mkdir()

    async def test(follower: Follower) -> None:
        await follower.rescan()
        (tmp_path / ".gitignore").write_text("private/\n")
        assert "gitignore" in (await follower.rescan()).reason
        assert str(tmp_path / "private") not in follower.watches[-1]

    run(Tree(tmp_path), test)


def test_symlinked_directories_are_followed(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    out.mkdir()
    (root / "link").symlink_to(out)

    async def test(follower: Follower) -> None:
        await follower.rescan()
        (out / "a.md").write_text("x")
        await follower.until(touched=root / "link" / "a.md")

    run(Tree(root), test)


def test_it_stops_at_once(tmp_path: Path) -> None:
    class Never:
        """A watch that would block for ever but for the stop event."""

        def __init__(self) -> None:
            self.entered, self.stopped = threading.Event(), threading.Event()

        def watch(self, debounce: int, step: int, timeout: int, stop: threading.Event | None) -> RawChanges:
            assert stop is not None
            self.entered.set()
            assert stop.wait(20)
            self.stopped.set()
            return "stop"

        def close(self) -> None:
            raise AssertionError("closed under its thread")

    never = Never()

    async def test(follower: Follower) -> None:
        await follower.rescan()
        await trio.to_thread.run_sync(never.entered.wait)

    run(Tree(tmp_path), test, lambda directories, polling: never)
    assert never.stopped.wait(10)
