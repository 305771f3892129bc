"""The grammar of times: one rule per way of saying when, each a regular expression and how it is read.

A rule is only tried where one of its trigger words occurs: nearly all texts speak of no time, and cost one look at
their words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from recalld_daemon.extract import time_readings as read
from recalld_daemon.extract.time_readings import HOLIDAYS, MONTH_NAMES, MONTHS, WEEKDAYS, Read

_M = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_Y = r"(?P<year>(?:19|20)\d{2})"
_N = (
    r"(?P<n>\d{1,4}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|couple(?: of)?|few|several|many)"
)
_UNIT = r"(?P<unit>day|week|weekend|fortnight|month|quarter|year|decade)"
_DAY = r"(?P<weekday>" + "|".join(WEEKDAYS) + r")"
_PART = r"(?P<part>early|mid|middle|late|end|beginning|start)"
_WHICH = r"(?P<which>last|past|previous|this|current|next|coming|following)"


@dataclass(frozen=True, slots=True)
class Rule:
    """triggers, also: words of each of which one must occur (of an empty set none need); relative: it needs to know
    when it was said; cased: it reads the text as written, else its lower case."""

    triggers: frozenset[str]
    also: frozenset[str]
    pattern: re.Pattern[str]
    read: Read
    relative: bool = True
    cased: bool = False

    def may_match(self, words: set[str]) -> bool:
        return not self.triggers.isdisjoint(words) and not (self.also and self.also.isdisjoint(words))


def has_numeric(lower: str) -> bool:
    """Whether something in a text may be a date in digits."""
    return bool(_NUMERIC_HINT.search(lower))


# ------------------------------------------------------------ the table


def _rule(
    triggers: str, pattern: str, read: Read, *, also: str = "", relative: bool = True, cased: bool = False
) -> Rule:
    return Rule(frozenset(triggers.split()), frozenset(also.split()), re.compile(pattern), read, relative, cased)


_NUMERIC_HINT = re.compile(r"\d[-/.]\d|\bq[1-4]\b|\d0'?s\b")
_ALL_MONTHS = " ".join(MONTHS)
_ALL_UNITS = "day days week weeks weekend weekends fortnight month months quarter year years decade decades"
_ALL_YEARS = " ".join(map(str, range(1900, 2100)))
_PARTLY = rf"(?:{_PART}(?:[- ]|\s+(?:of|in)\s+(?:the\s+)?))?"

NUMERIC: Final = (
    _rule(
        "", r"(?<![\d.-])" + _Y + r"[-/](?P<m>\d{1,2})[-/](?P<d>\d{1,2})(?:[t ](?P<hh>\d{2}):(?P<mm>\d{2})"
        r"(?::\d{2}(?:\.\d+)?)?(?P<zone>z|[+-]\d{2}:\d{2})?)?(?![\d-])", read.iso_day, relative=False,
    ),
    _rule("", r"(?<![\d.-])" + _Y + r"-(?P<m>0[1-9]|1[0-2])(?![\d-])", read.iso_month, relative=False),
    _rule("", r"(?<![\d./-])(?P<a>\d{1,2})([/.-])(?P<b>\d{1,2})\2(?P<year>(?:19|20)?\d{2})(?![\d./-]\d)", read.numeric,
          relative=False),
    _rule("", rf"\bq(?P<q>[1-4])\b(?:[ ,/]+(?:of )?{_Y})?", read.quarter_year),
    _rule("", r"(?:\bthe\s+|\b)(?P<decade>(?:19|20)\d0|(?<=the )[2-9]0|(?<=the ')[2-9]0)'?s\b", read.decade,
          relative=False),
)  # fmt: skip

RULES: Final = (
    # absolute, or nearly
    _rule(
        _ALL_MONTHS, rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?[ -]+{_M}\b\.?(?:,?[ -]+{_Y}\b)?", read.month_day,
    ),
    _rule(_ALL_MONTHS, rf"\b{_M}\.?\s+(?:the\s+)?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,?\s+{_Y}\b)?",
          read.month_day),
    _rule(_ALL_MONTHS, rf"\b{_PARTLY}{_M}\.?,?(?:\s+of)?\s+{_Y}\b", read.month_year, also=_ALL_YEARS, relative=False),
    _rule(_ALL_YEARS,
          rf"(?:(?<=\bin )|(?<=\bsince )|(?<=\buntil )|(?<=\btill )|(?<=\bby )|(?<=\bfrom )|(?<=\bduring )|"
          rf"(?<=\bbefore )|(?<=\bafter )|(?<=\bof )|(?<=\baround )|(?<=\byear )|(?<=\bbetween )|(?<=\bto )|"
          rf"(?<=\band )|(?<=\bback in )|\b{_PART}[- ](?:(?:of|in) )?){_Y}\b"
          r"(?!\s+\w+s\b(?<!\bwas)(?<!\bis))", read.year, relative=False),
    _rule("spring summer autumn fall winter", rf"\b(?P<season>spring|summer|autumn|fall|winter)(?:\s+of)?\s+{_Y}\b",
          read.season_year, relative=False),
    # days near to now
    _rule("today yesterday tomorrow tonight morning afternoon evening night",
          r"\b(?P<near>the day before yesterday|the day after tomorrow|yesterday|tomorrow|earlier today|later today|"
          r"today|tonight|last night|this (?:morning|afternoon|evening))\b"
          r"(?:\s+(?P<daypart>morning|afternoon|evening|night)\b)?", read.near_day),
    _rule("ago back earlier", rf"\b(?:(?:about|around|almost|nearly|over|roughly)\s+)?(?:an?\s+)?{_N}\s+{_UNIT}s?\s+"
          r"(?:ago|back|earlier)\b", read.ago),
    _rule("ago", rf"\b(?:an?\s+)?{_N}\s+(?P<small>hour|minute)s?\s+ago\b", read.hours_ago),
    _rule("in", rf"\bin\s+(?:about\s+|around\s+)?(?:an?\s+)?{_N}\s+{_UNIT}s?\b(?P<sure>'? time\b| from now\b)?",
          read.ahead, also=_ALL_UNITS),
    _rule("from", rf"\b(?:an?\s+)?{_N}\s+{_UNIT}s?(?P<sure>\s+from (?:now|today))\b", read.ahead,
          also=_ALL_UNITS),
    # last, this, next
    _rule("last past previous this current next coming following",
          rf"\b(?:{_PART}(?:[- ]|\s+of\s+))?(?:the\s+)?{_WHICH}\s+{_UNIT}\b(?!\s+(?:before|after)\b)", read.which_unit,
          also=_ALL_UNITS),
    _rule("of", rf"\b{_PART}\s+of\s+(?P<which>the|this)\s+(?P<unit>week|month|quarter|year|decade)\b", read.which_unit,
          also=_ALL_UNITS),
    _rule("last past previous next coming", rf"\b(?:the\s+)?(?P<which>last|past|previous|next|coming)\s+"
          rf"{_N}\s+{_UNIT}s?\b", read.last_n, also=_ALL_UNITS),
    _rule("before after", rf"\b(?:the\s+)?{_UNIT}\s+(?P<turn>before last|after next)\b", read.week_before_last),
    _rule(" ".join(WEEKDAYS), rf"(?:\b(?P<which>last|past|previous|this|next|coming|following)\s+)?\b{_DAY}\b"
          r"(?:\s+(?P<daypart>morning|afternoon|evening|night)\b)?", read.weekday),
    _rule("weekend", r"\b(?:over|on|at|during|for)?\s?the\s+weekend\b", read.weekend),
    # what comes once a year, or once a month
    _rule(_ALL_MONTHS, rf"(?:(?<=\bin )|(?<=\bsince )|(?<=\buntil )|(?<=\btill )|(?<=\bby )|(?<=\bof )|(?<=\bduring )|"
          rf"(?<=\bfrom )|(?<=\bbefore )|(?<=\bafter )|(?<=\bfor )|(?<=\baround )|(?<=\bbetween )|"
          rf"\b{_PART}(?:[- ]|\s+(?:of|in)\s+)|\b{_WHICH}\s+){_M}\b(?!\s*\d)", read.bare_month),
    _rule("january february july september october november december",
          r"(?<!\d )\b(?P<month>january|february|july|september|october|november|december)\b(?!\s*\d)",
          read.bare_month),
    _rule(_ALL_MONTHS, r"(?:(?<=\bto )|(?<=\band ))(?P<month>" + "|".join(n.title() for n in MONTH_NAMES)
          + r")\b(?!\s*\d)", read.bare_month, cased=True),
    _rule("spring summer autumn fall winter", rf"\b(?:{_WHICH}|in|in the|during the|over the|since|until|by)\s+"
          r"(?P<season>spring|summer|autumn|fall|winter)\b(?!\s+(?:of\s+)?\d)", read.bare_season),
    _rule("the", r"(?:(?<=\bon the )|(?<=\bby the )|(?<=\buntil the )|(?<=\bsince the )|(?<=\bbefore the )|"
          r"(?<=\bafter the ))(?P<d>\d{1,2})(?:st|nd|rd|th)\b(?!\s+(?:of\s+)?[a-z]*\s*(?:floor|time|day|grade|birthday|"
          r"anniversary|century))", read.day_number, also="st nd rd th"),
    _rule("christmas new halloween valentine", rf"\b(?:{_WHICH}\s+)?(?P<holiday>"
          + "|".join(name.replace("'", "['’]") for name in HOLIDAYS) + rf")\b(?:\s+{_Y})?", read.holiday),
    _rule("for", rf"\bfor\s+(?:about\s+|over\s+|almost\s+|nearly\s+|the\s+(?:last|past)\s+)?(?:an?\s+)?{_N}\s+"
          r"(?P<unit>week|month|year|decade)s?(?:\s+now)?\b", read.lasting, also=_ALL_UNITS),
    _rule("week", rf"\bweek\s+of\s+(?:the\s+)?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_M}\b(?:,?\s+{_Y}\b)?",
          read.week_of),
    _rule("week", rf"\bweek\s+of\s+{_M}\.?\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+{_Y}\b)?", read.week_of),
)  # fmt: skip
