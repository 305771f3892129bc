"""The wire's specification as data: what `protocol/README.md` says, and what the types say, in the same words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect

from recalld_protocol.messages import (
    AnyMessage,
    Event,
    FromAgent,
    FromDaemon,
    Hit,
    Message,
    SessionRow,
    Snippet,
    VersionRow,
    WhyCandidate,
)

README = Path(__file__).parents[2] / "protocol" / "README.md"
GOLDEN = Path(__file__).parents[1] / "protocol" / "golden"
MESSAGES: dict[str, type[Message]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyMessage)}
PARTS = {
    "snippet": Snippet,
    "hit": Hit,
    "session_row": SessionRow,
    "why_candidate": WhyCandidate,
    "version_row": VersionRow,
}
DIRECTIONS = {"agent": get_args(FromAgent), "daemon": get_args(FromDaemon), "events": (Event,)}
COMMON = ("session", "id", "re")
Row = tuple[str, str, str]  # a field's name, type and default, as the README writes them


@dataclass(frozen=True)
class Golden:
    """One message of the README: its bytes, and what they say."""

    kind: str
    frame: bytes
    reading: dict[str, Any]


def field_rows(cls: type[msgspec.Struct]) -> list[Row]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return [(field.encode_name, describe(field.type), _default(field)) for field in info.fields]


def own_rows(kind: str) -> list[Row]:
    return [row for row in field_rows(MESSAGES[kind]) if row[0] not in COMMON]


def describe(kind: inspect.Type) -> str:
    """A type in the README's words, limits included."""
    match kind:
        case inspect.StrType():
            return f"string{_bounds(kind.min_length, kind.max_length)}"
        case inspect.IntType():
            return f"int{_bounds(kind.ge, kind.le)}"
        case inspect.FloatType():
            return f"float{_bounds(kind.ge, kind.le)}"
        case inspect.BoolType():
            return "bool"
        case inspect.NoneType():
            return "null"
        case inspect.LiteralType():
            return " or ".join(sorted(f'"{value}"' for value in kind.values))
        case inspect.ListType():
            return f"list{_bounds(kind.min_length, kind.max_length)} of {describe(kind.item_type)}"
        case inspect.DictType():
            return f"map{_bounds(None, kind.max_length)}, {describe(kind.key_type)} to {describe(kind.value_type)}"
        case inspect.TupleType():
            return f"[{', '.join(map(describe, kind.item_types))}]"
        case inspect.UnionType():
            return " or ".join(map(describe, kind.types))
        case inspect.StructType():
            return next(f"`{name}`" for name, cls in PARTS.items() if cls is kind.cls)
    raise AssertionError(f"the README has no words for {kind}")


def sections() -> dict[str, str]:
    """The README's text under each heading that is a name in backticks."""
    parts = re.split(r"^#{3,4} `(\w+)`$|^#.*$", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name}


def documented_rows(section: str) -> list[Row]:
    """The field table of a section, without the meanings (which may not be empty)."""
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", section, flags=re.MULTILINE)
    assert all(meaning.strip() for *_, meaning in rows)
    return [(name, kind, default.strip("`")) for name, kind, default, _ in rows]


def goldens() -> Iterator[Golden]:
    for name, text in sections().items():
        if found := re.search(r"```hex\n(.+?)```\n+```json\n(.+?)```", text, flags=re.DOTALL):
            yield Golden(name, bytes.fromhex(found[1]), json.loads(found[2]))


def _bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return "" if high is None else f" ≤ {_number(high)}"
    return f" {_number(low)}…{_number(high)}" if high is not None else f" ≥ {_number(low)}"


def _number(value: float) -> str:
    return {2**53: "2^53", 1e11: "10^11"}.get(value, f"{value:,.0f}")


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return json.dumps(value)
