"""What is embedded, hashed and indexed of a passage: pure functions, so that every room derives the same bytes.

A passage is embedded together with its heading, its speaker and, where it is a message with a date of its own, that
date (dense recall at 10 over ten conversations in a prototype: bare .288, speaker .451, both .499). Documents carry no
date: a file's last change says little of what stands in it, and each change would embed all of it anew. Vectors are
kept under the hash of exactly that text. Token offsets that an encoder reports are relative to the embedded text;
`text_offset` says where the passage's own text begins in it.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import PurePath

from recalld_daemon.extract.dates import spoken_date
from recalld_daemon.recall.words import identifiers_of, parts_of

HASH_BYTES = 16  # 128 bits: no collision to be feared below 2^60 passages
PARTS_LIMIT = 2_000  # characters of identifier parts indexed per passage; a passage is about 100 tokens

_UNFIT = re.compile("[\x00\ud800-\udfff]")  # NUL ends C strings; lone surrogates are no UTF-8
_SPLIT = re.compile(r"[\W_]+")
_NOISE = re.compile(r"[0-9a-f]{8,}|\d+")  # ids, hashes and dates in file names say nothing to a reader


def clean(text: str) -> str:
    """The text with NULs and lone surrogates replaced one for one, so that offsets into it stay right.

    >>> clean("a\\x00b")
    'a\ufffdb'
    """
    return _UNFIT.sub("\ufffd", text)


def is_clean(text: str) -> bool:
    """Whether SQLite can keep a text as it is; a path that is not clean is never in the store."""
    return _UNFIT.search(text) is None


def embedded_text(heading: str, speaker: str, text: str, written_at: float | None = None) -> str:
    """What an encoder embeds of a passage: heading, speaker and date in front, where there are any.

    `written_at`: epoch seconds, if the message has a date of its own; without a speaker it is not used. Offsets an
    encoder reports are characters of this text; subtract `text_offset` to get those of `text` alone.

    >>> embedded_text("Deploy", "Ada", "we ship on Friday", 1_683_458_900.0)
    'Deploy\\nAda (7 May 2023): we ship on Friday'
    """
    return f"{_prefix(heading, speaker, written_at)}{text}"


def text_offset(heading: str, speaker: str, written_at: float | None = None) -> int:
    """Characters that `embedded_text` puts before the passage's own text."""
    return len(_prefix(heading, speaker, written_at))


def content_hash(heading: str, speaker: str, text: str, written_at: float | None = None) -> bytes:
    """(16,) bytes: blake2b of the embedded text as UTF-8, the key of a passage's vectors."""
    return blake2b(embedded_text(heading, speaker, text, written_at).encode(), digest_size=HASH_BYTES).digest()


def line_hash(text: str) -> bytes:
    """(16,) bytes: the key of the vector of a fact or a subject's name. Never that of a passage, which has tokens."""
    return blake2b(text.encode(), digest_size=HASH_BYTES, person=b"line").digest()


def searched_parts(heading: str, speaker: str, text: str, written_at: float | None = None) -> str:
    """What full-text search knows of a passage beyond its fields: humps of identifiers, and a message's date.

    >>> searched_parts("", "Ada", "call getUserName", 1_683_458_900.0)
    'get user name 7 May 2023'
    """
    date = spoken_date(written_at) if speaker else ""
    return " ".join(part for part in (identifier_parts(heading, text), date) if part)


def identifier_parts(*texts: str) -> str:
    """The humps of identifiers that the full-text tokenizer leaves whole (`getUserName` -> get user name), each once.

    >>> identifier_parts("call getUserName in src/user_store.py")
    'get user name'
    """
    found: dict[str, None] = {}
    for identifier in (identifier for text in texts for identifier in identifiers_of(text)):
        whole = set(_SPLIT.split(identifier.lower()))
        found.update((part, None) for part in parts_of(identifier) if part not in whole)
    return " ".join(found)[:PARTS_LIMIT]


def path_words(shown_path: str) -> str:
    """What of a path is worth a full-text match: the names of the last three parts, without extension, ids and dates.

    >>> path_words("notes/2026/deploy-checklist.md"), path_words("projects/-home-ada/0d9f8a7c-1234.jsonl")
    ('notes deploy checklist', 'projects home ada')
    """
    path = PurePath(shown_path)
    names = " ".join([*path.parts[-3:-1], path.stem])
    return " ".join(word for word in _SPLIT.split(names) if word and not _NOISE.fullmatch(word.lower()))


def moved_shown_path(old_path: str, old_shown: str, new_path: str) -> str:
    """How a source is shown after a move: relative to the same directory as before, or in full when it left that.

    >>> moved_shown_path("/home/ada/notes/a.md", "notes/a.md", "/home/ada/notes/old/a.md")
    'notes/old/a.md'
    """
    base = old_path.removesuffix(old_shown)
    return new_path.removeprefix(base) if base != old_path and new_path.startswith(base) else new_path


def _prefix(heading: str, speaker: str, written_at: float | None) -> str:
    above = f"{heading}\n" if heading else ""
    if not speaker:
        return above
    date = spoken_date(written_at)
    return f"{above}{speaker} ({date}): " if date else f"{above}{speaker}: "
