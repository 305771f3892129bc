"""The pipeline's pure parts: comparing, taking turns, queueing paths, telling projects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from recalld_daemon.ingest.compare import POISON, compare
from recalld_daemon.ingest.paths import PathQueue
from recalld_daemon.ingest.ports import Root
from recalld_daemon.ingest.projects import project_beside, scope_key
from recalld_daemon.ingest.turns import Turns
from recalld_daemon.store.rows import Source, SourceState
from recalld_daemon.watchers.tree import FileStat, Unreadable


def source(
    path: str, *, size: int = 1, mtime: int = 1, inode: int = 1, state: SourceState = "ok", error: str = ""
) -> Source:
    return Source(1, 1, "markdown", path, path, size, mtime, inode, 0, state, error, 0)


def known(*sources: Source) -> dict[str, Source]:
    return {source.path: source for source in sources}


def test_unchanged_changed_new_and_gone() -> None:
    found = [FileStat("/r/same", 1, 1, 1), FileStat("/r/edited", 1, 9, 2), FileStat("/r/new", 5, 5, 5)]
    difference = compare(found, known(source("/r/same"), source("/r/edited", inode=2), source("/r/old", inode=3)))
    assert difference.unchanged == 1
    assert [file.path for file in difference.changed] == ["/r/edited", "/r/new"]  # newest first
    assert difference.gone == ["/r/old"]
    assert difference.moved == []


@pytest.mark.parametrize(
    ("file", "moved"),
    [
        (FileStat("/r/b/x.md", 7, 7, 3), True),  # same inode
        (FileStat("/r/b/a.md", 7, 7, 99), True),  # same name, size and time: moved across file systems
        (FileStat("/r/b/x.md", 7, 7, 99), False),
        (FileStat("/r/b/x.md", 7, 8, 3), False),  # an inode used again
        (FileStat("/r/b/a.md", 8, 7, 3), False),
    ],
)
def test_what_has_moved(file: FileStat, moved: bool) -> None:
    old = source("/r/a.md", size=7, mtime=7, inode=3)
    difference = compare([file], known(old))
    assert difference.moved == ([("/r/a.md", file.path)] if moved else [])
    assert difference.gone == ([] if moved else ["/r/a.md"])
    assert difference.changed == ([] if moved else [file])
    assert compare([file], known(old), lambda source, path: False).moved == []  # to another scope: read anew


def test_one_source_moves_to_one_place_only() -> None:
    twice = [FileStat("/r/b.md", 7, 7, 3), FileStat("/r/c.md", 7, 7, 3)]  # hard links
    difference = compare(twice, known(source("/r/a.md", size=7, mtime=7, inode=3)))
    assert len(difference.moved) == len(difference.changed) == 1


def test_what_lies_below_the_unreadable_is_not_gone() -> None:
    difference = compare([Unreadable("/r/sub", "no")], known(source("/r/sub/a.md"), source("/r/subway.md", inode=2)))
    assert difference.gone == ["/r/subway.md"]


def test_failures_are_tried_again_but_for_what_killed_the_worker() -> None:
    file = FileStat("/r/a", 1, 1, 1)
    assert compare([file], known(source("/r/a", state="failed", error="no permission"))).changed == [file]
    assert compare([file], known(source("/r/a", state="indexing"))).changed == [file]
    assert compare([file], known(source("/r/a", state="failed", error=f"{POISON}: signal 11"))).unchanged == 1


def test_whoever_is_alone_is_alone_and_is_not_starved() -> None:
    async def main() -> None:
        turns, log = Turns(), list[str]()
        release = trio.Event()

        async def share(name: str) -> None:
            async with turns.take(alone=False):
                log.append(name)
                await release.wait()

        async def alone(name: str) -> None:
            async with turns.take(alone=True):
                log.append(name)
                await trio.lowlevel.checkpoint()
                log.append(f"{name} done")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(share, "a")
            nursery.start_soon(share, "b")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(alone, "X")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(share, "c")
            nursery.start_soon(alone, "Y")
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(log) == ["a", "b"]
            release.set()
        assert log[2:] in (["X", "X done", "Y", "Y done", "c"], ["Y", "Y done", "X", "X done", "c"])

    trio.run(main)


def test_a_cancelled_wait_for_being_alone_blocks_nobody() -> None:
    async def main() -> None:
        turns = Turns()
        async with turns.take(alone=False):
            with trio.move_on_after(0):
                async with turns.take(alone=True):
                    raise AssertionError("not alone")
            with trio.fail_after(5):
                async with turns.take(alone=False):
                    pass

    trio.run(main)


def test_a_path_put_again_while_it_is_read_is_read_once_more() -> None:
    async def main() -> None:
        queue, log = PathQueue(), list[str]()
        queue.put("a")
        queue.put("a")
        queue.put("b")
        async with queue.take() as first:
            queue.put("a")
            async with queue.take() as second:
                log += [first, second]
                assert not queue.idle
        async with queue.take() as third:
            log.append(third)
        assert log == ["a", "b", "a"]
        assert queue.idle
        await queue.wait_idle()
        assert (queue.put_count, queue.done_count) == (3, 3)

    trio.run(main)


def test_an_agents_memory_belongs_to_the_project_of_the_transcript_beside_it(tmp_path: Path) -> None:
    project = tmp_path / "-home-ada-x"
    (project / "memory").mkdir(parents=True)
    memory = str(project / "memory" / "MEMORY.md")
    assert project_beside(tmp_path, memory) == ""
    assert scope_key(Root(tmp_path, transcripts=True), memory, "markdown", "") == str(project / "memory")
    (project / "s.jsonl").write_text(json.dumps({"type": "user", "cwd": '/home/ada/x "y"'}) + "\n")
    assert project_beside(tmp_path, memory) == '/home/ada/x "y"'
