"""What the night calls and does not make itself, as values and functions: each can be another one in a test.

`Works` names them together; `usual_works` wires the real ones. Nothing slow is imported before it is called: a night
that finds too little in the log ends in a tenth of a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from recalld_daemon.adapters.fitted import Fitted, FittedUnreadable
from recalld_daemon.adapters.settings import FitSettings
from recalld_daemon.config import Config
from recalld_daemon.evaluation.ground import Ground, open_ground
from recalld_daemon.evaluation.questions import HELD_SHARE
from recalld_daemon.evaluation.trained import Lessons
from recalld_daemon.paths import Home
from recalld_daemon.ranking.fit import Lesson
from recalld_daemon.ranking.refit import REFIT, refit
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32
from recalld_daemon.sleep.recipes import Parts

DRIFT = 0.02  # see `Settings.least_drift`

Tell = Callable[[str, int, int], None]  # what is done, done so far, of how many (0: unknown); raises Interrupted


class Interrupted(Exception):
    """The night was asked to stop, and did at a safe point; the next run goes on from there."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All that shapes a night, each with its reason; any other value is another night.

    least_drift: mean distance of f_K(m) from the vectors that are live, below which stored vectors are not projected
    again: a cosine with any query moves by no more than that distance, and the neighbours in a list of ten lie some
    0.01 apart, so that up to here little changes its place for gigabytes written.
    """

    least_queries: int = 200
    held_share: float = HELD_SHARE
    least_drift: float = DRIFT
    drift_sample: int = 2_000  # passages: the mean's own error is a fiftieth of its spread
    fit: FitSettings = FitSettings()  # noqa: RUF009 - frozen
    rounds: int = REFIT.rounds
    batch: int = 1_024  # texts projected per transaction: 6 ms of an idle process, in which nobody else writes


@dataclass(frozen=True, slots=True)
class Fit:
    """What a fit gives. about: numbers and texts for the report (epochs, curve, why it stopped)."""

    query: Adapter
    key: Adapter | None = None
    value: Adapter | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


class Checkpoint(Protocol):
    """Of one fit. before: what an earlier run kept, or None; keep: what this one would go on from."""

    @property
    def before(self) -> bytes | None: ...

    def keep(self, data: Callable[[], bytes]) -> None: ...


class FitAdapters(Protocol):
    """Fits on `lessons.fitted_on`, stops by `lessons.stopped_by`; `checkpoint` and then `tell` once per epoch."""

    def __call__(
        self, lessons: Lessons, parts: Parts, settings: FitSettings, tell: Tell, checkpoint: Checkpoint
    ) -> Fit: ...


class Projection(Protocol):
    """(n, d) float32 frozen unit rows -> (n, d) float16 rows of f_K; `how`: at which precision, for the report."""

    @property
    def how(self) -> str: ...

    def __call__(self, vectors: Float32) -> Any: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """Of whom activation was asked. live: it is. by: "daemon" or "here"; problem: why it is not; again: it may be
    asked again later."""

    live: bool
    by: str
    problem: str = ""
    again: bool = False


OpenGround = Callable[[Home, Config, Tell], AbstractContextManager[Ground]]
Activate = Callable[[Home, int, int], Answer]  # home, encoder, version
Refit = Callable[[Sequence[Lesson]], str]  # raises TooFewLessons
ProjectionOf = Callable[[Adapter], Projection]


@dataclass(frozen=True, slots=True)
class Works:
    """ground: opened once, when the first phase needs it."""

    ground: OpenGround
    fit: FitAdapters
    refit: Refit
    projection: ProjectionOf
    activate: Activate


def usual_works() -> Works:
    """The real ones."""
    from recalld_daemon.sleep.going_live import activate

    return Works(open_ground, fit_adapters, refit, projection_of, activate)


def fit_adapters(lessons: Lessons, parts: Parts, settings: FitSettings, tell: Tell, checkpoint: Checkpoint) -> Fit:
    """By torch, on one thread; goes on from a checkpoint of the same pairs and settings.

    Raises fitting.NothingToLearn, fitting.Overlap, and what `tell` raises.
    """
    from recalld_daemon.adapters.fitting import fit, interests_before

    pairs, held = lessons.pairs.rows(lessons.fitted_on), lessons.pairs.rows(lessons.stopped_by)
    before = interests_before(lessons.pairs)
    interests = (before.rows(lessons.fitted_on), before.rows(lessons.stopped_by))
    try:
        start = None if checkpoint.before is None else Fitted.from_bytes(checkpoint.before)
    except FittedUnreadable:
        start = None
    fitted = fit(
        pairs, held, parts, settings, lambda at: tell(f"fitting {parts}", at.epoch, at.epochs), interests, start,
        checkpoint=lambda so_far: checkpoint.keep(so_far.to_bytes),
    )  # fmt: skip
    return Fit(fitted.query, fitted.key, fitted.value, about_fit(fitted, len(pairs), len(held)))


def about_fit(fitted: Fitted, pairs: int, held: int) -> dict[str, Any]:
    """For the report: how many pairs each epoch saw, among others, since an epoch without any trains nothing."""
    return {
        "pairs": pairs, "stopped_by": held, "epochs": fitted.epochs, "resumed": fitted.resumed, "best": fitted.best,
        "why_stopped": fitted.why_stopped, "pairs_per_epoch": min((epoch.pairs for epoch in fitted.curve), default=0),
        "start_mrr": _figure(fitted.start_mrr), "mrr": [_figure(epoch.mrr) for epoch in fitted.curve],
        "loss": [_figure(epoch.loss) for epoch in fitted.curve],
    }  # fmt: skip


def _figure(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 5)


def projection_of(key: Adapter) -> Projection:
    """By torch, at the precision that is faster here."""
    from recalld_daemon.adapters.project import Projector

    return Projector(key)
