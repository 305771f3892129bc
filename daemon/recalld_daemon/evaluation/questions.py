"""From the store's log to questions with answers: what was asked, what helped, and how much that tells.

A question is one query text in one scope, however often it was asked. Its gold is what was used, acted on or found
good; what a person said outweighs what was seen (`bad` beats `used`). `unknown` and no verdict at all are never labels.
A question of which only negatives are known has no gold: it is `Unanswered`, and kept apart from all averages.
What was withheld at random tells what showing is worth, and nothing else: it stands in `Effect`.

What was shown first is looked at first: a verdict counts by the inverse of the chance to be looked at and shown, or the
place of a passage would be learned as its worth. One bias no weight removes: a passage that was never shown can't have
been used, so a log flatters the version that made it. Hence a challenger must win on the champion's own ground.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from recalld_daemon.adapters.pairs import inverse_propensity
from recalld_daemon.recall.types import GLOBAL_SCOPE, Float64, View
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import JudgedRecord

POSITIVE = frozenset({"good", "used", "acted"})
NEGATIVE = frozenset({"bad", "ignored"})
EXPLICIT = frozenset({"good", "bad"})  # a person said so
SHOWN = frozenset({"won", "slipped"})
HELD_SHARE = 0.2  # of the questions, the newest: what a challenger is judged on
AFTER = 1.0  # seconds added to a gold passage's own time, where that is later than the question
BATCH = 1_000
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Asked:
    """text: as the encoder gets it; scope: the session's; at: epoch s, when it was first asked; group: its session;
    what a person was asked about is a group of its own.

    negatives: passages that were ignored or found bad. view: what could be found then.
    """

    text: str
    scope: int
    at: float
    group: str
    negatives: tuple[int, ...] = ()
    view: View = View(scopes=None)  # noqa: RUF009 - frozen

    @property
    def name(self) -> str:
        """Equal for the same text, in whatever scope: such questions are never on both sides of a split."""
        return name_of(self.text)

    @property
    def key(self) -> str:
        """Equal for the same question: its text and scope; 32 hex digits."""
        return blake2b(f"{self.scope}\0{self.name}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Question(Asked):
    """gold: passages that helped, never empty; weight: inverse propensity, clipped: how much it counts."""

    gold: frozenset[int] = frozenset()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Unanswered(Asked):
    """Nothing that came up for it helped."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Whether what passed the gate was used (1.0) or not (0.0), as seen by watching: shown, and withheld at random."""

    shown: Float64
    withheld: Float64
    shown_groups: tuple[str, ...] = ()
    withheld_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Log:
    """questions and unanswered: oldest first. probabilities, useful: (n,) of each shown impression with a label.

    gone: judged passages that are no more; unlabelled: impressions that tell nothing; counts: impressions by outcome.
    """

    questions: list[Question]
    unanswered: list[Unanswered]
    effect: Effect
    probabilities: Float64
    useful: Float64
    gone: int = 0
    unlabelled: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a passage is and from when: its scope, and the time it was written, epoch seconds."""

    scope: int
    written_at: float


def read_log(reader: Reader, since: float = 0.0) -> Log:
    """All questions whose impressions were shown since then. Raises StoreError."""
    records = reader.judged(since)
    return log_of(records, places_of(reader, [record.passage for record in records]))


def places_of(reader: Reader, passages: Sequence[int]) -> dict[int, Place]:
    """Of those that still exist. Raises StoreError."""
    ids = list(dict.fromkeys(passages))
    found: dict[int, Place] = {}
    for first in range(0, len(ids), BATCH):
        rows = reader.moments_of(ids[first : first + BATCH])
        columns = zip(rows.ids.tolist(), rows.scopes.tolist(), rows.written_at.tolist(), strict=True)
        found.update((id, Place(scope, at)) for id, scope, at in columns)
    return found


def log_of(records: Sequence[JudgedRecord], places: Mapping[int, Place]) -> Log:
    """records: in any order; places: of all passages that still exist."""
    by_question: dict[tuple[int, str], list[JudgedRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.asked_at, record.shown_at, record.impression)):
        by_question[record.scope, name_of(record.query)].append(record)
    questions, unanswered, gone = [], [], 0
    for own in by_question.values():
        labels = labels_of([record for record in own if is_lesson(record)])
        here = {passage: useful for passage, useful in labels.items() if passage in places}
        gone += len(labels) - len(here)
        if not here:
            continue
        asked = _asked(own[0], here, places)
        gold = frozenset(passage for passage, useful in here.items() if useful)
        if gold:
            base = (asked.text, asked.scope, asked.at, asked.group, asked.negatives, asked.view)
            questions.append(Question(*base, gold, weight_of(own, gold)))
        elif not any(labels.values()):  # what helped may be gone: that is no question without an answer
            unanswered.append(asked)
    probabilities, useful = _reliability(records)
    return Log(
        sorted(questions, key=lambda question: (question.at, question.key)), unanswered, effect_of(records),
        probabilities, useful, gone, sum(label_of(record) is None for record in records),
        Counter(record.outcome for record in records),
    )  # fmt: skip


def label_of(record: JudgedRecord) -> bool | None:
    """Whether the passage helped; None: nobody knows. The last explicit verdict counts, else any use seen."""
    said = [verdict for verdict in record.verdicts if verdict in EXPLICIT]
    if said:
        return said[-1] == "good"
    if POSITIVE.intersection(record.verdicts):
        return True
    return False if NEGATIVE.intersection(record.verdicts) else None


def is_lesson(record: JudgedRecord) -> bool:
    """What was withheld teaches nothing about the passage, unless a person said so."""
    return record.outcome != "withheld" or bool(EXPLICIT.intersection(record.verdicts))


def labels_of(records: Sequence[JudgedRecord]) -> dict[int, bool]:
    """passage -> whether it helped, of one question's impressions: the latest word of a person, else any use seen."""
    found: dict[int, tuple[bool, bool]] = {}  # passage -> (a person said so, it helped)
    for record in sorted(records, key=lambda record: record.judged_at):
        label, said = label_of(record), bool(EXPLICIT.intersection(record.verdicts))
        if label is None:
            continue
        before = found.get(record.passage)
        if before is None or said or (not before[0] and label):
            found[record.passage] = (said, label)
    return {passage: useful for passage, (_, useful) in found.items()}


