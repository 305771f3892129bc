"""Which number of a chat's dates is the day: decided once per file, from all of its lines, and never silently guessed.

A number above twelve is a day, and one such line decides for all. Where there is none, these speak for a reading, in
this order: the other one would lie in the future; with it the lines are in order, with the other not; its days vary and
its months do not; the layout's custom. What was assumed is then told as a problem. Dates are local: an export knows no
time zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from recalld_daemon.ingest.formats.whatsapp_lines import Header

Order = Literal["dmy", "mdy", "ymd"]
NAMES: dict[Order, str] = {"dmy": "day/month", "mdy": "month/day", "ymd": "year/month/day"}
BUDDHIST = 543  # years; a phone set to Thai writes 2567 for 2024
ORDERLY = 5  # times as often out of order is the reading that is given up
VARIED = 3  # distinct days, all in one month


@dataclass(slots=True)
class _Reading:
    """What one order makes of the ambiguous lines so far. backwards: how often a date lies before the line above it."""

    backwards: int = 0
    last: int = 0
    latest: int = 0
    days: set[int] = field(default_factory=set)
    months: set[int] = field(default_factory=set)

    def see(self, year: int, month: int, day: int) -> None:
        date = (year * 100 + month) * 100 + day
        self.backwards += date < self.last
        self.last, self.latest = date, max(self.latest, date)
        self.days.add(day)
        self.months.add(month)


class DateEvidence:
    """Show it every line of a file, then ask. Memory: some counters."""

    def __init__(self) -> None:
        self._year_first = 0
        self._day_first = 0
        self._month_first = 0
        self._differ = 0
        self._dots = 0
        self._american = 0
        self._readings: dict[Order, _Reading] = {"dmy": _Reading(), "mdy": _Reading()}

    def see(self, header: Header) -> None:
        if header.a > 31:
            self._year_first += 1
        elif header.a > 12:
            self._day_first += header.b <= 12
        elif header.b > 12:
            self._month_first += 1
        else:
            self._differ += header.a != header.b
            self._dots += header.layout[1] != "/"
            self._american += header.upper and not header.padded
            self._readings["dmy"].see(full_year(header.c), header.b, header.a)
            self._readings["mdy"].see(full_year(header.c), header.a, header.b)

    def decide(self, today: datetime) -> tuple[Order, str]:
        """The order, and what must be told of it; "": nothing. today: nothing was said after it."""
        if self._year_first > self._day_first + self._month_first:
            return "ymd", ""
        day, month = self._day_first, self._month_first
        if day and month:
            order: Order = "dmy" if day >= month else "mdy"
            return order, (
                f"the dates contradict each other: {day} lines can only be day/month, {month} only month/day; "
                f"read as {NAMES[order]}, the others' dates are left out"
            )
        if day or month or not self._differ:
            return ("mdy" if month else "dmy"), ""
        order, why = self._assume(today)
        return order, (
            f"no date in this chat tells day from month: read as {NAMES[order]}, {why}; "
            "if that is wrong, export the chat again with a year/month/day format set on the phone"
        )

    def _assume(self, today: datetime) -> tuple[Order, str]:
        latest = (today.year * 100 + today.month) * 100 + today.day
        for order, other in self._both():
            if self._readings[other].latest > latest >= self._readings[order].latest:
                return order, "since it would lie in the future otherwise"
        for order, other in self._both():
            if self._readings[other].backwards > ORDERLY * self._readings[order].backwards:
                return order, "since the lines are in order then"
        for order, other in self._both():
            one, two = self._readings[order], self._readings[other]
            if len(one.days) >= VARIED and len(one.months) == 1 and len(two.days) == 1:
                return order, "since the days vary then, and not the months alone"
        if self._american > self._dots and self._american:
            return "mdy", "as phones set to US English write it"
        return "dmy", "as most phones write it"

    def _both(self) -> Iterator[tuple[Order, Order]]:
        yield "dmy", "mdy"
        yield "mdy", "dmy"


def full_year(year: int) -> int:
    if year < 100:
        return 2000 + year
    return year - BUDDHIST if year > 2400 else year


def moment_of(header: Header, order: Order) -> float | None:
    """Epoch seconds, in this machine's zone, of a line's date; None: in this order it is none."""
    if order == "ymd":
        year, month, day = header.a, header.b, header.c
    else:
        day, month, year = (header.a, header.b, header.c) if order == "dmy" else (header.b, header.a, header.c)
    hour = header.hour % 24 if header.half is None else header.hour % 12 + 12 * header.half
    try:
        return datetime(full_year(year), month, day, hour, header.minute, min(header.second, 59)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
