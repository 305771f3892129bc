"""f_Q, online: each verdict that something helped becomes a lesson, and the next recall uses what it taught.

All of it is off the hot path, one lesson at a time, each step after the recalls that are under way. The gradients are
computed in a process of their own (`learn_worker`); here the new weights are checked, used from the next recall on, and
kept, so that a restart loses at most the step in flight: what was said after the last step that was kept is read from
the log. A lesson is one question about one passage and is learned once, however often it is said; a step that fails
costs itself. When a version goes live, learning begins anew on it, also where it was live before, or is: who goes back
to a version gets it as it was made, and to version 0 plain search. Only a restart goes on from what was learned.

Invariant: whatever fails here, recalls go on with the live version's own f_Q, or with the plain vector.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import trio

from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.adapters.settings import OnlineSettings
from recalld_daemon.events import EventFeed, Scalar
from recalld_daemon.journal import Journal
from recalld_daemon.learn_worker import LearnWorker, Opening, StateRefused, StepFailed
from recalld_daemon.learned import Learned
from recalld_daemon.learner_figures import Figures
from recalld_daemon.lessons import Asked, Ground, Nearest, pair_of, read_asked
from recalld_daemon.online_kept import (
    NOTHING,
    Kept,
    adapter_of,
    figures_of,
    forget,
    holds_any,
    keep,
    lessons_of,
    online_key,
    read_kept,
)
from recalld_daemon.recall.adapted import adapted
from recalld_daemon.recall.adapter import Adapter, AdapterUnreadable
from recalld_daemon.recall.types import EncoderUnavailable, QueryEncoder
from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.reader import Reader
from recalld_daemon.worker_wire import LearnStepped

POSITIVE = ("good", "used", "acted")
QUEUE = 64  # verdicts that wait; a person gives some a minute, watching an agent some more
KNOWN = 4_096  # lessons that are not learned again; after a restart those that the learner's buffer holds
QUIET_SECONDS = 600.0  # without a lesson, after which the process that learns is let go
IDLE_SECONDS = 5.0  # for which a lesson gives way to recalls, which take milliseconds: there may always be one

log = logging.getLogger(__name__)


class Learner:
    """`on_verdict` and `stand_on` may be called at any time from the loop's thread; `serve` does the work.

    live: the encoder itself, never an adapted one; nearest: searches the live index.
    """

    def __init__(
        self,
        reader: Reader,
        journal: Journal,
        feed: EventFeed,
        live: QueryEncoder,
        worker: LearnWorker,
        nearest: Nearest,
        until_idle: Callable[[], Awaitable[None]],
        *,
        enabled: bool = True,
        settings: OnlineSettings = OnlineSettings(),  # noqa: B008 - frozen
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self._reader, self._journal, self._feed, self._live = reader, journal, feed, live
        self._worker, self._nearest, self._until_idle = worker, nearest, until_idle
        self._enabled, self._settings, self._quiet_seconds = enabled, settings, quiet_seconds
        self._wanted: Ground | None = None  # what to stand on
        self._anew = False  # nothing that was learned before is gone on from
        self._ground: Ground | None = None  # what is stood on
        self._kept = NOTHING
        self._key = ""
        self._queue: dict[str, float] = {}  # impressions, and when their verdicts came, loop seconds
        self._known: dict[str, None] = {}  # keys of lessons
        self._wake, self._done = trio.Event(), trio.Event()
        self._done.set()
        self.figures = Figures()

    # ------------------------------------------------------------ what the house asks

    def f_q(self, learned: Learned) -> Adapter | None:
        """The query adapter over this version as it is now: learned online, or the version's own; None: neither."""
        stands = self._ground is not None and self._ground.learned.version == learned.version
        return self._kept.adapter if stands and self._kept.adapter is not None else learned.query

    def stand_on(self, ground: Ground, anew: bool) -> None:
        """This is live from now on. anew: what was learned before is dropped, here and in the store."""
        self._wanted, self._anew = ground, anew
        if anew:
            self._journal.note(partial(forget, encoder=ground.encoder))
        if self._enabled:
            self._begin_work()
        else:
            self._ground = ground

    def on_verdict(self, impression: str, verdict: str) -> None:
        """A verdict was written. Never waits; of too many the oldest are dropped (the nightly cycle has them)."""
        if not self._enabled or verdict not in POSITIVE:
            return
        self._queue.setdefault(impression, trio.current_time())
        if len(self._queue) > QUEUE:
            del self._queue[next(iter(self._queue))]
            self.figures.dropped += 1
        self._begin_work()

    async def unlearn(self, passages: Sequence[int]) -> None:
        """These are to be forgotten: where the pairs that are replayed hold a vector of theirs, learning begins anew.

        Before their vectors go. Raises StoreError.
        """
        ground = self._wanted or self._ground
        if ground is not None and await trio.to_thread.run_sync(holds_any, self._reader, ground, passages):
            self.stand_on(replace(ground), True)

    async def until_done(self) -> None:
        """Returns when all that came so far was seen to, or waits for a version to stand on."""
        await self._done.wait()

    def topic(self) -> dict[str, Scalar]:
        """For status."""
        version = self._ground.learned.version if self._ground else 0
        adapter = self.f_q(self._ground.learned) if self._ground else None
        worker = self._worker.state
        return {
            "state": worker.phase if self._enabled else "off", "worker_mb": worker.row()["rss_mb"], "version": version,
            "queue": len(self._queue), **self.figures.row(adapter),
        }  # fmt: skip

    async def serve(self) -> None:
        """Until cancelled. With online learning off it returns at once."""
        if self._enabled:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._worker.run)
                await self._serve()

    # ------------------------------------------------------------ one thing after the other

    async def _serve(self) -> None:
        while True:
            await self._until_work()
            if self._wanted is not self._ground:
                await self._attempt("", partial(self._begin, self._wanted))
            else:
                impression = next(iter(self._queue))
                await self._attempt(impression, partial(self._learn, impression, self._queue.pop(impression)))

    async def _until_work(self) -> None:
        with trio.move_on_after(self._quiet_seconds) as quiet:
            await self._work()
        if quiet.cancelled_caught:
            self._worker.rest()
            await self._work()

    async def _work(self) -> None:
        """Until there is another version to stand on, or a lesson and a version."""
        await trio.lowlevel.checkpoint()
        while self._wanted is self._ground and not (self._queue and self._ground):
            self._wake = trio.Event()
            self._done.set()
            await self._wake.wait()

    async def _attempt(self, impression: str, work: Callable[[], Awaitable[None]]) -> None:
        """Whatever goes wrong is said and counted, and costs this lesson only."""
        try:
            await work()
        except (StoreError, EncoderUnavailable, StepFailed, AdapterUnreadable) as error:
            self._failed(impression, str(error))
        except Exception as error:  # the outermost loop of a lesson: its fault must not end the daemon
            log.exception("a lesson")
            self._failed(impression, f"{type(error).__name__}: {error}")

    async def _begin(self, ground: Ground | None) -> None:
        """Stand on another version: go on from what was learned over it, if that was under the same settings."""
        assert ground is not None
        key, anew = online_key(self._settings, ground), self._anew
        self._ground, self._key, self._kept, self.figures = ground, key, NOTHING, self.figures.anew()
        self._known = {}
        if anew:
            self._worker.distrust()  # it may have this very version open
            return
        kept = await trio.to_thread.run_sync(read_kept, self._reader, ground.encoder, ground.dims, key)
        self._kept, self._known = kept, dict.fromkeys(lessons_of(kept.state))
        self.figures.read(kept.figures or {})
        if kept.state:  # from its last lesson on: several may have come at one time
            waiting = await trio.to_thread.run_sync(self._reader.helped_after, kept.at, QUEUE)
            now = trio.current_time()
            self._queue = {impression: self._queue.get(impression, now) for impression in [*waiting, *self._queue]}
            log.info("f_Q goes on from %d steps over version %d", self.figures.steps, ground.learned.version)

    async def _learn(self, impression: str, since: float) -> None:
        """since: when the verdict came, loop seconds."""
        ground = self._ground
        assert ground is not None
        await self._idle()
        asked = await trio.to_thread.run_sync(read_asked, self._reader, impression)
        if asked is None or asked.key in self._known:
            return
        pair = await self._pair(asked, ground)
        if pair is None:
            log.info("%s: its passage is gone, or has no vector in the live version: nothing to learn", impression)
            return
        await self._idle()
        stepped = await self._step(ground, pair)
        if self._wanted is not ground:  # another version went live meanwhile: it is learned over that one
            self._queue = {impression: since, **self._queue}
            return
        self._know(asked.key)
        try:
            self._apply(stepped, asked, ground)
        except AdapterUnreadable:
            self._worker.distrust()
            raise
        self._say(stepped, impression, since)
        at = self._kept.at
        key = self._key
        await self._journal.promised(lambda writer: keep(writer, ground.encoder, key, stepped, at))

    async def _step(self, ground: Ground, pair: Pair) -> LearnStepped:
        """Raises StepFailed."""
        opening = Opening(self._promoted(ground), self._settings, self._key, self._kept.state)
        try:
            return await self._worker.step(opening, pair)
        except StateRefused as error:
            log.error("what was learned online can't be gone on from, it begins anew: %s", error)
            self._kept, self.figures = NOTHING, self.figures.anew()
            return await self._worker.step(replace(opening, state=b""), pair)

    async def _pair(self, asked: Asked, ground: Ground) -> Pair | None:
        encoding = await self._live.encode_query(asked.query)
        near = adapted(encoding, self.f_q(ground.learned)).vector
        make = partial(pair_of, self._reader, asked, encoding.frozen, near, ground, self._nearest)
        return await trio.to_thread.run_sync(make)

    def _apply(self, stepped: LearnStepped, asked: Asked, ground: Ground) -> None:
        """Use it from now on. Raises AdapterUnreadable."""
        adapter = adapter_of(stepped.adapter, ground.dims)
        self._kept = Kept(adapter, stepped.state, max(asked.at, self._kept.at), figures_of(stepped.adapter))
        self.figures.read(self._kept.figures or {})
        self.figures.step(stepped)

    def _say(self, stepped: LearnStepped, impression: str, since: float) -> None:
        if stepped.reverted:
            log.warning("f_Q is the promoted one again: %s", stepped.reverted)
            self._feed.emit("learning.reverted", why=stepped.reverted[:256], impression=impression)
            return
        loss = None if math.isnan(stepped.loss) else round(stepped.loss, 4)
        self._feed.emit(
            "learning.step", impression=impression, loss=loss, ms=round(stepped.ms, 2),
            drift=round(stepped.drift, 4), steps=stepped.steps, held=stepped.held,
            after_ms=round(1000 * (trio.current_time() - since), 1),
        )  # fmt: skip

    # ------------------------------------------------------------ small

    def _begin_work(self) -> None:
        self._wake.set()
        if self._done.is_set():
            self._done = trio.Event()

    async def _idle(self) -> None:
        with trio.move_on_after(IDLE_SECONDS):
            await self._until_idle()

    def _promoted(self, ground: Ground) -> bytes:
        shape = self._settings.shape
        start = ground.learned.query or Adapter.born(ground.dims, shape.hidden, shape.alpha, shape.seed)
        return start.to_bytes()

    def _know(self, key: str) -> None:
        self._known[key] = None
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]

    def _failed(self, impression: str, why: str) -> None:
        log.error("learning from %s: %s", impression or "what was kept", why)
        self._feed.emit("learning.failed", why=why[:256], impression=impression)
        self.figures.failed += 1
