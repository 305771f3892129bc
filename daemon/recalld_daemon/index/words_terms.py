"""From text to terms: what is indexed of a passage and what a query's words become, decided once for both.

A term is a 64-bit hash, so a vocabulary is an array and never a table of strings; two of a million words share one with
a chance of 1 in 40 million. Diacritics are folded, stop words left out, words stemmed, identifiers with underscores
kept whole beside their words, and scripts that write no spaces between words are cut into overlapping pairs of letters,
so that a part of a compound finds it.

Words are stemmed by Snowball's English stemmer (PyStemmer: maintained, in C, 1 us a word; snowballstemmer, its Python
twin, takes 20, which a query can't afford). Measured with BM25 alone, R@10 / MRR for no stemming, plural s, Snowball:
LoCoMo dev .586/.446, .595/.453, .635/.485 (n 883); REALTALK dev .570/.456, .593/.481, .602/.507 (144); til .908/.765,
.919/.775, .925/.795 (2,266); entire sessions .709/.515, .685/.530, .695/.518 (369). Words of other languages lose an
ending now and then, on both sides alike.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain

import numpy as np
import Stemmer
from numpy.typing import NDArray

from recalld_daemon.recall.words import STOP_WORDS, words_of

UInt64 = NDArray[np.uint64]

RECIPE = f"1 snowball-{Stemmer.version()}"  # terms made by another recipe never meet these: counted up with each change
CACHED_WORDS = 30_000  # distinct words remembered with their terms: 6 MB
WORD_LETTERS = 64  # of a longer word the rest is noise: a hash, a key, an encoded blob

_SNAKE = re.compile(r"[^\W_]+(?:_+[^\W_]+)+")
_VOICING = "\u3099\u309a"  # marks that make another letter of a kana, no accent
# Scripts without spaces: Thai, Lao, Myanmar, Khmer, kana, Han, Hangul (which has spaces, but glues particles on).
_SOLID = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+")  # fmt: skip  # noqa: E501


class _Terms(dict[str, tuple[int, ...]]):
    """Word as `words_of` gives it -> its terms. A cache: emptied when it is full."""

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(self) >= CACHED_WORDS:
            self.clear()
        found = self[word] = tuple(term_of(form) for form in forms_of(word))
        return found


_terms = _Terms()
_stemmer = Stemmer.Stemmer("english", 0)
_stemming = threading.Lock()  # a stemmer is not to be used by two threads at once


def terms_in(text: str) -> list[int]:
    """The terms of a text in order, each as often as it stands there; identifiers with underscores at the end."""
    plain = fold(text)
    found = list(chain.from_iterable(map(_terms.__getitem__, words_of(plain))))
    if "_" in plain:
        found.extend(term_of(whole.lower()[:WORD_LETTERS]) for whole in _SNAKE.findall(plain))
    return found


def asked_terms(words: Iterable[str]) -> UInt64:
    """(n,) the distinct terms of a query's words, in their order; words that are nothing to search for give none."""
    return np.array(list(dict.fromkeys(chain.from_iterable(map(terms_in, words)))), dtype=np.uint64)


def forms_of(word: str) -> Sequence[str]:
    """What stands in the index for one lower-cased word: its stem, or pairs of letters; nothing for a stop word.

    >>> forms_of("hooks"), forms_of("the"), forms_of("忘れ物"), forms_of("gptモデル")
    (['hook'], [], ['忘れ', 'れ物'], ['gpt', 'モデ', 'デル'])
    """
    if word in STOP_WORDS:
        return []
    if word.isascii() or not _SOLID.search(word):
        return [stem(word[:WORD_LETTERS])]
    found: list[str] = []
    at = 0
    for run in _SOLID.finditer(word):
        found += [stem(word[at : run.start()])] if run.start() > at else []
        letters = run[0][: 4 * WORD_LETTERS * 16]
        found += [letters[n : n + 2] for n in range(max(1, len(letters) - 1))]
        at = run.end()
    return [*found, stem(word[at:])] if at < len(word) else found


def stem(word: str) -> str:
    """A lower-cased word without its ending and without a possessive s.

    >>> stem("painting"), stem("paints"), stem("ada's")
    ('paint', 'paint', 'ada')
    """
    with _stemming:
        return str(_stemmer.stemWord(word.removesuffix("'s")))


def fold(text: str) -> str:
    """A text without diacritics, and with full-width and other compatibility letters as plain ones.

    >>> fold("Größe CAFÉ ﬁle"), fold("が")
    ('Große CAFE file', 'が')
    """
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text.replace("’", "'"))
    if apart.isascii():
        return apart
    bare = "".join(c for c in apart if c in _VOICING or not unicodedata.category(c).startswith("M"))
    return unicodedata.normalize("NFC", bare)


def term_of(form: str) -> int:
    """A form's 64-bit hash."""
    return int.from_bytes(blake2b(form.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
