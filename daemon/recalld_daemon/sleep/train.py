"""Second phase: the challengers' parts are fitted, on the questions to learn from and no others.

Three fits of adapters (f_Q; with f_K; with f_K and f_V), each with early stopping on the newest part of what it may
see; for each way of searching a ranker refitted from the shipped one, since what a ranker sees depends on what finds;
and weights of usefulness over these. Each is kept when it is done, so an interrupted night goes on with the one that
was under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recalld_daemon.evaluation.questions import Question
from recalld_daemon.evaluation.trained import Lessons, lessons_of
from recalld_daemon.evaluation.useful import choice_of
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.ranking.features import FEATURES
from recalld_daemon.ranking.fit import Lesson
from recalld_daemon.ranking.forest import read_forest
from recalld_daemon.ranking.refit import TooFewLessons
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32
from recalld_daemon.recall.usefulness import Weights
from recalld_daemon.recall.usefulness_fit import Choice, TooFewQuestions, fit_weights
from recalld_daemon.sleep.kept import (
    Kept,
    checkpoint_name,
    fit_from_bytes,
    fit_name,
    fit_to_bytes,
    ranker_name,
    usefulness_name,
)
from recalld_daemon.sleep.night import Failed, Night
from recalld_daemon.sleep.ports import Fit, Interrupted
from recalld_daemon.sleep.recipes import FITS, RECIPES, Recipe
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN

CHECKPOINT_SECONDS = 10.0  # between two checkpoints of a fit: what a kill costs


def train(night: Night) -> None:
    """Raises Failed, Interrupted, StoreError."""
    questions = night.questions("train")
    night.report["trained"] = {
        **_fits(night, questions), **_rankers(night, questions), **_usefulness(night, questions)
    }  # fmt: skip


def fits_of(night: Night) -> dict[str, Fit]:
    """What was fitted, by parts."""
    kept = {parts: night.kept.get(fit_name(parts)) for parts in FITS}
    return {parts: fit_from_bytes(data) for parts, data in kept.items() if data is not None}


def learned_with(night: Night, fits: dict[str, Fit]) -> dict[str, Learned]:
    """How each set of parts searches, "" among them: plainly. One value of f_K per fit, so its space is made once.

    Where f_K moves what is live by too little to be worth a re-projection, its f_Q searches what is live.
    """
    found, drifts = {"": PLAIN}, drifts_of(night, fits)
    champion = night.champion()
    for parts, fit in fits.items():
        learned = replace(PLAIN, query=fit.query, key=fit.key, value=fit.value)
        if fit.key is not None and drifts[parts] < night.settings.least_drift:
            learned = replace(learned, key=champion.key, vectors=champion.vectors)
        found[parts] = learned
    return found


# ---------------------------------------------------------------- adapters


def _fits(night: Night, questions: Sequence[Question]) -> dict[str, Any]:
    lessons: Lessons | None = None
    for parts in FITS:
        if night.kept.get(fit_name(parts)) is not None:
            continue
        if lessons is None:
            night.tell("making pairs", 0, 0)
            lessons = _lessons(night, questions)
        began = time.monotonic()
        checkpoint = Checkpoints(night.kept, checkpoint_name(parts))
        try:
            fit = night.works.fit(lessons, parts, night.settings.fit, night.tell, checkpoint)
        except Interrupted:
            checkpoint.write()
            raise
        about = {**fit.about, "seconds": round(time.monotonic() - began, 1), **_norms(fit)}
        night.kept.put(fit_name(parts), fit_to_bytes(replace(fit, about=about)))
    fits = fits_of(night)
    drifts = drifts_of(night, fits)
    return {parts: {**fit.about, "drift": round(drifts.get(parts, 0.0), 6)} for parts, fit in fits.items()}


class Checkpoints:
    """Of one fit: written now and then, since it may be 5 MB, and when the night is asked to stop."""

    def __init__(self, kept: Kept, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept, self._name, self._clock = kept, name, clock
        self._written = clock()
        self._data: Callable[[], bytes] | None = None

    @property
    def before(self) -> bytes | None:
        return self._kept.get(self._name)

    def keep(self, data: Callable[[], bytes]) -> None:
        self._data = data
        if self._clock() - self._written >= CHECKPOINT_SECONDS:
            self.write()

    def write(self) -> None:
        """The last one given, if any. Raises StoreError."""
        if self._data is not None:
            self._kept.put(self._name, self._data())
            self._written, self._data = self._clock(), None


def _lessons(night: Night, questions: Sequence[Question]) -> Lessons:
    """Raises Failed where there is no pair at all: nobody may say that something was trained."""
    lessons = lessons_of(night.ground(), questions)
    if not len(lessons.fitted_on):
        raise Failed("no question's answer has a vector: nothing could be trained")
    return lessons


def _norms(fit: Fit) -> dict[str, float]:
    adapters = {"f_Q": fit.query, "f_K": fit.key, "f_V": fit.value}
    named = [(name, adapter.norms) for name, adapter in adapters.items() if adapter is not None]
    return {
        f"{part} of {name}": round(size, 5)
        for name, norms in named
        for part, size in zip(("w2", "b2"), norms, strict=True)
    }


# ---------------------------------------------------------------- how far keys would move what is stored


def drifts_of(night: Night, fits: dict[str, Fit]) -> dict[str, float]:
    """Of those fits that have an f_K, from the vectors that are live. Computed once a night."""
    known: dict[str, float] = night.report.setdefault("drifts", {})
    champion = night.champion()
    for parts, fit in fits.items():
        if fit.key is not None and parts not in known:
            sample = night.settings.drift_sample
            known[parts] = drift_of(night.reader, night.encoder, champion.vectors, fit.key, sample)
    return known


def drift_of(reader: Reader, encoder: int, live: int, key: Adapter, sample: int, seed: int = 0) -> float:
    """Mean distance of f_K(m) from m's vector in the snapshot `live`, over a sample of passages; 0 of none.

    Against what is stored and searched, that is, against the last re-projection: measured from one night's f_K to the
    next, drift never adds up and nothing is ever projected again (a fault seen elsewhere). Raises StoreError.
    """
    every = reader.encoded(encoder, live).ids
    chosen = np.random.default_rng(seed).choice(every, min(sample, len(every)), replace=False) if len(every) else every
    frozen, now = (_sorted(*reader.plain_vectors(chosen.tolist(), encoder, snapshot)) for snapshot in (FROZEN, live))
    if not len(frozen) or frozen.shape != now.shape:
        return 0.0
    return float(np.linalg.norm(key.apply(frozen) - now, axis=1).mean())


def _sorted(ids: Any, vectors: Float32) -> Float32:
    ordered: Float32 = vectors[np.argsort(ids, kind="stable")]
    return ordered


# ---------------------------------------------------------------- rankers, and usefulness over them


def with_more(night: Night, recipe: Recipe, learned: Learned) -> Learned | None:
    """A recipe's adapters with its ranker and its weights of usefulness; None where one of them could not be fitted."""
    if recipe.ranker:
        text = night.kept.get(ranker_name(recipe.below.name))
        if text is None:
            return None
        learned = replace(learned, ranker=read_forest(text.decode(), FEATURES))
    if recipe.usefulness:
        weights = night.kept.get(usefulness_name(recipe.name))
        if not weights:
            return None
        learned = replace(learned, usefulness=weights)
    return learned


