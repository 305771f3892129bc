"""What a text says of when, as ranges with their granularity, relative to the moment it was written.

"last week" is the calendar week before that of the message, "two weekends ago" a Saturday and a Sunday, "in May" the
May that is nearest (past ones nearer, unless the sentence looks ahead), "3/4/2023" nothing, since nobody can tell its
day from its month. What is vague ("recently", "soon") gives nothing either. A text without any of the words that
begin such an expression costs one look at its words; queries use the same grammar, relative to their own time.

Libraries were tried and none serves. dateparser (1-10 ms a sentence) and parsedatetime (up to 20 ms) give points
instead of ranges; of "we met two weekends ago" the one makes "we: Wednesday", the other nothing, of "in May" either
the moment itself or next year's. recognizers-text-date-time knows ranges, but does not import beside a current
`emoji`. dateutil parses dates alone. The calendar arithmetic, which is all that is left, is in `spans`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import lru_cache

from recalld_daemon.extract import time_rules
from recalld_daemon.extract.spans import Clock, Days
from recalld_daemon.recall.types import Grain, When

MOST = 12  # expressions of one passage that are kept
ALWAYS = 253_402_300_800.0  # 1 January 10000: the end of "after May", epoch seconds

_WORD = re.compile(r"[a-z]+|\d+")
_SENTENCE = re.compile(r"[.!?](?=\s)|\n")
_BOUND = re.compile(
    r"\b(since|until|till|by|before|after|from|between|through|starting|prior to)\s+"
    r"(?:(?:the|about|around|early|end of)\s+)*$",
    re.IGNORECASE,
)
_JOINED = re.compile(r"\s*(?:to|and|until|till|through|-|–)\s*(?:the\s+)?$", re.IGNORECASE)
_PAST = re.compile(
    r"\b(?:was|were|went|did|had|saw|met|came|got|took|made|gave|bought|found|ran|told|said|left|began|spent|won|lost|"
    r"built|felt|wrote|read|decided|ago|[a-z]{2,}ed)\b"
)
_AHEAD = re.compile(
    r"\b(?:will|won't|shall|going to|gonna|plan|plans|planning|next|tomorrow|upcoming|coming|let's|should|hope|hoping|"
    r"want to|due|deadline|until|soon|starts|see you)\b|'ll\b"
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A time that is spoken of, and where: characters [first, last) of the text. bound: "", "since", "before", ..."""

    days: Days
    first: int
    last: int
    bound: str = ""


def whens(text: str, spoken_at: float | None, tz: tzinfo | None = UTC, *, asked: bool = False) -> list[When]:
    """The times a text speaks of, in its order, each once.

    `spoken_at`: epoch seconds of the message, without which only absolute dates are understood. `tz`: the writer's
    zone; None: this machine's. `asked`: it is a query, which looks back unless it says otherwise.

    >>> [(w.said, w.grain, int(w.end - w.start) // 86400) for w in whens("we met two weekends ago", 1_683_458_900.0)]
    [('two weekends ago', 'span', 2)]
    """
    return list(_whens(text, spoken_at, tz, asked))


@lru_cache(maxsize=8)  # a passage's times are asked for by more than one extractor
def _whens(text: str, spoken_at: float | None, tz: tzinfo | None, asked: bool) -> tuple[When, ...]:
    lower = _lower(text)
    words = set(_WORD.findall(lower))
    rules = [rule for rule in time_rules.RULES if rule.may_match(words)]
    if time_rules.has_numeric(lower):
        rules = [*time_rules.NUMERIC, *rules]
    if not rules:
        return ()
    try:
        clock = Clock.at(spoken_at if spoken_at else 0.0, tz)
    except (ValueError, OverflowError, OSError):
        return ()
    mentions = _joined(lower, _bounded(lower, _disjoint(_found(text, lower, rules, clock, bool(spoken_at), asked))))
    unique: dict[tuple[float, float, str], When] = {}
    for mention in (_plain(mention, asked) for mention in mentions[:MOST]):
        try:
            start, end = _range(mention, clock, asked)
        except (ValueError, OverflowError):  # no calendar has it: 29 February of a year that is not known
            continue
        said = " ".join(text[mention.first : mention.last].split())
        if start < end:
            unique.setdefault((start, end, mention.days.grain), When(start, end, _grain(mention), said))
    return tuple(unique.values())


