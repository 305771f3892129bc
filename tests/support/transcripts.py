"""Sessions of each host in their own records, for tests: made ones, and those that the real programs wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "daemon" / "fixtures" / "transcripts"
PROJECT = "/home/ada/tidewater"
TIME = "2026-03-02T10:00:00.500Z"
MOMENT = 1772445600.5

Record = dict[str, Any]


@dataclass(frozen=True)
class Format:
    """opening: what such a file begins with. record: one message of a speaker ("user", "assistant")."""

    kind: str
    name: str
    opening: tuple[Record, ...]
    record: Callable[[str, str, str], Record]

    def lines(self, *texts: str) -> list[str]:
        """The file's lines, with these texts said by user and assistant in turn."""
        said = [self.record(("user", "assistant")[n % 2], text, f"id{n}") for n, text in enumerate(texts)]
        return [json.dumps(record) for record in (*self.opening, *said)]

    def write(self, directory: Path, *lines: str | bytes, end: bytes = b"\n") -> Path:
        file = directory / self.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + end)
        return file


def claude_record(speaker: str, text: str, id: str, parent: str | None = None, **more: Any) -> Record:
    content: Any = text if speaker == "user" else [{"type": "text", "text": text}]
    base = {"parentUuid": parent, "isSidechain": False, "type": speaker, "cwd": PROJECT, "uuid": id}
    return base | {"timestamp": TIME, "message": {"role": speaker, "content": content}} | more


def codex_record(speaker: str, text: str, id: str, **more: Any) -> Record:
    kind = "input_text" if speaker != "assistant" else "output_text"
    payload = {"type": "message", "id": id, "role": speaker, "content": [{"type": kind, "text": text}]}
    return {"timestamp": TIME, "type": "response_item", "payload": payload | more}


def copilot_record(speaker: str, text: str, id: str, **more: Any) -> Record:
    return {"type": f"{speaker}.message", "data": {"content": text} | more, "id": id, "timestamp": TIME}


def gemini_record(speaker: str, text: str, id: str, **more: Any) -> Record:
    content: Any = [{"text": text}] if speaker == "user" else text
    kind = "user" if speaker == "user" else "gemini"
    return {"id": id, "timestamp": TIME, "type": kind, "content": content} | more


CLAUDE_CODE = Format(
    "claude-code",
    "0a1b.jsonl",
    ({"type": "queue-operation", "operation": "enqueue", "timestamp": TIME, "sessionId": "0a1b", "content": "any"},),
    claude_record,
)
CODEX = Format(
    "codex",
    "rollout-2026-03-02T10-00-00-0a1b.jsonl",
    ({"timestamp": TIME, "type": "session_meta", "payload": {"id": "0a1b", "cwd": PROJECT}},),
    codex_record,
)
COPILOT = Format(
    "copilot",
    "0a1b/events.jsonl",
    ({"type": "session.start", "data": {"context": {"cwd": PROJECT}}, "id": "e0", "timestamp": TIME},),
    copilot_record,
)
GEMINI = Format(
    "gemini",
    "session-2026-03-02T10-00-0a1b.jsonl",
    (
        {
            "sessionId": "0a1b",
            "projectHash": hashlib.sha256(PROJECT.encode()).hexdigest(),
            "kind": "main",
            "directories": [PROJECT],
        },
    ),
    gemini_record,
)
FORMATS = (CLAUDE_CODE, CODEX, COPILOT, GEMINI)
