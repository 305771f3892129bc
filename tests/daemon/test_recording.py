"""Reading a recorded session: what happened, in which order, and how long each call took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recalld_daemon.replay.recording import (
    BoundaryStep,
    EndStep,
    NotASession,
    SaidStep,
    StartStep,
    TurnStep,
    read_recording,
)

_counter = iter(range(10_000))


def record(kind: str, second: int, content: Any, **more: Any) -> dict[str, Any]:
    stamp = f"2026-03-01T10:{second // 60:02}:{second % 60:02}.000Z"
    uuid = f"u{next(_counter)}"
    return {
        "type": kind,
        "uuid": uuid,
        "timestamp": stamp,
        "message": {"role": kind, "content": content},
        **more,
    }


def use(call: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": {"command": "make"}}


def result(call: str, error: bool = False) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": call,
        "content": [{"type": "text", "text": "out"}],
        "is_error": error,
    }


def write(tmp_path: Path, *records: dict[str, Any] | str) -> Path:
    path = tmp_path / "s.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def shape(tmp_path: Path, *records: dict[str, Any] | str) -> list[str]:
    names = {TurnStep: "turn", SaidStep: "said", StartStep: "start", EndStep: "end", BoundaryStep: "boundary"}
    return [names[type(step)] for step in read_recording(write(tmp_path, *records)).steps]


def test_a_turn_a_word_and_a_call(tmp_path: Path) -> None:
    recording = read_recording(
        write(
            tmp_path,
            record("user", 0, "please build", sessionId="s1", cwd="/w"),
            record(
                "assistant",
                1,
                [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Building."}],
            ),
            record("assistant", 2, [use("a")]),
            record("user", 5, [result("a", error=True)]),
        )
    )
    turn, _, said, start, end, boundary = recording.steps
    assert (recording.session, recording.cwd) == ("s1", "/w")
    assert isinstance(turn, TurnStep)
    assert turn.text == "please build"
    assert isinstance(said, SaidStep)
    assert said.text == "Building."
    assert isinstance(start, StartStep)
    assert start.args == {"command": "make"}
    assert isinstance(end, EndStep)
    assert (end.ok, end.result, end.seconds) == (False, "out", 3.0)
    assert boundary == BoundaryStep(end.at, ("a",))


def test_a_batch_has_one_boundary(tmp_path: Path) -> None:
    records = [
        record("user", 0, "go"),
        record("assistant", 1, [use("a")]),
        record("assistant", 1, [use("b")]),
        record("user", 2, [result("b")]),
        record("user", 4, [result("a")]),
        record("assistant", 5, [use("c")]),
        record("user", 6, [result("c")]),
    ]
    expected = ["turn", "boundary", "start", "start", "end", "end", "boundary", "start", "end", "boundary"]
    assert shape(tmp_path, *records) == expected


def test_what_is_not_conversation_is_left_out(tmp_path: Path) -> None:
    turn = record("user", 3, "real")
    records = [
        record("user", 0, "injected", isMeta=True),
        record("user", 1, "compact", isCompactSummary=True),
        record("user", 2, "<command-name>/clear</command-name>"),
        {"type": "system", "content": "x"},
        "not json",
        "[1]",
        turn,
        turn,  # a resumed copy, same uuid
        record("user", 4, "subagent's prompt", isSidechain=True),
        record("assistant", 5, [{"type": "text", "text": "aside"}, use("n")], isSidechain=True),
        record("user", 6, [result("n"), result("never started")], isSidechain=True),
    ]
    assert shape(tmp_path, *records) == ["turn", "boundary", "start", "end", "boundary"]
    recording = read_recording(tmp_path / "s.jsonl")
    assert recording.bad_lines == [5, 6]
    assert [step.nested for step in recording.steps if isinstance(step, StartStep)] == [True]


def test_a_call_that_never_ends_has_no_end_step(tmp_path: Path) -> None:
    assert shape(tmp_path, record("user", 0, "go"), record("assistant", 1, [use("a")])) == [
        "turn",
        "boundary",
        "start",
    ]


def test_a_file_that_is_no_session_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotASession, match=r"2 lines are not JSON objects.*expected one JSON object a line"):
        read_recording(write(tmp_path, "hello", "world"))
