"""Cached files: whole or absent, made once, checked before use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recalld_daemon.models import cache


def test_a_made_file_is_intact_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = cache.make_text(tmp_path / "deep" / "runtime.json", "{}")
    assert cache.intact(path)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["runtime.json", "runtime.json.sum"]


@pytest.mark.parametrize("damage", ["cut", "changed", "no sum", "gone"])
def test_a_torn_or_foreign_file_counts_as_absent(tmp_path: Path, damage: str) -> None:
    path = cache.make_text(tmp_path / "graph", "0123456789")
    if damage == "cut":
        os.truncate(path, 5)
    elif damage == "changed":
        path.write_text("012345678x")
    elif damage == "no sum":
        path.with_name("graph.sum").unlink()
    else:
        path.unlink()
    assert not cache.intact(path)
    cache.make_text(path, "0123456789")
    assert cache.intact(path)


def test_a_failed_writer_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = cache.make_text(tmp_path / "graph", "old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.make(path, half)
    assert cache.intact(path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


def test_drop_removes_file_and_sum(tmp_path: Path) -> None:
    cache.drop(cache.make_text(tmp_path / "graph", "x"))
    cache.drop(tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


def test_the_lock_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    script = (
        "import pathlib, signal; from recalld_daemon.models import cache\n"
        f"with cache.locked(pathlib.Path({str(lock)!r}), print): print('held', flush=True); signal.pause()"
    )
    waits: list[int] = []
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"

        def waiting() -> None:
            waits.append(1)
            holder.kill()
            holder.wait()

        with cache.locked(lock, waiting):
            assert waits
