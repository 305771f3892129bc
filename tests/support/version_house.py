"""A memory as the daemon serves it, with the real store, indexes and ingest, over encoders that are made up.

Versions are made as the nightly cycle makes them: begun, projected, given their artefacts, finished. Their adapters are
random with an output layer far from zero, so that the two spaces order passages quite differently.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import trio

from ingest_fakes import InProcessBulk
from log_house import DIMS, TOKEN_DIMS, MadeEncoder
from recalld_daemon.config import Config
from recalld_daemon.events import EventFeed, Scalar
from recalld_daemon.memory import Memory
from recalld_daemon.paths import Home, home_under
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Answer, Candidate, Query, QueryEncoding, View
from recalld_daemon.sources import roots_of
from recalld_daemon.store import Reader, Writer
from recalld_daemon.worker_wire import Loaded, PassagesEncoded

T = TypeVar("T")
LOADED = Loaded(id=0, fingerprint="made 1", model="made", runtime="made", dims=DIMS, token_dims=TOKEN_DIMS)
NOTES = {
    "harbour.md": "# Harbour\n\nOttoline moved the ferry tickets to the Dolomites cabin last week.\n\n"
    "The ferry needs a ticket from Ottoline before it leaves the harbour.\n",
    "tidewater.md": "# Tidewater\n\nThe tidewater worker uses PostgreSQL for its queue of tickets.\n\n"
    "Restart the tidewater worker after a migration of PostgreSQL.\n\nOttoline wrote the migration.\n",
    "cooking.md": "# Lentils\n\nLentils need twenty minutes.\n\nSalt comes after the lentils are soft.\n\n"
    "A cabin kitchen has no oven.\n",
}
ASKED = Query("which tickets does the ferry worker need", ("tickets", "ferry", "worker", "need"), "")

Found = tuple[tuple[int, float, tuple[tuple[str, tuple[int, float]], ...]], ...]


@dataclass
class MadeLive:
    """The live worker. hold: while it is set, queries wait here, encoded but not answered."""

    made: MadeEncoder = field(default_factory=MadeEncoder)
    has_cross_encoder: bool = False
    held: trio.Event | None = None
    waiting: int = 0

    async def wait_ready(self) -> Loaded:
        await trio.lowlevel.checkpoint()
        return LOADED

    async def encode_query(self, text: str) -> QueryEncoding:
        encoding = QueryEncoding(*self.made.encode_query(text))
        await trio.lowlevel.checkpoint()
        if self.held is not None:
            self.waiting += 1
            await self.held.wait()
        return encoding


class MadeBulk(InProcessBulk):
    """The bulk worker, which parses for real."""

    made = MadeEncoder()

    async def wait_ready(self) -> Loaded:
        await trio.lowlevel.checkpoint()
        return LOADED

    async def encode_passages(self, texts: Sequence[str]) -> PassagesEncoded:
        await trio.lowlevel.checkpoint()
        encoded = self.made.encode_passages(list(texts))
        return PassagesEncoded(
            id=0,
            vectors=encoded.vectors.astype("<f2").tobytes(),
            tokens=[rows.tobytes() for rows in encoded.tokens],
            starts=[rows.astype("<u2").tobytes() for rows in encoded.starts],
            ends=[rows.astype("<u2").tobytes() for rows in encoded.ends],
        )


@dataclass
class Published:
    """Where events go."""

    events: list[tuple[str, dict[str, Scalar]]] = field(default_factory=list)

    def wanted(self, topic: str) -> bool:
        return False


@dataclass
class VersionHouse:
    memory: Memory
    live: MadeLive
    notes: Path
    published: list[tuple[str, dict[str, Scalar]]]

    @property
    def encoder(self) -> int:
        encoder = self.memory.reader.encoder_named(LOADED.fingerprint)
        assert encoder is not None
        return encoder

    async def turn(self, work: Callable[[], T]) -> T:
        """Write in the writer's turn, as all of the house does."""
        return await self.memory._turn(work)

    async def ask(self, query: Query = ASKED, digits: int = 5) -> Found:
        """The last answer of a recall, as what it found.

        digits: of scores, after the point; an index that was saved sums its products in another order than one that
        was not, which shows in the seventh.
        """
        answers: list[Answer] = []
        live: Any = self.live
        await self.memory.recaller(live, True).run(query, View(scopes=None), frozenset(), answers.append)
        return tuple((c.passage, round(c.fused, digits), _lanes(c, digits)) for c in answers[-1].candidates)

    async def settled(self) -> None:
        assert self.memory.ingest is not None
        with trio.fail_after(30):
            await self.memory.ingest.settled()

    async def write(self, name: str, text: str) -> None:
        """A note that comes now; returns once it is embedded."""
        (self.notes / name).write_text(text)
        with trio.fail_after(30):
            while not self.memory.reader.passage_ids(str(self.notes / name)):
                await trio.sleep(0.01)
        await self.settled()


