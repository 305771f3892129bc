"""Subjects: who and what a passage is about, typed, with the other ways in which each may be named.

People are speakers and capitalised names; paths, symbols and tools have the shapes that code gives them; topics are
runs of two or three content words. A single passage can't know what recurs, so every candidate is kept, and whoever
reads decides by how many passages share it. YAKE takes 2.6 ms a passage and ranks within one text, which is not what
recurs; rake-nltk wants corpora downloaded; a part-of-speech tagger's model is heavier than the encoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePath

from recalld_daemon.extract.interface import Piece, Subject
from recalld_daemon.extract.sentences import REACTIONS
from recalld_daemon.recall.words import STOP_WORDS, parts_of, stem, weight_of, word_set

MOST = 16  # subjects of a passage
MOST_TOPICS = 4
NAME_CHARS = 80
SURE_NAME = 0.9  # a capitalised word that begins a sentence is a name when the background hardly knows it

_NAME = re.compile(
    r"(?<![\w`/.@#-])[A-Z][a-zÀ-ÿ]+(?:[-'’][A-Z][a-z]+)?(?:\s+[A-Z][a-zÀ-ÿ]+(?:-[A-Z][a-z]+)?){0,2}(?![\w`/(-])"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:…\n\"“(*>-])\s*$")
_PATH = re.compile(
    r"(?<![\w:/.-])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*\w|(?<![\w/.-])[\w-]+\.(?:py|js|ts|tsx|jsx|go|rs|c|h|cpp|java|rb|sh|toml|ya?ml|json|md|txt|cfg|ini|sql|html|css|lock|env|log)\b"
)
_SYMBOL = re.compile(
    r"\b[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*\(\)?|\b[a-z]+[a-z0-9]*[A-Z]\w*|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b|"
    r"\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b"
)
_QUOTED = re.compile(r"`([^`\n]{2,60})`")
_SHELL = re.compile(r"^\s*\$\s+(\S+)", re.MULTILINE)
_PROJECT = re.compile(
    r"\b(?:project|repo|repository)\s+(?:called\s+|named\s+)?[`\"]?([A-Za-z][\w-]+)|github\.com/[\w.-]+/([\w-]+)",
    re.IGNORECASE,
)
_RUNS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|[^\s\w'’-]+|\d\S*")

GENERIC = word_set("user assistant system human ai bot agent me you")  # speakers who are nobody in particular
_TOOLS = word_set(
    """git docker kubectl npm npx yarn pnpm pip pytest mypy ruff cargo rustc make cmake ssh scp rsync curl wget grep sed
    awk jq tar systemctl journalctl psql sqlite3 redis-cli terraform ansible helm brew apt apt-get dnf vim emacs tmux
    node python python3 uv poetry tox gcc clang gdb strace ffmpeg openssl gh aws gcloud nginx bash zsh rg fd"""
)
_NO_NAMES = word_set(
    """i i'm i've i'll i'd january february march april may june july august september october november december monday
    tuesday wednesday thursday friday saturday sunday english ok okay hi hello hey yes no thanks thank wow oh god lord
    yesterday today tomorrow tonight christmas halloween easter thanksgiving congrats happy merry the a an and but so
    then also however note todo see"""
)


class RuleSubjects:
    name = "rules-1"

    def subjects(self, piece: Piece) -> list[Subject]:
        """What a passage is about: its speaker, then names, paths, symbols, tools, projects, topics; each once."""
        found: dict[str, Subject] = {}
        for subject in _candidates(piece):
            if len(subject.name) <= NAME_CHARS:
                found.setdefault(key_of(subject), subject)
        return list(found.values())[:MOST]


def key_of(subject: Subject) -> str:
    """What makes two subjects one: their kind and folded name.

    >>> key_of(Subject("symbol", "getUserName")), key_of(Subject("symbol", "get_user_name"))
    ('symbol:get user name', 'symbol:get user name')
    """
    return f"{subject.kind}:{fold(subject.name)}"


@lru_cache(maxsize=8192)
def fold(name: str) -> str:
    """A name without case, plural, possessive and the joints of identifiers; a path stays one, without its beginning.

    >>> fold("Deploy Keys"), fold("parse_http_url()"), fold("./src/auth.py"), fold("Ada's")
    ('deploy key', 'parse http url', 'src/auth.py', 'ada')
    """
    name = name.strip().replace("’", "'").removesuffix("()").removesuffix("(")
    if "/" in name:
        return name.lstrip("~./").lower()
    if " " not in name and "'" not in name and (parts := parts_of(name)):
        return " ".join(parts)
    return " ".join(stem(word) for word in name.lower().split())


def _candidates(piece: Piece) -> Iterator[Subject]:
    if piece.speaker and piece.speaker.lower() not in GENERIC:
        yield person(piece.speaker)
    text = piece.text
    symbols = list(_symbols(text))
    paths = [Subject("path", match[0], path_aliases(match[0])) for match in _PATH.finditer(text) if _is_path(match[0])]
    yield from (person(name) for name in _names(text))
    yield from paths
    yield from symbols
    yield from (Subject("tool", tool) for tool in _tools(text))
    yield from (Subject("project", match[1] or match[2]) for match in _PROJECT.finditer(text))
    yield from (Subject("topic", topic) for topic in _topics(piece.heading.rpartition(" > ")[2], text))


def person(name: str) -> Subject:
    """A person, whom the first name names as well."""
    first = name.split()[0] if " " in name.strip() else ""
    return Subject("person", name, (fold(first),) if first else ())


def path_aliases(path: str) -> tuple[str, ...]:
    """A path's base name and stem, and its last two parts."""
    parts = PurePath(path).parts
    found = [PurePath(path).name, PurePath(path).stem, "/".join(parts[-2:])]
    own = fold(path)
    return tuple(dict.fromkeys(name.lower() for name in found if len(name) > 2 and name.lower() != own))


