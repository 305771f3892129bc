"""Usefulness, judged as it would have been: with what was known of the user before each question, and nothing later.

The past is gone through once in its order: every question moves the focus, every use the counts, every night the
long-term interests. What helped a question is known after it, also where the question is held out: that is use, as it
goes on in life, and no training. The weights alone are trained, on the training part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from recalld_daemon.evaluation.questions import Asked, Question
from recalld_daemon.learned import Learned
from recalld_daemon.recall.types import Float32, Float64, Int64
from recalld_daemon.recall.usefulness import DAY_SECONDS, USEFUL_LIMIT, Counts, Interests, Weights

if TYPE_CHECKING:
    from recalld_daemon.evaluation.ground import Ground
    from recalld_daemon.recall.usefulness_fit import Choice

BORN = Weights()  # whose half-lives are used


@dataclass(frozen=True, slots=True)
class Before:
    """What was known before each of n questions. places: key -> row; slow, fast: (n, d); at: (n,) epoch s of each.

    uses: (u,) passages that helped, use_times: (u,) rising, use_weights: (u,); used: (n,) how many were known by then.
    """

    places: dict[str, int]
    slow: Float32
    fast: Float32
    at: Float64
    used: Int64
    uses: Int64
    use_times: Float64
    use_weights: Float64

    def interests(self, key: str) -> Interests | None:
        """As they were just before this question; None for one that is not among those."""
        row = self.places.get(key)
        if row is None:
            return None
        known, at = slice(0, int(self.used[row])), float(self.at[row])
        counts = Counts.of(self.uses[known], self.use_times[known], self.use_weights[known], at, BORN.often_days)
        return Interests(self.slow[row], self.fast[row], at, counts)


def known_before(ground: Ground, asked: Sequence[Asked]) -> Before:
    """asked: questions with an answer and without, in any order. Raises StoreError."""
    ordered = sorted(asked, key=lambda each: (each.at, each.key))
    golds = [sorted(each.gold) if isinstance(each, Question) else [] for each in ordered]
    ids, vectors = ground.reader.plain_vectors([id for gold in golds for id in gold], ground.encoder)
    row_of = {id: row for row, id in enumerate(ids.tolist())}
    now, night, today = Interests.none(ground.record.dims), -1, list[Float32]()
    slow, fast, used, uses = [], [], [], list[tuple[int, float, float]]()
    for each, gold in zip(ordered, golds, strict=True):
        if today and int(each.at // DAY_SECONDS) != night:
            now, today = now.slept(np.stack(today)), []
        night = int(each.at // DAY_SECONDS)
        slow.append(now.slow)
        fast.append(now.focus(each.at, BORN.fast_days))
        used.append(len(uses))
        now = now.asked(ground.encoding(each.text).frozen, each.at, BORN.fast_days)
        uses += [(id, each.at, each.weight) for id in gold if isinstance(each, Question)]
        if here := [row_of[id] for id in gold if id in row_of]:
            today.append(vectors[here].mean(axis=0))
    dims = (len(ordered), ground.record.dims)
    passages, times, weights = (np.array(column) for column in zip(*uses, strict=True)) if uses else (np.empty(0),) * 3
    return Before(
        {each.key: row for row, each in enumerate(ordered)},
        np.array(slow, np.float32).reshape(dims), np.array(fast, np.float32).reshape(dims),
        np.array([each.at for each in ordered], np.float64), np.array(used, np.int64),
        passages.astype(np.int64), times.astype(np.float64), weights.astype(np.float64),
    )  # fmt: skip


def with_usefulness(ground: Ground, training: Sequence[Question], learned: Learned) -> Learned | None:
    """The same with weights of usefulness fitted on these questions; None where they are too few, or tell nothing.

    `ground.before` must know them. Raises StoreError.
    """
    from recalld_daemon.recall.usefulness_fit import TooFewQuestions, fit_weights

    bare = replace(learned, usefulness=None)
    choices = [choice for question in training if (choice := choice_of(ground, question, bare)) is not None]
    try:
        weights = fit_weights(choices, BORN).weights
    except TooFewQuestions:
        return None
    return None if weights.are_off else replace(learned, usefulness=weights.to_bytes())


def choice_of(ground: Ground, question: Question, learned: Learned) -> Choice | None:
    """A question's candidates as the stage of usefulness would get them, with what was known before it."""
    from recalld_daemon.recall.usefulness_fit import Choice

    before = None if ground.before is None else ground.before.interests(question.key)
    head = ground.answer(question, learned).candidates[:USEFUL_LIMIT]
    if before is None or not head:
        return None
    ids = np.array([candidate.passage for candidate in head], np.int64)
    values = ground.vectors_of(ids, learned)
    features = before.features(ids, values, question.at, BORN)
    gold = np.array([id in question.gold for id in ids.tolist()])
    return Choice(np.array([c.fused for c in head], np.float32), features, gold, question.weight)
