"""recallctl train: what is asked, which answers are sent and when, on a terminal and without one."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from recalld_client.cli import main
from recalld_protocol.messages import Acked, Feedback, FromAgent, Problem, Snippet, TrainAsk, Training
from scripted_control import ScriptedControl

RUN = "import sys, recalld_client.cli as c; sys.exit(c.main(sys.argv[1:]))"


def training(number: int, candidates: int = 3) -> Training:
    snippets = [
        Snippet(id=f"r{number}-{n}", text=f"say {n}", path=f"notes/{n}.md", start=n, end=n + 9, date="2026-03-02")
        for n in range(1, candidates + 1)
    ]
    query = f"why does {number} fail?"
    return Training(recall=f"r{number}", query=query, cause=f"turn {number}: {query}", candidates=snippets)


class Script:
    """A daemon that asks so many questions, and no more; what it was told is kept."""

    def __init__(self, questions: int) -> None:
        self.questions, self.asked, self.told = questions, list[TrainAsk](), list[tuple[str, str]]()

    def train(self, question: FromAgent) -> Training:
        assert isinstance(question, TrainAsk)
        self.asked.append(question)
        number = len(self.asked)
        return training(number) if number <= self.questions else Training()

    def feedback(self, verdict: FromAgent) -> Acked:
        assert isinstance(verdict, Feedback)
        assert verdict.key == f"{verdict.impression}/train"
        self.told.append((verdict.impression, verdict.verdict))
        return Acked()

    def serve(self, runtime: Path) -> ScriptedControl:
        return ScriptedControl(runtime, {TrainAsk: self.train, Feedback: self.feedback})


Trainer = Callable[..., tuple[Script, int, str, str]]


@pytest.fixture
def train(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Trainer:
    def run(stdin: str | None, *argv: str, questions: int = 3) -> tuple[Script, int, str, str]:
        script = Script(questions)
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.StringIO(stdin))  # None: closed, as by <&-
        with script.serve(tmp_path / "run"):
            code = main(["--runtime-dir", str(tmp_path / "run"), "train", *argv])
        return script, code, *capsys.readouterr()

    return run


GOOD_1 = [("r1-1", "good"), ("r1-3", "good"), ("r1-2", "bad")]
NONE_1 = [("r1-1", "bad"), ("r1-2", "bad"), ("r1-3", "bad")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("1 3\n", GOOD_1),
        ("3,1\n", GOOD_1),
        ("13", GOOD_1),  # the input ends in the middle of the line
        ("1 2 2 3\n", GOOD_1),
        ("n\n", NONE_1),
        ("1 n\n", NONE_1),
        ("s\n", []),
        ("1 s\n", []),
        ("\n", []),
        ("9 0 x\n", []),
        ("q\n", []),
        ("1q\n", [("r1-1", "good")]),
        ("", []),
    ],
)
def test_a_line_answers_a_question(train: Trainer, line: str, told: list[tuple[str, str]]) -> None:
    script, code, _, err = train(line, questions=1)
    assert (code, err, script.told) == (0, "", told)


def test_questions_with_progress_and_a_sum(train: Trainer) -> None:
    script, code, out, _ = train("1\ns\nn\n", "--count", "3")
    assert code == 0
    assert (
        out
        == "".join(
            f"""{n} of 3  why does {n} fail?
    turn {n}
  1  say 1
     notes/1.md:1-10  2026-03-02
  2  say 2
     notes/2.md:2-11  2026-03-02
  3  say 3
     notes/3.md:3-12  2026-03-02