def _is_path(text: str) -> bool:
    """Not a fraction, a date, a pair of words."""
    if "/" not in text:
        return True
    return text[:1] in "~./" or "." in text.rpartition("/")[2] or text.count("/") > 1


def _names(text: str) -> Iterator[str]:
    seen_inside: set[str] = set()
    first: list[str] = []
    for match in _NAME.finditer(text):
        words = match[0].split()
        opens = bool(_SENTENCE_START.search(text, max(0, match.start() - 3), match.start()))
        while words and (words[0].lower() in _NO_NAMES or (opens and _is_common(words[0]) and len(words) > 1)):
            words, opens = words[1:], False
        words = [word for word in words if word.lower() not in _NO_NAMES]
        if not words:
            continue
        name = " ".join(words)
        if opens:
            first.append(name)
        elif len(name) > 2 and not (len(words) == 1 and words[0].lower() in STOP_WORDS):
            seen_inside.add(name)
            yield name
    yield from (name for name in dict.fromkeys(first) if name not in seen_inside and not _is_common(name.split()[0]))


def _is_common(word: str) -> bool:
    low = word.lower()
    return low in STOP_WORDS or low in REACTIONS or low in _NO_NAMES or weight_of(low) < SURE_NAME or _is_form(low)


def _is_form(low: str) -> bool:
    """Whether it looks like a form of a verb, or an adverb: "Loving", "Excited", "Hopefully"."""
    return len(low) > 5 and low.endswith(("ing", "ed", "ly"))


def _symbols(text: str) -> Iterator[Subject]:
    for match in _SYMBOL.finditer(text):
        name = match[0].rstrip("(").removesuffix("()").rstrip("(")
        if len(name) > 3 and (match[0] != name or parts_of(name)):
            yield Subject("symbol", name, _symbol_aliases(name))


def _symbol_aliases(name: str) -> tuple[str, ...]:
    last = re.split(r"\.|::", name)[-1]
    found = [name.lower(), *([fold(last)] if last != name else [])]
    own = fold(name)
    return tuple(dict.fromkeys(alias for alias in found if alias != own))


def _tools(text: str) -> Iterator[str]:
    for match in _SHELL.finditer(text):
        yield match[1].rpartition("/")[2]
    for match in _QUOTED.finditer(text):
        word = match[1].split()[0]
        if word in _TOOLS or (" " in match[1] and word.islower() and word.isalpha() and " -" in match[1]):
            yield word
    yield from _TOOLS.intersection(text.split())


def _topics(heading: str, text: str) -> Iterator[str]:
    """Runs of two or three content words; the weightiest first."""
    rated: dict[str, float] = {}
    for place, part in enumerate((heading, text)):
        run: list[str] = []
        for word in [*_RUNS.findall(part.lower()), "."]:
            if word[0].isalpha() and word not in STOP_WORDS and word not in REACTIONS and 2 < len(word) < 25:
                run.append(word)
                continue
            if 2 <= len(run) <= 3:
                topic = " ".join(run)
                rated[topic] = sum(map(weight_of, run)) / len(run) + (place == 0)
            run = []
    yield from sorted(rated, key=lambda topic: -rated[topic])[:MOST_TOPICS]
