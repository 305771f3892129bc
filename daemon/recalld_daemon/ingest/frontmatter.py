"""What a note says about itself before it begins: its title and its date. Read lightly: no YAML parser, no values
but plain ones, since a note must never fail to be indexed for its properties.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import PurePath

MOST_LINES = 200  # a fence `---` without a partner within these is a rule, not frontmatter
FENCES = ("---", "+++")

_FIELD = re.compile(r"([A-Za-z][\w -]{0,40}?)[\"']?\s*[:=]\s*(.*)")
_TITLES = ("title", "name")
_DATES = ("updated", "modified", "lastmod", "last_modified", "date", "created", "created_at")  # the latest to the text
_DAY = re.compile(r"(?<!\d)((?:19|20)\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)")


@dataclass(frozen=True, slots=True)
class Front:
    title: str = ""
    written_at: float | None = None


def read_front(lines: list[str]) -> Front:
    """Title and date of the lines between the fences."""
    fields: dict[str, str] = {}
    for line in lines:
        if match := _FIELD.match(line):
            fields.setdefault(match[1].lower(), match[2].strip().strip("\"'").strip())
    title = next((fields[key] for key in _TITLES if fields.get(key)), "")
    moments = (parse_moment(fields[key]) for key in _DATES if key in fields)
    return Front(title[:200], next((moment for moment in moments if moment is not None), None))


def parse_moment(text: str) -> float | None:
    """Epoch seconds of an ISO date or time; a mere day counts as its end, in local time: it was written by then."""
    text = text.strip()
    try:
        if len(text) <= 10:
            return _end_of(date.fromisoformat(text))
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def moment_of_name(path: str) -> float | None:
    """The day that a file's name states ("2026-03-02.md", "20260302 standup.txt"), if one."""
    match = _DAY.search(PurePath(path).stem)
    return parse_moment("-".join(match.groups())) if match else None


def _end_of(day: date) -> float:
    return datetime.combine(day, time(23, 59, 59)).timestamp()
