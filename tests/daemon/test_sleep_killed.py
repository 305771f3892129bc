"""A night that is killed, -9, at each of its phases and within them: what is searched stands, the next run goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import sleep_house
from recalld_daemon.evaluation.questions import read_log
from recalld_daemon.index import holds_all, open_index
from recalld_daemon.paths import Home, home_under
from recalld_daemon.sleep.cycle import last_of
from recalld_daemon.sleep.kept import names
from recalld_daemon.sleep.phases import PHASES
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.writer import open_writer
from recalld_daemon.versions import index_directory, searched_at_start
from sleep_house import BESIDE, CONFIG, filled, ground_of, night

PLACES = [(phase, 0) for phase in PHASES] + [
    ("train", 2), ("train", 150), ("judge", 30), ("reproject", 2), ("reproject", 4), ("index", 1), ("activate", 1)
]  # fmt: skip
Untouched = tuple[dict[str, int], list[bytes], list[list[int]]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("template")
    filled(directory, 40).close()
    return directory


@pytest.fixture(scope="module")
def unbroken(template: Path, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The vectors that a night makes which nobody kills."""
    home = copied(template, tmp_path_factory.mktemp("unbroken"))
    assert night(home).version == 1
    with open_reader(home.database) as reader:
        return vectors_of(reader, 1)


def copied(template: Path, directory: Path) -> Home:
    shutil.copytree(template, directory, dirs_exist_ok=True)
    return home_under(directory)


def vectors_of(reader: Reader, snapshot: int) -> list[bytes]:
    return [
        hash + row.tobytes()
        for hashes, rows in reader.walk_vectors(1, snapshot)
        for hash, row in zip(hashes, rows, strict=True)
    ]


@contextmanager
def going(home: Home) -> Iterator[subprocess.Popen[str]]:
    """A night of another process that waits for a line after each of its steps."""
    places = [str(Path(sleep_house.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join(places))
    command = [sys.executable, "-P", sleep_house.__file__, str(home.data.parent)]
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def kill_at(home: Home, phase: str, step: int) -> None:
    """SIGKILL when the night stands at the `step`-th step (from 0) of a phase."""
    with going(home) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = 0
        for line in process.stdout:
            now = line.split("|")[0]
            if now == phase and seen == step:
                break
            seen += now == phase
            assert now != "ended", "it ended before it could be killed"
            process.stdin.write("\n")
            process.stdin.flush()
        else:
            raise AssertionError(process.stderr.read() if process.stderr else "")
        process.kill()
        process.wait()
        assert process.returncode == -9


def untouched(home: Home) -> Untouched:
    """What no night may change: counts, frozen vectors, and what plain search finds."""
    with open_reader(home.database) as reader:
        counts = reader.counts()
        kept = {name: counts[name] for name in ("passages", "sources", "recalls", "impressions", "feedback")}
        frozen = vectors_of(reader, 0)
    with ground_of(home, CONFIG, lambda what, done, total: None) as ground:
        asked = read_log(ground.reader).questions[:4]
        return kept, frozen, [ground.ranked(question, ground.learned(0))[:10] for question in asked]


def check_whole(home: Home, before: Untouched) -> None:
    """The database is sound, nothing of the user's changed, and what is live can be searched."""
    with open_writer(home.database) as writer:
        assert writer.check() == []
    assert untouched(home) == before
    with open_reader(home.database) as reader:
        live = reader.live_version(1)
        assert searched_at_start(reader, 1).version == live
        record = reader.version(1, live)
        assert record is not None
        assert record.state == "ready"


def check_nothing_left(home: Home, version: int) -> None:
    with open_reader(home.database) as reader:
        assert [(row.version, row.state, row.live) for row in reader.versions(1)] == [
            (0, "ready", False), (version, "ready", True)
        ]  # fmt: skip
        assert [name for name in names() if reader.learning_state(f"sleep {name}", 1)] == []
        last = last_of(reader)
        assert last is not None
        assert last.ended_at is not None
        assert {entry.name for entry in home.data.iterdir()} <= BESIDE
        assert [entry.name for entry in home.index.iterdir()] == [f"encoder-1-v{version}"]
        index = open_index(index_directory(home.index, 1, version), reader, 1, version)
        try:
            assert holds_all(index, reader) == ""
        finally:
            index.close()


@pytest.mark.parametrize(("phase", "step"), PLACES)
def test_a_night_killed_anywhere_goes_on_and_ends_as_if_nobody_had_killed_it(
    template: Path, unbroken: list[bytes], tmp_path: Path, phase: str, step: int
) -> None:
    home = copied(template, tmp_path)
    before = untouched(home)
    kill_at(home, phase, step)
    check_whole(home, before)
    with open_reader(home.database) as reader:
        last = last_of(reader)
        assert last is not None
        assert (last.phase, last.ended_at) == (phase, None)
        is_live = reader.live_version(1) == 1
    ended = night(home)
    assert not ended.failed
    assert ended.report["resumed"] == ["tidy" if is_live else phase]
    assert ended.version == 1
    if phase == "reproject" and step:  # what was projected before is not projected again
        assert 0 < ended.report["reprojected"]["vectors"] < len(unbroken)
    check_whole(home, before)
    check_nothing_left(home, 1)
    with open_reader(home.database) as reader:
        assert vectors_of(reader, 1) == unbroken


@pytest.mark.parametrize("phase", ["train", "reproject", "verify", "activate"])
def test_a_night_that_will_not_go_on_leaves_nothing(template: Path, tmp_path: Path, phase: str) -> None:
    home = copied(template, tmp_path)
    before = untouched(home)
    kill_at(home, phase, 1 if phase != "activate" else 0)
    with open_reader(home.database) as reader:
        first = last_of(reader)
    other = sleep_house.replace(sleep_house.SETTINGS, drift_sample=50)  # another night
    ended = night(home, settings=other)
    assert first is not None
    assert "resumed" not in ended.report
    with open_reader(home.database) as reader:
        abandoned = next(cycle for cycle in reader.cycles() if cycle.id == first.id)
        assert abandoned.ended_at is not None
        assert "abandoned" in abandoned.report
        finished = {row.version for row in reader.versions(1)}
    check_whole(home, before)
    if phase != "activate":  # what was finished stands among the versions
        check_nothing_left(home, ended.version or 0)
    assert finished == ({0, 1, 2} if phase == "activate" else {0, ended.version})


def test_what_was_fitted_and_judged_before_is_not_done_again(template: Path, tmp_path: Path) -> None:
    home = copied(template, tmp_path)
    kill_at(home, "judge", 30)
    steps: list[str] = []
    works = sleep_house.works()
    night(home, works, lambda what, done, total: steps.append(what))
    assert works.fit.given == []  # type: ignore[attr-defined]
    assert "judging champion" not in steps
    assert np.count_nonzero([step.startswith("judging") for step in steps]) > 0
