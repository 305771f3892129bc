"""Pools and questions: what the learned parts are fitted on and judged by, whatever the data set.

A pool is a memory of passages as an ingest would make them: a document or a conversation's session is a source, and a
source's passages follow one another. A question is a focus with the passages that answer it; none means that nothing in
this memory does. Loaders of permissively licensed data are in `permissive.py`, of made-up conversations in `chats/`;
evaluation-only data is loaded by `tests/bench` and never reaches a fit that ships.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recalld_daemon.recall.types import Focus


@dataclass(frozen=True, slots=True)
class Row:
    """A passage of a pool. source: which document or session; rows of one source stand in the order they were written.

    speaker: who says it, "" in a document. written_at: epoch seconds, None where the data does not say.
    """

    text: str
    source: str
    speaker: str = ""
    heading: str = ""
    written_at: float | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One question. gold: indexes of the pool's rows that answer it; hidden: indexes that this question must not see.

    at: when it is asked (epoch seconds), None: after everything. group: questions of one group never stand on both
    sides of a split (a conversation, a document).
    """

    kind: str
    focus: Focus
    gold: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()
    at: float | None = None
    group: str = ""


@dataclass(slots=True)
class Pool:
    """A memory: its rows, and the questions about it."""

    name: str
    rows: list[Row]
    asks: list[Ask] = field(default_factory=list)


def user(text: str) -> Focus:
    """The focus of a user who asks this and nothing else."""
    return Focus(user_text=text)


def split(pools: Sequence[Pool], held_out: float, seed: int) -> tuple[list[Pool], list[Pool]]:
    """The same pools twice, with the questions divided by group: about `held_out` of the groups on the second side."""
    import random

    rng = random.Random(seed)
    left, right = [], []
    for pool in pools:
        groups = sorted({ask.group or str(place) for place, ask in enumerate(pool.asks)})
        held = set(rng.sample(groups, round(len(groups) * held_out)))
        sides: tuple[list[Ask], list[Ask]] = ([], [])
        for place, ask in enumerate(pool.asks):
            sides[(ask.group or str(place)) in held].append(ask)
        left.append(Pool(pool.name, pool.rows, sides[0]))
        right.append(Pool(pool.name, pool.rows, sides[1]))
    return left, right
