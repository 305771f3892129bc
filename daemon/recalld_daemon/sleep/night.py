"""One night under way: what its phases share, and how it notes in the store where it is.

`report` is the night's own record, a JSON object with one part per phase; it is written with each step from phase to
phase, so it is also what the next run knows of a night that was cut short.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from recalld_daemon.config import Config
from recalld_daemon.evaluation.ground import Ground
from recalld_daemon.evaluation.questions import Question, read_log
from recalld_daemon.evaluation.useful import known_before
from recalld_daemon.learned import Learned
from recalld_daemon.paths import Home
from recalld_daemon.sleep.kept import SPLIT, Kept
from recalld_daemon.sleep.phases import Phase
from recalld_daemon.sleep.ports import Settings, Tell, Works
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.writer import Writer


class Failed(Exception):
    """The night can't go on, and the next one begins anew; the text says why."""


@dataclass(slots=True)
class Night:
    """id: its row; live: the version that is searched, the champion; version: the one it makes, once begun."""

    id: int
    encoder: int
    live: int
    home: Home
    config: Config
    settings: Settings
    works: Works
    writer: Writer
    reader: Reader
    kept: Kept
    tell: Tell
    phase: Phase = "collect"
    version: int | None = None
    report: dict[str, Any] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)
    _ground: Ground | None = None
    _questions: dict[str, Question] = field(default_factory=dict)

    def note(self, phase: Phase, ended_at: float | None = None) -> None:
        """It is at this phase now, and all that the report says is done. Raises StoreError."""
        self.phase = phase
        self.writer.note_cycle(
            self.id, phase=phase, version=self.version, report=json.dumps(self.report), ended_at=ended_at
        )

    def ground(self) -> Ground:
        """Where challengers are judged; opened at first use, held until the night ends. Raises Failed, NoGround."""
        if self._ground is None:
            ground = self.stack.enter_context(self.works.ground(self.home, self.config, self.tell))
            if ground.encoder != self.encoder:
                raise Failed(
                    f"the configured encoder is not the one that is live ({ground.record.model or ground.encoder}): "
                    "let recalld index with it first"
                )
            log = read_log(self.reader)
            ground.before = known_before(ground, [*log.questions, *log.unanswered])
            self._ground = ground
        return self._ground

    def champion(self) -> Learned:
        """What is live. Raises StoreError."""
        return self.ground().learned(self.live)

    def questions(self, side: str) -> list[Question]:
        """Those to learn from ("train") or held out ("held"), as collected, in the order they were asked.

        Questions that are gone from the log since are left out; new ones wait for the next night.
        """
        if not self._questions:
            self._questions = {question.key: question for question in read_log(self.reader).questions}
        split = self.kept.get_json(SPLIT)
        if split is None:
            raise Failed("what this night collected is gone: it begins anew")
        return [self._questions[key] for key in split[side] if key in self._questions]


def marks_before(questions: Sequence[Question], until: float) -> list[Question]:
    """Those first asked up to a moment, epoch seconds: what a version that learned until then may have seen."""
    return [question for question in questions if question.at <= until]
