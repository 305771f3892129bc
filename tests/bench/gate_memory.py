"""A pool in memory, searched as the daemon searches: its encoder, its full-text search, fusion and late interaction.

Only the index is simpler, an exact scan over one matrix; processes, files and scopes are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gate_pools import Pool

from recalld_daemon.models.encoder import Encoder, EncoderSettings, load_encoder
from recalld_daemon.recall.stages import LateInteraction
from recalld_daemon.recall.types import Float32, LaneHits, Query, QueryEncoding, TokenBlock, View
from recalld_daemon.store import Reader, open_reader, open_writer
from recalld_daemon.worker_wire import ParsedPassage


class Encoders:
    """The daemon's two encoders, on one thread; what they prepare is kept in `cache`."""

    def __init__(self, cache: Path) -> None:
        settings = EncoderSettings(cache)
        self.live: Encoder = load_encoder(settings, "live", _say)
        self.bulk: Encoder = load_encoder(settings, "bulk", _say)
        self.fingerprint = self.live.fingerprint

    def query(self, text: str) -> QueryEncoding:
        vector, tokens = self.live.encode_query(text)
        return QueryEncoding(vector, tokens)


@dataclass(slots=True)
class Memory:
    """One pool, encoded and indexed. Passage i of the pool is passage i + 1 of the store; here they count from 0."""

    pool: Pool
    vectors: Float32  # (n, d)
    tokens: Sequence[Any]  # n times int8 (T, t)
    reader: Reader
    late: LateInteraction = field(init=False)

    def __post_init__(self) -> None:
        self.late = LateInteraction(_Tokens(self.tokens))

    def lanes(
        self, query: Query, encoding: QueryEncoding | None, hidden: frozenset[int], limit: int
    ) -> dict[str, LaneHits]:
        """What each lane finds beside `hidden`; without an encoding, the lexical one alone."""
        found = self.reader.lexical(query.terms, View(), limit + len(hidden))
        keep = np.array([i - 1 not in hidden for i in found.ids.tolist()], bool)
        lanes = {"lexical": LaneHits(found.ids[keep][:limit] - 1, found.scores[keep][:limit])}
        if encoding is not None:
            scores = self.vectors @ encoding.vector
            scores[list(hidden)] = -1.0
            ids = np.argpartition(-scores, min(limit, len(scores) - 1))[:limit]
            ids = ids[np.argsort(-scores[ids])]
            lanes = {"dense": LaneHits(ids.astype(np.int64), scores[ids]), **lanes}
        return lanes


class _Tokens:
    """The TokenReader port; characters are of no interest here."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def tokens(self, passages: Sequence[int]) -> TokenBlock:
        rows = [self._rows[i] for i in passages]
        vectors = np.concatenate(rows)
        places = np.zeros(len(vectors), np.uint16)
        return TokenBlock(vectors, places, places, np.array([len(row) for row in rows], np.int64))


def open_memory(pool: Pool, encoders: Encoders, work: Path) -> Memory:
    """Encodes a pool, or takes its encodings from `work` by the hash of its texts and the encoder, and indexes it."""
    key = hashlib.blake2b("\0".join([encoders.fingerprint, *pool.texts]).encode(), digest_size=12).hexdigest()
    file = work / f"{key}.npz"
    if file.exists():
        kept = np.load(file)
        vectors, flat, lengths = kept["vectors"], kept["tokens"], kept["lengths"]
    else:
        parts = [encoders.bulk.encode_passages(pool.texts[at : at + 256]) for at in range(0, len(pool.texts), 256)]
        rows = [row for part in parts for row in part.tokens]
        vectors, flat = np.concatenate([part.vectors for part in parts]), np.concatenate(rows)
        lengths = np.array([len(row) for row in rows])
        np.savez(file, vectors=vectors, tokens=flat, lengths=lengths)
    tokens = np.split(flat, np.cumsum(lengths)[:-1])
    return Memory(pool, vectors.astype(np.float32), tokens, _stored(pool.texts, work / f"{key}.db"))


def _stored(texts: Sequence[str], path: Path) -> Reader:
    """The texts as the only source of a store, so that passage i has id i + 1."""
    if not path.exists():
        with open_writer(path) as writer:
            source = writer.begin_source("/notes", shown_path="notes", kind="text")
            rows = [ParsedPassage(start=i, end=i + 1, text=text, codec="utf-8") for i, text in enumerate(texts)]
            ids = [id for at in range(0, len(rows), 500) for id in writer.add_passages(source, rows[at : at + 500])]
            writer.finish_source(source, cursor=len(rows))
        if ids != list(range(1, len(texts) + 1)):
            raise SystemExit(f"{path}: passages of one text share an id; pools must not repeat a text")
    return open_reader(path)


def _say(phase: str, done: int, total: int) -> None:
    print(f"encoder: {phase} {done}/{total}" if total else f"encoder: {phase}", flush=True)
