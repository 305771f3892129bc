"""Words, and how telling each is.

Queries, passages and gates must agree on what a word is, so it is decided here once: runs of letters and digits, and
identifiers taken apart (`parseHTTPUrl` -> parse, http, url) as well as whole. How telling a word is comes from
`word_weights.json`: document frequencies counted over notes, command pages, encyclopaedia and agent sessions, so that
"test", "check" or "file" weigh little in any memory, however small. A word that was never seen there weighs 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources


def word_set(text: str) -> frozenset[str]:
    """The words between the spaces of a text; for tables of words."""
    return frozenset(text.split())


STOP_WORDS = word_set(
    """a about above after again against all also am an and any are aren't as at be because been before being below
    between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each
    else ever few for from further get gets getting go going gone got had hadn't has hasn't have haven't having
    he her here hers herself him himself his how i i'd i'll i'm i've if in into is isn't it it's its itself just
    let let's like me more most my myself no nor not now of off ok okay on once only or other our ours ourselves
    out over own please quite rather really same shall she should shouldn't since so some still such than thanks
    that that's the their theirs them themselves then there these they this those through to too under until up
    upon us very was wasn't we we'll we're were weren't what what's when where whether which while who whom
    whose why will with won't would wouldn't yes yet you you'd you'll you're your yours yourself yourselves"""
)

PAIR_WEIGHT = 0.3  # two letters are a flag, a unit or a shell's habit more often than a name
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")  # letters and digits, with inner apostrophes; never an underscore
_IDENTIFIER = re.compile(r"[^\W\d_][\w]*(?:[.:/\\-]+\w+)*|\d\w*")
_COMPOUND = re.compile(r"\w*[a-z][A-Z]\w*|\w*[A-Z]{2}[a-z]\w*|\w+_\w+|\w*[^\W\d_]\d\w*")  # what has parts beyond words
_RUN = re.compile(r"\w+")
_HUMP = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")


def words_of(text: str) -> list[str]:
    """The words of a text, lower-cased, in order, stop words among them.

    >>> words_of("Don't push origin/main twice")
    ["don't", 'push', 'origin', 'main', 'twice']
    """
    return _WORD.findall(text.replace("’", "'").lower())


def parts_of(identifier: str) -> list[str]:
    """The humps of one identifier, lower-cased; empty when it is one plain word.

    >>> parts_of("parseHTTPUrl"), parts_of("max_retry_ms"), parts_of("deploy")
    (['parse', 'http', 'url'], ['max', 'retry', 'ms'], [])
    """
    parts = [part.lower() for run in re.split(r"[\W_]+", identifier) for part in _HUMP.findall(run)]
    return parts if len(parts) > 1 else []


def identifiers_of(text: str) -> list[str]:
    """Identifiers and plain words as they stand (`src/auth.py`, `fooBar`), in order."""
    return _IDENTIFIER.findall(text)


def stem(word: str) -> str:
    """A word without its plural or possessive s: enough to let "hooks" meet "hook"; never shorter than three letters.

    >>> stem("hooks"), stem("class"), stem("bus"), stem("it's")
    ('hook', 'class', 'bus', 'it')
    """
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] not in "su" else word


@lru_cache(maxsize=512)  # each stage of a recall judges nearly the same passages
def content_stems(text: str) -> frozenset[str]:
    """The stems of a text's words and identifier parts that are no stop words."""
    found = set(words_of(text))
    for run in set(_RUN.findall(text)):
        plain = run.isalpha() and (run[1:].islower() or run.isupper())
        if not plain and _COMPOUND.fullmatch(run):
            found.update(parts_of(run))
    return frozenset(stem(word) for word in found if word not in STOP_WORDS)


@lru_cache(maxsize=1)
def _weights() -> dict[str, float]:
    text = resources.files(__package__).joinpath("word_weights.json").read_text(encoding="utf-8")
    weights: dict[str, float] = json.loads(text)["weights"]
    return weights


def weight_of(word: str) -> float:
    """How telling a word is, from 0 (a stop word, a single letter) to 1 (never seen in the background text)."""
    if len(word) < 2 or word in STOP_WORDS:
        return 0.0
    known = _weights().get(stem(word), 1.0)
    return min(known, PAIR_WEIGHT) if len(word) == 2 and word.isascii() else known


def total_weight(words: Iterable[str]) -> float:
    """The summed weight of some distinct words."""
    return sum(weight_of(word) for word in words)
