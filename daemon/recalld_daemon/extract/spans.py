"""Stretches of calendar time: days, weeks (from Monday), weekends, months, seasons, years, seen from one moment.

Everything is reckoned in whole local days and turned into epoch seconds at the end, so that a day is 23 hours long
where the clocks go forward. Months and years are plain integer arithmetic on (year, month): no library is needed for
that (dateutil.relativedelta clamps days of the month, which ranges of whole months never need).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import NamedTuple

from recalld_daemon.recall.types import Grain

SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # first months, northern hemisphere
DAY_PARTS = {"morning": (5, 12), "afternoon": (12, 18), "evening": (17, 24), "night": (18, 30)}  # hours of the day


class Days(NamedTuple):
    """Whole days, half open; hours: (from, to) counted from the first midnight, where only a part of a day is meant."""

    first: date
    after: date
    grain: Grain
    hours: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """One moment as those saw it who lived it. tz None: this machine's zone, with its summer time of then."""

    now: datetime  # local; naive where tz is None
    tz: tzinfo | None

    @classmethod
    def at(cls, moment: float, tz: tzinfo | None) -> Clock:
        """moment: epoch seconds. Raises ValueError, OverflowError or OSError for what no calendar has."""
        return cls(datetime.fromtimestamp(moment, tz), tz)

    @property
    def today(self) -> date:
        return self.now.date()

    def seconds(self, day: date, hour: int = 0) -> float:
        """Epoch seconds of a local day's midnight, or of `hour` hours after it by the clock."""
        days, hour = divmod(hour, 24)
        day += timedelta(days)
        return datetime(day.year, day.month, day.day, hour, tzinfo=self.tz).timestamp()

    def range_of(self, days: Days) -> tuple[float, float]:
        """Epoch seconds of a stretch, half open."""
        if days.hours:
            return self.seconds(days.first, days.hours[0]), self.seconds(days.first, days.hours[1])
        return self.seconds(days.first), self.seconds(days.after)


def day(first: date, hours: tuple[int, int] | None = None) -> Days:
    return Days(first, first + timedelta(1), "day", hours)


def days(first: date, count: int) -> Days:
    return Days(first, first + timedelta(count), "span")


def week(within: date) -> Days:
    """The week of a day, from Monday."""
    monday = within - timedelta(within.weekday())
    return Days(monday, monday + timedelta(7), "week")


def weekend(within: date) -> Days:
    """Saturday and Sunday of a day's week."""
    saturday = within + timedelta(5 - within.weekday())
    return Days(saturday, saturday + timedelta(2), "span")


def month(year: int, number: int, count: int = 1) -> Days:
    """`count` months from month `number` of a year; numbers below 1 and above 12 reach into other years.

    >>> month(2024, 0).first
    datetime.date(2023, 12, 1)
    """
    return Days(_first(year, number), _first(year, number + count), "month" if count == 1 else "span")


def season(year: int, name: str) -> Days:
    """A season; winter belongs to the year in which it begins."""
    return month(year, SEASONS[name], 3)._replace(grain="season")


def year(number: int, count: int = 1) -> Days:
    return Days(date(number, 1, 1), date(number + count, 1, 1), "year" if count == 1 else "span")


def shifted(within: date, unit: str, by: int) -> Days:
    """The day, week, weekend, month, quarter, year or decade that lies `by` units after the one around a day.

    >>> shifted(date(2023, 5, 8), "week", -1).first
    datetime.date(2023, 5, 1)
    """
    match unit:
        case "day":
            return day(within + timedelta(by))
        case "week":
            return week(within + timedelta(7 * by))
        case "fortnight":
            monday = week(within + timedelta(14 * by)).first
            return Days(monday, monday + timedelta(14), "span")
        case "weekend":
            return weekend(within + timedelta(7 * by))
        case "month":
            return month(within.year, within.month + by)
        case "quarter":
            return month(within.year, (within.month - 1) // 3 * 3 + 1 + 3 * by, 3)
        case "decade":
            return year(within.year // 10 * 10 + 10 * by, 10)
        case _:
            return year(within.year + by)


def part_of(whole: Days, part: str) -> Days:
    """The early, middle or late third of a stretch."""
    length = (whole.after - whole.first).days
    third = max(1, length // 3)
    if part in ("early", "beginning", "start"):
        return Days(whole.first, whole.first + timedelta(third), "span")
    if part in ("mid", "middle"):
        return Days(whole.first + timedelta(third), whole.after - timedelta(third), "span")
    return Days(whole.after - timedelta(third), whole.after, "span")


def _first(year: int, number: int) -> date:
    years, month0 = divmod(number - 1, 12)
    return date(year + years, month0 + 1, 1)
