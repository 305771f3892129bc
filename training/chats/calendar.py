"""Days as friends speak of them, relative to the day on which they speak, and as a questioner names them afterwards."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def past(rng: random.Random, now: datetime) -> tuple[datetime, str]:
    """A day that is gone, and its name on `now`."""
    last = (now.weekday() - rng.randrange(7)) % 7 or 7  # days back to some weekday before today
    saturday = (now.weekday() - 5) % 7 or 7
    days, said = rng.choice(
        [
            (1, "yesterday"),
            (1, rng.choice(["last night", "yesterday afternoon", "yesterday evening"])),
            (0, rng.choice(["this morning", "earlier today", "today"])),
            (last, f"{rng.choice(['last', 'last', 'on'])} {DAYS[(now.weekday() - last) % 7]}"),
            (last, f"last {DAYS[(now.weekday() - last) % 7]}"),
            (saturday, rng.choice(["last weekend", "over the weekend", "at the weekend"])),
            (saturday + 7, rng.choice(["two weekends ago", "the weekend before last"])),
            (7, rng.choice(["last week", "a week ago", "about a week ago"])),
            (14, rng.choice(["two weeks ago", "a couple of weeks ago", "a fortnight ago"])),
            (3, rng.choice(["a few days ago", "the other day", "three days ago"])),
            (30, rng.choice(["last month", "about a month ago", "a month ago"])),
            (2, rng.choice(["two days ago", "the day before yesterday"])),
        ]
    )
    day = now - timedelta(days=days)
    if rng.random() < 0.12 and days > 1:
        said = rng.choice([f"on {DAYS[day.weekday()]} the {ordinal(day.day)}", f"on {MONTHS[day.month - 1]} {day.day}"])
    return day, said


def future(rng: random.Random, now: datetime) -> tuple[datetime, str]:
    """A day to come, and its name on `now`."""
    ahead = rng.randrange(2, 8)
    days, said = rng.choice(
        [
            (1, rng.choice(["tomorrow", "tomorrow morning", "tomorrow evening"])),
            (ahead, f"{rng.choice(['next', 'this coming', 'on'])} {DAYS[(now.weekday() + ahead) % 7]}"),
            ((5 - now.weekday()) % 7 or 7, rng.choice(["this weekend", "at the weekend"])),
            (((5 - now.weekday()) % 7 or 7) + 7, "the weekend after next"),
            (7, rng.choice(["next week", "in a week"])),
            (14, rng.choice(["in two weeks", "in a fortnight"])),
            (30, rng.choice(["next month", "in about a month"])),
            (21, "in three weeks"),
        ]
    )
    day = now + timedelta(days=days)
    if rng.random() < 0.15:
        said = f"on {rng.choice(['the ' + ordinal(day.day), MONTHS[day.month - 1] + ' ' + str(day.day)])}"
    return day, said


def ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def month(day: datetime, rng: random.Random, year: bool = True) -> str:
    return f"{MONTHS[day.month - 1]}{rng.choice([' ', ', ', ' of ']) + str(day.year) if year else ''}"


def date(day: datetime, rng: random.Random) -> str:
    name = MONTHS[day.month - 1]
    return rng.choice(
        [
            f"{day.day} {name} {day.year}",
            f"{name} {day.day}, {day.year}",
            f"{day.day} {name}",
            f"{name} {ordinal(day.day)}",
        ]
    )
