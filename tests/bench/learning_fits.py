"""f_Q, f_Q + f_K, f_Q + f_K + f_V of one fold: fitted inside the training part, chosen there, and only then judged.

Inside, a fit learns from one part, stops by another and is judged by a third: that gives the number of epochs, and what
the promotion rule would ship (the simplest whose gain's lower bound is zero or more; else nothing: plain search). Then
the same is fitted on the whole training part for that many epochs, and the held-out questions are asked once. Where
inside no epoch was better than none, the outer fit is the identity: plain search.

f_V is judged as it is trained, on the summed score, with interests out of the golds of training questions alone: a
held-out question finds them as they were at its time, and never moves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from learning_splits import Fold

from recalld_daemon.adapters.fitting import Fitted, Interests, Parts, fit
from recalld_daemon.adapters.pairs import PairSet
from recalld_daemon.adapters.settings import FitSettings
from recalld_daemon.evaluation.bootstrap import Verdict, better
from recalld_daemon.evaluation.metrics import MAIN, NAMES, figures_of, joined, means
from recalld_daemon.recall.types import Float32, Float64, Int64

PLAIN = "plain"
PARTS: dict[str, Parts] = {"fq": "q", "fk": "qk", "fv": "qkv"}  # simplest first
SLOW, FAST = 0.02, 0.3  # how far one use moves an interest, as in `interests_before`

Figures = Mapping[str, Float64]  # metric -> (n,) one value per question
Told = dict[str, Figures]  # setting -> figures of the same questions


@dataclass(frozen=True, slots=True)
class Judgement:
    """told: of the held questions, by setting; chosen: what the rule would ship; epochs: of each outer fit."""

    rows: Int64
    told: Told
    chosen: str
    epochs: Mapping[str, int]


def judged_fold(pairs: PairSet, fold: Fold, settings: FitSettings) -> Judgement:
    inside: Told = {PLAIN: figures_by(pairs, fold.judges)}
    told: Told = {PLAIN: figures_by(pairs, fold.held)}
    epochs = {}
    for name, parts in PARTS.items():
        inner = fitted(pairs, fold.fitted, fold.stops, parts, settings)
        inside[name] = figures_by(pairs, fold.judges, inner, fold.fitted, settings)
        outer = refitted(pairs, fold.train, parts, settings, inner.best)
        told[name] = figures_by(pairs, fold.held, outer, fold.train, settings)
        epochs[name] = inner.best
    return Judgement(fold.held, told, chosen_of(inside), epochs)


def fitted(pairs: PairSet, learned: Int64, stops: Int64, parts: Parts, settings: FitSettings) -> Fitted:
    interests = interests_at(pairs, learned, learned), interests_at(pairs, learned, stops)
    return fit(pairs.rows(learned), pairs.rows(stops), parts, settings, interests=interests)


def refitted(pairs: PairSet, learned: Int64, parts: Parts, settings: FitSettings, epochs: int) -> Fitted | None:
    """On all of them for so many epochs; None after none: plain search."""
    if not epochs:
        return None
    return fitted(pairs, learned, learned[:0], parts, replace(settings, epochs=epochs))


def chosen_of(told: Told, groups: Int64 | None = None) -> str:
    """The promotion rule: the simplest whose gain over plain has a lower bound of zero or more; else plain."""
    names = [name for name in told if name != PLAIN]
    return next((n for n in names if better(told[PLAIN][MAIN], told[n][MAIN], groups).is_better), PLAIN)


def interests_at(pairs: PairSet, learned: Int64, asked: Int64) -> Interests:
    """(len(asked), d) twice: before each asked question, moved by the golds of earlier `learned` ones alone."""
    order = learned[np.argsort(pairs.at[learned], kind="stable")]
    states = [np.zeros((2, pairs.queries.shape[1]), np.float32)]
    shares = np.array([[SLOW], [FAST]], np.float32)
    for row in order.tolist():
        used = pairs.memories[pairs.gold[row]].mean(axis=0)
        states.append((1 - shares) * states[-1] + shares * used)
    place = {row: n for n, row in enumerate(order.tolist())}  # of what was learned: the state just before it
    before = np.searchsorted(pairs.at[order], pairs.at[asked], side="left").tolist()
    own = np.stack([states[place.get(row, n)] for row, n in zip(asked.tolist(), before, strict=True)] or [states[0]])
    own = own[: len(asked)]
    return Interests(own[:, 0], own[:, 1])


def figures_by(
    pairs: PairSet,
    asked: Int64,
    by: Fitted | None = None,
    learned: Int64 | None = None,
    settings: FitSettings | None = None,
) -> Figures:
    """The asked questions' figures by cosine in the space of `by` (None: plain), plus what interests add under f_V."""
    queries, keys = pairs.queries[asked], pairs.memories
    if by is not None:
        queries = by.query.apply(queries)
        keys = keys if by.key is None else by.key.apply(keys)
    scores = queries @ keys.T  # (n, m)
    if by is not None and by.value is not None and learned is not None and settings is not None:
        scores = scores + useful(by, keys, interests_at(pairs, learned, asked), settings)
    return ranked_figures(scores, pairs, asked)


