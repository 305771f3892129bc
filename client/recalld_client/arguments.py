"""Text for the wire out of whatever an agent hands over: compact, clipped, and never raising.

A tool's arguments may be a string, a mapping, or anything; objects may be huge, cyclic, or break when they are printed.
Strings stay as they are, all else becomes compact JSON (which keeps an argument's name apart from its value), built
under a budget of characters; what can't be shown is named by its type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from itertools import islice
from typing import get_args

from recalld_protocol.wire import clip

MAX_DEPTH = 6  # of nesting; real tool arguments have at most three levels
MAX_ITEMS = 64  # of one collection; a batch of edits has some dozens
MAX_STRING = 2_048  # characters of one value among others: a file's new content must not push out its path


def limit_of(annotation: object) -> int:
    """The greatest length of one of the wire's annotated string types.

    >>> from recalld_protocol.messages import ArgsText
    >>> limit_of(ArgsText)
    8192
    """
    return int(get_args(annotation)[1].max_length)


def as_text(value: object, limit: int) -> str:
    """At most `limit` characters of `value`.

    >>> as_text({"command": "git push", "env": {"CI": 1}, "paths": ("a", b"b")}, 100)
    '{"command":"git push","env":{"CI":1},"paths":["a","b"]}'
    """
    if not isinstance(value, str):
        value = _json(value, limit)
    return clip(value[: limit + 1], limit)


def _json(value: object, limit: int) -> str:
    plain = _Plain(limit).of(value, MAX_DEPTH)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


class _Plain:
    """A copy of foreign values that JSON can hold, until the budget of characters is spent."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def of(self, value: object, depth: int) -> object:
        try:
            return self._copy(value, depth)
        except Exception:  # noqa: BLE001 - foreign objects may raise anything while they are read
            return self._cut(f"<{type(value).__name__}>")

    def _copy(self, value: object, depth: int) -> object:
        if isinstance(value, str):
            return self._cut(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return self._number(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._cut(bytes(value[:MAX_STRING]).decode("utf-8", "replace"))
        if depth == 0:
            return self._cut(f"<{type(value).__name__}>")
        if isinstance(value, Mapping):
            return self._mapping(value, depth - 1)
        if isinstance(value, (Sequence, Set)):
            return self._sequence(value, depth - 1)
        return self._cut(str(value))

    def _mapping(self, value: Mapping[object, object], depth: int) -> dict[str, object]:
        copy: dict[str, object] = {}
        for key, held in islice(value.items(), MAX_ITEMS):
            if self._budget <= 0:
                break
            copy[str(self.of(key, 0))] = self.of(held, depth)
        return copy

    def _sequence(self, value: Sequence[object] | Set[object], depth: int) -> list[object]:
        copy: list[object] = []
        for held in islice(value, MAX_ITEMS):
            if self._budget <= 0:
                break
            copy.append(self.of(held, depth))
        return copy

    def _number(self, value: float) -> object:
        text = repr(value) if type(value) in (int, float) else str(value)
        self._budget -= len(text)
        return value if type(value) in (int, float) and len(text) <= MAX_STRING else self._cut(text)

    def _cut(self, text: str) -> str:
        text = clip(text[: MAX_STRING + 1], max(1, min(MAX_STRING, self._budget)))
        self._budget -= len(text) + 3  # its quotes and comma
        return text
