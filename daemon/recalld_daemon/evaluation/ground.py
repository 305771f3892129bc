"""A recall over the store, in a process of its own: where challengers are judged as the daemon would run them.

The parts come from `assembly.parts_of` and the stages from `recall.stages`, so what is judged is what would run, but
for a cross-encoder, which has no part in it. What stands on disk for the daemon is left alone: words, cards and
extracts are read from the store into memory, and the vectors into a matrix that each challenger's keys project for
themselves. Nothing is written, nowhere; a daemon may run beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Protocol

import numpy as np

from recalld_daemon.assembly import Wishes, gatherer_of, parts_of
from recalld_daemon.config import Config
from recalld_daemon.evaluation.questions import Asked, Question
from recalld_daemon.evaluation.useful import Before
from recalld_daemon.index import Catalogue, Extracts
from recalld_daemon.index.matrix import MatrixIndex, open_matrix
from recalld_daemon.ingest.formats.kinds import names_project
from recalld_daemon.learned import PLAIN, Learned, read_learned
from recalld_daemon.paths import Home
from recalld_daemon.ranking.features import features_of
from recalld_daemon.ranking.fit import Lesson
from recalld_daemon.ranking.ranker import RANK_LIMIT
from recalld_daemon.recall import gate
from recalld_daemon.recall.adapted import adapted
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.in_prompt import SHORT_ID, session_of
from recalld_daemon.recall.query import query_from
from recalld_daemon.recall.stages import Parts, Stages, recall_now
from recalld_daemon.recall.types import Answer, Float32, Int64, QueryEncoding
from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.extraction_reads import LineVectors
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN, EncoderRecord

DENSE_LIMIT = 1_000  # of the dense ranking: what is deeper has a reciprocal rank of a thousandth

Progress = Callable[[str, int, int], None]  # phase, done, of how many


class NoGround(Exception):
    """There is nothing to recall from; the text names the remedy."""


class LiveEncoder(Protocol):
    """`models.encoder.Encoder` in the live role: it encodes queries, and nothing else."""

    fingerprint: str

    def encode_query(self, text: str) -> tuple[Float32, Float32]: ...


class KeyedReader(Reader):
    """A reader whose facts and names have the vectors that f_K makes of them."""

    key: Adapter | None = None

    def line_vectors(self, hashes: Sequence[bytes], encoder: int, snapshot: int) -> dict[bytes, Float32]:
        found = super().line_vectors(hashes, encoder, snapshot)
        if self.key is None or not found:
            return found
        return dict(zip(found, self._projected(np.stack(list(found.values()))), strict=True))

    def _walk_lines(self, sql: str, encoder: int, snapshot: int, size: int) -> Iterator[LineVectors]:
        for lines in super()._walk_lines(sql, encoder, snapshot, size):
            yield replace(lines, vectors=self._projected(lines.vectors))

    def _projected(self, vectors: Float32) -> Float32:
        """As a snapshot would hold them, in float16."""
        return vectors if self.key is None else self.key.apply(vectors).astype(np.float16).astype(np.float32)


@dataclass(slots=True)
class Ground:
    """Made by `open_ground`. Used by one thread. before: what usefulness is told from; set by `known_before`."""

    reader: KeyedReader
    record: EncoderRecord
    live: LiveEncoder
    catalogue: Catalogue
    extracts: Extracts
    frozen: MatrixIndex
    wishes: Wishes
    _index: MatrixIndex
    before: Before | None = None
    _key: Adapter | None = None
    _valued: tuple[MatrixIndex, Adapter, MatrixIndex] | None = None
    _encodings: dict[str, QueryEncoding] = field(default_factory=dict)
    _own: dict[str, frozenset[int]] = field(default_factory=dict)
    _transcripts: dict[str, list[str]] = field(default_factory=dict)  # session -> paths

    @property
    def encoder(self) -> int:
        return self.record.id

    def learned(self, version: int) -> Learned:
        """A version of the store. Raises StoreError."""
        return read_learned(self.reader, self.encoder, version)

    def encode(self, texts: Sequence[str]) -> Float32:
        """(n, d) frozen vectors of texts as queries: for `pairset_of`."""
        rows = [self.encoding(text).frozen for text in texts]
        return np.stack(rows) if rows else np.empty((0, self.record.dims), np.float32)

    def encoding(self, text: str) -> QueryEncoding:
        """A text encoded as a query, once."""
        if text not in self._encodings:
            self._encodings[text] = QueryEncoding(*self.live.encode_query(text))
        return self._encodings[text]

    def answer(self, asked: Asked, learned: Learned = PLAIN) -> Answer:
        """What the whole recall finds, best first."""
        parts = self.parts(learned, asked)
        encoding = adapted(self.encoding(asked.text), learned.query)
        return recall_now(parts, query_from(asked.text), encoding, asked.view, self.own_transcript(asked.group))

    def ranked(self, asked: Asked, learned: Learned = PLAIN) -> list[int]:
        """Passages as the whole recall orders them: by score, and by nothing afterwards."""
        return [candidate.passage for candidate in self.answer(asked, learned).candidates]

    def dense(
        self, asked: Asked, learned: Learned = PLAIN, limit: int = DENSE_LIMIT, wanted: Float32 | None = None
    ) -> list[int]:
        """Passages by cosine alone, cos(f_Q(q), f_K(m)), exactly; + wanted . f_V(f_K(m)) where there is an f_V.

        wanted: (d,) what the user was after before this question, weighted (`trained.wanted_before`).
        """
        index = self._standing_on(learned.key)
        own = self.own_transcript(asked.group)
        vector, most = adapted(self.encoding(asked.text), learned.query).vector, limit + len(own)
        if learned.value is None or wanted is None:
            found = index.search(vector, asked.view, most)
        else:
            found = index.search_with(vector, self._values(index, learned.value), wanted, asked.view, most)
        return [passage for passage in found.ids.tolist() if passage not in own][:limit]

    def lesson(self, question: Question, learned: Learned = PLAIN) -> Lesson | None:
        """What the ranker would see of a question's candidates; None where there are none."""
        parts = self.parts(learned)
        before = list(takewhile(lambda deepener: deepener.name != "ranked", parts.deepeners))
        stages = Stages(
            replace(parts, deepeners=before), query_from(question.text), question.view,
            self.own_transcript(question.group), encoding=adapted(self.encoding(question.text), learned.query),
        )  # fmt: skip
        stages.hint()
        stages.ask(False)
        stages.ask(True)
        answer = stages.answer("fused", stages.fused())
        for deepener in stages.deepeners() if answer.candidates else ():
            answer = stages.deeper(deepener, answer)
        head = answer.candidates[:RANK_LIMIT]
        if not head:
            return None
        features = features_of(gatherer_of(parts.lanes, self.catalogue).sheet(stages.query, stages.encoding, head))
        right = np.array([candidate.passage in question.gold for candidate in head])
        return Lesson(features, right, question.weight)

    def passing(self, asked: Asked, learned: Learned = PLAIN) -> list[float]:
        """Probabilities of what would pass the gate: of a question without an answer nothing should."""
        answer = self.answer(asked, learned)
        passages = self.reader.passages(gate.depth_of(answer))
        decision = gate.decide(answer, passages, gate.Context(query_from(asked.text)))
        return [candidate.probability for candidate in decision.passed]

    def parts(self, learned: Learned, asked: Asked | None = None) -> Parts:
        """What a recall of this version is made of. asked: by what was known before it usefulness is told."""
        index, wishes = self._standing_on(learned.key), replace(self.wishes, learned=learned)
        if asked is not None and self.before is not None:
            before, at = self.before.interests(asked.key), asked.at
            wishes = replace(wishes, interests=lambda: before, clock=lambda: at)
        return parts_of(self.reader, self.catalogue, self.extracts, index, wishes)

    def vectors_of(self, ids: Int64, learned: Learned) -> Float32:
        """(n, d) f_V(f_K(m)) of passages; nan for those without a vector."""
        found = self._standing_on(learned.key).vectors_of(ids)
        return found if learned.value is None else learned.value.apply(found)

    def own_transcript(self, session: str) -> frozenset[int]:
        """The passages of a session's own transcript: it has them in its context, and the daemon never shows them."""
        if session not in self._own:
            paths = [path for told in {session, session[:SHORT_ID]} for path in self._transcripts.get(told, ())]
            self._own[session] = frozenset(self._passages_of(paths))
        return self._own[session]

    def _passages_of(self, paths: Iterable[str]) -> Iterator[int]:
        for path in paths:
            yield from self.reader.passage_ids(path)

    def _values(self, index: MatrixIndex, value: Adapter) -> MatrixIndex:
        """The index in the space of f_V over its own."""
        if self._valued is None or self._valued[0] is not index or self._valued[1] is not value:
            self._valued = (index, value, index.projected(value.apply))
        return self._valued[2]

    def _standing_on(self, key: Adapter | None) -> MatrixIndex:
        """The index in this key's space; facts and names follow."""
        if key is not self._key:
            self._valued = None
            self._index = self.frozen if key is None else self.frozen.projected(key.apply)
            self._key = self.reader.key = key
            self.extracts.attach(self.encoder, FROZEN)
        return self._index


