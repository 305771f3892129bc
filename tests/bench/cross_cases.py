"""Questions with their candidates, as late interaction leaves them: what a cross-encoder is judged on.

Made once per set and kept, since scoring is tried with many models and the cascade before it is always the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from eval_documents import bukzor, realtalk_pools
from eval_pools import CATEGORIES, Judged, locomo
from figures import Scored, score
from house import House, open_house, search
from house_encoders import Encoders
from house_recall import Setting
from pool_types import Pool
from training.chats import chat_pools
from training.cross_lessons import SEED, both_sides

from recalld_daemon.recall.types import Float32
from recalld_daemon.store.texts import embedded_text

DEPTH = 20  # candidates whose texts are kept
BEFORE = Setting("up to late interaction", without=frozenset({"ranked", "cross"}))
HELD_OUT = ("til", "tldr", "wiki", "entire", "qmsum", "chat")  # permissive, and held out from training
CHATS = 3  # made-up conversations


@dataclass(frozen=True, slots=True)
class Case:
    """One question. texts: of the first DEPTH candidates; fused, late: of all (m,); units: what each counts as."""

    kind: str
    group: str
    query: str
    texts: list[str]
    fused: list[float]
    late: list[float]
    units: list[Any]
    gold: frozenset[Any]

    def order(self, scores: Float32 | None = None) -> list[int]:
        """Candidates by a score each, best first; as they were for None."""
        return list(range(len(self.units))) if scores is None else np.argsort(-scores, kind="stable").tolist()

    def score(self, order: Sequence[int]) -> Scored:
        return score([self.units[at] for at in order], self.gold, self.group, self.kind)


def cases_of(name: str, data: Path, work: Path) -> list[Case]:
    """A set's questions that have an answer and a text."""
    work.mkdir(parents=True, exist_ok=True)
    file = work / f"cases-{name}.pkl"
    if not file.exists():
        encoders = Encoders(work, work / "encodings")
        found = [case for judged in SETS[name](data) for case in _cases(judged, encoders)]
        file.write_bytes(pickle.dumps(found))
    kept: list[Case] = pickle.loads(file.read_bytes())
    return kept


def _cases(judged: Judged, encoders: Encoders) -> Iterator[Case]:
    with open_house(judged.pool, encoders) as house:
        for ask, gold in zip(judged.pool.asks, judged.golds, strict=True):
            if not gold or ask.kind == CATEGORIES[5]:
                continue
            found = search(house, ask, BEFORE)
            units = [judged.units[row] for row in found.rows]
            candidates = found.candidates
            yield Case(
                ask.kind,
                ask.group or judged.pool.name,
                found.query.text,
                _texts(house, found.rows[:DEPTH]),
                [candidate.fused for candidate in candidates],
                [0.0 if candidate.late is None else candidate.late for candidate in candidates],
                units,
                gold,
            )


def _texts(house: House, rows: Sequence[int]) -> list[str]:
    own = [house.pool.rows[row] for row in rows]
    return [embedded_text(row.heading, row.speaker, row.text, row.written_at) for row in own]


def _held_out(name: str) -> Callable[[Path], list[Judged]]:
    def load(data: Path) -> list[Judged]:
        if name == "chat":
            return [_judged(pool) for pool in chat_pools(CHATS, SEED + 1)]  # no seed of which training has seen
        held = [pool for pool in both_sides(data)[1] if pool.name.split()[0] == name and pool.asks]
        return [_judged(pool) for pool in held]

    return load


def _judged(pool: Pool) -> Judged:
    """A pool whose rows' sources are the units: a note, a page, an article's passage, a session; a meeting's turns."""
    by_row = pool.name.startswith(("qmsum", "wiki", "chat"))
    units: list[Any] = list(range(len(pool.rows))) if by_row else [row.source for row in pool.rows]
    return Judged(pool, units, [frozenset(units[row] for row in ask.gold) for ask in pool.asks], {})


SETS: dict[str, Callable[[Path], list[Judged]]] = {
    "locomo": lambda data: locomo(data / "locomo"),
    "realtalk": lambda data: realtalk_pools(data / "realtalk_dev"),
    "bukzor": lambda data: [bukzor(data / "real/session_kb_bukzor")],
    **{name: _held_out(name) for name in HELD_OUT},
}
