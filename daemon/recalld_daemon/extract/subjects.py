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

MOST = 12  # subjects of a passage
MOST_TOPICS = 3
TOPIC_CHARS = 400  # of a passage, in which its topics are looked for
NAME_CHARS = 80
SURE_NAME = 0.9  # a capitalised word that begins a sentence is a name when the background hardly knows it

_NAME = re.compile(
    r"(?<![\w`/.@#-])[A-Z][a-zÀ-ÿ]+(?:[-'’][A-Z][a-z]+)?(?:\s+[A-Z][a-zÀ-ÿ]+(?:-[A-Z][a-z]+)?){0,2}(?![\w`/(-])"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:…\n\"“(*>-])\s*$")
_PATH = re.compile(r"(?<![\w:/.-])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*\w")
_FILE = re.compile(
    r"(?<![\w/.-])[\w-]+\.(?:py|js|ts|tsx|jsx|go|rs|c|h|cpp|java|rb|sh|toml|ya?ml|json|md|txt|cfg|ini|sql|html|css|lock|"
    r"env|log)\b"
)
_TOKEN = re.compile(r"[A-Za-z_][\w.:]*\(?")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_QUOTED = re.compile(r"`\s*(\S[^`\n]{1,60})`")
_SHELL = re.compile(r"^\s*\$\s+(\S+)", re.MULTILINE)
_PROJECT = re.compile(
    r"\b(?:project|repo|repository)\s+(?:called\s+|named\s+)?[`\"]?([A-Za-z][\w-]+)|github\.com/[\w.-]+/([\w-]+)",
    re.IGNORECASE,
)
_RUNS = re.compile(r"[a-zß-ÿ]+(?:['’-][a-zß-ÿ]+)*|[^\sa-z]")

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
    yield from (person(name) for name in _names(text))
    yield from (Subject("path", path, path_aliases(path)) for path in _paths(text))
    yield from _symbols(text)
    yield from (Subject("tool", tool) for tool in _tools(text))
    yield from (Subject("project", match[1] or match[2]) for match in _PROJECT.finditer(text))
    yield from (Subject("topic", topic) for topic in _topics(piece.heading.rpartition(" > ")[2], text[:TOPIC_CHARS]))


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


def _paths(text: str) -> Iterator[str]:
    """Paths and file names; no fractions, dates or pairs of words."""
    if "/" in text:
        for match in _PATH.finditer(text):
            path = match[0]
            if path[0] in "~./" or "." in path.rpartition("/")[2] or path.count("/") > 1:
                yield path
    if "." in text:
        yield from _FILE.findall(text)


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
    """Names that code gives: called, or composed of several words in one."""
    for token in _TOKEN.findall(text):
        if token.isalpha() and (token.islower() or token.istitle() or token.isupper()):
            continue
        name = token.rstrip("(.:")
        if len(name) > 3 and (token[-1] == "(" or "_" in name.strip("_") or _HUMP.search(name)):
            yield Subject("symbol", name, _symbol_aliases(name))


def _symbol_aliases(name: str) -> tuple[str, ...]:
    last = re.split(r"\.|::", name)[-1]
    found = [name.lower(), *([fold(last)] if last != name else [])]
    own = fold(name)
    return tuple(dict.fromkeys(alias for alias in found if alias != own))


def _tools(text: str) -> Iterator[str]:
    for match in _SHELL.finditer(text) if "$" in text else ():
        yield match[1].rpartition("/")[2]
    for match in _QUOTED.finditer(text) if "`" in text else ():
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
            if len(word) > 2 and word not in STOP_WORDS and word not in REACTIONS and len(word) < 25:
                run.append(word)
                continue
            if 2 <= len(run) <= 3:
                topic = " ".join(run)
                rated[topic] = sum(map(weight_of, run)) / len(run) + (place == 0)
            run = []
    yield from sorted(rated, key=lambda topic: -rated[topic])[:MOST_TOPICS]
