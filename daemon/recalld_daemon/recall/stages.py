"""The stages of one recall, in order and in whatever thread asks for them: lanes, fusion, spreading, deepeners.

A part that raises costs itself only: it is logged here, named in the answers' notes, and the rest goes on. What each
stage took is told to the budget, which learns from it what the next recall can afford.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall import fusion, late
from recalld_daemon.recall.budget import UNBOUNDED, Budget
from recalld_daemon.recall.types import (
    Answer,
    Candidate,
    EncoderUnavailable,
    Hints,
    Int64,
    Lane,
    LaneHits,
    Query,
    QueryEncoding,
    SpreadingLane,
    Stage,
    TokenReader,
    View,
)

NOTE_CHARS = 200
EXCLUDE_MARGIN = 100  # lanes are asked for so many more at most, to make up for passages that are excluded

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Deepener(Protocol):
    """A stage after fusion: late interaction, the ranker, a cross-encoder. Synchronous.

    `name` is how the budget knows it; `stage` what an answer is called after it, None: as before it. `deepen` returns
    new candidates, best first, and leaves those it was given untouched: they may be being judged.
    """

    @property
    def name(self) -> str: ...

    @property
    def stage(self) -> Stage | None: ...

    def deepen(self, query: Query, encoding: QueryEncoding, candidates: Sequence[Candidate]) -> Sequence[Candidate]: ...


@dataclass(frozen=True, slots=True)
class LateInteraction:
    """The deepener that re-orders the first LATE_LIMIT candidates by max-sim over the index's token vectors."""

    tokens: TokenReader
    stage: Stage = "late"
    name: str = "late"

    def deepen(self, query: Query, encoding: QueryEncoding, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        block = self.tokens.tokens([candidate.passage for candidate in candidates[: late.LATE_LIMIT]])
        return late.deepen(candidates, encoding.tokens, block)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a recall is made of.

    `hints` reads a query against what the memory knows; None: queries stay as they are. `within` says which passages a
    query's own words ("since May") leave in; None: all.
    """

    lanes: Sequence[Lane]
    deepeners: Sequence[Deepener] = ()
    spreading: Sequence[SpreadingLane] = ()
    hints: Callable[[Query, View], Hints] | None = None
    within: Callable[[Query, Int64], NDArray[np.bool_]] | None = None

    def without(self, name: str) -> Parts:
        """The same without the lane or deepener of this name: for ablations."""
        return replace(
            self,
            lanes=[lane for lane in self.lanes if lane.name != name],
            deepeners=[deepener for deepener in self.deepeners if deepener.name != name],
            spreading=[lane for lane in self.spreading if lane.name != name],
        )


@dataclass(slots=True)
class Stages:
    """One recall's state. Its methods are called in order: `hint`, `ask(False)`, `ask(True)`, `fused`, `deeper`."""

    parts: Parts
    query: Query
    view: View = field(default_factory=View)
    exclude: frozenset[int] = frozenset()
    budget: Budget = UNBOUNDED
    encoding: QueryEncoding | None = None
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    _hits: dict[str, LaneHits] = field(default_factory=dict)

    @property
    def elapsed_ms(self) -> float:
        return (time.monotonic() - self.started) * 1000.0

    @property
    def found(self) -> bool:
        return bool(self._hits)

    def hint(self) -> None:
        """Read the query against what the memory knows."""
        if self.parts.hints is not None:
            hints = self.guarded("hints", partial(self.parts.hints, self.query, self.view))
            if hints is not None:
                self.query = replace(self.query, hints=hints)

    def ask(self, needs_encoding: bool) -> None:
        """The lanes that need the query's encoding, or those that do not."""
        limit = fusion.LANE_LIMIT + min(len(self.exclude), EXCLUDE_MARGIN)
        for lane in self.parts.lanes:
            if lane.needs_encoding is needs_encoding:
                work = partial(lane.search, self.query, self.encoding, self.view, limit)
                found = self.guarded(lane.name, work)
                if found is not None:
                    self._hits[lane.name] = found

    def fused(self) -> list[Candidate]:
        """The lanes' union in hand-weighted order, gone on from by the spreading lanes."""
        in_order = {lane.name: self._hits[lane.name] for lane in self.parts.lanes if lane.name in self._hits}
        candidates = fusion.fuse(in_order, self.exclude)
        more = {}
        for lane in self.parts.spreading if candidates else ():
            hits = self.guarded(lane.name, partial(lane.spread, self.query, candidates, self.view, fusion.LANE_LIMIT))
            if hits is not None:
                more[lane.name] = hits
        return self._within(fusion.fuse(in_order | more, self.exclude) if more else candidates)

    def _within(self, candidates: list[Candidate]) -> list[Candidate]:
        """Without what the query itself leaves out; all of them where that would leave nothing."""
        if self.parts.within is None or not self.query.hints.whens or not candidates:
            return candidates
        ids = np.array([candidate.passage for candidate in candidates], np.int64)
        allowed = self.guarded("within", partial(self.parts.within, self.query, ids))
        if allowed is None or not allowed.any():
            return candidates
        return [candidate for candidate, stays in zip(candidates, allowed.tolist(), strict=True) if stays]

    def answer(self, stage: Stage, candidates: Sequence[Candidate], *more: str, final: bool = False) -> Answer:
        return Answer(stage, candidates, self.elapsed_ms, (*self.notes, *more), final)

    def deepeners(self) -> Iterator[Deepener]:
        """Those that can be asked now; none without an encoding."""
        yield from self.parts.deepeners if self.encoding is not None else ()

    def deeper(self, deepener: Deepener, answer: Answer) -> Answer:
        """The answer after one more stage; one that fails is passed over, and the candidates before it stand."""
        work = partial(deepener.deepen, self.query, self.encoding, answer.candidates)  # type: ignore[arg-type]
        candidates = self.guarded(deepener.name, work)
        if candidates is None:
            return self.answer(answer.stage, answer.candidates)
        return self.answer(deepener.stage or answer.stage, candidates)

    def guarded(self, name: str, work: Callable[[], T]) -> T | None:
        """None when it raised, which is logged and noted; what it took goes to the budget."""
        began = time.perf_counter()
        try:
            done = work()
        except EncoderUnavailable as reason:  # the worker is late or gone: nothing is wrong here
            self.notes.append(f"{name}: {reason}"[:NOTE_CHARS])
            return None
        except Exception as error:
            logger.warning("recall: %s failed", name, exc_info=error)
            self.notes.append(f"{name}: {type(error).__name__}: {error}"[:NOTE_CHARS])
            return None
        self.budget.spent(name, (time.perf_counter() - began) * 1000.0)
        return done


def recall_now(
    parts: Parts,
    query: Query,
    encoding: QueryEncoding | None,
    view: View,
    exclude: frozenset[int] = frozenset(),
    budget: Budget = UNBOUNDED,
) -> Answer:
    """A whole recall in this thread, to its deepest answer: for benches and fitting, where nothing races."""
    stages = Stages(parts, query, view, exclude, budget, encoding)
    stages.hint()
    stages.ask(False)
    if encoding is not None:
        stages.ask(True)
    answer = stages.answer("fused", stages.fused())
    for deepener in stages.deepeners() if answer.candidates else ():
        answer = stages.deeper(deepener, answer)
    return replace(answer, final=True)
