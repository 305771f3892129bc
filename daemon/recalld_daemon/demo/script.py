"""The scripted agent: what it says and does, and how long each call takes (script.toml; its head has the schema)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    args: str
    seconds: float
    result: str
    ok: bool = True


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    text: str
    steps: tuple[Said | ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Script:
    cwd: str
    turns: tuple[ScriptedTurn, ...]

    def calls(self) -> Iterator[ToolCall]:
        return (step for turn in self.turns for step in turn.steps if isinstance(step, ToolCall))


def load_script() -> Script:
    """The packaged script."""
    text = resources.files(__package__).joinpath("script.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    turns = [ScriptedTurn(turn["text"], tuple(map(_step, turn["step"]))) for turn in document["turn"]]
    return Script(document["cwd"], tuple(turns))


def _step(row: dict[str, Any]) -> Said | ToolCall:
    if row["kind"] == "said":
        return Said(row["text"])
    return ToolCall(row["name"], row["args"], float(row["seconds"]), row["result"], row.get("ok", True))
