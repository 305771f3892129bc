"""What is remembered: the store, the index beside it, and the ingest that keeps both equal to the files.

The store opens at once, and answers by words from then on; the catalogue (words and cards, in memory) follows in a
moment and answers them quicker. The index needs to know the encoder, which the live worker tells when its model is
loaded; until then recalls have the lexical lane alone. Another encoder than last time gets a space of its own: its
vectors are made anew while words are found as before, and the old ones stay until that is done. What was learned goes
live as a version (`activate`): query adapter, index, facts, ranker change together, at one moment of the loop, and a
recall under way ends with what it began with: two spaces are never ranked together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import trio

from recalld_daemon.activation import Activation, space_of
from recalld_daemon.assembly import Wishes, parts_of
from recalld_daemon.config import Config
from recalld_daemon.events import EventFeed, Scalar
from recalld_daemon.extract.rules import RULES
from recalld_daemon.index import Catalogue, Extracts, FaissIndex, agree_catalogue, open_catalogue
from recalld_daemon.ingest.pipeline import Ingest
from recalld_daemon.ingest.ports import Gate, Root
from recalld_daemon.interests import InterestWatch
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.lessons import Ground
from recalld_daemon.paths import Home
from recalld_daemon.purging import purge_indexes
from recalld_daemon.recall.adapted import AdaptedEncoder
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.budget import Costs
from recalld_daemon.recall.cascade import Recaller
from recalld_daemon.recall.cross import CrossEncoding, from_thread
from recalld_daemon.recall.stages import Deepener
from recalld_daemon.recall.types import Float32, Int64, Passage, View
from recalld_daemon.store.errors import StoreBusy, StoreError, StoreFull, StoreUnreadable
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.texts import embedded_text
from recalld_daemon.store.writer import Writer, open_writer
from recalld_daemon.versions import NotLoaded, searchable, searched_at_start, versions_of
from recalld_daemon.warm_up import warm_up
from recalld_daemon.worker_wire import Loaded
from recalld_daemon.workers import BulkWorker, LiveWorker
from recalld_daemon.write_ahead import WriteAhead
from recalld_protocol.messages import Versions

SAVE_SECONDS = 120.0  # between two saves of a changed index: what a crash costs is read from the store again
SAVE_CHANGES = 500  # of the catalogue, from which on it is saved: fewer are read again from the store in 50 ms
PRUNE_SECONDS = 3600.0
RETRY_SECONDS = 10.0  # until a full or failing disk is tried again

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """`turns` is the limiter of one that all writing shares; `scopes` all known scope keys with their ids."""

    home: Home
    writer: Writer
    reader: Reader
    turns: trio.CapacityLimiter
    scopes: dict[str, int]
    write_ahead: WriteAhead
    extracts: Extracts  # empty until it is filled, and then kept
    interests: InterestWatch
    costs: Costs = field(default_factory=Costs)  # of each stage of a recall, as measured here
    index: FaissIndex | None = None
    catalogue: Catalogue | None = None
    ingest: Ingest | None = None
    backlog: int = 0  # passages without vectors, as last counted
    opening: str = ""  # what the index is doing before it is open
    wishes: Wishes = Wishes()  # noqa: RUF009 - frozen; what the configuration says of lanes, stages and names
    cross_seconds: float = 0.0  # what the cross-encoder may take; 0: there is none
    learned: Learned = PLAIN  # the version that is live
    f_q: Callable[[Learned], Adapter | None] = lambda learned: learned.query  # its query adapter, as it is now
    stand_on: Callable[[Ground, bool], None] = lambda ground, anew: None  # told of what is live, and if it went so now
    preparing: int = 0  # the version that is made ready to go live; 0: none
    _ground: Ground | None = None  # what is searched; None before the encoder is known
    _activation: Activation | None = None
    _feed: EventFeed | None = None
    _one_at_a_time: trio.Lock = field(default_factory=trio.Lock)  # opening, activating, tidying up after it
    _retired: list[FaissIndex] = field(default_factory=list)  # searched before, and still open
    _untidy: trio.Event = field(default_factory=trio.Event)
    _recaller: Recaller | None = None
    _indexed: trio.Event = field(default_factory=trio.Event)  # a file brought passages, of a new scope perhaps

    @classmethod
    def open(cls, home: Home) -> Memory:
        """Open or make the store; what other extractors made is marked to be made anew. Raises StoreError."""
        writer = open_writer(home.database)
        writer.adopt_recipe(RULES)
        reader = open_reader(home.database)
        turns = trio.CapacityLimiter(1)
        write_ahead, interests = WriteAhead(writer, turns), InterestWatch(reader)
        return cls(home, writer, reader, turns, reader.scopes(), write_ahead, Extracts(reader), interests)

    def close(self) -> None:
        for index in (self.index, *self._retired):
            if index is not None:
                index.close()
        self.reader.close()
        self.writer.close()

    def recaller(self, live: LiveWorker, late_interaction: bool) -> Recaller:
        """The cascade over what is open now."""
        if self._recaller is None:
            learned = self.learned  # of this recaller for good: its query adapter belongs to its index
            cross = self._cross(live)
            wishes = replace(self.wishes, late_interaction=late_interaction, cross=cross, learned=learned)
            parts = parts_of(self.reader, self.catalogue, self.extracts, self.index, wishes)
            self._recaller = Recaller(
                AdaptedEncoder(self.interests.hears(live), lambda: self.f_q(learned)),
                parts.lanes,
                parts.deepeners,
                spreading=parts.spreading,
                hints=parts.hints,
                within=parts.within,
            )
        return self._recaller

    def nearest(self, vector: Float32, view: View, limit: int) -> Int64:
        """(n,) passages nearest to a unit vector (d,), best first; none before the index is open."""
        index = self.index
        return np.empty(0, np.int64) if index is None else index.search(vector, view, limit).ids

    def _cross(self, live: LiveWorker) -> Deepener | None:
        """The cross-encoder's stage, where one is configured and the worker could load it."""
        if not self.cross_seconds or not live.has_cross_encoder:
            return None
        return CrossEncoding(from_thread(live), self.reader, _as_embedded, self.cross_seconds)

    async def kick(self, ids: Sequence[int]) -> None:
        """There are passages that ingest did not bring itself; on return they are found by their words."""
        catalogue = self.catalogue
        if catalogue is not None:
            await self._turn(lambda: catalogue.learn(ids))
        await self._turn(lambda: self.extracts.learn(ids))
        if self.ingest is not None:
            self.ingest.wake()

    async def serve(
        self,
        config: Config,
        roots: Sequence[Root],
        live: LiveWorker,
        bulk: BulkWorker,
        gate: Gate,
        feed: EventFeed,
        rescoped: Callable[[], None],
    ) -> None:
        """Index and follow the files, open the index when the encoder is known, save it now and then."""
        self.wishes = Wishes(
            ranker=config.ranker, more_lanes=config.more_lanes, user_names=config.user_names,
            agent_names=config.agent_names, interests=self.interests.current,
        )  # fmt: skip
        self.cross_seconds = 0.0 if config.cross_encoder == "none" else config.cross_encoder_ms / 1000.0
        self.ingest = Ingest(
            roots, writer=self.writer, reader=self.reader, bulk=bulk, turns=self.turns,
            report=self._watching(feed), gate=self.write_ahead.after(gate),
            undated=0.0 if config.undated == "always" else None,
        )  # fmt: skip
        self._feed = feed
        self._activation = Activation(
            self.home.index, self.writer, self.reader, self.extracts, self.ingest.keeping, self._turn
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.ingest.run)
            nursery.start_soon(self._open_catalogue, self.ingest, feed)
            nursery.start_soon(self._fill_extracts, self.ingest)
            nursery.start_soon(partial(self._open_index, live, self.ingest, feed, config.late_interaction))
            nursery.start_soon(self._keep_saved, config)
            nursery.start_soon(self._tidy_up, config.keep_versions)
            nursery.start_soon(self._follow_scopes, rescoped)

    async def _open_catalogue(self, ingest: Ingest, feed: EventFeed) -> None:
        """Words and cards; what is written while they are read from disk is caught up with in the writer's thread."""
        began = time.monotonic()
        opening = partial(open_catalogue, self.home.index / "catalogue", self.reader)
        catalogue = await self._patiently(lambda: trio.to_thread.run_sync(opening))

        def attach() -> None:
            agree_catalogue(catalogue, self.reader)
            ingest.attach_catalogue(catalogue)
            self.catalogue, self._recaller = catalogue, None

        await self._patiently(lambda: self._turn(attach))
        ms = round((time.monotonic() - began) * 1000)
        feed.emit("catalogue.open", passages=catalogue.state().passages, ms=ms)
        log.info("catalogue open: %d passages in %d ms", catalogue.state().passages, ms)

    async def _fill_extracts(self, ingest: Ingest) -> None:
        """Facts, subjects and times; what is written meanwhile is announced, and read after it was written."""
        began = time.monotonic()
        await self._patiently(lambda: self._turn(lambda: ingest.attach_extracts(self.extracts)))
        await self._patiently(lambda: trio.to_thread.run_sync(self.extracts.fill))
        state = self.extracts.state()
        seconds = time.monotonic() - began
        log.info("extracts open: %d facts, %d subjects in %.1f s", state.facts, state.subjects, seconds)

    async def _open_index(self, live: LiveWorker, ingest: Ingest, feed: EventFeed, late_interaction: bool) -> None:
        loaded = await live.wait_ready()
        began = time.monotonic()
        async with self._one_at_a_time:
            ground, index = await self._patiently(partial(self._opened, loaded))
            self.opening = ""
            await ingest.attach(space_of(ground.encoder, ground.learned), index)
            self._go_live(ground, index, at_start=True)
            set_live = partial(self.writer.set_live, ground.encoder, ground.learned.version)
            await self._patiently(lambda: self._turn(set_live))
            state = index.state()
            await warm_up(partial(self.recaller, live, late_interaction), self.costs)
            feed.emit("index.open", passages=state.passages, ms=round((time.monotonic() - began) * 1000))
            log.info("index open: %d passages in %.1f s", state.passages, time.monotonic() - began)
            attach = partial(self.extracts.attach, ground.encoder, ground.learned.vectors)
            await self._patiently(lambda: trio.to_thread.run_sync(attach))
            self._untidy.set()

    async def _opened(self, loaded: Loaded) -> tuple[Ground, FaissIndex]:
        """The version that is live for this encoder, and its index. Raises OSError, StoreError."""
        assert self._activation is not None
        encoder = await self._turn(
            lambda: self.writer.encoder_id(
                loaded.fingerprint, dims=loaded.dims, token_dims=loaded.token_dims, model=loaded.model,
                runtime=loaded.runtime, at=time.time(),
            )
        )  # fmt: skip
        learned = await trio.to_thread.run_sync(searched_at_start, self.reader, encoder)
        index = await self._activation.opened(encoder, learned, self._progress)
        return Ground(encoder, loaded.fingerprint, loaded.dims, learned), index

    # ------------------------------------------------------------ versions of what was learned

    async def activate(self, version: int) -> float:
        """Search by this version from now on: a new one, an older one again, or 0, plain search. Returns ms taken.

        Recalls go on meanwhile. Milliseconds where its vectors are those that are searched, else as long as its index
        takes to be opened and compared with the store. Raises NoSuchVersion, VersionRefused, StoreError, OSError;
        then what was live is live as before.
        """
        async with self._one_at_a_time:
            before, activation = self._ground, self._activation
            if before is None or activation is None:
                raise NotLoaded("the encoder is not loaded yet: ask again in a moment")
            began = time.monotonic()
            learned = await trio.to_thread.run_sync(searchable, self.reader, before.encoder, version)
            self.preparing = version
            try:
                await self._replace(before, learned, activation)
            finally:
                self.preparing = 0
        ms = round((time.monotonic() - began) * 1000, 1)
        log.info("version %d is live, after %d, in %.0f ms", version, before.learned.version, ms)
        if self._feed is not None:
            about: dict[str, Scalar] = {"version": version, "from": before.learned.version, "ms": ms}
            self._feed.emit("version.activated", "", **about)
        return ms

    async def versions(self) -> Versions:
        """What there is to go back to. Empty before the encoder is known. Raises StoreError."""
        ground = self._ground
        if ground is None:
            return Versions()
        return await trio.to_thread.run_sync(versions_of, self.reader, ground.encoder, ground.learned.version)

    async def _replace(self, before: Ground, learned: Learned, activation: Activation) -> None:
        index = None
        if learned.vectors != before.learned.vectors:
            await self._close_retired()  # it may be the one that is opened again
            index = await activation.prepare(before.encoder, learned, lambda done, total: None)
        with trio.CancelScope(shield=True):  # declared live and searched: both, or neither
            try:
                await self._turn(partial(activation.commit, before.encoder, learned, index))
            except BaseException:
                await activation.abandon(index)
                raise
            self._go_live(replace(before, learned=learned), index)
            self._untidy.set()

    def _go_live(self, ground: Ground, index: FaissIndex | None, at_start: bool = False) -> None:
        """In the loop's thread, at one moment: the next recall has all of it. index: None where it stays the same."""
        if index is not None:
            self._retired += [self.index] if self.index is not None else []
            self.extracts.swap()
            self.index = index
        self._ground, self.learned, self._recaller = ground, ground.learned, None
        self.interests.stand_on(ground)
        self.stand_on(ground, not at_start)

    async def _tidy_up(self, keep: int) -> None:
        """After a version went live: save and close the index of before, drop versions that are too old, sweep."""
        while True:
            await self._untidy.wait()
            self._untidy = trio.Event()
            async with self._one_at_a_time:
                await self._close_retired()
                try:
                    if self._activation is not None and self._ground is not None:
                        await self._activation.drop_old(self._ground.encoder, keep)
                except (OSError, StoreError) as error:
                    log.error("old versions were not tidied up: %s", error)

    async def _close_retired(self) -> None:
        """What was searched before is nobody's any more: saved, going back to it is quick."""
        while self._retired:
            old = self._retired.pop()
            try:
                if old.state().unsaved:
                    await trio.to_thread.run_sync(old.save)
            except OSError as error:
                log.warning("the index of before was not saved: %s", error)
            finally:
                old.close()

    async def purge_indexes(self) -> None:
        """What was forgotten is in none of their files any more. Raises OSError, StoreError."""
        while self.catalogue is None:  # it is being opened from those files
            await trio.sleep(0.05)
        async with self._one_at_a_time:
            await self._close_retired()
            await self._turn(partial(purge_indexes, self.home.index, self.reader, self.index, self.catalogue))

    # ------------------------------------------------------------ small

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Again and again while the disk is full or fails: until then recalls go by words alone."""
        while True:
            try:
                return await work()
            except (OSError, StoreFull, StoreBusy) as error:
                self.opening = "waiting for the disk"
                log.error("the index can't be opened, it is tried again: %s", error)
                await trio.sleep(RETRY_SECONDS)

    def _progress(self, done: int, total: int) -> None:
        self.opening = f"opening the index {done}/{total}"

    async def _keep_saved(self, config: Config) -> None:
        pruned = trio.current_time()
        while True:
            await trio.sleep(SAVE_SECONDS)
            await self.save()
            try:
                if self.ingest is not None:
                    await self._turn(self.ingest.catch_up)
                await self._turn(self.writer.checkpoint)
                if trio.current_time() - pruned > PRUNE_SECONDS:
                    pruned = trio.current_time()
                    await self._turn(partial(self.writer.prune, recalls_kept=config.keep_recalls))
            except (StoreFull, StoreBusy, StoreUnreadable) as error:
                log.error("the store was not tidied up: %s", error)

    async def save(self) -> None:
        """Make the next start quick; a failure costs nothing but time then."""
        index, catalogue = self.index, self.catalogue
        try:
            if index is not None and index.state().unsaved:
                await self._turn(index.save)
            if catalogue is not None and catalogue.state().unsaved >= SAVE_CHANGES:
                await self._turn(catalogue.save)
        except OSError as error:
            log.warning("the index was not saved: %s", error)

    async def _turn(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self.turns)

    async def _follow_scopes(self, rescoped: Callable[[], None]) -> None:
        """Learn of scopes that files brought, off the loop, and let sessions of those projects see them."""
        while True:
            await self._indexed.wait()
            self._indexed = trio.Event()
            known = await trio.to_thread.run_sync(self.reader.scopes)
            if known.keys() - self.scopes.keys():
                self.scopes.update(known)
                rescoped()

    def _watching(self, feed: EventFeed) -> Callable[..., None]:
        """Ingest's reports go to the feed; those that matter here are read first."""

        def report(what: str, **data: Scalar) -> None:
            if what == "ingest.progress":
                self.backlog = int(data.get("passages_missing") or 0)
            elif what == "ingest.file" and data.get("new"):
                self._indexed.set()
            feed.emit(what, "", **data)

        return report


def _as_embedded(passage: Passage) -> str:
    """What the cross-encoder reads of a passage."""
    return embedded_text(passage.heading, passage.speaker, passage.text, passage.written_at)
