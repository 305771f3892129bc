"""What the tests of words and cards share: batches of small passages, and BM25 as one would write it down."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from recalld_daemon.index import Catalogue
from recalld_daemon.index.words import K1, WEIGHTS, B, WordIndex
from recalld_daemon.index.words_terms import asked_terms, terms_in
from recalld_daemon.store.passage_reads import PassageBatch
from recalld_daemon.store.reader import Reader


@dataclass(frozen=True)
class Known:
    """A passage as the tests keep it."""

    text: str
    heading: str = ""
    speaker: str = ""
    path: str = ""
    parts: str = ""
    scope: int = 1
    written_at: float = 0.0
    source: int = 1
    ordinal: int = 0


def batch_of(passages: Mapping[int, Known]) -> PassageBatch:
    ids, rows = list(passages), list(passages.values())

    def column(name: str, kind: type) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], dtype=kind)

    return PassageBatch(
        ids=np.array(ids, np.int64),
        scopes=column("scope", np.int64),
        written_at=column("written_at", np.float64),
        marks=np.array([mark_of(row) for row in rows], np.int64),
        sources=column("source", np.int64),
        ordinals=column("ordinal", np.int64),
        texts=[row.text for row in rows],
        headings=[row.heading for row in rows],
        speakers=[row.speaker for row in rows],
        paths=[row.path for row in rows],
        parts=[row.parts for row in rows],
    )


def mark_of(row: Known) -> int:
    said = "\n".join((row.heading, row.speaker, row.text, row.path)).encode()
    return int.from_bytes(blake2b(said, digest_size=8).digest(), "little", signed=True)


def bm25(passages: Mapping[int, Known], words: Iterable[str]) -> dict[int, float]:
    """Every passage's score, without any array: id -> score, 0 where no word is in it."""
    counts = {id: _weighted(row) for id, row in passages.items()}
    lengths = {id: sum(count.values()) for id, count in counts.items()}
    mean = sum(lengths.values()) / max(1, len(lengths)) or 1.0
    scores = dict.fromkeys(passages, 0.0)
    for term in set(asked_terms(words).tolist()):
        holders = [id for id, count in counts.items() if count[term]]
        idf = math.log1p((len(passages) - len(holders) + 0.5) / (len(holders) + 0.5))
        for id in holders:
            saturation = counts[id][term] + K1 * (1 - B + B * lengths[id] / mean)
            scores[id] += idf * (K1 + 1) * counts[id][term] / saturation
    return scores


def differences(catalogue: Catalogue, reader: Reader) -> list[str]:
    """In what the catalogue and the store differ: places, dates, scopes, words. Nothing when all is well."""
    facts, rows = reader.passage_facts(), catalogue.cards.rows()
    columns = {
        "id": facts.ids, "mark": facts.marks, "written_at": facts.written_at, "source": facts.sources,
        "ordinal": facts.ordinals, "scope": facts.scopes,
    }  # fmt: skip
    found = [name for name, column in columns.items() if not np.array_equal(rows[name], column)]
    fresh = WordIndex()
    batch = reader.passage_batch(facts.ids.tolist())
    fresh.add(batch)
    words = [*batch.texts, *batch.headings, *batch.speakers, *batch.paths]
    for word in sorted({word for text in words for word in text.split()})[:200]:
        held, wanted = catalogue.words.score([word], facts.ids), fresh.score([word], facts.ids)
        if not np.allclose(held, wanted, rtol=1e-4):
            found.append(f"the word {word}")
    if len(catalogue.words) != len(facts.ids):
        found.append("how many passages have words")
    return found


def _weighted(row: Known) -> Counter[int]:
    found: Counter[int] = Counter()
    fields: Sequence[str] = (row.text, row.heading, row.speaker, row.path, row.parts)
    for text, weight in zip(fields, WEIGHTS, strict=True):
        for term in terms_in(text):
            found[term] += weight  # type: ignore[assignment]  # weights are no whole numbers
    return found