def useful(by: Fitted, keys: Float32, interests: Interests, settings: FitSettings) -> Float32:
    """(n, m) what interests add to each memory's score for each question, as in the fit."""
    assert by.value is not None
    values = by.value.apply(keys).T
    added: Float32 = settings.slow_weight * (interests.slow @ values) + settings.fast_weight * (interests.fast @ values)
    return added


def ranked_figures(scores: Float32, pairs: PairSet, asked: Int64) -> Figures:
    """scores: (n, m) of the asked questions over all memories; each ranks its own pool."""
    rankings, golds = [], []
    for own, row in zip(scores, asked.tolist(), strict=True):
        pool = np.arange(len(own)) if pairs.pools is None else pairs.pools[row]
        rankings.append(pool[np.argsort(-own[pool], kind="stable")].tolist())
        golds.append(pairs.gold[row].tolist())
    return figures_of(rankings, golds)


# ------------------------------------------------------------ what is told of it


def summed(judgements: Sequence[Judgement], groups: Int64 | None) -> dict[str, Any]:
    """A split's JSON: each setting's figures and gains over plain; under "promoted" what the rule would have shipped.

    groups: of all questions, what is drawn together by the bootstrap; None: each question for itself.
    """
    rows = np.concatenate([each.rows for each in judgements])
    own = None if groups is None else groups[rows]
    names = list(judgements[0].told)
    every = {name: joined([each.told[name] for each in judgements]) for name in names}
    shipped = joined([each.told[each.chosen] for each in judgements])
    found: dict[str, Any] = {"n": len(rows), "folds": len(judgements)}
    found |= {name: told_of(every[PLAIN], values, own, name != PLAIN) for name, values in every.items()}
    chosen = [each.chosen for each in judgements]
    found["promoted"] = told_of(every[PLAIN], shipped, own) | {"ships": most_frequent(chosen), "by_fold": chosen}
    found["epochs"] = [dict(each.epochs) for each in judgements]
    return found


def told_of(plain: Figures, values: Figures, groups: Int64 | None, gains: bool = True) -> dict[str, Any]:
    """r1 ... mrr and, against plain, the gain in MRR with its interval and the same of each metric."""
    found: dict[str, Any] = {name: round(value, 4) for name, value in means(values).items()}
    if gains:
        verdicts: dict[str, Verdict] = {name: better(plain[name], values[name], groups) for name in NAMES}
        main = verdicts[MAIN]
        found |= {"gain": round(main.gain, 4), "low": round(main.low, 4), "high": round(main.high, 4)}
        found["relative"] = round(main.gain / max(float(plain[MAIN].mean()), 1e-9), 4)
        found["gains"] = {name: verdict.to_json() for name, verdict in verdicts.items()}
    return found


def most_frequent(names: Sequence[str]) -> str:
    """Of equals the first in the order they are given."""
    return max(dict.fromkeys(names), key=names.count)
