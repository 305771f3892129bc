"""What of a text quotes passages that are to be forgotten: their words in a row, and words that nobody else has.

A user's own questions are kept in the log, since learning lives on them; but a question that repeats what was forgotten
would keep it. So what it quotes is masked, and the rest of it stays: a run of RUN words or more that stood in a
forgotten text in that order, and every telling word that no other passage holds. Shorter runs of common words are
anybody's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from recalld_daemon.recall.words import STOP_WORDS

RUN = 5  # words in a row: by chance two texts hardly ever share so many, a paraphrase shares fewer
LEAST = 3  # letters of a telling word
MASK = "…"

_WORD = re.compile(r"[^\W_]+")  # as the full-text tokenizer parts a text


@dataclass(frozen=True, slots=True)
class Quotes:
    """runs: hashes of runs of RUN words, of this process; words: folded."""

    runs: frozenset[int]
    words: frozenset[str]
    fold: Callable[[str], str]

    def mask(self, text: str) -> str:
        """The text with MASK in the place of what it quotes; itself where it quotes nothing."""
        if not self.runs and not self.words:
            return text
        found = list(_WORD.finditer(text))
        folded = [self.fold(match[0]) for match in found]
        marked = [word in self.words for word in folded]
        for at, run in enumerate(_runs(folded)):
            if run in self.runs:
                marked[at : at + RUN] = [True] * RUN
        parts, end = [], 0
        for place, match in enumerate(found):
            if marked[place] and not (place and marked[place - 1]):
                parts += [text[end : match.start()], MASK]
            if marked[place]:
                end = match.end()
        return "".join([*parts, text[end:]])


NO_QUOTES = Quotes(frozenset(), frozenset(), str.lower)


class QuoteSearch:
    """Finds what any of `asked` (questions) quotes. `fold`: a word as the full-text index spells it."""

    def __init__(self, asked: Iterable[str], fold: Callable[[str], str]) -> None:
        self._fold = fold
        self._runs: set[int] = set()
        self._words: set[str] = set()
        for text in asked:
            folded = self._folded(text)
            self._runs.update(_runs(folded))
            self._words.update(word for word in folded if len(word) >= LEAST and word not in STOP_WORDS)
        self._said: set[int] = set()
        self._holders: Counter[str] = Counter()

    def add(self, text: str, *more: str) -> None:
        """One passage to be forgotten: its text, and what else the full-text index has of it."""
        folded = self._folded(text)
        self._said.update(self._runs.intersection(_runs(folded)))
        self._holders.update(self._words.intersection([*folded, *self._folded(" ".join(more))]))

    def quotes(self, holders: Callable[[str], int]) -> Quotes:
        """holders(word): how many passages hold it now, those to be forgotten among them."""
        words = frozenset(word for word, count in self._holders.items() if holders(word) <= count)
        return Quotes(frozenset(self._said), words, self._fold)

    def _folded(self, text: str) -> list[str]:
        return [self._fold(word) for word in _WORD.findall(text)]


def _runs(words: list[str]) -> Iterator[int]:
    return (hash(tuple(words[at : at + RUN])) for at in range(len(words) - RUN + 1))
