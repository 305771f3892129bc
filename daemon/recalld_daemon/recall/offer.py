"""From candidates that passed the gate to the snippets that are sent: cut, located in their files, dated.

Reads files, so it runs in a thread, off the path of the deeper stages. A candidate whose words are no longer in
its file is dropped here, and says so among its gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from recalld_daemon.recall.locate import locate
from recalld_daemon.recall.snippet import cut, neutral
from recalld_daemon.recall.types import Candidate, Passage, Query
from recalld_protocol.messages import Snippet


def snippets_for(
    candidates: Sequence[Candidate], passages: Sequence[Passage], query: Query
) -> list[tuple[Candidate, Snippet]]:
    """The snippet of each candidate that can still be shown, in order; impression ids are given by the caller."""
    known = {passage.id: passage for passage in passages}
    offers = []
    for candidate in candidates:
        passage = known.get(candidate.passage)
        snippet = snippet_of(candidate, passage, query) if passage else None
        candidate.gates["file"] = "passed: still there" if snippet else "stopped: no longer in its file"
        if snippet:
            offers.append((candidate, snippet))
    return offers


def snippet_of(candidate: Candidate, passage: Passage, query: Query) -> Snippet | None:
    """One candidate's snippet, around its focus or, without one, the query's terms; None: edited away, or no word."""
    shown = cut(passage.text, candidate.focus, query.terms)
    place = locate(passage, shown.start, shown.end) if shown else None
    if shown is None or place is None:
        return None
    return Snippet(
        id="",
        text=shown.text,
        path=path_of(passage),
        start=place.start,
        end=place.end,
        date=date_of(passage.written_at),
        probability=round(candidate.probability, 3),
    )


def path_of(passage: Passage) -> str:
    """The path as it is shown: as it is, unless its name holds what could be taken for something else."""
    path = passage.shown_path
    return path if path.isprintable() and "<" not in path else neutral(path)


def date_of(written_at: float | None) -> str:
    """YYYY-MM-DD in the machine's own time zone, "" when unknown or beyond what a calendar holds."""
    if written_at is None or written_at <= 0.0:
        return ""
    try:
        return datetime.fromtimestamp(written_at).astimezone().strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return ""
