"""The eight to twelve words that are shown, cut around the token of highest relevance.

The cut grows word by word from that token, first to the ends of its sentence or line, over them only when the sentence
is too short. Words are what is printed between spaces; text without spaces (Chinese, Japanese, Thai) counts its
characters as half words. What is returned is one line that cannot be mistaken for anything but a quotation: controls,
bidi and zero-width characters and terminal escapes are gone, tags and role prefixes that hosts use are defused.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from recalld_daemon.recall.words import content_stems, stem, weight_of, words_of

LEAST_WORDS = 8.0
MOST_WORDS = 12.0
WIDE_WORD = 24  # characters; a longer one (a URL, a hash) counts as several words, so that the line stays short
HUGE_WORD = 120  # characters; a longer one is never shown: "…" stands for it
TEXT_LIMIT = 1000  # characters of a rendered snippet; the wire's line has 1024

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff" + (
    "\U00020000-\U0003ffff"
)
_UNIT = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
_UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
_SENTENCE_END = re.compile(r"[.!?…][\"')\]*_`]*(?=\s)|[。！？]|\n\s*(?=\n|[-*+#>|]|\d+[.)]\s)|\n(?=\s*$)")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|[@-Z\\^_])|\x9b[0-?]*[ -/]*[@-~]")
_TAG = re.compile(r"(?<![\w>])<(?=[/!?|<a-zA-Z])|<(?=/|\|)")
_ROLE = re.compile(r"(?im)^(\s*(?:human|assistant|system|user|developer|tool))\s*:")
_MARKER = re.compile(r"(?i)\[(/?(?:INST|SYS|SYSTEM))\]")
_BARE_BEFORE = re.compile(r"^[^\w\s]+(?:\s+|$)|^\s+")
_BARE_AFTER = re.compile(r"(?:^|\s+)[^\w\s]+$|\s+$")
_MARKS_BEFORE = re.compile(r"^(?:([*`~])\1*|[#>|]+)")
_MARKS_AFTER = re.compile(r"(?:([*`~])\1*|[#|]+)$")


@dataclass(frozen=True, slots=True)
class Cut:
    """text: what is shown, one line. start, end: characters of the passage's text it was made from, half open."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Unit:
    start: int
    end: int
    size: float  # in words
    segment: int  # which sentence or line it belongs to


def cut(text: str, focus: tuple[int, int] | None, terms: tuple[str, ...] = ()) -> Cut | None:
    """The snippet of a passage's text around the characters `focus`; without one, where most of `terms` stand.

    None when the text holds no word at all. Fewer words than LEAST_WORDS only when the passage has no more, or when
    its words are so wide that more would not fit a line.
    """
    units = _units(text)
    if not any(unit.size for unit in units):
        return None
    first, last = _grow(units, _unit_at(units, focus if focus else focus_of(text, terms)))
    start, end = _trim(text, units[first].start, units[last].end)
    shown = neutral(text[start:end])
    return Cut(shown, start, end) if shown else None


def focus_of(text: str, terms: tuple[str, ...]) -> tuple[int, int]:
    """The word around which the query's terms weigh most, as characters; the first word where none stands."""
    weights = {stem(word): weight_of(word) for term in terms for word in words_of(term)}
    found = list(_UNIT.finditer(text))
    if not found:
        return 0, 0
    values = [max((weights.get(word, 0.0) for word in content_stems(unit.group())), default=0.0) for unit in found]
    reach = int(MOST_WORDS) // 2
    around = [value and value + sum(values[max(0, i - reach) : i + reach + 1]) for i, value in enumerate(values)]
    best = max(range(len(found)), key=lambda i: around[i])
    return found[best].span()


def neutral(text: str) -> str:
    """One harmless line: whitespace folded, invisible characters and escapes gone, tags, roles, huge words defused.

    >>> neutral("a\\x1b[31m b</system-reminder>\\nHuman: run\\u202e")
    'a b‹/system-reminder> Human - run'
    """
    text = "".join(_visible(letter) for letter in _ANSI.sub("", text))
    text = _TAG.sub("‹", _MARKER.sub(r"(\1)", _ROLE.sub(r"\1 -", text)))
    words = ("…" if len(word) > HUGE_WORD and not _spaceless(word) else word for word in text.split())
    return " ".join(words)[:TEXT_LIMIT]


def _visible(letter: str) -> str:
    if letter in "\n\t\r ":
        return letter
    kind = unicodedata.category(letter)
    if kind in ("Zl", "Zp"):
        return "\n"
    if kind in ("Cc", "Zs"):
        return " "
    return "" if kind in ("Cf", "Cs", "Co", "Cn") else letter


def _spaceless(word: str) -> bool:
    return bool(_UNSPACED_LETTER.search(word))


def _units(text: str) -> list[_Unit]:
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    units: list[_Unit] = []
    segment = 0
    for match in _UNIT.finditer(text):
        while segment < len(ends) and match.start() >= ends[segment]:
            segment += 1
        units.append(_Unit(match.start(), match.end(), _size(match.group()), segment))
    return units


def _size(word: str) -> float:
    if not any(letter.isalnum() for letter in word):
        return 0.0  # markdown furniture, dashes, bars
    if len(word) > HUGE_WORD:
        return 1.0
    if _spaceless(word):
        return 0.5
    return float(max(1, -(-len(word) // WIDE_WORD)))


def _unit_at(units: list[_Unit], focus: tuple[int, int]) -> int:
    """The unit that holds the focus; of furniture or a gap, the nearest one that is a word."""
    words = [i for i, unit in enumerate(units) if unit.size]
    middle = (focus[0] + max(focus[1] - 1, focus[0])) / 2
    return min(words, key=lambda i: max(units[i].start - middle, middle - (units[i].end - 1), 0.0))


def _grow(units: list[_Unit], at: int) -> tuple[int, int]:
    """First and last unit: outwards from the focus within its segment, then beyond it while there are too few words."""
    first = last = at
    size = units[at].size
    for inside in (True, False):
        enough = MOST_WORDS if inside else LEAST_WORDS
        while size < enough:
            sides = [
                i
                for i in (first - 1, last + 1)
                if 0 <= i < len(units)
                and (not inside or units[i].segment == units[at].segment)
                and size + units[i].size <= MOST_WORDS
            ]
            if not sides:
                break
            near = min(sides, key=lambda i: (abs(i - at), -i))  # of equals the one after: what follows completes
            size += units[near].size
            first, last = min(first, near), max(last, near)
    return first, last


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Without furniture at the edges: words of marks alone, and marks on outer words that have no partner inside."""
    shown = text[start:end]
    while reach := _furniture(shown, _BARE_BEFORE, _MARKS_BEFORE):
        shown, start = shown[reach:], start + reach
    while reach := _furniture(shown, _BARE_AFTER, _MARKS_AFTER):
        shown = shown[:-reach]
    return start, start + len(shown)


def _furniture(shown: str, bare: re.Pattern[str], marks: re.Pattern[str]) -> int:
    """How many characters at that edge are furniture; 0 when it is clean."""
    if found := bare.search(shown):
        return len(found[0])
    found = marks.search(shown)
    return len(found[0]) if found and (found[1] is None or shown.count(found[0]) == 1) else 0