def _lanes(candidate: Candidate, digits: int) -> tuple[tuple[str, tuple[int, float]], ...]:
    return tuple((lane, (rank, round(score, digits))) for lane, (rank, score) in sorted(candidate.lanes.items()))


def made_home(directory: Path) -> Home:
    home = home_under(directory / "home")
    home.make()
    notes = directory / "notes"
    notes.mkdir(exist_ok=True)
    for name, text in NOTES.items():
        (notes / name).write_text(text)
    return home


@asynccontextmanager
async def open_versions(directory: Path, keep: int = 3) -> AsyncIterator[VersionHouse]:
    """A memory that is served, with the notes below `directory` read and embedded, its index and extracts open."""
    home = made_home(directory)
    memory = Memory.open(home)
    live, bulk, published = MadeLive(), MadeBulk(), list[tuple[str, dict[str, Scalar]]]()
    feed: Any = EventFeed(Published())  # type: ignore[arg-type]
    feed.emit = lambda what, session="", **data: published.append((what, data))
    house = VersionHouse(memory, live, directory / "notes", published)
    config = Config(transcripts=False, watch=(str(house.notes),), keep_versions=keep)
    fakes: Any = (live, bulk)
    serve = partial(memory.serve, config, roots_of(config, {}), *fakes, trio.lowlevel.checkpoint, feed, lambda: None)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with trio.fail_after(30):
                while memory.index is None or memory.catalogue is None:
                    await trio.sleep(0.01)
                async with memory._one_at_a_time:  # the opening's last steps
                    pass
            await house.settled()
            yield house
            nursery.cancel_scope.cancel()
    finally:
        memory.close()


def far_adapter(seed: int) -> Adapter:
    rng = np.random.default_rng(seed)
    born = Adapter.born(DIMS, hidden=16, seed=seed)
    w2, b2 = rng.normal(0, 1.0, born.w2.shape), rng.normal(0, 0.3, born.b2.shape)
    return replace(born, w2=w2.astype(np.float32), b2=b2.astype(np.float32))


def make_version(
    writer: Writer, reader: Reader, encoder: int, seed: int, *, vectors: int | None = None, leave_out: int = 0
) -> int:
    """A finished version, as the nightly cycle leaves it. vectors: whose it searches; None: it re-projects all.

    leave_out: so many texts get no projected vectors, as if they had come after the cycle's last look.
    """
    version = writer.begin_version(encoder, at=100.0 + seed, vectors=vectors, why="made")
    writer.put_artefact(encoder, version, "query", "made", far_adapter(seed + 1_000).to_bytes())
    if vectors is None:
        key = far_adapter(seed)
        writer.put_artefact(encoder, version, "key", "made", key.to_bytes())
        for hashes, frozen in reader.walk_vectors(encoder, 0):
            kept = len(hashes) - leave_out
            writer.put_projected(encoder, version, hashes[:kept], key.apply(frozen)[:kept].astype(np.float16))
    writer.finish_version(encoder, version, metrics='{"mrr": 0.5}', drift=0.1)
    return version