def weight_of(records: Sequence[JudgedRecord], gold: frozenset[int]) -> float:
    """Mean inverse propensity of the impressions that told of the gold; 1 for what a person was asked about."""
    weights = [
        1.0 if record.outcome == "asked" else inverse_propensity(record.rank, record.propensity)
        for record in records
        if record.passage in gold and label_of(record) and is_lesson(record)
    ]
    return float(np.mean(weights)) if weights else 1.0


def effect_of(records: Sequence[JudgedRecord]) -> Effect:
    """Of what was seen by watching alone: a verdict of a person is no use, and nobody judges what was not shown."""
    sides: dict[bool, list[tuple[float, str]]] = {True: [], False: []}
    for record in records:
        seen = [verdict for verdict in record.verdicts if verdict in ("used", "acted", "ignored")]
        if seen and (record.outcome in SHOWN or record.outcome == "withheld"):
            used = float(bool(POSITIVE.intersection(seen)))
            sides[record.outcome in SHOWN].append((used, record.session))
    shown, withheld = sides[True], sides[False]
    return Effect(
        np.array([used for used, _ in shown], np.float64), np.array([used for used, _ in withheld], np.float64),
        tuple(session for _, session in shown), tuple(session for _, session in withheld),
    )  # fmt: skip


def _reliability(records: Sequence[JudgedRecord]) -> tuple[Float64, Float64]:
    """(n,) predicted probability and (n,) whether it helped, of what was shown and has a label."""
    rows = [(record.probability, label_of(record)) for record in records if record.outcome in SHOWN]
    known = [(probability, float(label)) for probability, label in rows if label is not None]
    return np.array([p for p, _ in known], np.float64), np.array([label for _, label in known], np.float64)


def name_of(text: str) -> str:
    """A text's words alone, folded: "How do we deploy?" and "how do we  deploy" are the same question."""
    return " ".join(_WORD.findall(text.casefold()))


# ---------------------------------------------------------------- splits


def split_by_time(questions: Sequence[Question], share: float = HELD_SHARE) -> tuple[list[Question], list[Question]]:
    """(to learn from, held out): the newest `share` is held out. A text stands where it was first asked."""
    first: dict[str, float] = {}
    for question in questions:
        first[question.name] = min(question.at, first.get(question.name, question.at))
    ordered = sorted(questions, key=lambda question: (first[question.name], question.name, question.at, question.key))
    return _cut(ordered, share)


def split_at_random(
    questions: Sequence[Question], share: float = HELD_SHARE, seed: int = 0
) -> tuple[list[Question], list[Question]]:
    """(to learn from, held out), by texts."""
    names = sorted({question.name for question in questions})
    order = dict(zip(names, np.random.default_rng(seed).permutation(len(names)).tolist(), strict=True))
    return _cut(sorted(questions, key=lambda question: (order[question.name], question.key)), share)


def folds(
    questions: Sequence[Question], count: int = 5, seed: int = 0
) -> Iterator[tuple[list[Question], list[Question]]]:
    """(to learn from, held out) `count` times, so that each question is held out once. By texts, at random."""
    names = sorted({question.name for question in questions})
    order = np.random.default_rng(seed).permutation(len(names))
    fold = {names[at]: place % count for place, at in enumerate(order.tolist())}
    for number in range(min(count, len(names))):
        held = [question for question in questions if fold[question.name] == number]
        yield [question for question in questions if fold[question.name] != number], held


def _cut(ordered: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """The last `share` apart from the rest, moved so that no text is cut in two."""
    at = len(ordered) - (max(1, round(share * len(ordered))) if share > 0.0 and len(ordered) > 1 else 0)
    while 0 < at < len(ordered) and ordered[at].name == ordered[at - 1].name:
        at -= 1
    return list(ordered[:at]), list(ordered[at:])


def _asked(first: JudgedRecord, labels: Mapping[int, bool], places: Mapping[int, Place]) -> Unanswered:
    """The memory as it was when it was first asked, as far as what was shown then has not been touched since."""
    negatives = tuple(sorted(passage for passage, useful in labels.items() if not useful))
    written = max((places[passage].written_at for passage in labels), default=0.0)
    own = (first.scope, GLOBAL_SCOPE)
    seen = all(places[passage].scope in own for passage in labels)  # a session may have looked into all scopes
    scopes = tuple(dict.fromkeys(own)) if seen else None
    view = View(scopes, max(first.asked_at, written + AFTER))
    return Unanswered(first.query, first.scope, first.asked_at, _group(first), negatives, view)


def _group(first: JudgedRecord) -> str:
    """Its session; what a person was asked about belongs to no conversation, so each such recall stands for itself."""
    return first.recall if first.outcome == "asked" else first.session
