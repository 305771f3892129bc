"""`recalld sleep` as its user meets it: exit codes, a dry run that writes nothing, one at a time, stopping, words."""

from __future__ import annotations

import io
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sleep_house
from recalld_daemon import worker
from recalld_daemon.__main__ import main
from recalld_daemon.lock import held_lock
from recalld_daemon.paths import Home, home_under
from recalld_daemon.sleep.command import run_night, settings_of
from recalld_daemon.sleep.going_live import asked
from recalld_daemon.sleep.phases import PHASES, after, start_of
from recalld_daemon.sleep.ports import Answer, Interrupted
from recalld_daemon.sleep.progress import Told, line_of, stopped_by_signals
from recalld_daemon.sleep.recipes import RECIPES
from recalld_daemon.store.reader import open_reader
from recalld_daemon.store.rows import CycleRecord
from recalld_protocol.messages import Activate, Activated, FromAgent, FromDaemon, Pong, Problem
from sleep_house import CONFIG, SETTINGS, filled, works


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("template")
    filled(directory, 40).close()
    return directory


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Home:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return home_under(tmp_path)


def run(home: Home, **changes: Any) -> int:
    return run_night(home, CONFIG, SETTINGS, works(**changes), as_json=True)


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_dry_run_writes_nothing(home: Home, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    home.config_file.write_text("[learning]\nleast_queries = 30\n")
    before, files = home.database.read_bytes(), set(home.data.rglob("*"))
    assert main(["sleep", "--home", str(home.data.parent), "--dry-run", *flags]) == 0
    said = capsys.readouterr().out
    assert home.database.read_bytes() == before
    assert {file.name for file in set(home.data.rglob("*")) - files} <= {"recalld.db-wal", "recalld.db-shm"}
    with open_reader(home.database) as reader:
        assert reader.cycles() == []
        assert [row.version for row in reader.versions(1)] == [0]
    if flags:
        plan = json.loads(said)
        assert (plan["way"], plan["collected"]["distinct_queries"], plan["collected"]["pairs"]) == ("begin", 40, 32)
        assert "f_Q + f_K" in plan["would_train"]
        assert not any("ranker" in name for name in plan["would_train"])  # 32 lessons are too few for one
        assert plan["left_out"] == ["ranker (needs 60 questions to learn from)"]
        assert plan["running"] is None
        assert plan["reprojection"]["vectors"] >= 96
    else:
        assert "live is plain search" in said
        assert "40 distinct queries" in said
        assert "only if an f_K wins" in said


def test_a_dry_run_says_where_it_would_go_on(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if what == "judge":
            raise Interrupted

    with pytest.raises(Interrupted):
        sleep_house.night(home, tell=stop, config=replace(CONFIG, least_queries=30), settings=settings_of(CONFIG_30))
    home.config_file.write_text("[learning]\nleast_queries = 30\n[recall]\nlate_interaction = false\n")
    assert main(["sleep", "--home", str(home.data.parent), "--dry-run"]) == 0
    assert "from phase judge" in capsys.readouterr().out


CONFIG_30 = replace(CONFIG, least_queries=30)


def test_a_dry_run_beside_a_night_says_that_it_is_running(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with held_lock(home.data / "sleep.lock"):
        text = (home.data / "sleep.lock").read_text()
        assert main(["sleep", "--home", str(home.data.parent), "--dry-run"]) == 0
        assert (home.data / "sleep.lock").read_text() == text
    said = capsys.readouterr().out
    assert f"a sleep cycle is running (pid {text.strip()})" in said
    assert "cut short" not in said


def test_too_few_pairs_is_no_failure(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sleep", "--home", str(home.data.parent), "--dry-run"]) == 0
    assert "nothing would be trained: 40 distinct queries" in capsys.readouterr().out
    settings = replace(SETTINGS, least_queries=200)
    assert run_night(home, CONFIG, settings, works(), as_json=False) == 0
    said = capsys.readouterr().out
    assert "nothing was trained: 40 distinct queries have an answer that helped, at least 200 are needed" in said


def test_a_second_one_says_who_is_at_it_and_ends_with_3(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with held_lock(home.data / "sleep.lock"):
        pid = int((home.data / "sleep.lock").read_text())
        before = home.database.read_bytes()
        assert run(home) == 3
        assert home.database.read_bytes() == before
    said = capsys.readouterr()
    assert f"another sleep cycle is running (pid {pid})" in said.err
    assert said.out == ""


def test_a_night_ends_with_0_and_prints_its_report(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    how = "no daemon was running, so it was set live here, and the next one starts with it"
    assert report["result"] == f"version 1 (f_Q + f_K) is live: {how}"
    assert report["seconds"].keys() == set(PHASES)
    assert [f"[{n}/8 {phase}]" for n, phase in enumerate(PHASES, 1)] == [
        line for line in said.err.splitlines() if line.endswith("]") and "#" not in line
    ]
    assert run_night(home, CONFIG, SETTINGS, works(), as_json=False) == 0
    assert "version 1 stays: no challenger is better for sure on 8 questions" in capsys.readouterr().out


def test_a_failed_night_ends_with_1(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home, activate=lambda home, encoder, version: Answer(False, "daemon", "no")) == 1
    assert "version 1 was refused: no" in capsys.readouterr().err
    assert run(home, activate=lambda home, encoder, version: Answer(False, "daemon", "busy", again=True)) == 1
    assert "`recalld sleep` asks again" in capsys.readouterr().err


def test_a_home_without_memory_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped_back: list[bool] = []
    monkeypatch.setattr(worker, "yield_to_others", lambda: stepped_back.append(True))  # it would be the tests' process
    for flags in ([], ["--dry-run"]):
        assert main(["sleep", "--home", str(tmp_path / "none"), *flags]) == 1
        assert "there is no memory yet" in capsys.readouterr().err
    assert stepped_back == [True]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_at_a_safe_place_and_the_next_run_goes_on(
    home: Home, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sleep_house.MadeFits.both_sides()

    def fit(*given: Any) -> Any:
        signal.raise_signal(number)
        return made(*given)

    before = signal.getsignal(number)
    assert run(home, fit=fit) == 130
    assert signal.getsignal(number) == before
    assert "`recalld sleep` goes on from there" in capsys.readouterr().err
    assert run(home) == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == ["train"]


# ---------------------------------------------------------------- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def clock(*times: float) -> Callable[[], float]:
    found = iter(times)
    return lambda: next(found)


def test_progress_on_a_terminal_is_one_line_written_over() -> None:
    to = Terminal()
    told = Told(to, clock(0.0, 0.1, 10.0))
    told.phase("judge")
    told("judging f_Q", 0, 100)
    told("judging f_Q", 1, 100)
    told("judging f_Q", 50, 100)
    told.end()
    assert to.getvalue().split("\r\x1b[K") == [
        "", "[3/8 judge] judging f_Q [....................] 0 % (0/100)",
        "[3/8 judge] judging f_Q [##########..........] 50 % (50/100), 10 s left", "",
    ]  # fmt: skip


def test_progress_elsewhere_is_a_plain_line_now_and_then() -> None:
    to = io.StringIO()
    told = Told(to, clock(0.0, 1.0, 31.0, 32.0))
    told.phase("reproject")
    for done in (0, 1, 50):
        told("projecting vectors", done, 100)
    told("projecting names", 0, 0)
    assert to.getvalue().splitlines() == [
        "[4/8 reproject] projecting vectors [....................] 0 % (0/100)",
        "[4/8 reproject] projecting vectors [##########..........] 50 % (50/100), 31 s left",
        "[4/8 reproject] projecting names",
    ]


def test_a_line_is_right_when_more_is_done_than_was_expected() -> None:
    assert "100 % (120/100), 0 s left" in line_of("reproject", "projecting vectors", 120, 100, 5.0)


def test_a_second_signal_does_not_wait() -> None:
    told = Told(io.StringIO())
    with stopped_by_signals(told):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted):
            told("anything", 0, 0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


# ---------------------------------------------------------------- decisions


def cycle(**changes: Any) -> CycleRecord:
    base = CycleRecord(1, 1, 1_000.0, None, "train", "key", None, "{}")
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("last", "live", "now", "way"),
    [
        (cycle(), 0, 2_000.0, "resume"),
        (cycle(ended_at=1_500.0), 0, 2_000.0, "begin"),
        (cycle(key="other"), 0, 2_000.0, "begin"),
        (cycle(), 0, 1_000.0 + 40 * 3_600, "begin"),
        (cycle(), 0, 500.0, "begin"),  # the clock was set back
        (cycle(phase="unknown"), 0, 2_000.0, "begin"),
        (cycle(phase="activate", version=3), 2, 2_000.0, "resume"),
        (cycle(phase="activate", version=3, key="other"), 3, 2_000.0, "finish"),
    ],
)
def test_how_a_night_starts(last: CycleRecord, live: int, now: float, way: str) -> None:
    start = start_of(last, "key", live, now)
    assert start.way == way
    assert start.phase == {"begin": "collect", "resume": last.phase, "finish": "tidy"}[way]


def test_phases_follow_one_another() -> None:
    found = [PHASES[0]]
    while (phase := after(found[-1])) is not None:
        found.append(phase)
    assert tuple(found) == PHASES


def test_recipes_stand_simplest_first() -> None:
    assert [recipe.name for recipe in RECIPES] == [
        "ranker", "usefulness", "f_Q", "ranker + usefulness", "f_Q + ranker", "f_Q + ranker + usefulness", "f_Q + f_K",
        "f_Q + f_K + ranker", "f_Q + f_K + f_V + usefulness", "f_Q + f_K + f_V + ranker + usefulness",
    ]  # fmt: skip
    order = [("k" in recipe.parts, recipe.size) for recipe in RECIPES]
    assert order == sorted(order)


# ---------------------------------------------------------------- what a daemon answers


def answering(*answers: FromDaemon | None) -> tuple[Callable[[FromAgent, float], FromDaemon | None], list[FromAgent]]:
    left, sent = list(answers), list[FromAgent]()

    def ask(message: FromAgent, seconds: float) -> FromDaemon | None:
        sent.append(message)
        return left.pop(0)

    return ask, sent


def test_the_daemon_is_asked_for_the_version() -> None:
    ask, sent = answering(Pong(pid=7), Activated(version=3, ms=1.0))
    assert asked(ask, 7, 3) == Answer(True, "daemon")
    assert sent[1] == Activate(version=3)


@pytest.mark.parametrize(
    ("answers", "again", "says"),
    [
        ([None], True, "does not answer"),
        ([Pong(pid=8)], True, "is not the one of this home"),
        ([Pong(pid=7), None], True, "in time"),
        ([Pong(pid=7), Problem(code="failed", text="version 3: its index holds 1")], False, "its index holds 1"),
        ([Pong(pid=7), Problem(code="failed", text="not loaded yet: ask again in a moment")], True, "ask again"),
    ],
)
def test_what_the_daemon_does_not_do_is_said(answers: list[FromDaemon | None], again: bool, says: str) -> None:
    ask, _ = answering(*answers)
    answer = asked(ask, 7, 3)
    assert (answer.live, answer.again) == (False, again)
    assert says in answer.problem
