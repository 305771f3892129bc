"""Questions put to memories, as the gate would get them: each stage's answer, its best candidates, their labels.

Memories are houses of the benches: the product's own store, index, lanes and stages, so that a new stage is in the next
fit without a line here. What the gates that know no probability (accidents, orders, thin queries) stop is noted, since
only what is left is there to be cut.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/bench"))

from house import SEEN, House, open_house
from house_encoders import Encoders

from recalld_daemon.recall.gate import GATE_DEPTH, Context, decide, depth_of, stopped_by
from recalld_daemon.recall.gate_model import Model, stage_of
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.signals import FEATURES, Pool, full_text, pool_of, signals_of, wanted_of
from recalld_daemon.recall.stages import Stages
from recalld_daemon.recall.types import Answer, Candidate, Float64, Focus, Query, View
from training.gate_asks import (
    Part,
    absent,
    family_of,
    halves,
    nonsense,
    other_kind,
    small_parts,
    smalltalk,
    tool_calls,
)
from training.pools import Ask
from training.pools import Pool as Rows

SMALL = 200  # rows: a memory with fewer counts as small
SHARE = 0.4  # of its own questions, as many are asked that a memory can't answer, of each kind
TOOLS = 40  # tool calls asked of each large memory
EASY = {stage: Model((), (), (), (), bias=9.0, threshold=0.1) for stage in FEATURES}  # finds everything likely


@dataclass(frozen=True, slots=True)
class Judged:
    """One candidate: what is known of it, whether it answers, and whether no other gate stops it."""

    candidate: Candidate
    text: str
    gold: bool
    free: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One question at one stage. stage "": the question is silent by itself."""

    family: str
    size: int  # rows of the memory
    kind: str
    stage: str
    query: Query
    answered: bool  # whether the memory holds an answer
    judged: tuple[Judged, ...] = ()
    pool: Pool | None = None

    @property
    def small(self) -> bool:
        return self.size < SMALL

    def rows(self, names: Sequence[str], usual: dict[str, float]) -> Float64:
        """(n, f) the signals of its candidates."""
        assert self.pool is not None
        pool, wanted = Pool(self.pool.scores, usual, self.pool.places, self.pool.held), wanted_of(self.query)
        signals = [signals_of(one.candidate, pool, wanted, one.text) for one in self.judged]
        return np.array([[row[name] for name in names] for row in signals], np.float64).reshape(-1, len(names))


def collect(pools: Sequence[Rows], encoders: Encoders, data: Path, seed: int) -> Iterator[Run]:
    """All runs over these memories, over halves of them, and over small parts."""
    calls = tool_calls(data, 2000, random.Random(seed))
    seen: set[str] = set()
    for pool in pools:
        print(f"asking {pool.name}", flush=True)
        rng = random.Random(f"{seed}/{pool.name}")
        others = [other for other in pools if other is not pool]
        common = [Ask("absent.nonsense", focus) for focus in nonsense(15, rng)]
        common += [Ask("absent.smalltalk", focus) for focus in smalltalk()]
        common += [Ask(_tool_kind(pool), focus) for focus in rng.sample(calls, TOOLS)]
        once = [] if family_of(pool) in seen else common
        with open_house(pool, encoders) as house:
            yield from ask_all(house, [*pool.asks, *absent(pool, others, SHARE, rng), *once])
        if len(pool.rows) < SMALL or family_of(pool) in seen:
            continue
        seen.add(family_of(pool))  # halves and parts of one memory of each kind will do
        for part, asks in [*_halved(pool, rng), *_parts(pool, others, calls, rng)]:
            with open_house(Rows(pool.name, part.pool.rows), encoders) as house:
                yield from ask_all(house, asks)


def _halved(pool: Rows, rng: random.Random) -> Iterator[tuple[Part, list[Ask]]]:
    """Each half is asked its own questions, and the other's."""
    if family_of(pool) == "qmsum":  # one meeting is one source
        return
    left, right = halves(pool, rng)
    for here, there in ((left, right), (right, left)):
        own, foreign = ([ask for ask in side.pool.asks if ask.gold] for side in (here, there))
        count = min(40, len(own), len(foreign))
        asks = [Ask(other_kind(pool), ask.focus) for ask in rng.sample(foreign, count)]
        yield here, rng.sample(own, count) + asks


def _parts(
    pool: Rows, others: Sequence[Rows], calls: Sequence[Focus], rng: random.Random
) -> Iterator[tuple[Part, list[Ask]]]:
    foreign = [ask for other in others if family_of(other) != family_of(pool) for ask in other.asks]
    for part in small_parts(pool, rng):
        inside = set(part.rows)
        unknown = [ask for ask in pool.asks if ask.gold and not ask.gold & inside]
        elsewhere = [Ask(other_kind(pool), ask.focus) for ask in rng.sample(unknown, min(4, len(unknown)))]
        asks = [*part.pool.asks, *elsewhere]
        asks += [Ask("absent.foreign", ask.focus) for ask in rng.sample(foreign, 2)]
        yield part, [*asks, Ask(_tool_kind(pool), rng.choice(calls))]


def _tool_kind(pool: Rows) -> str:
    """Notes and sessions about software may well have something to say to a tool call: those are nobody's gold."""
    return "absent.tool" if family_of(pool) in ("wiki", "qmsum", "chat") else "doubtful.tool"


def ask_all(house: House, asks: Iterable[Ask]) -> Iterator[Run]:
    """Each question at each stage."""
    for ask in asks:
        query = query_of(ask.focus)
        known = (family_of(house.pool), len(house.pool.rows), ask.kind)
        gold = frozenset(house.ids[row] for row in ask.gold)
        if not query.text:
            yield Run(*known, "", query, bool(gold))
            continue
        for stage, asked, answer in answers(house, query, ask):
            yield Run(*known, stage, asked, bool(gold), *_judged(house, asked, answer, gold))


def answers(house: House, query: Query, ask: Ask) -> Iterator[tuple[str, Query, Answer]]:
    """What the cascade has after each stage that the gate has a model for, and the query as the memory reads it."""
    view = SEEN if ask.at is None else View(scopes=None, as_of=ask.at)
    stages = Stages(house.parts, query, view, frozenset(house.ids[row] for row in ask.hidden))
    stages.hint()
    stages.ask(False)
    found = {"lexical": stages.answer("fused", stages.fused())}
    stages.encoding = house.encoders.query(query.text)
    stages.ask(True)
    answer = stages.answer("fused", stages.fused())
    found[stage_of(answer)] = answer
    for deepener in stages.deepeners() if answer.candidates else ():
        answer = stages.deeper(deepener, answer)
        found[stage_of(answer)] = answer
    yield from ((stage, stages.query, answer) for stage, answer in found.items())


def _judged(house: House, query: Query, answer: Answer, gold: frozenset[int]) -> tuple[tuple[Judged, ...], Pool]:
    passages = {passage.id: passage for passage in house.memory.reader.passages(depth_of(answer))}
    decide(answer, list(passages.values()), Context(query), EASY)
    top = [candidate for candidate in answer.candidates[:GATE_DEPTH] if candidate.passage in passages]
    texts = [full_text(passages[candidate.passage]) for candidate in top]
    judged = tuple(
        Judged(candidate, text, candidate.passage in gold, stopped_by(candidate) in ("", "room"))
        for candidate, text in zip(top, texts, strict=True)
    )
    return judged, pool_of(answer.candidates, {}, texts)


__all__ = ["Encoders", "Run", "collect"]