def _rankers(night: Night, questions: Sequence[Question]) -> dict[str, Any]:
    """About each, or why there is none."""
    if not night.config.ranker:
        return {"rankers": "left out: [recall] ranker is off"}
    about: dict[str, Any] = {}
    learned = learned_with(night, fits_of(night))
    for recipe in dict.fromkeys(recipe.below for recipe in RECIPES if recipe.ranker and recipe.parts in learned):
        name = ranker_name(recipe.name)
        if night.kept.get(name) is None:
            try:
                text = _ranker(night, questions, recipe.name, learned[recipe.parts])
            except TooFewLessons as error:
                return {"rankers": f"left out: {error}"}
            night.kept.put(name, text.encode())
        about[name] = {"bytes": len(night.kept.get(name) or b"")}
    return about


def _ranker(night: Night, questions: Sequence[Question], recipe: str, learned: Learned) -> str:
    """Its text. Raises TooFewLessons, Interrupted."""
    ground, lessons = night.ground(), list[Lesson]()
    for done, question in enumerate(questions):
        night.tell(f"lessons for {recipe}", done, len(questions))
        lesson = ground.lesson(question, learned)
        lessons += [] if lesson is None else [lesson]
    night.tell(f"refitting {recipe}", 0, 0)
    return night.works.refit(lessons)


def _usefulness(night: Night, questions: Sequence[Question]) -> dict[str, Any]:
    """Its weights over each way of searching; b"" is kept where use tells nothing beyond it."""
    about: dict[str, Any] = {}
    learned = learned_with(night, fits_of(night))
    for recipe in (recipe for recipe in RECIPES if recipe.usefulness and recipe.parts in learned):
        name, own = usefulness_name(recipe.name), with_more(night, recipe.below, learned[recipe.parts])
        if own is not None and night.kept.get(name) is None:
            choices = list[Choice]()
            for done, question in enumerate(questions):
                night.tell(f"choices for {recipe.name}", done, len(questions))
                choice = choice_of(night.ground(), question, own)
                choices += [] if choice is None else [choice]
            night.kept.put(name, _weights(choices))
        if data := night.kept.get(name):
            weights = Weights.from_bytes(data)
            about[name] = {"often": weights.often, "slow": weights.slow, "fast": weights.fast}
    return about or {"usefulness": "left out: use tells nothing beyond what is found anyway"}


def _weights(choices: Sequence[Choice]) -> bytes:
    """b"" where there is nothing to fit, or all weights are nought."""
    try:
        weights = fit_weights(choices).weights
    except TooFewQuestions:
        return b""
    return b"" if weights.are_off else weights.to_bytes()
