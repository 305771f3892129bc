"""Putting a value into JSON text and taking one out, everything else left as it stands.

What goes in follows what is there: its line ends, its indentation, one line where the file is one line. An insertion
is known by its spans in the new text; deleting these gives the old text back, byte for byte. Where somebody has changed
the text since, `without` takes a value out by its place in the tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .jsonc import Node, skip_trivia

Span = tuple[int, int]  # start and length, characters
USUAL_INDENT = "  "
_COMMENT_BESIDE = re.compile(r"[ \t]*(?://[^\r\n]*|/\*(?:(?!\*/)[^\r\n])*\*/[ \t]*(?=[\r\n]))")


def insert(
    text: str, into: Node, value: Any, key: str | None = None, *, comments: bool = False
) -> tuple[str, list[Span]]:
    """`value` as the last of that container, with the spans that are new. `key`: for an object.

    >>> from recalld_client.hosts.installing.jsonc import parse
    >>> insert('{"a": 1}', parse('{"a": 1}'), [2], "b")
    ('{"a": 1, "b": [2]}', [(7, 10)])
    """
    head = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    if not into.children:
        return _spliced(text, [_into_empty(text, into, head, value, comments)])
    last = into.children[-1]
    own_line = _own_line(text, last.start)
    if own_line is None:
        return _spliced(text, [(last.node.end, ", " + head + _in_one_line(value))])
    body = _newline(text) + own_line + head + _laid_out(text, value, own_line)
    beside = _COMMENT_BESIDE.match(text, last.node.end) if comments else None
    if beside:
        return _spliced(text, [(last.node.end, ","), (beside.end(), body)])
    return _spliced(text, [(last.node.end, "," + body)])


def undo(text: str, spans: Sequence[Span]) -> str:
    """The text without these spans; what `insert` was given."""
    for start, length in sorted(spans, reverse=True):
        text = text[:start] + text[start + length :]
    return text


def without(text: str, container: Node, index: int, *, comments: bool = False) -> str:
    """The text without that child and the comma that goes with it."""
    return undo(text, _around(text, container, index, comments))


def _around(text: str, container: Node, index: int, comments: bool) -> list[Span]:
    child, alone = container.children[index], len(container.children) == 1
    start, end = child.start, child.node.end
    if index == 0 and not alone:
        comma = skip_trivia(text, end, comments=comments)
        after = len(text[comma + 1 :]) - len(text[comma + 1 :].lstrip(" \t\r\n"))
        return [(start, end - start), (comma, 1 + after)]
    space = start - len(text[:start].rstrip(" \t\r\n"))
    space = 0 if comments and _would_be_commented_out(text, start - space, end) else space
    cut = (start - space, end - start + space)
    if alone:
        inner = text[container.start + 1 : cut[0]] + text[end : container.end - 1]
        return [cut] if inner.strip(" \t\r\n") else [(container.start + 1, container.end - container.start - 2)]
    comma = skip_trivia(text, container.children[index - 1].node.end, comments=comments)
    return [(comma, 1), cut]


def _would_be_commented_out(text: str, before: int, after: int) -> bool:
    """Whether a comment before it runs to the end of its line, and something else would come onto that line."""
    last_line = re.split(r"[\r\n]", text[:before])[-1]
    first_line = re.split(r"[\r\n]", text[after:], maxsplit=1)[0]
    return "//" in last_line and first_line.strip() != ""


def _into_empty(text: str, into: Node, head: str, value: Any, comments: bool) -> tuple[int, str]:
    """Where, and what. Behind a comment, if one stands there."""
    end = into.end - 1
    at = into.start + 1
    at += len(text[at:end].rstrip(" \t\r\n")) if comments else 0
    if not _in_lines(text, into):
        return at, head + _in_one_line(value)
    outer = _line_indent(text, into.start)
    indent = outer + _unit(text)
    body = _newline(text) + indent + head + _laid_out(text, value, indent)
    return at, body if "\n" in text[at:end] else body + _newline(text) + outer


def _in_lines(text: str, container: Node) -> bool:
    """Whether what goes into this empty container may take lines: not if the file is all one line."""
    return not text[: container.start].strip(" \t\r\n\ufeff") or "\n" in text.strip(" \t\r\n")


def _spliced(text: str, pieces: Iterable[tuple[int, str]]) -> tuple[str, list[Span]]:
    spans: list[Span] = []
    grown = 0
    for at, piece in pieces:
        text = text[: at + grown] + piece + text[at + grown :]
        spans.append((at + grown, len(piece)))
        grown += len(piece)
    return text, spans


def _own_line(text: str, at: int) -> str | None:
    """The white space before `at`, if nothing else stands before it on its line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line if not line.strip(" \t") and "\n" in text[:at] else None


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """One step of the file's indentation: that of the first line that has any."""
    found = re.search(r"\n([ \t]+)[^ \t\r\n]", text)
    return found[1] if found else USUAL_INDENT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _in_one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _laid_out(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (_newline(text) + indent).join(lines)
