"""recallctl forget: what is asked, when it asks back, and how it ends."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from recalld_client.cli import main
from recalld_client.cli.forget import named
from recalld_protocol.messages import Forget, Forgotten, FromAgent, Problem
from scripted_control import Answers, ScriptedControl

GONE = Forgotten(path="memory:17", passages=2)
Ctl = Callable[..., tuple[int, str, str, list[FromAgent]]]


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def ctl(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    def run(*argv: str, answers: Answers, typed: str | None = None) -> tuple[int, str, str, list[FromAgent]]:
        monkeypatch.setattr("sys.stdin", io.StringIO() if typed is None else Typed(typed))
        with ScriptedControl(tmp_path / "run", answers) as control:
            code = main(["--runtime-dir", str(tmp_path / "run"), "forget", *argv])
        out, err = capsys.readouterr()
        return code, out, err, control.asked

    return run


def asked(found: list[FromAgent]) -> list[str]:
    return [message.path for message in found if isinstance(message, Forget)]


def test_it_says_that_nothing_is_left(ctl: Ctl) -> None:
    code, out, err, found = ctl("memory:17", answers={Forget: GONE})
    assert (code, err, asked(found)) == (0, "", ["memory:17"])
    assert out == "forgotten: memory:17, 2 passages; nothing of it is left on disk\n"
    _, out, *_ = ctl("memory:17", answers={Forget: Forgotten(path="memory:17", passages=1)})
    assert out.startswith("forgotten: memory:17, 1 passage;")


def test_json(ctl: Ctl) -> None:
    code, out, _, _ = ctl("--json", "memory:17", answers={Forget: GONE})
    assert (code, json.loads(out)) == (0, {"kind": "forgotten", "path": "memory:17", "passages": 2})


@pytest.mark.parametrize(("typed", "goes"), [("y\n", True), ("Y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_on_a_terminal_it_asks_back(ctl: Ctl, typed: str, goes: bool) -> None:
    code, out, err, found = ctl("memory:17", answers={Forget: GONE}, typed=typed)
    assert err.startswith("forget memory:17 for good, with all that was made of it? y/N\n")
    assert (code, asked(found)) == ((0, ["memory:17"]) if goes else (1, []))
    assert bool(out) is goes


def test_yes_means_yes(ctl: Ctl) -> None:
    code, _, err, found = ctl("--yes", "memory:17", answers={Forget: GONE}, typed="n\n")
    assert (code, err, asked(found)) == (0, "", ["memory:17"])


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (Problem(code="not_found", text="nothing is known of 'memory:17'", of="forget"), 4),
        (Problem(code="failed", text="/n/a.md is watched (below /n)", of="forget"), 1),
        (Problem(code="busy", text="another process reads the store", of="forget"), 1),
    ],
)
def test_a_refusal_is_one_line(ctl: Ctl, problem: Problem, code: int) -> None:
    ended, out, err, _ = ctl("memory:17", answers={Forget: problem})
    assert (ended, out) == (code, "")
    assert problem.text in err
    assert err.count("\n") == 1


def test_a_path_is_named_as_the_daemon_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    (tmp_path / "export.json").touch()
    assert named("memory:17") == "memory:17"
    assert named("export.json") == str(tmp_path / "export.json")
    assert named("/a/../b") == "/b"
    assert named("~/notes") == "/home/ada/notes"
    assert named("notes/as search shows it.md") == "notes/as search shows it.md"


def test_nothing_is_no_path(ctl: Ctl) -> None:
    code, _, err, found = ctl(" ", answers={Forget: GONE})
    assert (code, found) == (2, [])
    assert "the path is empty" in err