1-9 helped, enter: on, n: none helped, s: skip, q: stop
"""
            for n in (1, 2, 3)
        )
        + "2 answered (1 helped, 5 did not), 1 skipped\n"
    )
    assert [question.skip for question in script.asked] == [[], ["r1"], ["r1", "r2"]]
    assert {question.cwd for question in script.asked} == {os.getcwd()}


def test_it_ends_when_nothing_is_left_to_ask(train: Trainer) -> None:
    script, code, out, _ = train("1\n1\n1\n", questions=1)
    assert (code, len(script.asked)) == (0, 2)
    assert out.endswith("\n1 answered (1 helped, 2 did not), 0 skipped\n")
    _, code, out, _ = train("", questions=0)
    assert (code, out) == (0, "there is nothing to ask: no past query is left unjudged\n")


def test_a_query_of_ones_own_is_one_question(train: Trainer) -> None:
    script, _, out, _ = train("n\n", "--query", "the", "port", "--limit", "4", "--all-projects")
    (question,) = script.asked
    assert (question.query, question.limit, question.all_scopes) == ("the port", 4, True)
    assert out.startswith("1 of 1  ")
    assert train("", "--query", "x", questions=0)[2] == "nothing is found for it\n"


def test_json_is_a_line_for_each_question_each_answer_and_the_sum(train: Trainer) -> None:
    _, code, out, _ = train("2\nq\n", "--json")
    first, answer, second, stopped, end = map(json.loads, out.splitlines())
    assert code == 0
    assert (first["kind"], first["number"], first["of"], first["recall"]) == ("training", 1, 10, "r1")
    assert [candidate["id"] for candidate in first["candidates"]] == ["r1-1", "r1-2", "r1-3"]
    assert answer == {"kind": "answer", "recall": "r1", "good": ["r1-2"], "bad": ["r1-1", "r1-3"]}
    assert second["recall"] == "r2"
    assert stopped == {"kind": "answer", "recall": "r2", "good": [], "bad": []}
    assert end == {"kind": "trained", "asked": 2, "answered": 1, "skipped": 0, "good": 1, "bad": 2}


def test_a_daemon_that_fails_at_it_costs_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(1)

    def once(question: FromAgent) -> Any:
        return script.train(question) if not script.asked else Problem(code="failed", text="disk full")

    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n2\n"))
    with ScriptedControl(tmp_path / "run", {TrainAsk: once, Feedback: script.feedback}):
        code = main(["--runtime-dir", str(tmp_path / "run"), "train"])
    out, err = capsys.readouterr()
    assert (code, script.told[0]) == (1, ("r1-1", "good"))
    assert out.endswith("1 answered (1 helped, 2 did not), 0 skipped\n")
    assert re.fullmatch(r"recallctl: the daemon at .*: disk full\n", err)


def test_an_answer_that_was_not_taken_is_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(1)

    def first_only(verdict: FromAgent) -> Any:
        return script.feedback(verdict) if not script.told else Problem(code="failed", text="disk full")

    def ended(feedback: Callable[[FromAgent], Any]) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO("1 2\n"))
        with ScriptedControl(tmp_path / "run", {TrainAsk: script.train, Feedback: feedback}):
            assert main(["--runtime-dir", str(tmp_path / "run"), "train", "--query", "x"]) == 1
        return capsys.readouterr().out.splitlines()[-1]

    assert ended(first_only) == "1 answered (1 helped, 0 did not), 0 skipped"
    script.asked.clear()
    none = ended(lambda verdict: Problem(code="failed", text="disk full"))
    assert none == "0 answered (0 helped, 0 did not), 0 skipped"


def test_closed_standard_input_is_one_that_has_ended(train: Trainer) -> None:
    script, code, out, err = train(None, questions=1)
    assert (code, err, script.told) == (0, "", [])
    assert out.endswith("0 answered (0 helped, 0 did not), 0 skipped\n")


def test_no_daemon_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runtime-dir", str(tmp_path / "run"), "train"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("recallctl: no daemon at ")


# ---------------------------------------------------------------- on a terminal


def typed(runtime: Path, keys: Sequence[tuple[str, str]]) -> tuple[int, str]:
    """Runs it on a terminal of its own; each key is pressed once its text has been shown. "INT" interrupts."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", RUN, "--runtime-dir", str(runtime), "train"]
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"}
    )
    os.close(theirs)
    shown, at = "", 0
    for text, key in keys:
        while (found := shown.find(text, at)) < 0:
            shown += os.read(ours, 4096).decode()
        at = found + len(text)
        if key == "INT":
            child.send_signal(signal.SIGINT)
        else:
            os.write(ours, key.encode())
    try:
        while more := os.read(ours, 4096):
            shown += more.decode()
    except OSError:  # Linux's way of saying that the other side has closed
        pass
    os.close(ours)
    return child.wait(), shown


def test_keys_mark_and_go_on(tmp_path: Path) -> None:
    script = Script(9)
    keys = [("q: stop", "2"), ("helped: 2", "3"), ("helped: 2 3", "2"), ("helped: 3", "\r"), ("2 of 10", "q")]
    with script.serve(tmp_path / "run"):
        code, shown = typed(tmp_path / "run", keys)
    assert code == 0
    assert script.told == [("r1-3", "good"), ("r1-1", "bad"), ("r1-2", "bad")]
    assert shown.endswith("1 answered (1 helped, 2 did not), 0 skipped\r\n")


def test_an_interruption_keeps_all_that_was_said(tmp_path: Path) -> None:
    script = Script(9)
    keys = [("q: stop", "n"), ("2 of 10", "1"), ("helped: 1", "INT")]
    with script.serve(tmp_path / "run"):
        code, shown = typed(tmp_path / "run", keys)
    assert code == 130
    assert script.told == [*NONE_1, ("r2-1", "good")]
    assert "2 answered (1 helped, 3 did not), 0 skipped" in shown
