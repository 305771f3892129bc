"""All that `recalld eval` finds out, in one document of numbers and texts: what is judged, how, and how sure it is.

With fewer questions than adapters are ever trained on, nothing is trained: plain search and what is live are judged on
all of them, and the document says so. What was learned is judged on held-out questions alone: on the newest, as in use,
and on random ones, each once, which flatters whatever is learned since the same subjects stand on both sides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.evaluation.bootstrap import Verdict, better, of_difference, of_mean, of_share
from recalld_daemon.evaluation.ground import Ground
from recalld_daemon.evaluation.judge import Candidate, Report, Result, answered, refuse_trained, report_of
from recalld_daemon.evaluation.metrics import MAIN, dense_figures, joined
from recalld_daemon.evaluation.pairset import pairset_of
from recalld_daemon.evaluation.questions import Asked, Effect, Log, Question, folds, read_log, split_by_time
from recalld_daemon.evaluation.trained import ABLATED, Fit, candidates_of, fit_adapters, lessons_of, wanted_before
from recalld_daemon.evaluation.useful import known_before
from recalld_daemon.learned import PLAIN
from recalld_daemon.recall.types import Float64
from recalld_daemon.store.rows import FROZEN

FOLDS = 3  # of the random split: each takes three fits
HELD = 0.25  # of the chronological split: of 200 questions 50, whose interval is some +-0.05 wide
BINS = 10
LEAST_IN_BIN = 20  # impressions: of fewer a share is chance
PARTS_OF_CURVE = (0.25, 0.5, 0.75, 1.0)
LEAST_HELD = 10  # held-out questions, below which an interval says nothing

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """least: questions from which on something is trained; curve: the learning curve too; fit: how adapters are
    fitted."""

    least: int = 200
    folds: int = FOLDS
    curve: bool = False
    seed: int = 0
    fit: Fit = field(default=fit_adapters)


def survey(ground: Ground, wish: Wish, progress: Progress = lambda phase, done, total: None) -> dict[str, Any]:
    """The whole document. Raises StoreError."""
    began = time.monotonic()
    log = read_log(ground.reader)
    ground.before = known_before(ground, [*log.questions, *log.unanswered])
    enough = len(log.questions) >= max(wish.least, 2)
    document: dict[str, Any] = {
        "memory": _memory(ground),
        "log": {
            "questions": len(log.questions), "unanswered": len(log.unanswered), "unlabelled": log.unlabelled,
            "gone": log.gone, "impressions": dict(log.counts),
        },
        "needed": wish.least, "trained": enough, "notes": notes_of(log, wish, _live(ground)),
    }  # fmt: skip
    if enough:
        document["splits"] = _splits(ground, log.questions, wish, progress)
    elif log.questions:
        document["splits"] = {"untrained": _judged(ground, [([], log.questions)], None, "untrained", progress)}
    if enough and wish.curve:
        document["curve"] = learning_curve(ground, log.questions, wish, progress)
    document["passing"] = _passing(ground, log, progress)
    document["effect"] = effect(log.effect)
    document["reliability"] = reliability(log.probabilities, log.useful)
    document["versions"] = versions(ground)
    document["seconds"] = round(time.monotonic() - began, 1)
    return document


def notes_of(log: Log, wish: Wish, live: int = FROZEN) -> list[str]:
    """What a reader must know before the figures."""
    found = []
    n = len(log.questions)
    if not n:
        found.append("no question in the log has an answer yet: nothing was used, acted on or found good")
    elif n < wish.least:
        found.append(
            f"{n} distinct questions have an answer; adapters are trained from {wish.least} on ([learning] "
            "least_queries, or --min): only what needs no training is judged"
        )
    if n and n * HELD < LEAST_HELD:
        found.append(f"with {n} questions no interval says much")
    if n and live != FROZEN:
        found.append(f"version {live} may have been trained on these questions, which flatters it")
    if n:
        found.append("a log knows only what was shown, which flatters the version that showed it")
    return found


# ---------------------------------------------------------------- splits

Split = tuple[list[Question], list[Question]]
Make = Callable[[list[Question], Callable[[str], None]], list[Candidate]]


def _splits(ground: Ground, questions: list[Question], wish: Wish, progress: Progress) -> dict[str, Any]:
    by_time = [split_by_time(questions, HELD)]
    at_random = list(folds(questions, wish.folds, wish.seed))
    wanted = wanted_before(ground, questions)

    def make(training: list[Question], tell: Callable[[str], None]) -> list[Candidate]:
        return candidates_of(ground, training, tell, wish.fit, wanted)

    return {
        "chronological": _judged(ground, by_time, make, "chronological", progress),
        "random": _judged(ground, at_random, make, "random", progress),
    }


def _judged(
    ground: Ground, splits: Sequence[Split], make: Make | None, name: str, progress: Progress
) -> dict[str, Any]:
    """make None: nothing is trained, what is live is judged as it is."""
    parts: dict[str, list[Result]] = {}
    for number, (training, held) in enumerate(splits, 1):
        label = name if len(splits) == 1 else f"{name}, fold {number} of {len(splits)}"
        for candidate in _candidates(ground, training, make, partial(_told, progress, label)):
            refuse_trained(candidate, held)
            tick = partial(progress, f"{label}: judging {candidate.name}")
            parts.setdefault(candidate.name, []).append(answered(ground, candidate, held, tick))
    whole = [each for each in parts.items() if len(each[1]) == len(splits)]  # what each fold could fit
    results = [
        Result(name, joined([part.recall for part in own]), joined([part.dense for part in own])) for name, own in whole
    ]
    report: Report = report_of(results, [question for _, held in splits for question in held])
    winners = [name for name, gain in report.gains.items() if gain[MAIN].is_better]
    chosen = next((name for name in winners if not name.startswith(ABLATED)), None)  # an ablation is no candidate
    learned_from = [len(training) for training, _ in splits]
    return {"learned_from": learned_from, **report.to_json(), "chosen": chosen, "better": winners}


def _told(progress: Progress, label: str, what: str) -> None:
    progress(f"{label}: fitting {what}", 0, 0)


def _candidates(
    ground: Ground, training: list[Question], make: Make | None, tell: Callable[[str], None]
) -> Iterator[Candidate]:
    yield Candidate("plain", PLAIN)
    if version := _live(ground):
        yield Candidate(f"version {version}", ground.learned(version))
    if make is not None:
        yield from make(training, tell)


def _live(ground: Ground) -> int:
    """The version of this encoder's that is live; FROZEN: nothing learned."""
    live = ground.reader.live_snapshot()
    return live[1] if live is not None and live[0] == ground.encoder else FROZEN


