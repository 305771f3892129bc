"""One settings text: ours put in, ours taken out. Pure; the disk is `files`' matter.

The text with ours in it can be brought back exactly by undoing the steps, last one first, as long as nobody has changed
it. Where somebody has, our hooks are looked for in the tree and taken out one by one, and with them the lists and
objects that we had made for them and that hold nothing else by now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .edits import Span, insert, undo, without
from .entries import Form
from .jsonc import Node, Unparsable, parse
from .marks import is_ours

HOOKS = "hooks"
Steps = tuple[tuple[Span, ...], ...]


class NotSettings(ValueError):
    """A text that is not what this host's settings are; says the line, and why."""


@dataclass(frozen=True, slots=True)
class Installed:
    """`steps`: the insertions, in order. `made`: the keys of `hooks` that were not there before, "hooks" for itself."""

    text: str
    steps: Steps = ()
    made: tuple[str, ...] = ()


def found(text: str, form: Form) -> list[tuple[str, dict[str, Any]]]:
    """Our hooks in this text, with their events. Raises NotSettings."""
    root = read(text, form)
    return [(event, handler) for event, handler in _all_hooks(root) if is_ours(handler, form.host)]


def is_current(text: str, form: Form, entries: Mapping[str, Any]) -> bool:
    """Whether just these hooks of ours stand there, each once, in its own list, and with no matcher that narrows it."""
    wanted = [(event, json.dumps(_handler(item), sort_keys=True)) for event, item in entries.items()]
    there = [(event, json.dumps(handler, sort_keys=True)) for event, handler in found(text, form)]
    return sorted(wanted) == sorted(there) and not _narrowed(read(text, form), form)


def put_in(text: str, form: Form, entries: Mapping[str, Any]) -> Installed:
    """`text` holds none of ours. Raises NotSettings."""
    if not text.strip():
        fresh = {**(form.fresh or {}), HOOKS: {event: [item] for event, item in entries.items()}}
        whole = json.dumps(fresh, ensure_ascii=False, indent=2) + ("" if text else "\n")
        return Installed(whole + text, (((0, len(whole)),),), (HOOKS, *entries))
    steps: list[tuple[Span, ...]] = []
    made: list[str] = []
    target: Node
    key: str | None
    value: Any
    for event, item in entries.items():
        root = read(text, form)
        hooks = root.member(HOOKS)
        listed = hooks.member(event) if hooks else None
        if hooks is None:
            target, key, value = root, HOOKS, {event: [item]}
        elif listed is None:
            target, key, value = hooks, event, [item]
        elif listed.kind != "array":
            raise NotSettings(f'line {_line(text, listed)}: "{event}" in "hooks" is no list')
        else:
            target, key, value = listed, None, item
        made += [key] if key else []
        made += [event] if key == HOOKS else []
        text, spans = insert(text, target, value, key, comments=form.comments)
        steps.append(tuple(spans))
    return Installed(text, tuple(steps), tuple(made))


def undone(text: str, steps: Sequence[Sequence[Span]]) -> str:
    """The text before `put_in`, if it is just as `put_in` left it."""
    for spans in reversed(steps):
        text = undo(text, spans)
    return text


def taken_out(text: str, form: Form, made: Sequence[str] | None = None) -> str:
    """Without our hooks, however they stand there. `made`: as of `Installed`; None: not known, so what we have emptied
    goes. Raises NotSettings."""
    emptied: list[str] = []
    while (place := _first_of_ours(read(text, form), form)) is not None:
        path, container, index = place
        text = without(text, container, index, comments=form.comments)
        emptied.append(path)
    for key in [*dict.fromkeys(emptied), HOOKS] if emptied else []:
        if made is None or key in made:
            text = _without_empty(text, form, key)
    return text


def is_bare(text: str, form: Form) -> bool:
    """Whether nothing is left but what a file of our own begins with."""
    if not text.strip():
        return True
    root = read(text, form)
    return bool(root.value == dict(form.fresh or {}) and not (form.comments and _has_comment(text)))


def read(text: str, form: Form) -> Node:
    """The tree; `hooks`, if there is one, is an object. Raises NotSettings."""
    if not text.strip():
        return Node("object", 0, 0, {})
    try:
        root = parse(text, comments=form.comments)
    except Unparsable as error:
        raise NotSettings(str(error)) from None
    if root.kind != "object":
        raise NotSettings("line 1: an object is expected")
    hooks = root.member(HOOKS)
    if hooks is not None and hooks.kind != "object":
        raise NotSettings(f'line {_line(text, hooks)}: "hooks" is no object')
    return root


def _first_of_ours(root: Node, form: Form) -> tuple[str, Node, int] | None:
    """The event it hangs on, the container it is to be taken from, and which child it is."""
    hooks = root.member(HOOKS)
    for event in hooks.children if hooks else ():
        for index, item in enumerate(event.node.children):
            if not form.grouped:
                if is_ours(item.node.value, form.host):
                    return str(event.key), event.node, index
                continue
            group = item.node.member(HOOKS)
            ours = [i for i, hook in enumerate(group.children if group else ()) if is_ours(hook.node.value, form.host)]
            if group is not None and ours:
                alone = len(group.children) == 1
                return (str(event.key), event.node, index) if alone else (str(event.key), group, ours[0])
    return None


def _without_empty(text: str, form: Form, key: str) -> str:
    root = read(text, form)
    container = root if key == HOOKS else root.member(HOOKS)
    for index, child in enumerate(container.children if container else ()):
        if container is not None and child.key == key and not child.node.children:
            return without(text, container, index, comments=form.comments)
    return text


def _all_hooks(root: Node) -> Iterator[tuple[str, Any]]:
    hooks = root.member(HOOKS)
    for event in hooks.children if hooks else ():
        for item in event.node.value if event.node.kind == "array" else ():
            inner = item.get(HOOKS) if isinstance(item, dict) else None
            for handler in inner if isinstance(inner, list) else [item]:
                yield str(event.key), handler


def _narrowed(root: Node, form: Form) -> bool:
    """Whether a matcher stands beside one of ours."""
    hooks = root.member(HOOKS)
    groups = [item for event in (hooks.children if hooks else ()) for item in _items(event.node)]
    return any(
        isinstance(group, dict)
        and group.get("matcher") not in (None, "", "*")
        and any(is_ours(hook, form.host) for hook in _listed(group))
        for group in groups
    )


def _items(node: Node) -> list[Any]:
    return node.value if isinstance(node.value, list) else []


def _listed(group: dict[str, Any]) -> list[Any]:
    inner = group.get(HOOKS)
    return inner if isinstance(inner, list) else []


def _handler(item: Any) -> Any:
    return item[HOOKS][0] if HOOKS in item else item


def _has_comment(text: str) -> bool:
    try:
        parse(text)
    except Unparsable:
        return True
    return False


def _line(text: str, node: Node) -> int:
    return text.count("\n", 0, node.start) + 1
