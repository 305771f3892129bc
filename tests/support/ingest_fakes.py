"""The pipeline on a real store and real files, with a worker and an index that live in the test's own process."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import trio

from catalogue_samples import differences
from recalld_daemon.index import Catalogue, open_catalogue
from recalld_daemon.ingest.parse import parse_file
from recalld_daemon.ingest.pipeline import Ingest
from recalld_daemon.ingest.ports import Root, Space
from recalld_daemon.recall.types import EncoderUnavailable, View
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.rows import VectorBatch
from recalld_daemon.store.writer import Writer, open_writer
from recalld_daemon.worker_link import RequestFailed
from recalld_daemon.worker_wire import Loaded, Parsed, PassagesEncoded

DIMS, TOKEN_DIMS = 8, 4
LOADED = Loaded(id=0, fingerprint="fake", model="fake", runtime="fake", dims=DIMS, token_dims=TOKEN_DIMS)


class InProcessBulk:
    """Parses with the real parsers; a text's vector is made of its hash. `deadly`: words that kill the worker."""

    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.parsed: list[tuple[str, int]] = []
        self.deadly: set[str] = set()
        self.deaths = 0

    async def wait_ready(self) -> Loaded:
        await trio.lowlevel.checkpoint()
        return LOADED

    @asynccontextmanager
    async def parse(self, path: str | Path, kind: str, cursor: int = 0) -> AsyncIterator[AsyncIterator[Parsed]]:
        self.parsed.append((str(path), cursor))
        async with aclosing(self._parse(str(path), kind, cursor)) as stream:
            yield stream

    async def _parse(self, path: str, kind: str, cursor: int) -> AsyncGenerator[Parsed, None]:
        await trio.lowlevel.checkpoint()
        self._die_of(path)
        try:
            for parsed in parse_file(path, kind, cursor):
                await trio.lowlevel.checkpoint()
                yield parsed
        except OSError as error:
            raise RequestFailed(str(error)) from None

    async def encode_passages(self, texts: Sequence[str]) -> PassagesEncoded:
        await trio.lowlevel.checkpoint()
        for text in texts:
            self._die_of(text)
        self.encoded += texts
        span = np.array([1], "<u2").tobytes()
        return PassagesEncoded(
            vectors=b"".join(map(_vector, texts)),
            tokens=[bytes(TOKEN_DIMS)] * len(texts),
            starts=[bytes(2)] * len(texts),
            ends=[span] * len(texts),
            id=0,
        )

    def _die_of(self, text: str) -> None:
        if any(word in text for word in self.deadly):
            self.deaths += 1
            raise EncoderUnavailable("killed by signal 11")


@dataclass
class RecordingIndex:
    ids: set[int] = field(default_factory=set)
    full: bool = False  # its disk

    def add(self, batch: VectorBatch) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.ids.update(batch.ids.tolist())

    def remove(self, ids: Sequence[int]) -> None:
        self.ids.difference_update(ids)


class Reports(list[tuple[str, dict[str, str | int | float | bool | None]]]):
    """What the pipeline reported, and a way to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._more = trio.Event()

    def __call__(self, what: str, **data: str | int | float | bool | None) -> None:
        self.append((what, data))
        more, self._more = self._more, trio.Event()
        more.set()

    def of(self, what: str) -> list[dict[str, str | int | float | bool | None]]:
        return [data for name, data in self if name == what]

    async def until(self, true: Callable[[], bool]) -> None:
        """Look again at each report; fails after ten seconds."""
        with trio.fail_after(10):
            while not true():
                await self._more.wait()


@dataclass
class House:
    """A running pipeline and what is around it."""

    ingest: Ingest
    reader: Reader
    writer: Writer
    bulk: InProcessBulk
    index: RecordingIndex
    reports: Reports
    catalogue: Catalogue
    turns: trio.CapacityLimiter

    def paths_with(self, word: str) -> list[str]:
        """Which sources a word is found in."""
        found = self.reader.passages(self.reader.lexical([word], View(scopes=None), 50).ids.tolist())
        return sorted({passage.path for passage in found})

    async def until_found(self, word: str, *paths: Path) -> None:
        await self.reports.until(lambda: self.paths_with(word) == sorted(map(str, paths)))

    def consistent(self) -> bool:
        """Store, index and catalogue agree, and every passage has its vectors."""
        if differences(self.catalogue, self.reader):
            return False
        encoder, snapshot = self.reader.live_snapshot() or (0, 0)
        with_vectors = set(self.reader.encoded(encoder, snapshot).ids.tolist())
        return self.index.ids == with_vectors and len(with_vectors) == self.reader.counts()["passages"]


@asynccontextmanager
async def open_house(
    database: Path,
    *roots: Root | Path,
    bulk: InProcessBulk | None = None,
    gate: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    settle: bool = True,
) -> AsyncIterator[House]:
    """A pipeline over the roots; what it found at first is read and embedded before the block begins."""
    with open_writer(database) as writer, open_reader(database) as reader:
        turns = trio.CapacityLimiter(1)
        bulk, index, reports = bulk or InProcessBulk(), RecordingIndex(), Reports()
        encoder = writer.encoder_id("fake", dims=DIMS, token_dims=TOKEN_DIMS)
        writer.set_live(encoder, 0)
        ingest = Ingest(
            [root if isinstance(root, Root) else Root(root) for root in roots],
            writer=writer, reader=reader, bulk=bulk, turns=turns, report=reports, gate=gate,
        )  # fmt: skip
        index.ids.update(reader.encoded(encoder, 0).ids.tolist())
        await ingest.attach(Space(encoder, 0), index)
        catalogue = open_catalogue(database.with_suffix(".catalogue"), reader)
        ingest.attach_catalogue(catalogue)
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            await nursery.start(ingest.run)
            if settle:
                with trio.fail_after(10):
                    await ingest.settled()
            yield House(ingest, reader, writer, bulk, index, reports, catalogue, turns)
            nursery.cancel_scope.cancel()


def _vector(text: str) -> bytes:
    digest = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=DIMS).digest(), np.uint8).astype(np.float32)
    return (digest / np.linalg.norm(digest)).astype("<f2").tobytes()
