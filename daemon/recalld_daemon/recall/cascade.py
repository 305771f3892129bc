"""One recall, from query to ever better answers.

The lexical lane starts at once in a thread, the dense one when the query is encoded; their fusion is the first answer.
Then each deepener re-orders what it can afford and gives the next. Should the encoder be unavailable, the lexical lane
answers alone; should it be merely late, the lexical lane answers first and the fused answer follows. A lane or deepener
that raises costs itself only: it is logged here, named in the answers' notes, and the rest goes on. Threads that are
cancelled are abandoned: they only read, and keep their place in the limiter until they end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import trio

from recalld_daemon.recall import fusion, late
from recalld_daemon.recall.types import (
    Answer,
    Candidate,
    EncoderUnavailable,
    Lane,
    LaneHits,
    Query,
    QueryEncoder,
    QueryEncoding,
    Stage,
    TokenReader,
    View,
)

THREADS = 4  # of all recalls together: two lanes each of two recalls; more would only queue for two cores
PATIENCE_SECONDS = 0.030  # the lexical lane answers alone when the query's encoding is not there by then (p95 is 3 ms)
EXCLUDE_MARGIN = 100  # lanes are asked for so many more at most, to make up for passages that are excluded

logger = logging.getLogger(__name__)
T = TypeVar("T")
Publish = Callable[[Answer], None]


class Deepener(Protocol):
    """A stage after fusion: late interaction, later a ranker or a cross-encoder. Synchronous, runs in a thread.

    `deepen` returns new candidates, best first, and leaves those it was given untouched: they may be being judged.
    """

    @property
    def stage(self) -> Stage: ...

    def deepen(self, query: Query, encoding: QueryEncoding, candidates: Sequence[Candidate]) -> Sequence[Candidate]: ...


@dataclass(frozen=True, slots=True)
class LateInteraction:
    """The deepener that re-orders the first LATE_LIMIT candidates by max-sim over the index's token vectors."""

    tokens: TokenReader
    stage: Stage = "late"

    def deepen(self, query: Query, encoding: QueryEncoding, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        block = self.tokens.tokens([candidate.passage for candidate in candidates[: late.LATE_LIMIT]])
        return late.deepen(candidates, encoding.tokens, block)


class Recaller:
    """Runs recalls over one set of ports; any number at the same time, on trio."""

    def __init__(
        self,
        encoder: QueryEncoder,
        lanes: Sequence[Lane],
        deepeners: Sequence[Deepener],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.encoder = encoder
        self.lanes = lanes
        self.deepeners = deepeners
        self.patience_seconds = patience_seconds
        self.limiter = trio.CapacityLimiter(THREADS)

    async def run(self, query: Query, view: View, exclude: frozenset[int], publish: Publish) -> None:
        """Publishes one answer per stage reached, the first as soon as there is one, and returns after the last.

        `publish` is called on the event loop and must be quick; what it raises ends the recall. A query without text
        gives one answer of stage "none". Cancelling is safe at any moment. ms counts from this call.
        """
        recall = _Recall(self, query, view, exclude, publish)
        if not query.text:
            recall.publish("none", [])
            return
        candidates = await recall.search()
        await recall.deepen(candidates)


class _Recall:
    """The state of one run: what the lanes found, what went wrong, and since when it runs."""

    def __init__(self, ports: Recaller, query: Query, view: View, exclude: frozenset[int], publish: Publish) -> None:
        self._ports = ports
        self._query = query
        self._view = view
        self._exclude = exclude
        self._publish = publish
        self._started = trio.current_time()
        self._encoding: QueryEncoding | None = None
        self._hits: dict[str, LaneHits] = {}
        self._notes: list[str] = []

    def publish(self, stage: Stage, candidates: Sequence[Candidate]) -> None:
        ms = (trio.current_time() - self._started) * 1000.0
        self._publish(Answer(stage, candidates, ms, tuple(self._notes)))

    async def search(self) -> Sequence[Candidate]:
        """Asks all lanes and publishes their fusion; an early one without the encoder's lanes when that is late."""
        early, done = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._early_lanes, early)
            nursery.start_soon(self._encoded_lanes, early, done)
            with trio.move_on_after(self._ports.patience_seconds):
                await done.wait()
            await early.wait()
            if not done.is_set() and self._hits:
                self._notes.append("encoder: late")
                self.publish("fused", self._fused())
                self._notes.remove("encoder: late")
                await done.wait()
        candidates = self._fused()
        self.publish("fused", candidates)
        return candidates

    async def deepen(self, candidates: Sequence[Candidate]) -> None:
        """Each deepener in turn; one that fails is passed over, and the answer before it stands."""
        if self._encoding is None or not candidates:
            return
        for deepener in self._ports.deepeners:
            work = partial(deepener.deepen, self._query, self._encoding, candidates)
            deeper = await self._guarded(deepener.stage, work)
            if deeper is not None:
                candidates = deeper
                self.publish(deepener.stage, candidates)

    def _fused(self) -> list[Candidate]:
        in_order = {lane.name: self._hits[lane.name] for lane in self._ports.lanes if lane.name in self._hits}
        return fusion.fuse(in_order, self._exclude)

    async def _early_lanes(self, early: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            for lane in self._ports.lanes:
                if not lane.needs_encoding:
                    nursery.start_soon(self._ask, lane)
        early.set()

    async def _encoded_lanes(self, early: trio.Event, done: trio.Event) -> None:
        if await self._encode():
            async with trio.open_nursery() as nursery:
                for lane in self._ports.lanes:
                    if lane.needs_encoding:
                        nursery.start_soon(self._ask, lane)
        await early.wait()
        done.set()

    async def _encode(self) -> bool:
        try:
            self._encoding = await self._ports.encoder.encode_query(self._query.text)
        except EncoderUnavailable as reason:
            self._notes.append(f"encoder: {reason}")
        except Exception as error:  # noqa: BLE001 - outermost: the worker's fault must not cost the lexical lane
            self._note("encoder", error)
        return self._encoding is not None

    async def _ask(self, lane: Lane) -> None:
        limit = fusion.LANE_LIMIT + min(len(self._exclude), EXCLUDE_MARGIN)
        found = await self._guarded(lane.name, partial(lane.search, self._query, self._encoding, self._view, limit))
        if found is not None:
            self._hits[lane.name] = found

    async def _guarded(self, name: str, work: Callable[[], T]) -> T | None:
        """Runs a port's work in a thread; None when it raised, which is logged and noted."""
        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._ports.limiter)
        except Exception as error:  # noqa: BLE001 - outermost: a lane's fault costs that lane only
            self._note(name, error)
            return None

    def _note(self, name: str, error: Exception) -> None:
        logger.warning("recall: %s failed", name, exc_info=error)
        self._notes.append(f"{name}: {type(error).__name__}: {error}"[:200])
