"""Settings as users write them: the same value in any layout, with comments, line ends and indentation of all kinds."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

EVENTS = ("UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd", "BeforeAgent", "postToolUse", "Notification")
SPACES = ("", " ", "  ", "\n", "\n  ", "\r\n\t", "\n\n    ", "\t")
COMMENTS = ("// one\n", "/* two */", " /* three\n lines */ ", "//\r\n")

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-9, 10**6) | words
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)
handlers = st.fixed_dictionaries(
    {"type": st.just("command"), "command": st.sampled_from(["node ~/recalld-notes/x.js", "recalld hooks", "true"])},
    optional={"timeout": st.integers(1, 9), "args": st.lists(words, max_size=2)},
)
groups = st.fixed_dictionaries(
    {"hooks": st.lists(handlers, max_size=2)}, optional={"matcher": st.sampled_from(["*", "Bash", ""])}
)
hooks = st.dictionaries(st.sampled_from(EVENTS), st.lists(groups | handlers, max_size=2), max_size=4)


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    """An object as a host's settings, often with hooks of the user's own in it."""
    plain = draw(st.dictionaries(words.filter(lambda key: key != "hooks"), values, max_size=4))
    if draw(st.booleans()):
        items = [*plain.items()]
        items.insert(draw(st.integers(0, len(items))), ("hooks", draw(hooks)))
        plain = dict(items)
    return plain


@st.composite
def written(draw: st.DrawFn, value: Any, comments: bool = False) -> str:
    """`value` as JSON text in a layout that is drawn: `json.dumps`' own, or white space wherever it may stand."""
    if draw(st.booleans()):
        indent = draw(st.sampled_from([None, 1, 2, 4, "\t"]))
        text = json.dumps(value, indent=indent, ensure_ascii=draw(st.booleans()))
        return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) + draw(st.sampled_from(["", "\n", "\r\n"]))
    trivia = st.sampled_from(SPACES + COMMENTS if comments else SPACES)
    return draw(trivia) + draw(_loose(value, trivia)) + draw(trivia)


@st.composite
def _loose(draw: st.DrawFn, value: Any, trivia: st.SearchStrategy[str]) -> str:
    if isinstance(value, dict):
        parts = [
            f"{draw(trivia)}{json.dumps(key)}{draw(trivia)}:{draw(trivia)}{draw(_loose(part, trivia))}{draw(trivia)}"
            for key, part in value.items()
        ]
        return "{" + (",".join(parts) or draw(trivia)) + "}"
    if isinstance(value, list):
        items = [f"{draw(trivia)}{draw(_loose(part, trivia))}{draw(trivia)}" for part in value]
        return "[" + (",".join(items) or draw(trivia)) + "]"
    return json.dumps(value)
