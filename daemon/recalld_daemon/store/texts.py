"""What is embedded, hashed and indexed of a passage: pure functions, so that every room derives the same bytes.

A passage is embedded together with its heading and its speaker (naming the speaker is the largest single lever on
recall that was measured), and its vectors are kept under the hash of exactly that text. Token offsets that an encoder
reports are relative to the embedded text; `text_offset` says where the passage's own text begins in it.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import PurePath

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


def embedded_text(heading: str, speaker: str, text: str) -> str:
    """What an encoder embeds of a passage: heading and speaker in front, where there are any.

    Offsets an encoder reports are characters of this text; subtract `text_offset` to get those of `text` alone.

    >>> embedded_text("Deploy", "Ada", "we ship on Friday")
    'Deploy\\nAda: we ship on Friday'
    """
    return f"{_prefix(heading, speaker)}{text}"


def text_offset(heading: str, speaker: str) -> int:
    """Characters that `embedded_text` puts before the passage's own text."""
    return len(_prefix(heading, speaker))


def content_hash(heading: str, speaker: str, text: str) -> bytes:
    """(16,) bytes: blake2b of the embedded text as UTF-8, the key of a passage's vectors."""
    return blake2b(embedded_text(heading, speaker, text).encode(), digest_size=HASH_BYTES).digest()


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


def _prefix(heading: str, speaker: str) -> str:
    return (f"{heading}\n" if heading else "") + (f"{speaker}: " if speaker else "")
