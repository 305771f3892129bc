"""What a snippet's use leaves behind: its own words in what the agent says, its file among those it opens. Pure.

A word counts as the snippet's own if nothing said it that the agent had before it. One such word proves little: talk
about the same matter shares words by chance. So either a *name* must come again (an identifier, a path, a number of
three digits and more that is no year: nobody hits on `berth_booking` or 5433 by chance), or four of its words in a row,
or two telling words near each other. How often chance alone does it: docs/measurements.md, "Use told from chance".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from functools import cached_property

from recalld_daemon.recall.words import (
    STOP_WORDS,
    content_stems,
    identifiers_of,
    stem,
    total_weight,
    weight_of,
    words_of,
)

TELLING = 0.4  # `weight_of` a word that is not said of everything ("lock", "staging", "port"; not "create", "branch")
ENOUGH = 1.0  # of two or more such words together: two of the most ordinary among them are still chance
NEAR_WORDS = 24  # within which they must come: about two lines of prose, one command
RUN = 4  # words, as the gate counts what the conversation holds already
LEAST_RUN = 0.8  # their `weight_of`, summed: "one of the best" could be anybody's
LEAST_NAME = 4  # characters of an identifier
LEAST_DIGITS = 3
_YEAR = re.compile(r"(?:19|20)\d\d")
_NAME = re.compile(
    r"""\w+_\w+ | [^\W\d]*[a-z][A-Z]\w* | \w*[^\W\d_]\d\w* | \w*\d[^\W\d_]\w*  # max_retries, parseUrl, utf8, 3rd
      | [\w.-]+(?:/[\w.-]+)+ | [\w-]+\.[a-z]\w*                                 # src/auth, deploy.md
    """,
    re.VERBOSE,
)
_LINE = re.compile(r":\d+(?:[-:]\d+)?$")
_COMMON_FILES = re.compile(
    r"(?:readme|changelog|license|todo|notes|index|main|mod|lib|setup|config|settings|conftest|package|makefile"
    r"|dockerfile|__init__|__main__|memory|claude|agents)(?:\.\w+)*",
    re.IGNORECASE,
)  # names that files in many directories have


class Text:
    """A text that several snippets are compared with: taken apart once, as far as anybody asks."""

    def __init__(self, text: str) -> None:
        self.text, self.lower = text, text.lower()

    @cached_property
    def words(self) -> list[str]:
        return words_of(self.text)

    @cached_property
    def joined(self) -> str:
        return " ".join(self.words)


class Traces:
    """What only one snippet has said so far: stems of words, with their weights; names; runs of words."""

    def __init__(self, stems: dict[str, float], names: frozenset[str], runs: frozenset[str]) -> None:
        self.stems, self.names, self.runs = stems, names, runs

    def not_alone(self, text: Text) -> None:
        """Somebody else says this."""
        if self.names:
            self.names = frozenset(name for name in self.names if not _holds(text.lower, name))
        if self.stems:
            said = content_stems(text.text)
            self.stems = {stem: weight for stem, weight in self.stems.items() if stem not in said}
        if self.runs:
            self.runs = frozenset(run for run in self.runs if not _holds(text.joined, run))

    def tells(self, text: Text) -> bool:
        """Whether who says this got it from the snippet."""
        return (
            any(_holds(text.lower, name) for name in self.names)
            or any(_holds(text.joined, run) for run in self.runs)
            or self._telling_words(text.words)
        )

    def _telling_words(self, words: list[str]) -> bool:
        if len(self.stems) < 2:
            return False
        last: dict[str, int] = {}  # stem -> where it came last
        for place, word in enumerate(words):
            if (found := stem(word)) in self.stems:
                last[found] = place
                near = [self.stems[known] for known, at in last.items() if place - at < NEAR_WORDS]
                if len(near) > 1 and sum(near) >= ENOUGH:
                    return True
        return False


def traces_of(snippet: str, context: Iterable[Text]) -> Traces:
    """What of a snippet nothing in the context says.

    >>> traces = traces_of("never create an index on berth_booking without a lock timeout", [Text("the index is slow")])
    >>> traces.tells(Text("ALTER TABLE Berth_Booking")), traces.tells(Text("I'll create the index"))
    (True, False)
    """
    stems = {word: weight for word in content_stems(snippet) if (weight := weight_of(word)) >= TELLING}
    traces = Traces(stems, frozenset(names_in(snippet)), frozenset(runs_in(snippet)))
    for text in context:
        traces.not_alone(text)
    return traces


def runs_in(text: str) -> list[str]:
    """Its runs of RUN words, but for those that could stand anywhere.

    >>> runs_in("is one of the many, so drain the queue")
    ['the many so drain', 'many so drain the', 'so drain the queue']
    """
    words = words_of(text)
    runs = (words[at : at + RUN] for at in range(len(words) - RUN + 1))
    return [" ".join(run) for run in runs if total_weight(set(run)) >= LEAST_RUN]


def names_in(text: str) -> list[str]:
    """The names in a text, lower-cased.

    >>> names_in("in 2026 parseConfig of src/auth.py on port 5433, e.g. 12 well-known v2.1 hosts")
    ['parseconfig', 'src/auth.py', '5433']
    """
    found = []
    for word in identifiers_of(text):
        number = word.isdigit() and len(word) >= LEAST_DIGITS and not _YEAR.fullmatch(word)
        if number or (len(word) >= LEAST_NAME and _NAME.fullmatch(word) and word.lower() not in STOP_WORDS):
            found.append(word.lower())
    return found


def same_file(word: str, path: str, cwd: str = "") -> bool:
    """Whether a path as written in a tool call is this file. path: its name, absolute or as shown.

    A relative one is read from `cwd`, or taken for the end of the path: a bare file name only where it is no usual one.

    >>> same_file("notes/deploy.md:12", "/w/notes/deploy.md"), same_file("deploy.md", "/w/notes/deploy.md")
    (True, True)
    >>> same_file("README.md", "/w/notes/README.md"), same_file("README.md", "/w/notes/README.md", "/w/notes")
    (False, True)
    """
    word = _LINE.sub("", word.removeprefix("file://"))
    if not word or path.startswith("memory:"):
        return False
    if word.startswith("/"):
        return posixpath.normpath(word) == path or (not path.startswith("/") and word.endswith("/" + path))
    if cwd and posixpath.normpath(posixpath.join(cwd, word)) == path:
        return True
    end = posixpath.normpath(word.removeprefix("~/")).lstrip("./")
    if "/" not in end and _COMMON_FILES.fullmatch(end):
        return False
    return bool(end) and (path == end or path.endswith("/" + end))


def _holds(lower: str, name: str) -> bool:
    """Whether a text, lower-cased, holds a name as a whole."""
    at = lower.find(name)
    while at >= 0:
        before, after = lower[at - 1 : at], lower[at + len(name) : at + len(name) + 1]
        if not _inner(before) and not _inner(after):
            return True
        at = lower.find(name, at + 1)
    return False


def _inner(letter: str) -> bool:
    return letter.isalnum() or letter == "_"
