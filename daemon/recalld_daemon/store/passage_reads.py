"""Reads of what passages say and where they stand, for an index of words and cards: all without any encoder.

A passage's mark is made of its content hash and of its source's path words: it changes when anything does by whose
words the passage is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.store.reads import Reads

_FACTS = """SELECT p.id, p.scope, p.written_at, p.hash, p.source, p.ordinal, s.path_words
    FROM passages p CROSS JOIN sources s ON s.id = p.source WHERE """
_TEXTS = """SELECT p.id, p.scope, p.written_at, p.hash, p.source, p.ordinal, s.path_words,
    p.heading, p.speaker, p.parts, p.text
    FROM passages p CROSS JOIN sources s ON s.id = p.source WHERE p.id IN ({marks})"""
_PER_STATEMENT = 500
_PER_WALK = 20_000  # rows of a long walk that are read at a time, so that no read keeps the log from being cut


@dataclass(frozen=True, slots=True)
class PassageFacts:
    """n passages by rising id. ids, scopes, marks, sources, ordinals: (n,) int64; written_at: (n,) float64 epoch s."""

    ids: NDArray[np.int64]
    scopes: NDArray[np.int64]
    written_at: NDArray[np.float64]
    marks: NDArray[np.int64]
    sources: NDArray[np.int64]
    ordinals: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PassageBatch(PassageFacts):
    """The same with all that is searched by words: n texts, headings, speakers, path words and identifier parts."""

    texts: Sequence[str]
    headings: Sequence[str]
    speakers: Sequence[str]
    paths: Sequence[str]
    parts: Sequence[str]


class PassageReads(Reads):
    """The part of the reader that knows passages apart from their vectors."""

    def passage_facts(self) -> PassageFacts:
        """All passages, without their texts."""
        found = [_columns([])]
        last = 0
        while rows := self._all(f"{_FACTS} p.id > ? ORDER BY p.id LIMIT {_PER_WALK}", (last,)):
            found.append(_columns(rows))  # at once: as Python's objects a million rows would take 300 MB
            last = rows[-1][0]
        return PassageFacts(**{name: np.concatenate([columns[name] for columns in found]) for name in found[0]})

    def passage_facts_of(self, source: int) -> PassageFacts:
        """Those of a source that its last pass was about: all, or what an appending pass brought."""
        rows = self._all(f"{_FACTS} s.id = ? AND p.start >= s.base ORDER BY p.id", (source,))
        return PassageFacts(**_columns(rows))

    def passage_batch(self, ids: Sequence[int]) -> PassageBatch:
        """What an index must learn of these passages; those gone are left out."""
        rows: list[Any] = []
        distinct = sorted(set(map(int, ids)))
        for at in range(0, len(distinct), _PER_STATEMENT):
            batch = distinct[at : at + _PER_STATEMENT]
            rows += self._all(_TEXTS.format(marks=",".join("?" * len(batch))), batch)
        rows.sort(key=lambda row: int(row[0]))
        return PassageBatch(
            **_columns(rows),
            texts=[row[10] for row in rows],
            headings=[row[7] for row in rows],
            speakers=[row[8] for row in rows],
            paths=[row[6] for row in rows],
            parts=[row[9] for row in rows],
        )


def _columns(rows: Sequence[Any]) -> dict[str, Any]:
    """Those of `PassageFacts`, of rows that begin as `_FACTS` has them."""
    n = len(rows)
    content = np.frombuffer(b"".join(row[3][:8] for row in rows), dtype="<i8")
    paths = np.fromiter((_path_mark(row[6]) for row in rows), np.int64, n)
    return {
        "ids": np.fromiter((row[0] for row in rows), np.int64, n),
        "scopes": np.fromiter((row[1] for row in rows), np.int64, n),
        "written_at": np.fromiter((row[2] for row in rows), np.float64, n),
        "marks": content ^ paths,
        "sources": np.fromiter((row[4] for row in rows), np.int64, n),
        "ordinals": np.fromiter((row[5] for row in rows), np.int64, n),
    }


@lru_cache(maxsize=1024)
def _path_mark(path_words: str) -> int:
    return int.from_bytes(blake2b(path_words.encode(), digest_size=8).digest(), "little", signed=True)
