"""How each way of saying when is read: a match of a rule's expression, the moment it was said, and where it leans.

`lean` is -1 where the sentence looks back, 1 where it looks ahead, 0 where it does not say; it decides for "Friday",
"in May", "the weekend", which may be either. ValueError and OverflowError: no calendar has such a day.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from recalld_daemon.extract import spans
from recalld_daemon.extract.spans import Clock, Days

Read = Callable[[re.Match[str], Clock, int], Days | None]

NEARER_PAST = 2.5  # a past May counts as near as one that lies so many times nearer ahead
FEW = (2, 5)  # "a few", "several": from, to

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
MONTHS: Final = {name: n for n, full in enumerate(MONTH_NAMES, 1) for name in (full, full[:3])} | {"sept": 9}
NUMBERS: Final = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "couple": 2,
}  # fmt: skip
HOLIDAYS: Final = {  # month, day, days
    "christmas eve": (12, 24, 1), "christmas": (12, 24, 3), "new year's eve": (12, 31, 1), "new year's day": (1, 1, 1),
    "new year's": (12, 31, 2), "halloween": (10, 31, 1), "valentine's day": (2, 14, 1),
}  # fmt: skip


# ------------------------------------------------------------ absolute


def iso_day(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    day = date(int(match["year"]), int(match["m"]), int(match["d"]))
    if match["zone"] and match["hh"]:
        zone = UTC if match["zone"] in "zZ" else datetime.fromisoformat(f"2000-01-01T00:00{match['zone']}").tzinfo
        moment = datetime(day.year, day.month, day.day, int(match["hh"]), int(match["mm"]), tzinfo=zone)
        day = moment.astimezone(clock.tz).date()
    return spans.day(day)


def iso_month(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    return spans.month(int(match["year"]), int(match["m"]))


def numeric(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    """Only where day and month can't be taken for each other."""
    first, second, year = int(match["a"]), int(match["b"]), int(match["year"])
    year += 2000 if year < 100 else 0
    if first <= 12 and second <= 12 and first != second:
        return None
    return spans.day(date(year, min(first, second), max(first, second)))


