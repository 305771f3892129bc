"""Sentences, list items and what kind of sentence one is. Rules on punctuation and a table of small words; no model."""

from __future__ import annotations

import re

from recalld_daemon.recall.words import STOP_WORDS, weight_of, word_set

LONGEST = 320  # characters of a sentence; what is longer is a log, a table or a line of code
BRIEF = 24  # characters up to which the share of letters says nothing: "port 9092"
LETTERS = 0.72  # share of letters and blanks in prose; code and tables have less

_BREAK = re.compile(
    r"(?<=[.!?…])[\"')\]]*\s+(?=[\"'(\[*_]*[A-Z0-9À-Þ])|(?<=[!?…])[\"')\]]*\s+|\n\s*(?=[-*+•]\s|\d+[.)]\s|#|>|\|)|\n\s*\n"
)
_MARK = re.compile(r"^\s*(?:[-*+•>|]+|\d+[.)]|#{1,6}|\[[ xX]\])\s+")
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Mrs|Ms|Dr|Prof|St|No|Inc|Ltd|Jr|Sr)\.$", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_LETTER = re.compile(r"[^\W\d_]|\s")

REACTIONS = word_set(
    """absolutely agree agreed ah aha amazing aw aww awesome awww beautiful best bet brilliant bye cheers congrats
    congratulations cool cute damn dang definitely enjoy exactly excellent exciting fantastic fun glad good goodnight
    gosh great haha hahaha happy hear hello hey hi hope impressive incredible indeed inspiring interesting keep know lol
    look looking looks love lovely luck man means morning nice oh omg perfect proud really right safe say see sorry
    sound sounds stuff super sure sweet talk thank thanks thats thing things think totally tough truly understand
    update very way welcome well wonderful work works wow yeah yep yes yup wish yay
    done fine ok okay got check checking let please next now start starting first proceed"""
)
_ASKING = word_set(
    """who what when where why which how whose whom did do does is are was were have has had can could would will should
    any shall am isn't aren't don't doesn't didn't won't wouldn't couldn't haven't hasn't"""
)


def sentences(text: str) -> list[str]:
    """Sentences and list items in order, without their marks; fenced code is left out.

    >>> sentences("We met Dr. Who. He left!\\n- set retries to 3\\n- done")
    ['We met Dr. Who.', 'He left!', 'set retries to 3', 'done']
    """
    found: list[str] = []
    joined = ""
    for part in _BREAK.split(_FENCED.sub("\n\n", text) if "```" in text or "~~~" in text else text):
        sentence = f"{joined} {part.strip()}" if joined else part.strip()
        if _ABBREVIATED.search(sentence):
            joined = sentence
            continue
        joined = ""
        sentence = " ".join(_MARK.sub("", sentence).split())
        if sentence:
            found.append(sentence)
    return [*found, joined] if joined else found


def is_prose(sentence: str) -> bool:
    """Whether it reads as language: not too long, mostly letters."""
    if len(sentence) <= BRIEF:
        return bool(_WORD.search(sentence))
    return len(sentence) <= LONGEST and len(_LETTER.findall(sentence)) >= LETTERS * len(sentence)


def is_question(sentence: str) -> bool:
    """Whether it asks, by its mark."""
    return sentence.rstrip("\"')* ").endswith("?")


def asks(text: str) -> bool:
    """Whether a query asks, by its mark or, where people leave that out, by its first word."""
    first = text.split(None, 1)[:1]
    return is_question(text) or bool(first and first[0].lower() in _ASKING)


def words(sentence: str) -> list[str]:
    """Its words in lower case, apostrophes straight."""
    return [word.replace("’", "'") for word in _WORD.findall(sentence.lower())]


def telling(sentence: str) -> list[str]:
    """The words of a sentence that are neither stop words nor mere reaction."""
    return [word for word in words(sentence) if word not in STOP_WORDS and word not in REACTIONS and len(word) > 1]


def worth(telling_words: list[str]) -> float:
    """How much a statement tells: the summed weight of its distinct telling words."""
    return sum(weight_of(word) for word in set(telling_words))
