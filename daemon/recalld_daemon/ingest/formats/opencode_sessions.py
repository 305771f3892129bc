"""OpenCode's sessions: what was said by the user and the assistant, read out of its database.

A passage of a database has no bytes in a file. Its offsets are bytes of the session's texts, one after the other with a
newline between; its codec names the part that holds it and where that part's text begins, so that it can be looked up
again in a moment, wherever it stands by then (`recall.locate`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from recalld_daemon.ingest.formats.records import LEAST_WORDS
from recalld_daemon.ingest.passages import Stretch, passages
from recalld_daemon.store import opencode
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

_UNTITLED = re.compile(r"(?:New|Child) session - \d{4}-")


def parse_session(path: str) -> tuple[str, Iterator[ParsedPassage | FileProblem]]:
    """The directory that a session was held in, and its passages. Raises OSError, also while they are read."""
    database, id = opencode.place_of(path) or ("", "")
    session = opencode.session(database, id)
    if session is None:
        raise FileNotFoundError(None, "the session is not in OpenCode's database any more", path)
    return session.directory, _passages(database, id, session)


def _passages(database: str, id: str, session: opencode.Session) -> Iterator[ParsedPassage | FileProblem]:
    title = "" if _UNTITLED.match(session.title) else session.title
    base = 0
    for part in opencode.parts(database, id):
        if not part.text and part.size > opencode.MOST_BYTES:
            yield FileProblem(line=0, text=f"part {part.id}: {part.size} bytes are too long: skipped")
        raw = opencode.as_bytes(part.text)
        stretch = Stretch(
            base, raw, "utf-8", title, speaker="user" if part.by_user and not session.child else "assistant",
            written_at=part.at, host=True, least_words=LEAST_WORDS,
        )  # fmt: skip
        codec = f"{opencode.KIND}:{part.id}:{base}"
        yield from (replace(passage, codec=codec) for passage in passages(stretch))
        base += len(raw) + 1
