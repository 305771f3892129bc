"""One recall, from query to ever better answers.

A recall is one thread that goes through its stages in order, since each hop between threads costs as much as a stage
(0.2-0.7 ms on a quiet machine). Beside it the lexical lane is asked, while the worker encodes the query and the dense
lane follows; their fusion is the first answer, and each deepener re-orders what it can afford and gives the next.
Should the encoder be unavailable, the lexical lane answers alone; should it be merely late, the lexical lane answers
first and the fused answer follows. A lane or deepener that raises costs itself only: it is logged here, named in the
answers' notes, and the rest goes on. A thread that is cancelled is abandoned: it only reads, and keeps its place in
the limiter until it ends.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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

THREADS = 4  # of all recalls together; more would only queue for two cores
PATIENCE_SECONDS = 0.030  # the lexical lane answers alone when the query's encoding is not there by then (p95 is 3 ms)
NOTE_CHARS = 200
EXCLUDE_MARGIN = 100  # lanes are asked for so many more at most, to make up for passages that are excluded

logger = logging.getLogger(__name__)
T = TypeVar("T")
Publish = Callable[[Answer], None]
Close = Callable[[Answer], None]


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
        self.beside = trio.CapacityLimiter(THREADS)

    async def run(
        self, query: Query, view: View, exclude: frozenset[int], publish: Publish, close: Close = lambda answer: None
    ) -> None:
        """Publishes one answer per stage reached, the first as soon as there is one, and returns after the last.

        `publish` is called on the event loop and must be quick; what it raises ends the recall. `close` is called
        with the last answer before it is published, in the recall's thread, where a judgement costs no further hop. A
        query without text gives one answer of stage "none". Cancelling is safe at any moment. ms counts from this call.
        """
        if not query.text:
            answer = Answer("none", [], 0.0)
            close(answer)
            publish(answer)
            return
        send, receive = trio.open_memory_channel[Answer](math.inf)
        recall = _Recall(self, query, view, exclude, close, _Outlet(send))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._early_lanes, recall)
                nursery.start_soon(self._work, recall, send)
                nursery.start_soon(self._encode, query.text, recall)
                async for answer in receive:
                    publish(answer)
                nursery.cancel_scope.cancel()
        finally:
            recall.abandon()  # its thread must not wait for ever

    async def _early_lanes(self, recall: _Recall) -> None:
        await trio.to_thread.run_sync(recall.early_lanes, abandon_on_cancel=True, limiter=self.beside)

    async def _work(self, recall: _Recall, send: trio.MemorySendChannel[Answer]) -> None:
        async with send:
            await trio.to_thread.run_sync(recall.work, abandon_on_cancel=True, limiter=self.limiter)

    async def _encode(self, text: str, recall: _Recall) -> None:
        """The thread's only wish of the loop. Whatever happens, it is answered."""
        try:
            recall.encoded(await self.encoder.encode_query(text))
        except EncoderUnavailable as reason:
            recall.unencoded(f"encoder: {reason}")
        except Exception as error:
            logger.warning("recall: encoder failed", exc_info=error)
            recall.unencoded(f"encoder: {type(error).__name__}: {error}"[:NOTE_CHARS])


class _Outlet:
    """From the recall's thread to the loop's channel; what comes after the recall was given up goes nowhere."""

    def __init__(self, send: trio.MemorySendChannel[Answer]) -> None:
        self._send, self._token = send, trio.lowlevel.current_trio_token()

    def put(self, answer: Answer) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._put, answer)

    def _put(self, answer: Answer) -> None:
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            self._send.send_nowait(answer)


class _Recall:
    """One run, in a thread of its own: what the lanes found, what went wrong, and since when it runs."""

    def __init__(
        self, ports: Recaller, query: Query, view: View, exclude: frozenset[int], close: Close, outlet: _Outlet
    ) -> None:
        self._ports = ports
        self._query = query
        self._view = view
        self._exclude = exclude
        self._close = close
        self._outlet = outlet
        self._started = time.monotonic()
        self._encoding: QueryEncoding | None = None
        self._early = threading.Event()  # the lanes that need no encoding have answered
        self._asked = threading.Event()  # the encoder has answered, one way or the other
        self._hits: dict[str, LaneHits] = {}
        self._notes: list[str] = []

    def encoded(self, encoding: QueryEncoding) -> None:
        self._encoding = encoding
        self._asked.set()

    def unencoded(self, note: str) -> None:
        self._notes.append(note)
        self._asked.set()

    def abandon(self) -> None:
        self.unencoded("cancelled")
        self._early.set()

    def early_lanes(self) -> None:
        """In a thread beside `work`."""
        self._ask(False)
        self._early.set()

    def work(self) -> None:
        """From the lanes to the last deepener. Lanes that need no encoding have a thread beside this one."""
        if not self._asked.wait(self._ports.patience_seconds):
            self._early.wait()
            if self._hits and not self._asked.is_set():
                self._outlet.put(self._answer("fused", self._fused(), "encoder: late"))
        self._asked.wait()
        if self._encoding is not None:
            self._ask(True)
        self._early.wait()
        self._deepen(self._answer("fused", self._fused()))

    def _deepen(self, answer: Answer) -> None:
        """Each deepener in turn; one that fails is passed over, and the answer before it stands."""
        for deepener in self._ports.deepeners if self._encoding is not None and answer.candidates else ():
            work = partial(deepener.deepen, self._query, self._encoding, answer.candidates)  # type: ignore[arg-type]
            self._outlet.put(answer)
            deeper = self._guarded(deepener.stage, work)
            answer = self._answer(answer.stage if deeper is None else deepener.stage, deeper or answer.candidates)
        self._guarded("close", partial(self._close, answer))
        self._outlet.put(answer)

    def _answer(self, stage: Stage, candidates: Sequence[Candidate], *more: str) -> Answer:
        return Answer(stage, candidates, (time.monotonic() - self._started) * 1000.0, (*self._notes, *more))

    def _fused(self) -> list[Candidate]:
        in_order = {lane.name: self._hits[lane.name] for lane in self._ports.lanes if lane.name in self._hits}
        return fusion.fuse(in_order, self._exclude)

    def _ask(self, needs_encoding: bool) -> None:
        limit = fusion.LANE_LIMIT + min(len(self._exclude), EXCLUDE_MARGIN)
        for lane in self._ports.lanes:
            if lane.needs_encoding is needs_encoding:
                work = partial(lane.search, self._query, self._encoding, self._view, limit)
                found = self._guarded(lane.name, work)
                if found is not None:
                    self._hits[lane.name] = found

    def _guarded(self, name: str, work: Callable[[], T]) -> T | None:
        """None when it raised, which is logged and noted."""
        try:
            return work()
        except Exception as error:
            logger.warning("recall: %s failed", name, exc_info=error)
            self._notes.append(f"{name}: {type(error).__name__}: {error}"[:NOTE_CHARS])
            return None