def month_day(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    month, number = MONTHS[match["month"]], int(match["d"])
    if match["year"]:
        return spans.day(date(int(match["year"]), month, number))
    return spans.day(_nearest([_on(clock.today.year + k, month, number) for k in (-1, 0, 1)], clock, lean))


def month_year(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    return _maybe_part(match, spans.month(int(match["year"]), MONTHS[match["month"]]))


def year(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    return _maybe_part(match, spans.year(int(match["year"])))


def decade(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    number = int(match["decade"])
    return spans.year(number if number > 99 else (1900 if number >= 30 else 2000) + number, 10)


def season_year(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    return spans.season(int(match["year"]), match["season"])


def quarter_year(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    year = int(match["year"]) if match["year"] else clock.today.year
    return spans.month(year, 3 * int(match["q"]) - 2, 3)


# ------------------------------------------------------------ relative


def near_day(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    said, part = match["near"], match["daypart"] or ""
    by = {"yesterday": -1, "last": -1, "tomorrow": 1}.get(said.split()[0], 0)
    if "day before yesterday" in said:
        by = -2
    elif "day after tomorrow" in said:
        by = 2
    part = part or said.split()[-1]
    return spans.day(clock.today + timedelta(by), spans.DAY_PARTS.get("night" if part == "tonight" else part))


def ago(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    said, unit = match["n"], match["unit"]
    if said in ("few", "several", "many"):
        if said == "many":
            return None
        far, near = (spans.shifted(clock.today, unit, -n) for n in reversed(FEW))
        return Days(far.first, near.after, "span")
    number = _number(said)
    if unit == "weekend":
        return spans.shifted(_last_weekend(clock), "weekend", 1 - number)
    if said.startswith("couple") and unit == "day":
        return spans.days(clock.today - timedelta(3), 2)
    return spans.shifted(clock.today, unit, -number)


def hours_ago(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    if match["n"] in ("few", "several", "many"):
        return spans.day(clock.today)
    moment = clock.now - _number(match["n"]) * timedelta(hours=1 if match["small"] == "hour" else 1 / 60)
    return spans.day(moment.date(), (moment.hour, moment.hour + 1))._replace(grain="moment")


def ahead(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    said = match["n"]
    if said in ("few", "several", "many") or (lean != 1 and not match["sure"]):
        return None
    return spans.shifted(clock.today, match["unit"], _number(said))


def which_unit(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    which, unit = match["which"], match["unit"]
    by = _step(which)
    if unit == "weekend" and by < 0:
        return spans.weekend(_last_weekend(clock))
    if which == "past" and unit != "weekend":  # the past year is not the last calendar year
        return Days(_back(clock.today, unit, 1), clock.today + timedelta(1), "span")
    return _maybe_part(match, spans.shifted(clock.today, unit, by))


def last_n(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    said = match["n"]
    number = FEW[1] if said in ("few", "several", "many") else _number(said)
    if _step(match["which"]) < 0:
        return Days(_back(clock.today, match["unit"], number), clock.today + timedelta(1), "span")
    ahead = spans.shifted(clock.today, match["unit"], number)
    return Days(clock.today, ahead.after, "span")


def week_before_last(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    return spans.shifted(clock.today, match["unit"], -2 if match["turn"] == "before last" else 2)


def weekday(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    number, today, which = WEEKDAYS.index(match["weekday"]), clock.today, match["which"]
    part = spans.DAY_PARTS.get(match["daypart"] or "")
    monday = today - timedelta(today.weekday())
    if which and _step(which) > 0:
        return spans.day(monday + timedelta(7 + number), part)
    back = (today.weekday() - number) % 7
    past, ahead = today - timedelta(back or 7), today + timedelta(-back % 7)
    if (which and _step(which) < 0) or (not which and lean < 0):
        return spans.day(past, part)
    return spans.day(ahead, part)


def weekend(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    return spans.weekend(_last_weekend(clock) if lean < 0 and clock.today.weekday() < 5 else clock.today)


def bare_month(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    number, today, which = MONTHS[match["month"].lower()], clock.today, match.groupdict().get("which")
    turn = _turn(which, (today.year, today.month), lambda year: (year, number), lean)
    return _maybe_part(match, spans.month(turn, number))


def bare_season(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    name, today, which = match["season"], clock.today, match["which"]
    started = [y for y in (today.year - 1, today.year) if spans.season(y, name).first <= today]
    latest = spans.season(started[-1], name)
    by = _step(which) if which else 0
    if today < latest.after:  # it is that season now
        return spans.season(started[-1] + (by if by else 0), name)
    if by > 0 or (by == 0 and (which or lean > 0)):  # "this summer", said before or after it: the nearer one
        ahead = spans.season(started[-1] + 1, name)
        back_days, ahead_days = (today - latest.after).days, (ahead.first - today).days
        return latest if by == 0 and lean <= 0 and back_days < ahead_days else ahead
    return latest


def day_number(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    number, today = int(match["d"]), clock.today
    found = []
    for k in (-1, 0, 1):
        within = spans.month(today.year, today.month + k)
        candidate = within.first + timedelta(number - 1)
        found.append(candidate if candidate < within.after else date.min)
    return spans.day(_nearest(found, clock, lean)) if 1 <= number <= 31 else None


def holiday(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    month, number, count = HOLIDAYS[match["holiday"].replace("’", "'")]
    which, today = match["which"], clock.today
    if match["year"]:
        year = int(match["year"])
    else:
        year = _turn(which, (today.year, today.month, today.day), lambda y: (y, month, number), lean)
    return spans.days(date(year, month, number), count)._replace(grain="day" if count == 1 else "span")


def lasting(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    """ "for three years": until now."""
    if match["n"] in ("few", "several", "many"):
        return None
    return Days(_back(clock.today, match["unit"], _number(match["n"])), clock.today + timedelta(1), "span")


def week_of(match: re.Match[str], clock: Clock, lean: int) -> Days | None:
    found = month_day(match, clock, lean)
    return spans.week(found.first) if found else None


# ------------------------------------------------------------ arithmetic


def _number(said: str) -> int:
    return int(said) if said.isdigit() else NUMBERS[said.split()[0]]


def _step(which: str) -> int:
    return -1 if which in ("last", "past", "previous") else 1 if which in ("next", "coming", "following") else 0


def _back(today: date, unit: str, number: int) -> date:
    """The day that many days, weeks, months or years before."""
    if unit in ("day", "week", "fortnight", "weekend"):
        return today - number * timedelta({"day": 1, "fortnight": 14}.get(unit, 7))
    months = number * {"month": 1, "quarter": 3, "year": 12, "decade": 120}[unit]
    return spans.month(today.year, today.month - months).first + timedelta(min(today.day, 28) - 1)


def _last_weekend(clock: Clock) -> date:
    """The Saturday of the weekend that is over."""
    return clock.today - timedelta(clock.today.weekday() + 2)


def _turn(which: str | None, now: tuple[int, ...], of: Callable[[int], tuple[int, ...]], lean: int) -> int:
    """The year of something that comes once a year, e.g. last May, next May, the May that is meant."""
    year, by = now[0], _step(which) if which else 0
    if which and by == 0:
        return year
    if by < 0:
        return year if of(year) < now else year - 1
    if by > 0:
        return year if of(year) > now else year + 1
    months = (of(year)[1] - now[1]) % 12  # until it comes
    if of(year)[:2] == now[:2]:
        return year
    ahead = lean > 0 or (12 - months > NEARER_PAST * months and lean == 0)
    if ahead:
        return year if of(year) > now else year + 1
    return year if of(year) < now else year - 1


def _on(year: int, month: int, number: int) -> date:
    """That day; date.min where the year has none (29 February). ValueError where no year has one."""
    date(2000, month, number)
    return date(year, month, number) if (month, number) != (2, 29) or year % 4 == 0 else date.min


def _nearest(candidates: list[date], clock: Clock, lean: int) -> date:
    """Of the days that may be meant the nearest one, on the side to which the sentence leans."""

    def far(candidate: date) -> float:
        distance = (candidate - clock.today).days
        if distance > 0:
            return distance * (NEARER_PAST if lean == 0 else 1 if lean > 0 else 1000)
        return -distance * (1 if lean <= 0 else 20)

    return min(candidates, key=far)


def _maybe_part(match: re.Match[str], whole: Days) -> Days:
    part = match.groupdict().get("part")
    return spans.part_of(whole, part) if part else whole
