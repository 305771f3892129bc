"""JSON text as a tree that knows where everything stands, so that it can be changed without being written anew.

A parser that only gives values loses the user's order, indentation and comments; this one gives offsets (characters,
half open). Comments are taken where the host takes them. Values are those of the `json` module; keys given twice are
all kept, and the last one counts, as with JavaScript's own parser.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

DEPTH_LIMIT = 200  # levels of nesting; settings have five
_SPACE = re.compile(r"[ \t\r\n]*")
_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_WORD = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


class Unparsable(ValueError):
    """Not JSON; `line` from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line, self.why = line, why


@dataclass(frozen=True, slots=True)
class Node:
    """A value from `start` to `end`. `children`: an object's members or an array's items, in order."""

    kind: Literal["object", "array", "scalar"]
    start: int
    end: int
    value: Any
    children: tuple[Child, ...] = ()

    def member(self, key: str) -> Node | None:
        """The value under that key."""
        return next((child.node for child in reversed(self.children) if child.key == key), None)


@dataclass(frozen=True, slots=True)
class Child:
    """An item, or a member with its key; `start` is the key's for a member. It ends where `node` does."""

    start: int
    node: Node
    key: str | None = None


def parse(text: str, *, comments: bool = False) -> Node:
    """Raises Unparsable.

    >>> parse('{"a": [1, 2]} ').children[0].node.children[1].start
    10
    """
    scanner = _Scanner(text, _TRIVIA if comments else _SPACE)
    root = scanner.value(scanner.skip(0), 0)
    if scanner.skip(root.end) < len(text):
        raise scanner.fault(scanner.skip(root.end), "something follows the end")
    return root


def skip_trivia(text: str, at: int, *, comments: bool) -> int:
    """Where the next token after white space and comments begins."""
    match = (_TRIVIA if comments else _SPACE).match(text, at)
    return match.end() if match else at


class _Scanner:
    def __init__(self, text: str, trivia: re.Pattern[str]) -> None:
        self._text = text
        self._trivia = trivia

    def skip(self, at: int) -> int:
        match = self._trivia.match(self._text, at)
        return match.end() if match else at

    def fault(self, at: int, why: str) -> Unparsable:
        return Unparsable(len(re.findall(r"\r\n|\n|\r", self._text[:at])) + 1, why)

    def value(self, at: int, depth: int) -> Node:
        if depth > DEPTH_LIMIT:
            raise self.fault(at, f"more than {DEPTH_LIMIT} levels deep")
        match self._text[at : at + 1]:
            case "{":
                return self._container(at, depth, "object", "}")
            case "[":
                return self._container(at, depth, "array", "]")
            case '"':
                return self._scalar(at, _STRING, "a string that is not closed, or holds what JSON does not allow")
        return self._scalar(at, _WORD, f"a value is expected{self._found(at)}")

    def _scalar(self, at: int, pattern: re.Pattern[str], otherwise: str) -> Node:
        match = pattern.match(self._text, at)
        if not match:
            raise self.fault(at, otherwise)
        try:
            return Node("scalar", at, match.end(), json.loads(match[0]))
        except ValueError:  # a number of thousands of digits
            raise self.fault(at, "a number that can't be held") from None

    def _container(self, start: int, depth: int, kind: Literal["object", "array"], close: str) -> Node:
        children: list[Child] = []
        at = self.skip(start + 1)
        while not self._text.startswith(close, at):
            if children:
                if not self._text.startswith(",", at):
                    raise self.fault(at, f"a comma or {close} is expected{self._found(at)}")
                at = self.skip(at + 1)
            child = self._member(at, depth) if kind == "object" else Child(at, self.value(at, depth + 1))
            children.append(child)
            at = self.skip(child.node.end)
        held: Any = (
            {child.key: child.node.value for child in children}
            if kind == "object"
            else [child.node.value for child in children]
        )
        return Node(kind, start, at + 1, held, tuple(children))

    def _member(self, at: int, depth: int) -> Child:
        if not self._text.startswith('"', at):
            raise self.fault(at, f"a key in double quotes is expected{self._found(at)}")
        key = self._scalar(at, _STRING, "a key that is not closed")
        colon = self.skip(key.end)
        if not self._text.startswith(":", colon):
            raise self.fault(colon, f"a colon is expected after {json.dumps(key.value)}{self._found(colon)}")
        return Child(at, self.value(self.skip(colon + 1), depth + 1), key.value)

    def _found(self, at: int) -> str:
        if self._text.startswith(("//", "/*"), at):
            return ", and no comment"
        return f", not {self._text[at]!r}" if at < len(self._text) else ", but the text ends"
