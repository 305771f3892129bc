"""Plain BM25, the floor that every set is held against: k1 1.2, b 0.75, plural s stripped, and nothing else."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

K1, B = 1.2, 0.75
_WORD = re.compile(r"[a-z0-9]+")
_PLURAL = re.compile(r"(?<=\w\w[^s])s\Z")


def words(text: str) -> list[str]:
    """Lower-cased runs of letters and digits; a last s goes, unless it is one of two.

    >>> words("The boss's tests, 2 classes")
    ['the', 'boss', 's', 'test', '2', 'classe']
    """
    return [_PLURAL.sub("", word) for word in _WORD.findall(text.lower())]


class PlainBM25:
    """Over n texts, once and for all."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        lengths = np.zeros(self.size)
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for place, text in enumerate(texts):
            counts = Counter(words(text))
            lengths[place] = sum(counts.values())
            for word, count in counts.items():
                postings[word].append((place, count))
        self._norm = K1 * (1 - B + B * lengths / max(1e-9, float(lengths.mean()) if self.size else 1.0))
        self._postings = {word: np.array(rows, float) for word, rows in postings.items()}

    def scores(self, query: str) -> np.ndarray:
        """(n,) float64; 0 where no word is shared."""
        total = np.zeros(self.size)
        for word in words(query):
            rows = self._postings.get(word)
            if rows is None:
                continue
            at, counts = rows[:, 0].astype(int), rows[:, 1]
            rarity = np.log(1 + (self.size - len(rows) + 0.5) / (len(rows) + 0.5))
            total[at] += rarity * counts * (K1 + 1) / (counts + self._norm[at])
        return total

    def ranking(self, query: str, allowed: Sequence[bool] | None = None, limit: int = 100) -> list[int]:
        """Places of texts that share a word, best first; of equals the earlier."""
        scores = self.scores(query)
        if allowed is not None:
            scores[~np.asarray(allowed, bool)] = 0.0
        best = np.argsort(-scores, kind="stable")[:limit]
        return [int(place) for place in best if scores[place] > 0]
