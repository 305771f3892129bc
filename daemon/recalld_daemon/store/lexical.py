"""Full-text search that stays quick: the few rarest terms carry the ranking, common ones would only cost time.

User text never reaches FTS5 as grammar: a term is taken apart into runs of letters and digits, and each run, quoted, is
a phrase. Terms are then chosen by how many passages hold them, rarest first, until the passages to be scored would
exceed a budget; a term found in a large share of all passages counts only when nothing else is left. Frequencies are
asked of the index once per term and remembered while the store keeps about its size.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from recalld_daemon.recall.types import LaneHits, View
from recalld_daemon.store.connections import Pool

TERMS_READ = 256  # of a query, most telling first; more would be a pasted document
TERMS_USED = 12
POSTINGS_BUDGET = 3_000  # passages scored per search at most; each costs about 0.9 us
COMMON_SHARE = 0.15  # a term in more than this share of the passages tells nothing
COMMON_FLOOR = 50  # ... unless the store is small
REMEMBERED_TERMS = 50_000
GROWTH = 0.1  # remembered frequencies are asked anew when the store has changed by this share
WEIGHTS = (1.0, 2.0, 0.5, 1.0, 0.5)  # text, heading, speaker, path, parts: bm25's column weights

_RUN = re.compile(r"[^\W_]+")
_SEARCH = """SELECT f.rowid, -bm25(passages_fts, {weights}) AS score
    FROM passages_fts f CROSS JOIN passages p INDEXED BY passages_seen ON p.id = f.rowid
    WHERE passages_fts MATCH ? {scopes} {before} ORDER BY score DESC, f.rowid DESC LIMIT ?"""


class LexicalSearch:
    """bm25 over the store's full-text table. Safe from several threads: what is remembered is only ever a guess."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._frequencies: dict[str, int] = {}
        self._generation = -1
        self._passages = 0

    def search(self, terms: Sequence[str], view: View, limit: int) -> LaneHits:
        """ids and bm25 scores (higher is better) of at most `limit` passages, best first.

        No term with a letter or digit in it, or none that occurs: no hits.
        """
        phrases = phrases_of(terms)
        with self._pool.lend() as db:
            chosen = self._choose(db, phrases) if phrases else []
            rows = _search(db, chosen, view, limit) if chosen else []
        return LaneHits(
            ids=np.array([row[0] for row in rows], dtype=np.int64),
            scores=np.array([row[1] for row in rows], dtype=np.float32),
        )

    def _choose(self, db: sqlite3.Connection, phrases: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """The rarest phrases that occur, within the budget; at least one of them."""
        self._refresh(db)
        counted = sorted(
            (frequency, place, phrase)
            for place, phrase in enumerate(phrases)
            if (frequency := min(self._frequency(db, word) for word in phrase)) > 0
        )
        common = max(COMMON_FLOOR, COMMON_SHARE * self._passages)
        chosen: list[tuple[str, ...]] = []
        postings = 0
        for frequency, _, phrase in counted[:TERMS_USED]:
            postings += frequency
            if chosen and (frequency > common or postings > POSTINGS_BUDGET):
                break
            chosen.append(phrase)
        return chosen

    def _frequency(self, db: sqlite3.Connection, word: str) -> int:
        """How many passages hold a word; one that can't be folded with certainty counts as rare."""
        folded = fold(word)
        known = self._frequencies.get(folded)
        if known is None:
            row = db.execute("SELECT doc FROM passages_terms WHERE term = ?", (folded,)).fetchone()
            known = row[0] if row else 0 if folded.isascii() else 1
            if len(self._frequencies) >= REMEMBERED_TERMS:
                self._frequencies.clear()
            self._frequencies[folded] = known
        return known

    def _refresh(self, db: sqlite3.Connection) -> None:
        (generation,) = db.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
        if abs(generation - self._generation) <= GROWTH * self._passages / 100:  # a transaction adds at most some 100
            return
        (passages,) = db.execute("SELECT count(*) FROM passages").fetchone()
        if abs(passages - self._passages) > GROWTH * self._passages or passages < COMMON_FLOOR / COMMON_SHARE:
            self._frequencies = {}
            self._passages = passages
        self._generation = generation


def phrases_of(terms: Iterable[str]) -> list[tuple[str, ...]]:
    """Each term as the words the tokenizer makes of it, each phrase once.

    >>> phrases_of(["deploy_key", "don't", '"', "*", "NEAR("])
    [('deploy', 'key'), ('don', 't'), ('NEAR',)]
    """
    found = (tuple(_RUN.findall(term)) for term, _ in zip(terms, range(TERMS_READ), strict=False))
    return list(dict.fromkeys(phrase for phrase in found if phrase))


@lru_cache(maxsize=4096)
def fold(word: str) -> str:
    """A word as the full-text index spells it: lower case, without diacritics.

    >>> fold("Größe"), fold("CAFÉ")
    ('große', 'cafe')
    """
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.lower())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def _search(
    db: sqlite3.Connection, phrases: Sequence[tuple[str, ...]], view: View, limit: int
) -> list[tuple[int, float]]:
    match = " OR ".join('"' + " ".join(phrase) + '"' for phrase in phrases)
    scopes = view.scopes
    sql = _SEARCH.format(
        weights=", ".join(map(str, WEIGHTS)),
        scopes="" if scopes is None else f"AND p.scope IN ({','.join('?' * len(scopes))})",
        before="" if view.as_of is None else "AND p.written_at < ?",
    )
    dates = () if view.as_of is None else (view.as_of,)
    return db.execute(sql, (match, *(scopes or ()), *dates, limit)).fetchall()
