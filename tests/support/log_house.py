"""A store with a log in it: sources, questions that were asked of them, what was shown and what came of it.

Passages go through `Keeping`, as in the daemon, so there are facts and subjects. The made encoder puts words that mean
the same on the same vector and knows queries from passages; with real encoders instead, all is as in use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from recalld_daemon.extract.passages import extracted
from recalld_daemon.ingest.keeping import Keeping, Pass
from recalld_daemon.ingest.ports import Space
from recalld_daemon.models.encoder import EncodedPassages
from recalld_daemon.paths import Home, home_under
from recalld_daemon.recall.types import GLOBAL_SCOPE, TOKEN_SCALE, Float32
from recalld_daemon.store import ImpressionRecord, Reader, RecallRecord, SessionRecord, Writer, open_reader, open_writer
from recalld_daemon.watchers.tree import FileStat
from recalld_daemon.worker_wire import Parsed, ParsedPassage, PassagesEncoded
from store_samples import passages

DIMS, TOKEN_DIMS = 32, 16
NOON = 1_700_000_000.0  # when the log begins
DAY = 86_400.0


@dataclass
class MadeEncoder:
    """Bags of words. `as_query` and `as_passage`: what was encoded how. shift: how far all queries lie off, what f_Q
    can learn."""

    shift: float = 0.0
    fingerprint: str = "made 1"
    as_query: list[str] = field(default_factory=list)
    as_passage: list[str] = field(default_factory=list)

    def encode_query(self, text: str) -> tuple[Float32, Float32]:
        self.as_query.append(text)
        vector = _bag(text, DIMS) + np.float32(self.shift) * _word("query:", DIMS)
        return _unit(vector), np.stack([_word(word, TOKEN_DIMS) for word in _words(text)] or [_word("", TOKEN_DIMS)])

    def encode_passages(self, texts: Sequence[str]) -> EncodedPassages:
        self.as_passage += texts
        found = [[(m.start(), m.end()) for m in re.finditer(r"\w+", text)] for text in texts]
        tokens = [
            np.stack([_word(text[a:b].lower(), TOKEN_DIMS) for a, b in own])
            for text, own in zip(texts, found, strict=True)
        ]
        return EncodedPassages(
            np.stack([_unit(_bag(text, DIMS)) for text in texts]).astype(np.float16),
            [np.clip(np.round(rows * TOKEN_SCALE), -127, 127).astype(np.int8) for rows in tokens],
            [np.array([start for start, _ in own], np.uint16) for own in found],
            [np.array([end for _, end in own], np.uint16) for own in found],
        )


class Unindexed:
    """In an index's place: who asks here has an index of its own."""

    def add(self, batch: object) -> None:
        pass

    def remove(self, ids: object) -> None:
        pass


class LogHouse:
    """A home below `directory`. live, bulk: encoders of queries and passages; the same made one unless given."""

    def __init__(self, directory: Path, live: Any = None, bulk: Any = None) -> None:
        self.home: Home = home_under(directory)
        self.home.make()
        self.live = live or MadeEncoder()
        self._bulk = bulk or self.live
        self.writer: Writer = open_writer(self.home.database)
        self.reader: Reader = open_reader(self.home.database)
        dims, token_dims = getattr(self._bulk, "dims", DIMS), getattr(self._bulk, "token_dims", TOKEN_DIMS)
        self.encoder = self.writer.encoder_id(self.live.fingerprint, dims=dims, token_dims=token_dims)
        self.writer.set_live(self.encoder, 0)
        self._keeping = Keeping(self.writer, self.reader)
        self._keeping.attach(Space(self.encoder, 0), Unindexed())
        self._numbers = iter(range(1, 1_000_000))

    def __enter__(self) -> LogHouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.reader.close()
        self.writer.close()

    def remember(
        self, path: str, texts: Sequence[str | ParsedPassage], *, scope: str = "", at: float = NOON - DAY
    ) -> list[int]:
        """A file with these passages, encoded; its passages' ids in order."""
        cut = [text if isinstance(text, ParsedPassage) else passages([text])[0] for text in texts]
        kind = "claude-code" if path.endswith(".jsonl") else "markdown"
        under_way = Pass(FileStat(path, 0, int(at * 1e9), 0), path.rpartition("/")[2], kind, append=False, scope=scope)
        found = [item for item in extracted(cut, path) if isinstance(item, ParsedPassage)]
        self._keeping.take(under_way, Parsed(id=0, passages=found, done=True, cursor=sum(p.end for p in cut)))
        while missing := self._keeping.missing(256):
            hashes = [hash for hash, _ in missing]
            self._keeping.put(
                Space(self.encoder, 0), hashes, _frame(self._bulk.encode_passages([t for _, t in missing]))
            )
        return self.reader.passage_ids(path)

    def asked(
        self,
        text: str,
        shown: Sequence[tuple[int, str] | tuple[int, str, str]] = (),
        *,
        at: float = NOON,
        session: str = "s1",
        scope: int = GLOBAL_SCOPE,
        probability: float = 0.5,
        propensity: float = 1.0,
    ) -> list[str]:
        """A recall: what was shown in order, each with its verdicts ("" none; several apart by a space) and, unless it
        was won, its outcome. Returns the impressions' ids."""
        recall = f"r{next(self._numbers)}"
        if self.reader.session(session) is None:
            self.writer.touch_session(SessionRecord(session, scope=scope))
        self.writer.record_recall(RecallRecord(recall, session, "turn 1", text, at, "ready"))
        ids = []
        for rank, (passage, verdicts, *rest) in enumerate(shown, 1):
            ids.append(f"{recall}-{passage}")
            impression = ImpressionRecord(
                ids[-1], recall, session, passage, "/x", 0, 1, "x", rank, 1.0, probability, "late",
                rest[0] if rest else "won", 1, at, propensity,  # type: ignore[arg-type]
            )  # fmt: skip
            self.writer.record_impressions([impression])
            for verdict in verdicts.split():
                self.writer.record_feedback(ids[-1], verdict, at=at + 1)
        return ids


def _frame(encoded: EncodedPassages) -> PassagesEncoded:
    """As the worker sends it."""
    return PassagesEncoded(
        id=0,
        vectors=encoded.vectors.astype("<f2").tobytes(),
        tokens=[tokens.tobytes() for tokens in encoded.tokens],
        starts=[starts.astype("<u2").tobytes() for starts in encoded.starts],
        ends=[ends.astype("<u2").tobytes() for ends in encoded.ends],
    )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _bag(text: str, dims: int) -> Float32:
    return np.sum([_word(word, dims) for word in _words(text)] or [_word("", dims)], axis=0).astype(np.float32)


def _word(word: str, dims: int) -> Float32:
    seed = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
    return _unit(np.random.default_rng(seed).normal(size=dims).astype(np.float32))


def _unit(vector: Float32) -> Float32:
    return (vector / np.linalg.norm(vector)).astype(np.float32)
