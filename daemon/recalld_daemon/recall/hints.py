"""What a query says of who, when and how many, read by rules against what the memory knows.

A speaker is named by a whole name, a first name or a possessive. "I" and "you" count where a question looks back at
what was said ("what did I decide", "did you suggest"); everywhere else in an agent's work they say nothing ("can you
fix this"). Times are those of `extract.times`, seen from the query's own moment. Reading takes some tenths of a
millisecond less than the encoder needs, beside which it runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import Protocol

from recalld_daemon.extract.sentences import asks
from recalld_daemon.extract.subjects import GENERIC
from recalld_daemon.extract.times import whens
from recalld_daemon.recall.types import Hints, Query, View
from recalld_daemon.recall.words import STOP_WORDS, words_of

USER = "user"  # how transcripts name the one who asks, and the agent
AGENT = "assistant"

_BACK = (
    r"said|say|told|tell|mentioned?|decided?|suggest(?:ed)?|recommend(?:ed)?|wrote|write|asked?|wanted?|preferr?(?:ed)?|"
    r"agreed?|chose|choose|liked?|promised?|planned?|explained?|proposed?|thought|think|meant|mean|named?|called?|used?|"
    r"set|saw|fixed|changed|learn(?:ed|t)?|noted?"
)
_LOOKS_BACK = re.compile(
    rf"\b(?:did|had|was|were)\s+(?P<asked>i|you|we)\b|\b(?P<teller>i|you|we)\s+(?:have\s+|had\s+)?(?:already\s+)?(?:{_BACK})\b|"
    r"\b(?P<owner>my|your|our)\s+(?:favou?rite|preference|preferred|name|opinion|decision|plan|idea|suggestion|advice)\b",
    re.IGNORECASE,
)
_ENUMERATES = re.compile(
    r"\bhow (?:many|often)\b|\bhow much (?:in total|altogether)\b|"
    r"\b(?:list|name|enumerate)\s+(?:all|every|each|the|some)\b|"
    r"\ball (?:the|of the|of|my|our|your|places|times|things|people)\b|\b(?:every|each) (?:time|one|place|person)\b|"
    r"\b(?:what|which)(?:\s+[\w-]+){0,3}?\s+(?:\w{3,}[^su\W]s|people|children|kinds? of|types? of|sorts? of)\s+"
    r"(?:\w+\s+)?(?:has|have|had|did|does|do|are|were|is|was|of|for|can|in|to)\b|"
    r"\bwhat (?:are|were) (?:all|the|some|\w+'s)\b(?=.*s\b)|\bin what ways\b",
    re.IGNORECASE,
)
_ASKS_WHEN = re.compile(
    r"^\W*(?:(?:and|so|do you (?:know|remember)|tell me|remind me)\s+)?(?:since\s+)?when\b"
    r"(?!\s+(?:i|we|you|it|the|a|this)\s+\w+\s*,)|"
    r"\b(?:what|which|on what|in which|in what)\s+(?:year|month|week|day|date|time|season|decade)\b|\bhow long ago\b|"
    r"\bwhat was the date\b|\bwhen (?:did|was|were|is|are|does|do|will|has|had)\b",
    re.IGNORECASE,
)
_BEFORE_ME = re.compile(
    r"\b(?:to|with|for|by|from|of|about|at|on|like|than|near|gave|give|told|tell|asked|ask|helped|help|made)\s+$",
    re.IGNORECASE,
)


class SubjectNames(Protocol):
    """The subjects of the memory, by any of their names."""

    def named(self, text: str) -> Sequence[int]:
        """Ids of the subjects that a text names."""
        ...


class SpeakerNames(Protocol):
    def speakers(self) -> Mapping[str, int]: ...


class HintReader:
    """Made once over what is open, called by each recall. Thread-safe.

    user_names, agent_names: what the user and the agent are called in the memory, beside "user" and "assistant". tz:
    the asker's zone; None: this machine's. now: the clock, epoch seconds.
    """

    def __init__(
        self,
        cards: SpeakerNames | None,
        subjects: SubjectNames | None = None,
        user_names: Sequence[str] = (),
        agent_names: Sequence[str] = (),
        tz: tzinfo | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cards = cards
        self._subjects = subjects
        self._user_names = (USER, *user_names)
        self._agent_names = (AGENT, *agent_names)
        self._tz = tz
        self._now = now
        self._known: tuple[Mapping[str, int], dict[str, tuple[str, ...]]] = ({}, {})

    def __call__(self, query: Query, view: View) -> Hints:
        now = self._now() if view.as_of is None else view.as_of
        known: Mapping[str, int] = {} if self._cards is None else self._cards.speakers()
        return hints_of(
            query, self._by_name(known), () if self._subjects is None else self._subjects.named(query.text), now,
            known=known, user_names=self._user_names, agent_names=self._agent_names, tz=self._tz,
        )  # fmt: skip

    def _by_name(self, known: Mapping[str, int]) -> Mapping[str, tuple[str, ...]]:
        if self._known[0] is not known or len(self._known[1]) < len(known):
            self._known = (known, names_of(known))
        return self._known[1]


def names_of(speakers: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Folded names and first names -> the speakers who bear them.

    >>> names_of(["Ana Silva", "Ben", "user"])
    {'ana silva': ('Ana Silva',), 'ana': ('Ana Silva',), 'ben': ('Ben',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for speaker in speakers:
        words = words_of(speaker)
        if not words or words[0] in GENERIC:  # they would match any prose
            continue
        for name in dict.fromkeys((" ".join(words), words[0])):
            if name not in STOP_WORDS and len(name) > 1:
                found[name] = (*found.get(name, ()), speaker)
    return found


def hints_of(
    query: Query,
    by_name: Mapping[str, tuple[str, ...]],
    subjects: Sequence[int],
    now: float,
    *,
    known: Iterable[str] = (),
    user_names: Sequence[str] = (USER,),
    agent_names: Sequence[str] = (AGENT,),
    tz: tzinfo | None = None,
) -> Hints:
    """Everything a query says, as a value. by_name: see `names_of`; subjects: ids of those it names; now: epoch s.

    >>> hints_of(Query("How many dogs has Ana had since May 2023?", (), ""), names_of(["Ana"]), (), 1.7e9).enumerates
    True
    """
    text = query.text
    return Hints(
        speakers=tuple(
            dict.fromkeys([*_named(text, by_name), *_meant(text, frozenset(known), user_names, agent_names)])
        ),
        subjects=tuple(subjects),
        whens=tuple(whens(text, now, tz, asked=True)),
        enumerates=bool(_ENUMERATES.search(text)),
        asks_when=bool(_ASKS_WHEN.search(text)),
    )


def deictic(text: str, hints: Hints) -> str:
    """The query as the named speaker would ask it: encoders do not know that "I" in a passage is who is asked about.

    Of two named speakers the one named first is meant.

    >>> deictic("When did Ana's sister visit Ana?", Hints(speakers=("Ana Silva",)))
    'When did my sister visit me?'
    """
    names = {
        form for speaker in hints.speakers for form in (speaker, speaker.split()[0]) if speaker not in (USER, AGENT)
    }
    if not names:
        return text
    pattern = re.compile(
        r"\b(" + "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) + r")(['’]s?)?(?!\w)",
        re.IGNORECASE,
    )
    first = next((match[1].split()[0].lower() for match in pattern.finditer(text)), "")
    parts: list[str] = []
    last = 0
    for match in pattern.finditer(text):
        if match[1].split()[0].lower() != first:
            continue
        rest = text[match.end() :].lstrip()
        before = text[last : match.start()]
        parts += [before, "my" if match[2] else _me_or_i(text[: match.start()], rest)]
        last = match.end()
    return "".join([*parts, text[last:]])


def _me_or_i(before: str, rest: str) -> str:
    """ "I" where it may be the subject of a verb: not after a preposition, and not at the end."""
    return "me" if _BEFORE_ME.search(before) or not rest or rest[0] in ".?!,;:" else "I"


def _named(text: str, by_name: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The speakers a text names, in its order; whole names before first names."""
    if not by_name:
        return []
    words = [word.removesuffix("'s").removesuffix("'") for word in words_of(text)]
    found: list[str] = []
    at = 0
    while at < len(words):
        for length in (3, 2, 1):
            bearers = by_name.get(" ".join(words[at : at + length])) if at + length <= len(words) else None
            if bearers:
                found += bearers
                at += length
                break
        else:
            at += 1
    return found


def _meant(text: str, known: frozenset[str], user_names: Sequence[str], agent_names: Sequence[str]) -> list[str]:
    """Whom "I", "you" and "we" mean, where the text looks back at what they said."""
    found: list[str] = []
    for match in _LOOKS_BACK.finditer(text) if asks(text) or "remember" in text.lower() else ():
        word = (match["asked"] or match["teller"] or match["owner"]).lower()
        if word in ("i", "my", "we", "our"):
            found += user_names
        if word in ("you", "your", "we", "our"):
            found += agent_names
    return [name for name in found if name in known]
