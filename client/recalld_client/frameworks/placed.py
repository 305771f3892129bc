"""Lines that keep their place in a conversation: sans-IO, and knowing no framework.

A framework rebuilds its model's input from its own history for each request, and what we add is not part of that
history (it belongs to the user, who may store it or show it). So each line is put back, request after request, after
the same message as at first. The model does not forget what it was shown; the input only ever grows at its end, which
keeps prompt caches warm; and a request that is retried is the same again. Where the history no longer holds the message
(trimmed, summarised), its lines are gone too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

MAX_PLACES = 256  # messages with lines after them; what a session is shown is bounded long before
T = TypeVar("T")
Anchor = tuple[Hashable, int]  # a message's key, and which of those of the same key it is


class Placed:
    """What was shown in one conversation, and after which message each line stands."""

    def __init__(self) -> None:
        self._lines: dict[Anchor, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def all_gone(self, keys: Sequence[Hashable]) -> bool:
        """Whether lines were placed, and not one of their messages is among `keys`: the context was compacted."""
        return bool(self._lines) and not self._lines.keys() & set(anchors(keys))

    def woven(
        self,
        items: Sequence[T],
        key: Callable[[T], Hashable],
        new: Sequence[str],
        made: Callable[[Sequence[str]], T],
    ) -> list[T]:
        """`items` with the lines shown so far in their places, and the `new` ones after the last item.

        `key`: what tells an item from the others, the same in each request; `made`: an item out of lines.
        """
        present = anchors(map(key, items))
        if new and present:
            self._lines[present[-1]] = (*self._lines.get(present[-1], ()), *new)
        self._lines = dict([(at, self._lines[at]) for at in present if at in self._lines][-MAX_PLACES:])
        result: list[T] = []
        for at, item in zip(present, items, strict=True):
            result.append(item)
            if lines := self._lines.get(at):
                result.append(made(lines))
        return result if present or not new else [made(new)]


def anchors(keys: Iterable[Hashable]) -> list[Anchor]:
    """Keys made unique by counting: the second "ok" is another message than the first.

    >>> anchors(["a", "ok", "b", "ok"])
    [('a', 0), ('ok', 0), ('b', 0), ('ok', 1)]
    """
    seen: dict[Hashable, int] = {}
    numbered: list[Anchor] = []
    for key in keys:
        seen[key] = seen.get(key, -1) + 1
        numbered.append((key, seen[key]))
    return numbered


def content_key(*parts: object) -> str:
    """A key for an item that has no id: equal for equal content, whatever JSON makes of it."""
    text = json.dumps(parts, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.blake2s(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