@contextmanager
def open_ground(
    home: Home, config: Config, progress: Progress = lambda phase, done, total: None, live: LiveEncoder | None = None
) -> Iterator[Ground]:
    """The store's memory, opened for recalls. live: the encoder of queries; None: the configured one is loaded.

    Raises NoGround, StoreError, models.files.ModelError, OSError (the model can't be prepared).
    """
    if not home.database.exists():
        raise NoGround(f"{home.database}: there is no memory yet: start recalld first")
    with KeyedReader(home.database) as reader:
        live = live or load_live(home, config, progress)
        number = reader.encoder_named(live.fingerprint)
        record = None if number is None else reader.encoder(number)
        if record is None:
            raise NoGround(
                f"{home.database}: nothing in it was encoded by {live.fingerprint.split()[0]!r} as it is configured: "
                "let recalld index with it first"
            )
        yield ground_of(reader, record, live, config, progress)


def ground_of(
    reader: KeyedReader, record: EncoderRecord, live: LiveEncoder, config: Config, progress: Progress
) -> Ground:
    """Reads all that a recall needs into memory. Raises StoreError."""
    total = reader.counts()["passages"]
    catalogue = Catalogue(Path(), reader)  # never saved, so it needs no place
    for done, ids in enumerate(reader.walk_passages()):
        progress("reading words", min(total, done * len(ids)), total)
        catalogue.learn(ids)
    if catalogue.state().passages < total:
        raise StoreError(f"of {total} passages only {catalogue.state().passages} could be read")
    progress("reading facts", 0, 0)
    extracts = Extracts(reader)
    extracts.fill()
    extracts.attach(record.id, FROZEN)
    progress("reading vectors", 0, 0)
    frozen = open_matrix(reader, record)
    wishes = Wishes(
        late_interaction=config.late_interaction, ranker=config.ranker, more_lanes=config.more_lanes,
        user_names=config.user_names, agent_names=config.agent_names,
    )  # fmt: skip
    return Ground(
        reader, record, live, catalogue, extracts, frozen, wishes, frozen, _transcripts=transcripts_of(reader)
    )


def transcripts_of(reader: Reader) -> dict[str, list[str]]:
    """session, as `session_of` tells it -> paths of its transcripts."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in reader.sources():
        if names_project(source.kind) and (session := session_of(source.path)):
            found[session].append(source.path)
    return dict(found)


def load_live(home: Home, config: Config, progress: Progress) -> LiveEncoder:
    """The configured encoder as the daemon's live worker loads it. Raises ModelError, OSError."""
    from recalld_daemon.models.encoder import EncoderSettings, load_encoder  # slow to import

    settings = EncoderSettings(
        cache_dir=home.models, model=config.encoder, query_prompt=config.query_prompt,
        passage_prompt=config.passage_prompt, token_dims=config.token_dims, allow_download=config.allow_download,
        threads=1,
    )  # fmt: skip
    return load_encoder(settings, "live", progress)
