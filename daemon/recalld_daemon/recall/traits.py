"""What a passage's text looks like, whatever it is about: bits that a ranker weighs, read off by plain patterns.

They are guesses, cheap enough to be made of every passage as it comes (some 20 us each), and good enough to lean on: a
turn that asks is rarely the answer, one that says "I" speaks of its speaker, one that says "yesterday" tells a time.
English, with the punctuation of other scripts.
"""

from __future__ import annotations

import re

from recalld_daemon.recall.types import Trait
from recalld_daemon.recall.words import word_set, words_of

TAIL = 40  # characters at the end in which a question shows

_QUESTION = re.compile(r"[?？؟]+[\s\"'”’»)\]*_~`]*(?:[^\w\s.!?]\s*)*\Z")  # closing marks and emoji may follow
_FIRST = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ww]e|[Oo]ur|[Oo]urs|[Uu]s)\b")
_DIGIT = re.compile(r"\d")
_NAME = re.compile(r"(?:[a-z0-9,;:'\")]|\bI) [\"'(]?(?!I\b)[A-Z][a-z]\w*")  # a capital within a sentence
_MONTHS = "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"  # noqa: E501
_TIME = re.compile(
    rf"""\b(?:yesterday|today|tomorrow|tonight|ago|recently|lately|(?:mon|tues|wednes|thurs|fri|satur|sun)days?
    |(?:last|next|this|past|previous|coming|every)\s(?:\w+\s)?(?:night|morning|evening|week|weekend|month|year|summer
    |winter|spring|fall|autumn|(?:mon|tues|wednes|thurs|fri|satur|sun)day|time)s?
    |(?:{_MONTHS})\.?\s(?:the\s)?\d{{1,4}}|\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?(?:{_MONTHS})|(?:in|since|until|by|of|last|next|this)\s(?:early\s|late\s|mid-?)?(?:{_MONTHS}|may|(?:19|20)\d\d)
    |(?:19|20)\d\d-\d\d(?:-\d\d)?|\d{{1,2}}/\d{{1,2}}(?:/\d{{2,4}})?|\d{{1,2}}(?::\d\d)?\s?[ap]m)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_CODE = re.compile(
    r"```|`[^`\n]+`|\w\(\)|\w+\([\w\"', .]*\)[;:]|[{};]\s*$"
    r"|^\s*(?:def|class|import|from|return|func|fn|const|let|var|#include)\b"
    r"|=>|->|::|!=|==|&&|\|\||</\w+>|^\$ |\s--?[a-z][\w-]+",
    re.MULTILINE,
)
_CODE_MARK = re.compile(
    r"[`({;=>|$<#]|&&|::| -|^\s*(?:def|class|import|from|return|func|fn|const|let|var)\b", re.MULTILINE
)
_PICTURE = re.compile(
    r"\[(?:an? |the )?(?:\w+ )?(?:image|photo\w*|picture|img|drawing|screenshot)\b|!\[[^\]]*\]\("
    r"|<Media omitted>|\b(?:image|photo) (?:attached|omitted)",
    re.IGNORECASE,
)

_FIRST_WORDS = word_set("i i'm i've i'd i'll me my mine myself we our ours us")
_SECOND_WORDS = word_set("you your yours yourself u ur you're you've you'd you'll")
_TIME_WORDS = word_set(
    """yesterday today tomorrow tonight ago recently lately monday tuesday wednesday thursday friday saturday sunday
    mondays tuesdays wednesdays thursdays fridays saturdays sundays last next this past previous coming every jan
    january feb february mar march apr april may jun june jul july aug august sep sept september oct october nov
    november dec december"""
)


def traits_of(text: str) -> Trait:
    """The traits of one passage's text.

    >>> traits_of("Did you see it?"), traits_of("We met Ada in May 2021.")
    (<Trait.QUESTION|SECOND_PERSON: 5>, <Trait.FIRST_PERSON|DIGITS|NAMES|TIME: 58>)
    """
    plain = text.replace("’", "'")
    words = set(words_of(plain))  # looks up whether a slower pattern is worth its while
    found = Trait.SECOND_PERSON if words & _SECOND_WORDS else Trait(0)
    digits = _DIGIT.search(plain) is not None
    if digits:
        found |= Trait.DIGITS
    if _QUESTION.search(plain[-TAIL:]):
        found |= Trait.QUESTION
    if words & _FIRST_WORDS and _FIRST.search(plain):
        found |= Trait.FIRST_PERSON
    if _NAME.search(plain):
        found |= Trait.NAMES
    if (digits or words & _TIME_WORDS) and _TIME.search(plain):
        found |= Trait.TIME
    if _CODE_MARK.search(plain) and _CODE.search(plain):
        found |= Trait.CODE
    if ("[" in plain or "omitted" in plain or "attached" in plain) and _PICTURE.search(plain):
        found |= Trait.PICTURE
    return found
