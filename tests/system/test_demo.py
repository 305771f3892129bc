"""`recalld demo` and `recalld replay`, run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

import recalld_daemon.demo

SAMPLE = Path(recalld_daemon.demo.__file__).parent / "sample"
SESSION = SAMPLE / "sessions" / "c8e0d6a4-0f2d-4be3-8d10-7b6c5a1f9e42.jsonl"


def recalld(*words: str, home: Path, models: Path | None = None) -> subprocess.CompletedProcess[str]:
    """With HOME and the temporary directory inside `home`; prepared models are put where a user has them."""
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    if models is not None:
        (home / ".cache" / "recalld").mkdir(parents=True, exist_ok=True)
        (home / ".cache" / "recalld" / "models").symlink_to(models)
    environ = dict(os.environ, HOME=str(home), TMPDIR=str(home / "tmp"))
    environ = {name: value for name, value in environ.items() if not name.startswith("XDG_")}
    command = [sys.executable, "-m", "recalld_daemon", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=400)


@pytest.mark.models
def test_the_demo_shows_every_kind_of_race_and_leaves_nothing_behind(tmp_path: Path, model_cache: Path) -> None:
    home = tmp_path / "h"
    shown = recalld("demo", "--fast", "--json", str(tmp_path / "out.json"), home=home, models=model_cache)
    assert shown.returncode == 0, shown.stderr
    assert " won in " in shown.stdout
    assert " slipped of “" in shown.stdout
    assert " silent" in shown.stdout
    assert "recalled: “" in shown.stdout or 'recalled: "… ' in shown.stdout
    assert "files 49/49" in shown.stdout  # progress while indexing
    assert "median" in shown.stdout
    races = json.loads((tmp_path / "out.json").read_text())
    assert {race["verdict"] for race in races} >= {"won", "slipped", "silent"}
    assert list((home / "tmp").iterdir()) == []
    assert sorted(path.name for path in home.iterdir()) == [".cache", "tmp"]
    left = [p for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get("HOME") == str(home)]
    assert left == []


def replayed(tmp_path: Path, models: Path, memory: Path, *flags: str) -> dict[str, Any]:
    out = tmp_path / "replay.json"
    words = ("replay", str(SESSION), "--memory", str(memory), "--json", str(out), *flags)
    shown = recalld(*words, home=tmp_path / "h", models=models)
    assert shown.returncode == 0, shown.stderr
    assert "ready at its own boundary" in shown.stdout
    result: dict[str, Any] = json.loads(out.read_text())
    return result


@pytest.mark.models
def test_a_replay_recalls_only_what_was_written_before(tmp_path: Path, model_cache: Path) -> None:
    """The memory holds the very session that is replayed, and notes from before and after it."""
    report = replayed(tmp_path, model_cache, SAMPLE)
    began = datetime.fromisoformat(json.loads(SESSION.read_text().splitlines()[1])["timestamp"].replace("Z", "+00:00"))
    injections = [i for race in report["races"] for i in race["injections"]]
    assert injections
    assert max(injection["date"] for injection in injections) <= began.astimezone().strftime("%Y-%m-%d")
    first = report["races"][0]
    assert all(SESSION.stem not in injection["path"] for injection in first["injections"])
    calls = [race for race in report["races"] if race["kind"] == "call"]
    assert report["summary"]["tool_calls"] == len(calls)
    assert all(race["length_ms"] >= 0 for race in calls)
    assert 0 < report["summary"]["ready_any"] <= 1


@pytest.mark.models
def test_a_replay_at_the_recorded_pace_takes_what_is_there_at_each_boundary(tmp_path: Path, model_cache: Path) -> None:
    """Two calls, of 400 and of 0 ms: the first race can be won, the second only lost or silent."""
    stamps = ("10:00:00.000", "10:00:00.100", "10:00:00.500", "10:00:00.600", "10:00:00.600")
    use = {"type": "tool_use", "name": "Bash"}
    asked = "alembic upgrade head # add an index on berth_booking, mind the lock"
    contents: list[tuple[str, Any]] = [
        ("user", "migrate the berth_booking table on production"),
        ("assistant", [use | {"id": "a", "input": {"command": asked}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]),
        ("assistant", [use | {"id": "b", "input": {"command": "podman pull tidewater and restart the worker"}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "b", "content": "done"}]),
    ]
    rows = [
        {"type": kind, "uuid": f"u{n}", "sessionId": "s", "cwd": "/", "timestamp": f"2026-11-01T{stamp}Z",
         "message": {"role": kind, "content": content}}
        for n, (stamp, (kind, content)) in enumerate(zip(stamps, contents, strict=True))
    ]  # fmt: skip
    session = tmp_path / "s.jsonl"
    session.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out.json"
    words = ("replay", str(session), "--memory", str(SAMPLE / "notes"), "--pace", "recorded", "--json", str(out))
    shown = recalld(*words, home=tmp_path / "h", models=model_cache)
    assert shown.returncode == 0, shown.stderr
    turn, first, second = json.loads(out.read_text())["races"]
    assert first["length_ms"] == pytest.approx(400, abs=1)
    assert turn["injections"] or first["injections"]
    assert first["verdict"] in ("won", "silent", "repeat")
    assert second["verdict"] in ("slipped", "silent", "stale", "won", "late")  # late: no boundary was left to slip to


def test_what_is_no_session_is_told_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("hello\n")
    shown = recalld("replay", str(tmp_path / "notes.jsonl"), "--memory", str(tmp_path), home=tmp_path / "h")
    assert shown.returncode == 2
    assert "notes.jsonl: holds no user or assistant records" in shown.stderr
    shown = recalld("replay", str(SESSION), "--memory", str(tmp_path / "nowhere"), home=tmp_path / "h")
    assert shown.returncode == 2
    assert "nowhere: no such directory" in shown.stderr


def test_a_bad_configuration_never_starts_a_daemon(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[recall]\nmax_snipets = 2\n")
    shown = recalld("run", "--config", str(tmp_path / "c.toml"), home=tmp_path / "h")
    assert shown.returncode == 2
    assert "c.toml:2: [recall] max_snipets: unknown key; did you mean `max_snippets`?" in shown.stderr


def test_the_configuration_is_printed_and_read_back(tmp_path: Path) -> None:
    shown = recalld("config", home=tmp_path / "h")
    (tmp_path / "c.toml").write_text(shown.stdout)
    again = recalld("config", "--config", str(tmp_path / "c.toml"), home=tmp_path / "h")
    assert shown.returncode == again.returncode == 0
    assert again.stdout == shown.stdout
    assert time.strftime("%Y") not in shown.stdout  # byte-stable