def _found(
    text: str, lower: str, rules: Sequence[time_rules.Rule], clock: Clock, anchored: bool, asked: bool
) -> Iterator[Mention]:
    for rule in rules:
        if rule.relative and not anchored:
            continue
        for match in rule.pattern.finditer(text if rule.cased else lower):
            lean = _lean(lower, match.start(), match.end(), asked)
            try:
                days = rule.read(match, clock, lean)
            except (ValueError, OverflowError):  # 31 April, 5,000 years ago
                continue
            if days is not None:
                yield Mention(days, match.start(), match.end())


def _lean(lower: str, first: int, last: int, asked: bool) -> int:
    """-1: the sentence looks back; 1: ahead; 0: it does not say."""
    before = [match.end() for match in _SENTENCE.finditer(lower, 0, first)]
    after = _SENTENCE.search(lower, last)
    sentence = lower[before[-1] if before else 0 : after.start() if after else len(lower)]
    if _AHEAD.search(sentence):
        return 1
    return -1 if asked or _PAST.search(sentence) else 0


def _disjoint(mentions: Iterator[Mention]) -> list[Mention]:
    """Of overlapping ones the longest, in the order of the text."""
    kept: list[Mention] = []
    for mention in sorted(mentions, key=lambda m: (m.first - m.last, m.first)):
        if all(mention.last <= other.first or other.last <= mention.first for other in kept):
            kept.append(mention)
    return sorted(kept, key=lambda m: m.first)


def _bounded(lower: str, mentions: Sequence[Mention]) -> list[Mention]:
    """With the word before it that makes an open range of a time: since, until, before, after."""
    found = []
    for mention in mentions:
        match = None if mention.bound else _BOUND.search(lower, max(0, mention.first - 40), mention.first)
        bound = match[1] if match else ""
        bound = {"till": "until", "by": "until", "through": "until", "starting": "since", "prior to": "before"}.get(
            bound, bound
        )
        at = match.start() if match else mention.first
        found.append(Mention(mention.days, at, mention.last, bound))
    return found


def _plain(mention: Mention, asked: bool) -> Mention:
    """Without what only a question can mean: "before Friday" said to somebody is about that Friday."""
    kept = mention.bound if asked or mention.bound in ("since", "until") else ""
    return Mention(mention.days, mention.first, mention.last, kept)


def _joined(lower: str, mentions: Sequence[Mention]) -> list[Mention]:
    """ "from 3 May to 5 May", "between May and July": one range of two."""
    found: list[Mention] = []
    for mention in mentions:
        before = found[-1] if found else None
        if (
            before
            and before.bound in ("from", "between")
            and _JOINED.fullmatch(lower, before.last, _own(lower, mention))
        ):
            days = Days(before.days.first, mention.days.after, "span")
            found[-1] = Mention(days, before.first, mention.last)
        else:
            found.append(mention)
    return [Mention(m.days, m.first, m.last, "since") if m.bound == "from" else m for m in found]


def _own(lower: str, mention: Mention) -> int:
    """Where a mention begins without the word that bounds it, if that word joins it to the one before."""
    match = re.match(r"(?:until|till|through)\s+", lower[mention.first : mention.last])
    return mention.first + match.end() if match else mention.first


def _range(mention: Mention, clock: Clock, asked: bool) -> tuple[float, float]:
    """Epoch seconds. What was said reaches from or to its own moment; what is asked is open at one side."""
    start, end = clock.range_of(mention.days)
    now = clock.now.timestamp()
    match mention.bound, asked:
        case "since", True:
            return start, ALWAYS
        case "since", False:
            return start, max(end, now)
        case "after", True:
            return end, ALWAYS
        case "before", True:
            return 0.0, start
        case "until", True:
            return 0.0, end
        case "until", False:
            return min(max(now, 0.0), start) or start, end
        case _:
            return start, end


def _lower(text: str) -> str:
    """In lower case, as long as it was."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(low if len(low := c.lower()) == 1 else c for c in text)


def _grain(mention: Mention) -> Grain:
    return "span" if mention.bound else mention.days.grain


def bounds_of(found: Sequence[When]) -> tuple[float, float]:
    """What a query's "since", "until", "before" and "after" demand together: written at or after, and before (epoch
    seconds); (-inf, inf) where they demand nothing.
    """
    low, high = float("-inf"), float("inf")
    for when in found:
        word = when.said.partition(" ")[0].lower()
        if word in ("since", "after", "from", "starting"):
            low = max(low, when.start)
        elif word in ("until", "till", "by", "before", "through", "prior"):
            high = min(high, when.end)
    return low, high
