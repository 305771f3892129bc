"""From what the conversation is about now to a query.

The head of the focus asks: a running tool call if there is one (its name and arguments, rendered as a person would
read them), else the user's latest text; what was said around it follows as context, shorter. A raw transcript as a
query loses a quarter of recall, so each part has a budget of words, and results of tools never enter. A head that
says nothing ("ok", "go on", `ls`) gives a query without text: silence, with its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from recalld_daemon.recall.types import Focus, Query
from recalld_daemon.recall.words import STOP_WORDS, identifiers_of, parts_of, stem, weight_of, word_set, words_of

TEXT_WORDS = 48  # about 64 word pieces: MiniLM makes 1.3 of a word of prose, more of code
TOOL_WORDS = 26  # of those at most, for the tool call
USER_WORDS_BESIDE_TOOL = 18
ASSISTANT_WORDS = 14
VALUE_WORDS = 12  # one value of a tool's arguments; file contents and patches are cut to this
TERM_LIMIT = 24
CONTEXT_DISCOUNT = 0.6  # terms of the context count less than those of the head when terms are cut to TERM_LIMIT
NUMBER_DISCOUNT = 0.3  # numbers and hashes name one thing only, and rarely the one that was written down
PATH_PARTS = 3  # the last components of a path tell what it is; the rest is where the user's disk keeps it

_PLAIN_KEYS = word_set(
    """command cmd description file_path path notebook_path filename file pattern query prompt text content
    new_string new_source url glob code script message question instruction instructions task input body
    subject title skill args todos questions"""
)  # keys that only say "here it is": the value reads well alone
_MUTE_KEYS = word_set(
    """old_string old_str timeout subagent_type output_mode type id run_in_background status activeForm"""
)
_MUTE_COMMANDS = word_set(
    """ls ll la pwd cd clear exit cat head tail wc echo true false which whoami date env history sleep sudo
    git status diff log show less more tree jobs top ps df du id uname tty"""
)  # shell words that tell nothing of what the work is about
_SMALLTALK = word_set(
    """ok okay k yes yep yeah yup y no nope n sure fine good great nice cool perfect awesome thanks thank thx ty
    please pls continue proceed go ahead next done stop wait hi hello hey hm hmm ah oh lgtm right correct exactly
    alright agreed sounds looks now it that this do again try retry more keep going carry move so far well then
    man got understood makes sense bye goodbye morning evening approved accept accepted one two three"""
)
_REDIRECTION = re.compile(r"(?:\s[12&]?>{1,2}\s?(?:&[12]|/dev/null))+(?!\S)")
_HASH = re.compile(r"\b(?=[0-9a-f-]*[0-9])[0-9a-f]{7,}(?:-[0-9a-f]{4,})*\b")
_PATH = re.compile(r"(?:(?<=\s)|^|(?<=[\"'=(]))(?:[~.]{0,2}/)?(?:[\w.@+-]+/)+[\w.@+-]+")
_TOOL = re.compile(r"[A-Za-z_][\w-]*: ")  # how a query of a tool call begins: its name is no term
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def query_of(focus: Focus) -> Query:
    """The query for a focus; where there is nothing to ask, one with empty text whose `silence` says why.

    >>> query_of(Focus(tool_name="bash", tool_args='{"command": "git push origin main"}')).text
    'bash: git push origin main'
    >>> query_of(Focus(user_text="ok, thanks")).silence
    'small talk: nothing to ask'
    """
    tool = render_tool(focus.tool_name, focus.tool_args) if focus.tool_name or focus.tool_args else ""
    silence = _silence(focus, tool)
    if silence:
        return Query(text="", terms=(), key="", silence=silence)
    head = cut_words(tool or focus.user_text, TOOL_WORDS if tool else TEXT_WORDS - ASSISTANT_WORDS)
    beside = cut_words(focus.user_text, USER_WORDS_BESIDE_TOOL) if tool and not _small(focus.user_text) else ""
    left = TEXT_WORDS - len(head.split()) - len(beside.split())
    said = cut_words(focus.assistant_text, min(ASSISTANT_WORDS, left))
    context = [part for part in (beside, said) if part]
    text = ". ".join([head, *context])
    subject = head.partition(": ")[2] if tool and focus.tool_name else head  # a tool's name is no subject
    terms, key = terms_of(subject, " ".join(context)), " ".join(words_of(text))
    return Query(text=text, terms=terms, key=key, opened=opened_by(focus) if tool else ())


def query_from(text: str) -> Query:
    """A logged query's text as a query again.

    The log keeps no terms: which words were its head's and which its context's is lost, so all count as the head's.

    >>> query_from("bash: git push origin main").terms
    ('origin', 'push', 'main', 'git')
    """
    subject = text[found.end() :] if (found := _TOOL.match(text)) else text
    return Query(text, terms_of(subject), " ".join(words_of(text)))


def render_tool(name: str, args: str) -> str:
    """A tool call as one readable line: its name, then its arguments' values, keys where they add something.

    >>> render_tool("Edit", '{"file_path": "/home/u/app/src/auth/login.py", "replace_all": false}')
    'Edit: src/auth/login.py'
    """
    values = ". ".join(part for part in _flat(_parsed(args), "") if part)
    line = _shorter_paths(_REDIRECTION.sub("", " ".join(values.split())))
    return f"{name}: {line}" if name and line else line


def cut_words(text: str, limit: int) -> str:
    """At most `limit` words of a text: its beginning and, of a longer one, its last third, where requests often end."""
    words = [word if len(word) <= 80 else word[:40] for word in text.split()]
    if len(words) <= limit:
        return " ".join(words)
    tail = limit // 3
    return " ".join(words[: limit - tail] + (words[-tail:] if tail else []))


def terms_of(head: str, context: str = "") -> tuple[str, ...]:
    """Terms for the lexical lane: words, whole identifiers and their parts, most telling first, at most TERM_LIMIT.

    >>> terms_of("fix parseConfig for the staging host")
    ('parseconfig', 'staging', 'parse', 'host', 'config', 'fix')
    """
    ranks: dict[str, float] = {}
    for text, factor in ((head, 1.0), (context, CONTEXT_DISCOUNT)):
        for term in _terms(text):
            worth = NUMBER_DISCOUNT if term[0].isdigit() or _HASH.fullmatch(term) else 1.0
            ranks.setdefault(term, factor * worth * weight_of(term))
    telling = [term for term in ranks if ranks[term] > 0.0]
    return tuple(sorted(telling, key=lambda term: -ranks[term])[:TERM_LIMIT])


def file_stems(text: str) -> set[str]:
    """Stems that file names alone bring (`edit src/index.js`: src, index, js); they justify no recall (P011)."""
    files = [word for word in text.split() if _is_file(word)]
    inside = {stem(word) for file in files for word in [*words_of(file), *parts_of(file)]}
    rest = " ".join(word for word in text.split() if not _is_file(word))
    return inside - {stem(word) for word in words_of(rest)}


def opened_by(focus: Focus) -> tuple[str, ...]:
    """The file paths among a tool call's arguments, as written there: what the agent is about to see for itself.

    >>> opened_by(Focus("Read", '{"file_path": "/w/notes/deploy.md"}'))
    ('/w/notes/deploy.md',)
    """
    words = " ".join(_flat(_parsed(focus.tool_args), "")).split()
    paths = (word.strip("`'\"(),:;<>") for word in words if _is_file(word))
    return tuple(dict.fromkeys(path for path in paths if "." in path or "/" in path))


def _terms(text: str) -> Iterator[str]:
    yield from _HASH.findall(text)
    text = _HASH.sub(" ", text)
    for identifier in identifiers_of(text):
        whole = identifier.lower()
        parts = parts_of(identifier)
        if len(whole) <= 64 and not (parts and whole in STOP_WORDS):
            yield whole
        yield from parts
    yield from words_of(text)


def _is_file(word: str) -> bool:
    word = word.strip("`'\"(),:;").rstrip(".")
    name = word.rpartition("/")[2]
    return "/" in word.strip("/") or bool(re.fullmatch(r"[\w@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}", name))


def _silence(focus: Focus, tool: str) -> str:
    if tool:
        words = set(words_of(tool.partition(": ")[2] if focus.tool_name else tool))
        mute = words <= _MUTE_COMMANDS | STOP_WORDS or not any(len(word) > 2 for word in words)
        return f"a tool call that tells nothing: {tool[:60]}" if mute else ""
    if not focus.user_text.strip():
        return "nothing was said"
    return "small talk: nothing to ask" if _small(focus.user_text) else ""


def _small(text: str) -> bool:
    words = words_of(text)
    return len(words) <= 8 and all(
        word in _SMALLTALK or word in STOP_WORDS or (word.isascii() and len(word) < 2) for word in words
    )


def _parsed(args: str) -> object:
    """Arguments as JSON, if they are; cut JSON gives the strings that are whole; else the text itself."""
    stripped = args.strip()
    if stripped[:1] not in ("{", "["):
        return stripped
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        pairs = _STRING.findall(stripped)
        return [text.replace("\\n", " ") for text in pairs if text not in _PLAIN_KEYS and text not in _MUTE_KEYS]


def _flat(value: object, key: str) -> Iterator[str]:
    """Values in order, each with its key where the key is no furniture; numbers and flags carry nothing to search."""
    if key in _MUTE_KEYS:
        return
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from _flat(item, str(inner))
    elif isinstance(value, list):
        for item in value[:16]:
            yield from _flat(item, key)
    elif isinstance(value, str) and value.strip():
        head = cut_words(value, VALUE_WORDS if key not in ("command", "cmd", "prompt") else TOOL_WORDS)
        yield head if not key or key in _PLAIN_KEYS else f"{key.replace('_', ' ')} {head}"


def _shorter_paths(text: str) -> str:
    return _PATH.sub(lambda found: "/".join(found.group().split("/")[-PATH_PARTS:]), text)