def learning_curve(ground: Ground, questions: list[Question], wish: Wish, progress: Progress) -> list[dict[str, Any]]:
    """f_Q by the number of questions it learned from, the oldest first, on the same newest ones."""
    training, held = split_by_time(questions, HELD)
    target = pairset_of(held, ground.reader, ground.encode, ground.encoder)
    plain = dense_figures(target)[MAIN]
    found = [_point(0, plain, plain, target)]
    for share in PARTS_OF_CURVE:
        part = training[: max(2, round(share * len(training)))]
        progress("learning curve", len(part), len(training))
        lessons = lessons_of(ground, part)
        if not len(lessons.fitted_on):
            continue
        f_q = wish.fit(lessons, "q").query
        found.append(_point(len(part), plain, dense_figures(target, f_q)[MAIN], target))
    return found


def _point(learned: int, plain: Float64, values: Float64, target: PairSet) -> dict[str, Any]:
    """low, high: of the gain over plain, which is paired and so far surer than the figure itself."""
    weights = target.weights.astype(np.float64)
    mean, gain = of_mean(values, target.groups, weights), better(plain, values, target.groups, weights)
    return {"questions": learned, "mrr": round(mean.gain, 4), **gain.to_json()}


# ---------------------------------------------------------------- what needs no training


def _passing(ground: Ground, log: Log, progress: Progress) -> dict[str, Any]:
    """Of questions without an answer and of those with one: for how many something passes the gate, by plain search."""

    def share(asked: Sequence[Asked], phase: str) -> dict[str, Any]:
        passed = []
        for n, each in enumerate(asked, 1):
            passed.append(float(bool(ground.passing(each))))
            progress(phase, n, len(asked))
        groups = np.array([each.group for each in asked])
        return _share(of_share(np.array(passed, np.float64), groups))

    return {
        "unanswered": share(log.unanswered, "gate, without an answer"),
        "answered": share(log.questions, "gate, with an answer"),
    }


def effect(seen: Effect) -> dict[str, Any]:
    """How often what passed the gate was used where it was shown, and where it was withheld at random."""
    shown = of_share(seen.shown, np.array(seen.shown_groups))
    withheld = of_share(seen.withheld, np.array(seen.withheld_groups))
    return {"shown": _share(shown), "withheld": _share(withheld),
            "difference": of_difference(shown, withheld).to_json()}  # fmt: skip


def reliability(probabilities: Float64, useful: Float64) -> dict[str, Any]:
    """bins: [mean probability, share that helped, n] by rising probability, equally many in each. error: the mean
    distance of the two (expected calibration error)."""
    order = np.argsort(probabilities, kind="stable")
    count = max(1, min(BINS, len(order) // LEAST_IN_BIN))
    parts = np.array_split(order, count) if len(order) else []
    bins = [[float(probabilities[part].mean()), float(useful[part].mean()), len(part)] for part in parts]
    error = sum(abs(p - share) * n for p, share, n in bins) / len(order) if len(order) else None
    rounded = [[round(p, 4), round(share, 4), n] for p, share, n in bins]
    return {"bins": rounded, "error": None if error is None else round(error, 4), "n": len(order)}


def versions(ground: Ground) -> list[dict[str, Any]]:
    """The versions of what was learned: when, what, how far the keys have drifted, how large the adapters are."""
    found = []
    for record in ground.reader.versions(ground.encoder):
        learned = ground.learned(record.version)
        norms = learned.query.norms if learned.query is not None else (0.0, 0.0)
        found.append(
            {
                "version": record.version, "at": record.created_at, "live": record.live, "why": record.why,
                "drift": round(record.drift, 5), "w2": round(norms[0], 4), "b2": round(norms[1], 4),
                "metrics": _json_of(record.metrics),
            }
        )  # fmt: skip
    return found


def _memory(ground: Ground) -> dict[str, Any]:
    encoder = ground.record.model or ground.record.fingerprint
    return {"passages": ground.reader.counts()["passages"], "encoder": encoder, "version": _live(ground)}


def _share(found: Verdict) -> dict[str, Any]:
    return {"n": found.n, "share": round(found.gain, 4), "low": round(found.low, 4), "high": round(found.high, 4)}


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}
