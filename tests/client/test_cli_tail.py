"""recallctl tail: live events over a real XPUB, filters, gaps."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recalld_client.cli import main
from recalld_protocol.messages import Event
from scripted_control import ScriptedControl

AT = time.mktime((2026, 10, 12, 9, 5, 7, 0, 0, -1)) + 0.25
EVENTS: list[Event | bytes] = [
    Event(seq=40, at=AT, what="recall.settled", session="5b1f3c1e-6c1b", data={"outcome": "ready", "took_ms": 7.91}),
    Event(seq=41, at=AT, what="injection.won", session="5b1f3c1e-6c1b", data={"impression": "i-42"}),
    b"\xc1 no event",
    Event(seq=45, at=AT, what="ingest.file", data={"path": "notes/\x1b[31m.md", "passages": 1200}),
    Event(seq=1, at=AT, what="injection.slipped", session="c8e0d6a4", data={}),
]
Tail = Callable[..., list[str]]


@pytest.fixture
def tail(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tail:
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*argv: str) -> list[str]:
        with ScriptedControl(tmp_path / "run", {}, EVENTS):
            assert main(["--runtime-dir", str(tmp_path / "run"), "tail", *argv]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_events_with_gaps_between_them(tail: Tail) -> None:
    assert tail("--count", "4") == [
        "09:05:07.250  5b1f3c1e  recall.settled      outcome=ready  took=7.9 ms",
        "09:05:07.250  5b1f3c1e  injection.won       impression=i-42",
        "-- missed 3 events",
        "09:05:07.250  -         ingest.file         path=notes/\ufffd[31m.md  passages=1,200",
        "-- the daemon was restarted",
        "09:05:07.250  c8e0d6a4  injection.slipped",
    ]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (("--session", "5b1f"), ["recall.settled", "injection.won"]),
        (("--what", "injection."), ["injection.won", "injection.slipped"]),
        (("--what", "recall", "--what", "ingest"), ["recall.settled", "ingest.file"]),
        (("--what", "injection.", "--session", "5b1f3c1e-6c1b"), ["injection.won"]),
    ],
)
def test_filters(tail: Tail, filters: tuple[str, ...], names: list[str]) -> None:
    lines = tail(*filters, "--count", str(len(names)))
    assert [re.split(r"  +", line)[2] for line in lines if not line.startswith("--")] == names


def test_json_lines(tail: Tail) -> None:
    documents = [json.loads(line) for line in tail("--json", "--count", "3")]
    assert documents[0] == {
        "kind": "event",
        "session": "5b1f3c1e-6c1b",
        "seq": 40,
        "at": AT,
        "what": "recall.settled",
        "data": {"outcome": "ready", "took_ms": 7.91},
    }
    assert documents[2] == {"kind": "gap", "missed": 3, "restarted": False}
    assert documents[3]["data"]["path"] == "notes/\x1b[31m.md"  # JSON escapes it; nothing is lost


def test_says_where_it_listens_but_not_to_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, told in ([], f"listening at {tmp_path}/run/pub.sock; Ctrl-C ends\n"), (["--json"], ""):
        with ScriptedControl(tmp_path / "run", {}, EVENTS):
            assert main(["--runtime-dir", str(tmp_path / "run"), "tail", "--count", "1", *more]) == 0
        assert capsys.readouterr().err == told


def test_cut_to_the_width(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    (line,) = tail("--count", "1")
    assert line == "09:05:07.250  5b1f3c1e  recall.settled      outcome=ready  …"
    assert len(line) == 60


def test_a_return_to_the_promoted_version_is_told_plainly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    why = "on 9 pairs held out its MRR is 0.763, the promoted version's 0.796"
    reverted = Event(seq=7, at=AT, what="learning.reverted", data={"why": why, "impression": "f0cd6157.2.1-36"})
    with ScriptedControl(tmp_path / "run", {}, [reverted]):
        assert main(["--runtime-dir", str(tmp_path / "run"), "tail", "--count", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert (
        line == "09:05:07.250  -         learning.reverted   why=on 9 pairs held out its MRR is 0.763, the promoted …"
    )
