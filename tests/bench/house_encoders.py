"""The daemon's two encoders in this process, on one thread, and what they have encoded before.

Queries are encoded by the live encoder, passages by the bulk one, which may be another runtime with vectors a little
different; so it is here. Passages' encodings lie in one file per pool and fingerprint, by the hash that keys them in
the store too.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recalld_daemon.ingest.keeping import Keeping
from recalld_daemon.ingest.ports import Space
from recalld_daemon.models.encoder import EncodedPassages, Encoder, EncoderSettings, load_encoder
from recalld_daemon.recall.types import QueryEncoding
from recalld_daemon.worker_wire import PassagesEncoded

BATCH = 256
SAVED_AFTER = 2048  # passages: what an interrupted run loses at most


class Encoders:
    """models: where prepared graphs are kept; work: where encodings are; model: as in the user's configuration."""

    def __init__(self, models: Path, work: Path, model: str = "default") -> None:
        settings = EncoderSettings(models, model=model)
        self.live: Encoder = load_encoder(settings, "live", _say)
        self.bulk: Encoder = load_encoder(settings, "bulk", _say)
        self._work = work
        self._queries: dict[str, QueryEncoding] = {}
        work.mkdir(parents=True, exist_ok=True)

    def query(self, text: str, fresh: bool = False) -> QueryEncoding:
        """A query's encoding; made again only if `fresh`."""
        kept = None if fresh else self._queries.get(text)
        if kept is None:
            kept = self._queries[text] = QueryEncoding(*self.live.encode_query(text))
        return kept

    def fill(self, keeping: Keeping, space: Space, name: str) -> None:
        """Gives the store all vectors it misses. name: of the pool, for the file and the progress line."""
        kept = Kept.load(self._file(name))
        saved = len(kept.rows)
        while missing := keeping.missing(BATCH):
            new = [(hash, text) for hash, text in missing if hash not in kept.rows]
            if new:
                print(f"{name}: {len(kept.rows)} passages encoded, going on", file=sys.stderr, flush=True)
                kept.add([hash for hash, _ in new], self.bulk.encode_passages([text for _, text in new]))
            hashes = [hash for hash, _ in missing]
            keeping.put(space, hashes, kept.frame(hashes))
            if len(kept.rows) >= saved + SAVED_AFTER:
                kept.save(self._file(name))
                saved = len(kept.rows)
        if len(kept.rows) > saved:
            kept.save(self._file(name))

    def _file(self, name: str) -> Path:
        key = hashlib.blake2b(f"{name}\0{self.bulk.fingerprint}".encode(), digest_size=8).hexdigest()
        return self._work / f"{name.replace(' ', '-').replace('/', '-')[:40]}-{key}.npz"


@dataclass(slots=True)
class Kept:
    """hash -> (vector float16 (d,), tokens int8 (T, t), starts, ends uint16 (T,))."""

    rows: dict[bytes, tuple[Any, Any, Any, Any]]

    @classmethod
    def load(cls, file: Path) -> Kept:
        if not file.exists():
            return cls({})
        with np.load(file) as kept:
            hashes, vectors, tokens = kept["hashes"], kept["vectors"], kept["tokens"]
            cuts = np.cumsum(kept["lengths"])[:-1]
            starts, ends = np.split(kept["starts"], cuts), np.split(kept["ends"], cuts)
            columns = zip(vectors, np.split(tokens, cuts), starts, ends, strict=True)
            return cls(dict(zip((row.tobytes() for row in hashes), columns, strict=True)))

    def save(self, file: Path) -> None:
        vectors, tokens, starts, ends = zip(*self.rows.values(), strict=True)
        hashes = np.frombuffer(b"".join(self.rows), np.uint8).reshape(len(self.rows), -1)
        part = file.with_suffix(".part.npz")
        np.savez(
            part, hashes=hashes, vectors=np.stack(vectors), tokens=np.concatenate(tokens),
            starts=np.concatenate(starts), ends=np.concatenate(ends), lengths=np.array([len(row) for row in tokens]),
        )  # fmt: skip
        part.replace(file)

    def add(self, hashes: list[bytes], encoded: EncodedPassages) -> None:
        columns = zip(encoded.vectors, encoded.tokens, encoded.starts, encoded.ends, strict=True)
        self.rows.update(zip(hashes, columns, strict=True))

    def frame(self, hashes: list[bytes]) -> PassagesEncoded:
        """As the worker sends it."""
        rows = [self.rows[hash] for hash in hashes]
        return PassagesEncoded(
            id=0,
            vectors=np.stack([row[0] for row in rows]).astype("<f2").tobytes(),
            tokens=[row[1].tobytes() for row in rows],
            starts=[row[2].astype("<u2").tobytes() for row in rows],
            ends=[row[3].astype("<u2").tobytes() for row in rows],
        )


def _say(phase: str, done: int, total: int) -> None:
    print(f"encoder: {phase} {done}/{total}" if total else f"encoder: {phase}", file=sys.stderr, flush=True)
