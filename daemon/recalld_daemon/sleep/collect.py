"""First phase: which questions are learned from, and which are held out, as the log stands now.

The newest fifth is held out, by the time a text was first asked; a text is never on both sides. Nothing is marked as
used: the next night collects all of it again, and learns from all of it again. Only keys are kept, so what is forgotten
meanwhile is forgotten here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recalld_daemon.evaluation.questions import Log, Question, read_log, split_by_time
from recalld_daemon.sleep.kept import SPLIT
from recalld_daemon.sleep.night import Night
from recalld_daemon.store.reader import Reader


@dataclass(frozen=True, slots=True)
class Collected:
    """distinct: texts among the questions: what the least number of queries is compared with."""

    train: list[Question]
    held: list[Question]
    distinct: int
    log: Log

    def to_json(self) -> dict[str, Any]:
        return {
            "distinct_queries": self.distinct, "questions": len(self.train) + len(self.held),
            "train": len(self.train), "held": len(self.held), "pairs": pairs_in(self.train),
            "held_pairs": pairs_in(self.held), "ignored": sum(len(question.negatives) for question in self.train),
            "unanswered": len(self.log.unanswered), "unlabelled": self.log.unlabelled, "gone": self.log.gone,
            "learned_until": max((question.at for question in self.train), default=0.0),
        }  # fmt: skip


def collected(reader: Reader, held_share: float) -> Collected:
    """Reads, and writes nothing. Raises StoreError."""
    log = read_log(reader)
    train, held = split_by_time(log.questions, held_share)
    return Collected(train, held, len({question.name for question in log.questions}), log)


def collect(night: Night) -> bool:
    """Keeps the split. False: there is too little to learn from, which the report says. Raises StoreError."""
    night.tell("reading the log", 0, 0)
    found = collected(night.reader, night.settings.held_share)
    night.report["collected"] = found.to_json()
    reason = too_few(found, night.settings.least_queries)
    if reason:
        night.report["result"] = reason
        return False
    split = {side: [question.key for question in own] for side, own in (("train", found.train), ("held", found.held))}
    night.kept.put_json(SPLIT, split)
    return True


def too_few(found: Collected, least: int) -> str:
    """Why nothing is trained, or ""."""
    if found.distinct >= least and found.train and found.held:
        return ""
    return (
        f"nothing was trained: {found.distinct} distinct queries have an answer that helped, at least {least} are "
        "needed ([learning] least_queries)"
    )


def pairs_in(questions: Sequence[Question]) -> int:
    """Of a question and a passage that helped."""
    return sum(len(question.gold) for question in questions)
