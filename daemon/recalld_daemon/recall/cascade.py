"""One recall, from query to ever better answers, against the clock.

A recall is one thread that goes through its stages in order, since each hop between threads costs as much as a stage
(0.2-0.7 ms on a quiet machine). Beside it the lanes that need no encoding are asked, while the worker encodes the query
and the dense lane follows; their fusion is the first answer, and each deepener re-orders what it can afford and gives
the next. Should the encoder be unavailable, the words answer alone; should it be merely late, they answer first and the
fused answer follows. A stage that the budget does not afford before the boundary is begun only after the answer before
it was judged and given out, and only if what it finds may slip to a later boundary. A thread that is cancelled is
abandoned: it only reads, and keeps its place in the limiter until it ends.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import trio
from numpy.typing import NDArray

from recalld_daemon.recall.budget import UNBOUNDED, Budget
from recalld_daemon.recall.stages import NOTE_CHARS, Deepener, Parts, Stages
from recalld_daemon.recall.types import (
    Answer,
    EncoderUnavailable,
    Hints,
    Int64,
    Lane,
    Query,
    QueryEncoder,
    QueryEncoding,
    SpreadingLane,
    View,
)

THREADS = 4  # of all recalls together; more would only queue for two cores
PATIENCE_SECONDS = 0.030  # the lexical lane answers alone when the query's encoding is not there by then (p95 is 3 ms)

logger = logging.getLogger(__name__)
Publish = Callable[[Answer], None]
Close = Callable[[Answer], None]


class Recaller:
    """Runs recalls over one set of ports; any number at the same time, on trio."""

    def __init__(
        self,
        encoder: QueryEncoder,
        lanes: Sequence[Lane],
        deepeners: Sequence[Deepener],
        patience_seconds: float = PATIENCE_SECONDS,
        spreading: Sequence[SpreadingLane] = (),
        hints: Callable[[Query, View], Hints] | None = None,
        within: Callable[[Query, Int64], NDArray[np.bool_]] | None = None,
    ) -> None:
        self.encoder = encoder
        self.parts = Parts(lanes, deepeners, spreading, hints, within)
        self.patience_seconds = patience_seconds
        self.limiter = trio.CapacityLimiter(THREADS)
        self.beside = trio.CapacityLimiter(THREADS)

    async def run(
        self,
        query: Query,
        view: View,
        exclude: frozenset[int],
        publish: Publish,
        close: Close = lambda answer: None,
        budget: Budget = UNBOUNDED,
    ) -> None:
        """Publishes one answer per stage reached, the first as soon as there is one, and returns after the last.

        `publish` is called on the event loop and must be quick; what it raises ends the recall. `close` is called, in
        the recall's thread, where a judgement costs no further hop, with the last answer before it is published, and
        with the one before a stage that the budget does not afford. A query without text gives one answer of stage
        "none". Cancelling is safe at any moment. ms counts from this call.
        """
        if not query.text:
            answer = Answer("none", [], 0.0, final=True)
            close(answer)
            publish(answer)
            return
        send, receive = trio.open_memory_channel[Answer](math.inf)
        stages = Stages(self.parts, query, view, exclude, budget)
        recall = _Recall(stages, self.patience_seconds, close, _Outlet(send))
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
    """One run, in a thread of its own and one beside it for the lanes that need no encoding."""

    def __init__(self, stages: Stages, patience_seconds: float, close: Close, outlet: _Outlet) -> None:
        self._stages = stages
        self._patience_seconds = patience_seconds
        self._close = close
        self._outlet = outlet
        self._early = threading.Event()  # the lanes that need no encoding have answered
        self._asked = threading.Event()  # the encoder has answered, one way or the other

    def encoded(self, encoding: QueryEncoding) -> None:
        self._stages.encoding = encoding
        self._asked.set()

    def unencoded(self, note: str) -> None:
        self._stages.notes.append(note)
        self._asked.set()

    def abandon(self) -> None:
        self.unencoded("cancelled")
        self._early.set()

    def early_lanes(self) -> None:
        """In a thread beside `work`."""
        self._stages.hint()
        self._stages.ask(False)
        self._early.set()

    def work(self) -> None:
        """From the lanes to the last deepener that is worth it."""
        stages = self._stages
        if not self._asked.wait(self._patience_seconds):
            self._early.wait()
            if stages.found and not self._asked.is_set():
                self._outlet.put(stages.answer("fused", stages.fused(), "encoder: late"))
        self._asked.wait()
        if stages.encoding is not None:
            stages.ask(True)
        self._early.wait()
        self._last(self._deepened(stages.answer("fused", stages.fused())))

    def _deepened(self, answer: Answer) -> Answer:
        """The deepest answer; those before it are given out on the way."""
        stages, closed = self._stages, False
        for deepener in stages.deepeners() if answer.candidates else ():
            if not closed and not stages.budget.affords(deepener.name, stages.elapsed_ms):
                stages.guarded("close", partial(self._close, answer))
                closed = True
            if closed and not stages.budget.may_slip(deepener.name):
                continue
            self._outlet.put(answer)
            answer = stages.deeper(deepener, answer)
        return answer

    def _last(self, answer: Answer) -> None:
        final = replace(answer, final=True)
        self._stages.guarded("close", partial(self._close, final))
        self._outlet.put(final)
