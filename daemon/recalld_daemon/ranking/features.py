"""What the ranker sees of a candidate: a row of finite numbers, the same for the daemon, for fitting and for tests.

Lanes score on scales of their own, and a score's worth depends on its list. So most features are relative: how far
below the list's best, at which rank, and the same for the passages around it and for the best of its source. Absolute
ones are kept only where the scale means the same in every memory (cosines, late interaction). The rest is cheap form:
who speaks, whether it asks, how long it is, whether it names a time, and what kind of question was asked.
Source: the prototype's features of most gain were the hand-weighted score, words in a window, max-sim, month, speaker
and the session's best; the list here is what cross-validation over conversations kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from recalld_daemon.ranking.sheet import AROUND, Sheet
from recalld_daemon.recall.types import Cards, Float32, Query, Trait

SCORED = ("hand", "dense", "lexical", "late", "facts", "fact_words")  # known of neighbours too
LISTED = ("subjects", "temporal", "entity")  # known only of what the lane returned
ABSOLUTE = ("dense", "late", "facts")
ABSENT = -1.0  # where a question does not arise: no speaker named, no time asked for
MISSING_GAP = -1.5  # a neighbour that does not exist, as a share below the best
WINDOW = (0.4, 0.6, 0.4, 0.2)  # shares of the passages around in a window's score
TRAITS = (Trait.QUESTION, Trait.FIRST_PERSON, Trait.SECOND_PERSON, Trait.DIGITS, Trait.NAMES, Trait.TIME,
          Trait.CODE, Trait.PICTURE)  # fmt: skip
NEAR_TRAITS = (Trait.QUESTION, Trait.FIRST_PERSON, Trait.TIME, Trait.PICTURE)
_PLACES = ("before2", "before", "after", "after2")
_WHO = re.compile(r"\bwho(?:se|m)?\b")
_HOW_MANY = re.compile(r"\bhow (?:many|much|often)\b")
_HOW_LONG = re.compile(r"\bhow (?:long|old|far)\b")
_YES_NO = re.compile(r"^(?:would|is|are|was|were|does|do|did|has|have|had|can|could|will|should)\b")

Columns = Iterator[tuple[str, Float32]]


def features_of(sheet: Sheet) -> Float32:
    """(n, f) float32, finite, f = len(FEATURES)."""
    columns = dict(_columns(sheet))
    return np.nan_to_num(np.stack([columns[name] for name in FEATURES], axis=1), nan=0.0, posinf=9.0, neginf=-9.0)


def _columns(sheet: Sheet) -> Columns:
    n = len(sheet.hand)
    for name in SCORED:
        own = sheet.hand if name == "hand" else sheet.lanes.get(name)
        yield from _scored(name, own, sheet.around.get(name), sheet)
    for name in LISTED:
        own = sheet.lanes.get(name)
        low = np.zeros(n, np.float32) if own is None else np.nan_to_num(own, nan=0.0)
        yield f"{name}.gap", _gap(low) if own is not None else np.full(n, MISSING_GAP, np.float32)
        yield f"{name}.hit", (low > 0).astype(np.float32)
    yield from _form(sheet.cards)
    yield from _near_form(sheet.neighbours, n)
    yield from _speaker(sheet)
    for name, value in asked(sheet.query).items():
        yield f"asked.{name}", np.full(n, value, np.float32)


def _scored(name: str, own: Float32 | None, around: Float32 | None, sheet: Sheet) -> Columns:
    """Of one scorer: gap to the best, rank, neighbours' gaps, the window's, and the best of the source."""
    n = len(sheet.hand)
    if own is None or around is None or np.isnan(own).all():
        own, around = np.zeros(n, np.float32), np.full((n, AROUND), np.nan, np.float32)
    low = float(np.nanmin(own))
    own = np.nan_to_num(own, nan=low)
    if name in ABSOLUTE:
        yield name, own
    gap = _gap(own)
    yield f"{name}.gap", gap
    yield f"{name}.rank", _rank(own)
    near = np.nan_to_num(_gap_to(around, own), nan=MISSING_GAP)
    for place, label in enumerate(_PLACES):
        yield f"{name}.{label}", near[:, place]
    window = gap + np.maximum(near - MISSING_GAP, 0.0) @ np.array(WINDOW, np.float32)
    yield f"{name}.window", _gap(window)
    yield f"{name}.window_rank", _rank(window)
    _, source = np.unique(sheet.cards.sources, return_inverse=True)
    best = np.full(int(source.max(initial=0)) + 1, -np.inf, np.float32)
    np.maximum.at(best, source, gap)
    yield f"{name}.source", best[source]


def _gap(scores: Float32) -> Float32:
    """How far below the list's best, as a share of the list's spread between best and middle; 0 for the best."""
    return _gap_to(scores, scores)


def _gap_to(scores: Float32, among: Float32) -> Float32:
    best, middle = float(among.max()), float(np.median(among))
    gap: Float32 = (scores - np.float32(best)) / np.float32(max(best - middle, 1e-6))
    return gap.astype(np.float32)


def _rank(scores: Float32) -> Float32:
    """log(1 + place), the best at place 0."""
    places = np.empty(len(scores), np.float32)
    places[np.argsort(-scores, kind="stable")] = np.arange(len(scores), dtype=np.float32)
    return np.log1p(places).astype(np.float32)


def _form(cards: Cards) -> Columns:
    for trait in TRAITS:
        yield f"is.{trait.name}", ((cards.traits & trait.value) != 0).astype(np.float32)
    yield "words", np.log1p(cards.words).astype(np.float32)
    yield "place", np.log1p(cards.places).astype(np.float32)
    yield "spoken", (cards.speakers > 0).astype(np.float32)


def _near_form(neighbours: Cards, n: int) -> Columns:
    """Of the passages just before and just after."""
    for label, at in (("before", 1), ("after", 2)):
        traits = neighbours.traits.reshape(n, AROUND)[:, at]
        for trait in NEAR_TRAITS:
            yield f"{label}.{trait.name}", ((traits & trait.value) != 0).astype(np.float32)
        yield f"{label}.words", np.log1p(neighbours.words.reshape(n, AROUND)[:, at]).astype(np.float32)


def _speaker(sheet: Sheet) -> Columns:
    """Whether the one named in the query speaks here, or just before: 1, 0; ABSENT where nobody is named."""
    n = len(sheet.hand)
    named = np.array(sorted(sheet.speakers), np.int32)
    here, before = np.full(n, ABSENT, np.float32), np.full(n, ABSENT, np.float32)
    if len(named):
        here = np.isin(sheet.cards.speakers, named).astype(np.float32)
        before = np.isin(sheet.neighbours.speakers.reshape(n, AROUND)[:, 1], named).astype(np.float32)
    yield "speaker", here
    yield "speaker.before", before
    yield "speakers.named", np.full(n, len(named), np.float32)


def asked(query: Query) -> dict[str, float]:
    """What kind of question it is: 0 or 1 each, and its length as log(1 + words)."""
    text = query.text.lower().strip()
    return {
        "when": float(query.hints.asks_when or text.startswith("when")),
        "who": float(bool(_WHO.search(text))),
        "where": float("where" in text.split()),
        "why": float("why" in text.split()),
        "many": float(bool(_HOW_MANY.search(text)) or query.hints.enumerates),
        "long": float(bool(_HOW_LONG.search(text))),
        "yes": float(bool(_YES_NO.search(text))),
        "question": float(text.endswith("?")),
        "words": float(np.log1p(len(text.split()))),
        "time": float(bool(query.hints.whens)),
    }


def _names() -> tuple[str, ...]:
    """The features' names, in order: those of an empty sheet of one candidate."""
    one = np.ones(1, np.float32)
    zeros = np.zeros(1, np.int64)
    card = Cards(zeros, zeros, zeros.astype(np.int32), one.astype(np.float64), zeros.astype(np.int32),
                 zeros.astype(np.uint32), np.zeros((1, AROUND), np.int64))  # fmt: skip
    sheet = Sheet(Query("", (), ""), one, {}, {}, card, _repeated(card), frozenset())
    return tuple(name for name, _ in _columns(sheet))


def _repeated(card: Cards) -> Cards:
    return Cards(
        sources=np.repeat(card.sources, AROUND), places=np.repeat(card.places, AROUND),
        speakers=np.repeat(card.speakers, AROUND), written_at=np.repeat(card.written_at, AROUND),
        words=np.repeat(card.words, AROUND), traits=np.repeat(card.traits, AROUND),
        around=np.repeat(card.around, AROUND, axis=0),
    )  # fmt: skip


FEATURES = _names()
