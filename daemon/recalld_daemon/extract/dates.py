"""Dates in words: the day of a message as it is embedded, and a time at the granularity it is known at."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from functools import lru_cache

from recalld_daemon.extract.spans import Clock
from recalld_daemon.recall.types import When

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def spoken_date(written_at: float | None) -> str:
    """The day of a moment (epoch seconds) in UTC, as it is embedded and searched; "" for none, and for moments that
    no calendar has. The epoch itself is no date: it stands for "always".

    >>> spoken_date(1_683_458_900.0), spoken_date(None)
    ('7 May 2023', '')
    """
    if not written_at:
        return ""
    try:
        day = datetime.fromtimestamp(written_at, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


@lru_cache(maxsize=1024)
def date_of(when: When, tz: tzinfo | None = UTC) -> str:
    """A time at the granularity it is known at: "7 May 2023", "week of 1 May 2023", "May 2023", "summer 2022", "2021".

    >>> date_of(When(1_682_899_200.0, 1_683_504_000.0, "week"))
    'week of 1 May 2023'
    """
    try:
        first, last = Clock.at(when.start, tz).now, Clock.at(when.end - 1, tz).now
    except (ValueError, OverflowError, OSError):
        return ""
    month = f"{MONTHS[first.month - 1]} {first.year}"
    match when.grain:
        case "moment" | "day":
            return f"{first.day} {month}"
        case "week":
            return f"week of {first.day} {month}"
        case "month":
            return month
        case "season":
            return f"{ {3: 'spring', 6: 'summer', 9: 'autumn', 12: 'winter'}[first.month] } {first.year}"
        case "year":
            return str(first.year)
        case _:
            return _span(first, last)


def _span(first: datetime, last: datetime) -> str:
    if last.year >= 9999 or first.year <= 1970:
        return ""
    ends = f"{last.day} {MONTHS[last.month - 1]} {last.year}"
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {ends}"
    return f"{first.day} {MONTHS[first.month - 1]} {first.year} to {ends}"
