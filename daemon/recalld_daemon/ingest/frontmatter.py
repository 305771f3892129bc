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
MOST_LISTED = 12  # names, or tags, of one note

_FIELD = re.compile(r"([A-Za-z][\w -]{0,40}?)[\"']?\s*[:=]\s*(.*)")
_ITEM = re.compile(r"\s*-\s+(.*)")
_TITLES = ("title", "name")
_ALIASES = ("aliases", "alias")
_TAGS = ("tags", "tag")
_DATES = ("updated", "modified", "lastmod", "last_modified", "date", "created", "created_at")  # the latest to the text
_DAY = re.compile(r"(?<!\d)((?:19|20)\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)")


@dataclass(frozen=True, slots=True)
class Front:
    """aliases: other names of what the note is about. tags: without their #."""

    title: str = ""
    written_at: float | None = None
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def read_front(lines: list[str]) -> Front:
    """What the lines between the fences say."""
    fields: dict[str, str] = {}
    for line in lines:
        if match := _FIELD.match(line):
            fields.setdefault(match[1].lower(), match[2].strip().strip("\"'").strip())
    title = next((fields[key] for key in _TITLES if fields.get(key)), "")
    moments = (parse_moment(fields[key]) for key in _DATES if key in fields)
    written_at = next((moment for moment in moments if moment is not None), None)
    return Front(title[:200], written_at, _listed(lines, _ALIASES), _listed(lines, _TAGS))


def with_names(title: str, front: Front) -> str:
    """A title with the other names and the tags behind it.

    >>> with_names("Anna Petrov", Front(aliases=("AP",), tags=("people/kiln",)))
    'Anna Petrov (AP) #people/kiln'
    """
    others = f" ({', '.join(front.aliases)})" if front.aliases else ""
    return title + others + "".join(f" #{tag}" for tag in front.tags)


def _listed(lines: list[str], keys: tuple[str, ...]) -> tuple[str, ...]:
    """The values of a list: in brackets, with commas, or one a line below the key."""
    found: list[str] = []
    inside = False
    for line in lines:
        if match := _FIELD.match(line):
            inside = match[1].lower() in keys
            found += match[2].strip().strip("[]").split(",") if inside else []
        elif inside and (item := _ITEM.match(line)):
            found.append(item[1])
    named = (item.strip().strip("\"'").strip().lstrip("#") for item in found)
    return tuple(dict.fromkeys(item[:100] for item in named if item))[:MOST_LISTED]


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
