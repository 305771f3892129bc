"""A recorded Claude Code session as the steps that its agent went through, in order, each with its moment.

The transcript is read record by record: a user's text opens a turn, the assistant's text is said, a `tool_use` block
starts a call and the `tool_result` block that names it ends it. When the last open call of a batch has ended, the host
goes back to its model: that is the boundary. A call's length is the time between the two records. Sidechain records
(subagents) are the calls of an enclosing one; their prompts are not the user's turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class TurnStep:
    at: float  # epoch seconds, as recorded
    text: str


@dataclass(frozen=True, slots=True)
class SaidStep:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class StartStep:
    at: float
    call: str
    name: str
    args: dict[str, Any]
    nested: bool = False  # made by a subagent


@dataclass(frozen=True, slots=True)
class EndStep:
    at: float
    call: str
    ok: bool
    result: str
    seconds: float  # the call's recorded length


@dataclass(frozen=True, slots=True)
class BoundaryStep:
    """The host may add context now: after a turn's text, or after `calls` ended."""

    at: float
    calls: tuple[str, ...] = ()


Step = TurnStep | SaidStep | StartStep | EndStep | BoundaryStep


class NotASession(Exception):
    """The file is no Claude Code transcript; the text says what was found instead."""


@dataclass(slots=True)
class Recording:
    session: str = ""
    cwd: str = ""
    steps: list[Step] = field(default_factory=list)
    bad_lines: list[int] = field(default_factory=list)  # line numbers that could not be read


def read_recording(path: Path) -> Recording:
    """Raises NotASession, OSError."""
    recording = Recording()
    with path.open("rb") as file:
        records = _records(file, recording)
        recording.steps = list(_steps(records))
    if not any(isinstance(step, TurnStep | StartStep) for step in recording.steps):
        raise NotASession(
            f"{path}: holds no user or assistant records of a Claude Code session "
            f"({len(recording.bad_lines)} lines are not JSON objects); expected one JSON object a line with "
            "`type`, `timestamp` and `message`"
        )
    return recording


def _records(lines: Iterable[bytes], recording: Recording) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            recording.bad_lines.append(number)
            continue
        if not isinstance(record, dict):
            recording.bad_lines.append(number)
            continue
        recording.session = recording.session or str(record.get("sessionId") or "")
        recording.cwd = recording.cwd or str(record.get("cwd") or "")
        uuid = record.get("uuid")
        if uuid and str(uuid) in seen:  # a resumed session's copy
            continue
        seen.add(str(uuid))
        if record.get("type") in ("user", "assistant") and isinstance(record.get("message"), dict):
            yield record


@dataclass(slots=True)
class _Batch:
    """Calls under way, and those that have ended since the last boundary."""

    started: dict[str, float] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)


def _steps(records: Iterable[dict[str, Any]]) -> Iterator[Step]:
    batch, at = _Batch(), 0.0
    for record in records:
        at = max(at, _moment(record))  # out-of-order clocks never run backwards
        if record.get("isMeta") or record.get("isCompactSummary"):
            continue
        message, side = record["message"], bool(record.get("isSidechain"))
        if record["type"] == "assistant":
            yield from _assistant(message, at, side, batch)
        else:
            yield from _user(message, at, side, batch)
    if batch.ended:
        yield BoundaryStep(at, tuple(batch.ended))


def _assistant(message: dict[str, Any], at: float, side: bool, batch: _Batch) -> Iterator[Step]:
    for block in _blocks(message):
        if block.get("type") == "text" and str(block.get("text") or "").strip() and not side:
            yield SaidStep(at, str(block["text"]))
        elif block.get("type") == "tool_use":
            call = str(block.get("id") or f"call-{at}-{len(batch.started)}")
            args = block.get("input")
            batch.started[call] = at
            yield StartStep(at, call, str(block.get("name") or "tool"), args if isinstance(args, dict) else {}, side)


def _user(message: dict[str, Any], at: float, side: bool, batch: _Batch) -> Iterator[Step]:
    texts: list[str] = []
    for block in _blocks(message):
        if block.get("type") == "tool_result":
            call = str(block.get("tool_use_id") or "")
            if call not in batch.started:
                continue
            seconds = at - batch.started.pop(call)
            batch.ended.append(call)
            yield EndStep(at, call, not block.get("is_error"), _flat(block.get("content"))[:2_000], seconds)
        elif block.get("type") == "text":
            texts.append(str(block.get("text") or ""))
    if batch.ended and not batch.started:
        yield BoundaryStep(at, tuple(batch.ended))
        batch.ended.clear()
    text = "\n".join(texts).strip()
    if text and not side and not text.startswith(("<command-", "<local-command", "<system-reminder", "Caveat:")):
        yield TurnStep(at, text)
        yield BoundaryStep(at)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _flat(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content or "")


def _moment(record: dict[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(record.get("timestamp")).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
