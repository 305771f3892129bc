"""A pool in a house of its own: real store, encoder, index, lanes and cascade, without processes and sockets.

What a daemon would do with a pool is done here by the same code: passages go through `Keeping` into the store, what it
says is missing is encoded by the bulk encoder, the index is opened from the store, and `Memory.recaller` says which
lanes and deepeners there are. So a lane that lands in the product is in every bench, and in every ablation table. Only
the loop is left out: a recall's stages follow one another in this thread.

Row i of a pool is passage `ids[i]` of the store. Encodings are kept below `--work`, by the hash of what was encoded and
the encoder's fingerprint; the store and the index are made anew each time, so that no old schema is ever measured.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
from house_encoders import Encoders
from house_recall import PLAIN, Setting
from pool_types import Ask, Pool, Row

from recalld_daemon.extract.passages import extracted
from recalld_daemon.index import open_catalogue, open_index
from recalld_daemon.ingest.keeping import Keeping, Pass
from recalld_daemon.ingest.ports import Space
from recalld_daemon.memory import Memory
from recalld_daemon.paths import home_under
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.stages import Parts, recall_now
from recalld_daemon.recall.types import Answer, Candidate, Passage, Query, View
from recalld_daemon.watchers.tree import FileStat
from recalld_daemon.worker_wire import Parsed, ParsedPassage

BATCH = 256  # passages per batch of a parse, as in ingest.parse
SEEN = View(scopes=None)


@dataclass(frozen=True, slots=True)
class Found:
    """rows: the pool's rows, best first; answer: the candidates behind them, in their order; ms: from focus to it."""

    rows: list[int]
    answer: Answer
    query: Query
    ms: float

    @property
    def candidates(self) -> Sequence[Candidate]:
        return self.answer.candidates


@dataclass(slots=True)
class House:
    """One pool, remembered."""

    pool: Pool
    encoders: Encoders
    memory: Memory
    parts: Parts
    ids: list[int]  # row -> passage
    row_of: dict[int, int]
    _scratch: tempfile.TemporaryDirectory[str] = field(repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.memory.close()
        self._scratch.cleanup()

    def passages(self, found: Found, depth: int) -> list[Passage]:
        """The passages of the first `depth` candidates, as the gate gets them."""
        return self.memory.reader.passages([candidate.passage for candidate in found.candidates[:depth]])


def search(house: House, ask: Ask, setting: Setting = PLAIN, *, fresh: bool = False) -> Found:
    """What the cascade finds for a question, in rows of the pool. `fresh`: encode the query even if it was before.

    A focus that is silent by itself finds nothing. `ask.hidden` is excluded, `ask.at` is the moment of the view.
    """
    began = time.perf_counter()
    query = query_of(ask.focus)
    if not query.text:
        return Found([], Answer("none", [], 0.0), query, (time.perf_counter() - began) * 1000)
    encoding = house.encoders.query(query.text, fresh)
    hidden = frozenset(house.ids[row] for row in ask.hidden)
    view = SEEN if ask.at is None else View(scopes=None, as_of=ask.at)
    answer = recall_now(setting.of(house.parts), query, encoding, view, hidden)
    ms = (time.perf_counter() - began) * 1000
    return Found([house.row_of[c.passage] for c in answer.candidates if c.passage in house.row_of], answer, query, ms)


def open_house(pool: Pool, encoders: Encoders) -> House:
    """Remembers a pool. Takes as long as its passages need to be encoded, unless they were before."""
    scratch = tempfile.TemporaryDirectory(prefix="recalld-bench-")
    memory = Memory.open(_made(Path(scratch.name)))
    ids = _remember(pool, memory, encoders)
    memory.catalogue = open_catalogue(memory.home.index / "catalogue", memory.reader)
    memory.index = open_index(memory.home.index, memory.reader, _space(memory, encoders).encoder)
    memory.extracts.fill()
    memory.extracts.attach(_space(memory, encoders).encoder, 0)
    parts = _parts(memory)
    return House(pool, encoders, memory, parts, ids, {id: row for row, id in enumerate(ids)}, scratch)


def parsed(row: Row, start: int) -> ParsedPassage:
    """A row as the parser in the worker would have sent it."""
    end = start + len(row.text.encode())
    return ParsedPassage(
        start=start, end=end, text=row.text, codec="utf-8", heading=row.heading, speaker=row.speaker,
        written_at=row.written_at,
    )  # fmt: skip


def _made(directory: Path) -> Any:
    home = home_under(directory)
    home.make()
    return home


def _space(memory: Memory, encoders: Encoders) -> Space:
    live = encoders.live
    encoder = memory.writer.encoder_id(
        live.fingerprint, dims=live.dims, token_dims=live.token_dims, model=live.model, runtime=live.runtime
    )
    return Space(encoder, 0)


def _remember(pool: Pool, memory: Memory, encoders: Encoders) -> list[int]:
    """Each run of rows with one source is a file; what the store then lacks is encoded. Returns the rows' ids."""
    keeping = Keeping(memory.writer, memory.reader)
    space = _space(memory, encoders)
    keeping.space = space  # without an index: it is opened from the store when all is there
    names: dict[str, int] = {}
    ids: list[int] = []
    for source, group in groupby(pool.rows, key=lambda row: row.source):
        rows = list(group)
        if source in names:
            raise ValueError(f"{pool.name}: the rows of source {source!r} do not stand together")
        names[source] = len(rows)
        path = f"/{pool.name.replace(' ', '-')}/{source}"
        _take(keeping, path, source, rows)
        own = memory.reader.passage_ids(path)
        if len(own) != len(rows):
            raise ValueError(f"{pool.name}: {source!r} has {len(rows)} rows, of which the store kept {len(own)}")
        ids += own
    encoders.fill(keeping, space, pool.name)
    return ids


def _take(keeping: Keeping, path: str, source: str, rows: Sequence[Row]) -> None:
    kind = "claude-code" if rows[0].speaker in ("user", "assistant") else "text" if rows[0].speaker else "markdown"
    under_way = Pass(FileStat(path, 0, int(_first_date(rows) * 1e9), 0), source, kind, append=False)
    at, cut = 0, []
    for row in rows:
        cut.append(parsed(row, at))
        at = cut[-1].end + 1
    passages = [item for item in extracted(cut, path) if isinstance(item, ParsedPassage)]
    for first in range(0, len(passages), BATCH):
        last = first + BATCH >= len(passages)
        keeping.take(under_way, Parsed(id=0, passages=passages[first : first + BATCH], done=last, cursor=at))


def _first_date(rows: Sequence[Row]) -> float:
    return min((row.written_at for row in rows if row.written_at is not None), default=0.0)


def _parts(memory: Memory) -> Parts:
    """The product's own lanes and deepeners; no worker stands behind them, since queries are encoded here."""
    return memory.recaller(None, True).parts  # type: ignore[arg-type]


def vectors_of(house: House) -> np.ndarray[Any, Any]:
    """(n, d) float32: the rows' vectors, in the pool's order. For experiments."""
    index = house.memory.index
    assert index is not None
    batch = house.memory.reader.vectors_for(house.ids, index.encoder.id, 0)
    place = {id: at for at, id in enumerate(batch.ids.tolist())}
    return batch.vectors[[place[id] for id in house.ids]].astype(np.float32)
