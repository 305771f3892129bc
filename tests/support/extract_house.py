"""A small memory with a store, what was extracted from it in memory, and vectors that depend on the text alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path

import numpy as np

from recalld_daemon.extract.interface import Recipe
from recalld_daemon.extract.passages import extracted
from recalld_daemon.extract.propositions import RuleFacts
from recalld_daemon.extract.rules import RuleTimes
from recalld_daemon.extract.subjects import RuleSubjects
from recalld_daemon.index import Catalogue, Extracts
from recalld_daemon.recall.hints import hints_of, names_of
from recalld_daemon.recall.query import terms_of
from recalld_daemon.recall.types import GLOBAL_SCOPE, Hints, Query, QueryEncoding
from recalld_daemon.store import Reader, Writer, open_reader, open_writer
from recalld_daemon.worker_wire import ParsedPassage
from store_samples import DIMS, TOKEN_DIMS, encode_missing, passage, vector_of

IN_UTC = Recipe(RuleFacts(UTC), RuleSubjects(), RuleTimes(UTC))
Said = tuple[str, str, float]  # speaker, text, epoch seconds


class ExtractHouse:
    """Writes, and announces what was written, as `ingest.keeping` does."""

    def __init__(self, writer: Writer, reader: Reader, directory: Path) -> None:
        self.writer, self.reader = writer, reader
        self.extracts = Extracts(reader)
        self.catalogue = Catalogue(directory, reader)
        self.encoder = writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)

    def told(self, path: str, said: Sequence[Said], scope: int = GLOBAL_SCOPE) -> list[int]:
        """One conversation; what stood at `path` before is replaced. Returns its passages in order."""
        parsed, start = [], 0
        for speaker, text, at in said:
            parsed.append(passage(text, start, speaker=speaker, at=at))
            start = parsed[-1].end + 1
        batch = [item for item in extracted(parsed, path, IN_UTC) if isinstance(item, ParsedPassage)]
        with self.writer.transaction():
            source = self.writer.begin_source(path, shown_path=path, kind="claude-code", scope=scope)
            new = self.writer.add_passages(source, batch)
            gone = self.writer.finish_source(source, cursor=start)
        self.extracts.forget(gone)
        self.catalogue.forget(gone)
        self.extracts.learn(new)
        self.catalogue.learn(new)
        return self.reader.passage_ids(path)

    def forget(self, path: str) -> None:
        gone = self.writer.remove_source(path)
        self.extracts.forget(gone)
        self.catalogue.forget(gone)

    def embed(self) -> None:
        """Give vectors to all that has none, and announce them."""
        while missing := self.reader.missing_vectors(self.encoder, 0, 64):
            encode_missing(self.writer, self.reader, self.encoder, limit=64)
            self.extracts.embedded([hash for hash, _ in missing])

    def query(self, text: str, now: float) -> Query:
        known = self.catalogue.cards.speakers()
        query = Query(text, terms_of(text), text)
        hints: Hints = hints_of(query, names_of(known), self.extracts.subjects.named(text), now, known=known, tz=UTC)
        return Query(text, query.terms, text, hints=hints)


def encoding_of(text: str) -> QueryEncoding:
    """As if the query read exactly like a text that was embedded."""
    return QueryEncoding(vector_of(text).astype(np.float32), np.zeros((1, TOKEN_DIMS), np.float32))


@contextmanager
def extract_house(directory: Path) -> Iterator[ExtractHouse]:
    with open_writer(directory / "x.db") as writer, open_reader(directory / "x.db") as reader:
        yield ExtractHouse(writer, reader, directory)
