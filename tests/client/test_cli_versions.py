"""recallctl versions and rollback: what is shown of a version, what is asked, and how a refusal ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recalld_client.cli import main
from recalld_client.cli.versions import PATIENCE_SECONDS
from recalld_client.link import Link
from recalld_protocol.messages import Activate, Activated, FromAgent, Problem, VersionRow, Versions, VersionsAsk
from scripted_control import Answers, ScriptedControl

NIGHT = time.mktime((2026, 10, 12, 3, 10, 7, 0, 0, -1))  # local time, as it is printed
KNOWN = Versions(
    versions=[
        VersionRow(version=0, why="plain search"),
        VersionRow(
            version=4, live=True, created_at=NIGHT, why="f_Q + f_K", vectors=4, drift=0.08125, w2=3.25, b2=0.5,
            metrics={"mrr": 0.5123, "questions": 212, "learned_until": NIGHT, "judged.f_Q.mrr": 0.4}, bytes=80_000_000,
        ),
        VersionRow(version=5, created_at=NIGHT + 86_400, why="ranker, \x1b[31mand a story that is too long", vectors=4),
    ]
)  # fmt: skip

Ctl = Callable[..., tuple[int, str, str, list[FromAgent]]]


@pytest.fixture
def ctl(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*argv: str, answers: Answers) -> tuple[int, str, str, list[FromAgent]]:
        with ScriptedControl(tmp_path / "run", answers) as control:
            code = main(["--runtime-dir", str(tmp_path / "run"), *argv])
        out, err = capsys.readouterr()
        return code, out, err, control.asked

    return run


def test_versions_are_listed_with_what_they_are_worth(ctl: Ctl) -> None:
    code, out, err, _ = ctl("versions", answers={VersionsAsk: KNOWN})
    assert (code, err) == (0, "")
    assert out == (
        "version        made                 why                               drift   |W2|   |b2|      size"
        "  on held-out pairs\n"
        "      0        -                    plain search                          -      -      -       0 B  -\n"
        "      4  live  2026-10-12 03:10:07  f_Q + f_K                         0.081  3.250  0.500  76.3 MiB"
        "  mrr 0.5123, questions 212, learned until 2026-10-12 03:10:07\n"
        "      5        2026-10-13 03:10:07  ranker, \ufffd[31mand a story that i…  0.000  0.000  0.000       0 B"
        "  -\n"
    )


def test_versions_as_json_have_every_key(ctl: Ctl) -> None:
    _, out, _, _ = ctl("versions", "--json", answers={VersionsAsk: KNOWN})
    found = json.loads(out)
    assert found["kind"] == "versions"
    assert [row["version"] for row in found["versions"] if row["live"]] == [4]
    assert found["versions"][0] == {
        "version": 0, "live": False, "created_at": 0.0, "why": "plain search", "vectors": 0, "drift": 0.0,
        "metrics": {}, "w2": 0.0, "b2": 0.0, "bytes": 0,
    }  # fmt: skip


def test_before_the_encoder_is_known_there_are_none(ctl: Ctl) -> None:
    code, out, _, _ = ctl("versions", answers={VersionsAsk: Versions()})
    assert (code, out) == (0, "no versions yet: the encoder is being loaded\n")


@pytest.mark.parametrize(
    ("number", "told"), [(4, "version 4 is live (12.4 ms)\n"), (0, "version 0, plain search, is live (12.4 ms)\n")]
)
def test_rollback_asks_for_that_version_and_says_how_long_it_took(ctl: Ctl, number: int, told: str) -> None:
    answers: Answers = {Activate: lambda asked: Activated(version=getattr(asked, "version", 99), ms=12.41)}
    code, out, err, asked = ctl("rollback", str(number), answers=answers)
    assert (code, out, err) == (0, told, "")
    assert [question.version for question in asked if isinstance(question, Activate)] == [number]


def test_rollback_as_json_is_the_message(ctl: Ctl) -> None:
    _, out, _, _ = ctl("rollback", "4", "--json", answers={Activate: Activated(version=4, ms=12.5)})
    assert json.loads(out) == {"kind": "activated", "version": 4, "ms": 12.5}


def test_rollback_waits_for_an_index_that_must_be_built(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than any other command would wait, whatever the timeout, which may only lengthen it."""
    waited: list[float] = []
    request = Link.request

    def noted(link: Link, message: FromAgent, timeout_seconds: float) -> object:
        waited.append(timeout_seconds)
        return request(link, message, timeout_seconds)

    monkeypatch.setattr(Link, "request", noted)
    for timeout in ("2", "3000"):
        assert ctl("--timeout", timeout, "rollback", "4", answers={Activate: Activated(version=4)})[0] == 0
    assert waited == [PATIENCE_SECONDS, 3000.0]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (4, Problem(code="not_found", text="there is no version 7", of="activate")),
        (1, Problem(code="failed", text="version 7: its key adapter can't be read", of="activate")),
    ],
)
def test_a_refusal_is_one_line_with_its_reason(ctl: Ctl, code: int, problem: Problem) -> None:
    ended, out, err, _ = ctl("rollback", "7", answers={Activate: problem})
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert problem.text in err


@pytest.mark.parametrize("number", ["-1", "two", "1.5", ""])
def test_a_version_is_a_whole_number(ctl: Ctl, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        ctl("rollback", "--", number, answers={})
    assert "the number of a version" in capsys.readouterr().err
