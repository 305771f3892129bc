"""Without a daemon: the path is noted, read and embedded in this process, under the lock that a daemon would hold.

The same ingest does it that the daemon runs, with the same roots, so a file gets the same owner and scope; only the
wished paths are looked at. No index is opened: the next daemon compares its own with the store, as at each start.
Killed at any moment it leaves what a killed daemon leaves: what was begun is read again by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import trio

from recalld_daemon.config import Config
from recalld_daemon.events import Scalar
from recalld_daemon.extract.rules import RULES
from recalld_daemon.followed_paths import held_by, readable, roots_followed
from recalld_daemon.ingest.pipeline import Ingest
from recalld_daemon.ingest.ports import Space
from recalld_daemon.ingest.roots import Roots
from recalld_daemon.paths import Home
from recalld_daemon.sources import roots_of
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.rows import FROZEN
from recalld_daemon.store.writer import Writer, open_writer
from recalld_daemon.worker_state import WorkerState, choice_of
from recalld_daemon.workers import BulkWorker

Say = Callable[[str, int, int, str], None]  # what, done, of how many (0: not known), of what


@dataclass(frozen=True, slots=True)
class Noted:
    """known: it was followed already. inside: the root that reads it anyway; "": it is one itself."""

    path: str
    known: bool
    inside: str = ""


def note(home: Home, config: Config, environ: Mapping[str, str], path: str, kind: str) -> Noted:
    """Keep the path in the store, as the daemon does when it is asked. Raises Refused, StoreError."""
    is_file = readable(path, kind)
    with open_writer(home.database) as writer, open_reader(home.database) as reader:
        followed = reader.followed()
        known = {one.path: one for one in followed}.get(path)
        if known is None and (
            holder := held_by(
                Roots([*roots_followed(followed, config), *roots_of(config, environ)]), path, is_file, kind
            )
        ):
            return Noted(path, True, holder)
        if known is None or kind not in ("", known.kind) or known.is_file != is_file:
            writer.follow(path, kind=kind, is_file=is_file, at=time.time())
    return Noted(path, known is not None)


def read(home: Home, config: Config, environ: Mapping[str, str], keys: Sequence[str], say: Say) -> str:
    """Read and embed what is below these roots. Returns "", or why nothing could be embedded. Raises StoreError."""
    try:
        return trio.run(_Reading(home, config, environ, frozenset(keys), say).run)
    except BaseExceptionGroup as group:
        raise _first(group) from group


class _Reading:
    def __init__(self, home: Home, config: Config, environ: Mapping[str, str], keys: frozenset[str], say: Say) -> None:
        self._home, self._config, self._environ, self._keys, self._say = home, config, environ, keys, say
        self._model = trio.Event()  # it is loaded, or will not be
        self._turns = trio.CapacityLimiter(1)
        self._missing = 0

    async def run(self) -> str:
        with open_writer(self._home.database) as writer, open_reader(self._home.database) as reader:
            writer.adopt_recipe(RULES)
            choice = choice_of(self._config, self._home.models)
            bulk = BulkWorker(choice, on_change=self._worker_changed)
            ingest = self._ingest(writer, reader, bulk)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bulk.run)
                await nursery.start(ingest.run)
                await ingest.read_all()
                problem = "" if _all_embedded(reader) else await self._embed(ingest, writer, reader, bulk)
                nursery.cancel_scope.cancel()
        return problem

    def _ingest(self, writer: Writer, reader: Reader, bulk: BulkWorker) -> Ingest:
        roots = [*roots_followed(reader.followed(), self._config), *roots_of(self._config, self._environ)]
        return Ingest(
            roots, writer=writer, reader=reader, bulk=bulk, turns=self._turns, report=self._reported,
            undated=0.0 if self._config.undated == "always" else None, looked_at=self._keys,
        )  # fmt: skip

    async def _embed(self, ingest: Ingest, writer: Writer, reader: Reader, bulk: BulkWorker) -> str:
        await self._model.wait()
        loaded = bulk.state.loaded
        if loaded is None:
            return bulk.state.detail or "the model can't be loaded"

        def open_space() -> None:
            encoder = writer.encoder_id(
                loaded.fingerprint, dims=loaded.dims, token_dims=loaded.token_dims, model=loaded.model,
                runtime=loaded.runtime, at=time.time(),
            )  # fmt: skip
            ingest.keeping.space = Space(encoder, FROZEN)
            if reader.live_snapshot() is None:
                writer.set_live(encoder, FROZEN)

        await trio.to_thread.run_sync(open_space, limiter=self._turns)
        ingest.wake()
        await ingest.settled()
        return ""

    def _worker_changed(self, state: WorkerState) -> None:
        if state.phase == "loading":
            self._say(f"loading the model: {state.detail}".rstrip(": "), 0, 0, "")
        if state.phase in ("ready", "failed"):
            self._model.set()

    def _reported(self, what: str, **data: Scalar) -> None:
        if what != "ingest.progress":
            return
        if not data["idle"]:
            self._say("reading", int(data["files_done"] or 0), int(data["files_total"] or 0), "files")
        elif missing := int(data["passages_missing"] or 0):
            self._missing = max(self._missing, missing)
            self._say("embedding", self._missing - missing, self._missing, "passages")


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _all_embedded(reader: Reader) -> bool:
    """Whether nothing lacks vectors of the encoder that is searched: then no model need be loaded."""
    live = reader.live_snapshot()
    return live is not None and not reader.count_missing(live[0], FROZEN)
