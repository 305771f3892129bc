"""Prequential: in the order of time each question is asked by what was learned until then, and learned from next.

fq is the product's own online step over all questions, nothing else. Keys change at night only, so fk and fv are what a
nightly cycle would give without a judge: every NIGHT questions, from LEAST on, f_Q + f_K (+ f_V) are fitted on all that
was asked before; the day after, keys are projected by that f_K and the online step goes on from that f_Q until next
night. `fq_nightly` is the same with f_Q alone, so that what f_K adds can be told from what the nightly fit adds.

The rule decides half way: the simplest that was above plain until there, its lower bound at zero or more, is what would
have been used for the second half, and that half alone is reported for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from learning_fits import PLAIN, Figures, Told, chosen_of, fitted, interests_at, ranked_figures, told_of, useful

from recalld_daemon.adapters.fitting import Fitted, Parts
from recalld_daemon.adapters.online import OnlineLearner
from recalld_daemon.adapters.pairs import Pair, PairSet
from recalld_daemon.adapters.settings import FitSettings, OnlineSettings, key_of
from recalld_daemon.evaluation.metrics import MAIN, joined
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32, Int64

NIGHT = 100  # questions a day
LEAST = 200  # questions before the first night that trains: the cycle's own bound
STOPS = 0.15  # of what is known at night, the newest: they say when to stop
SHOWN = 16  # turns of a lesson that did not help: the nearest to the question as it was asked


@dataclass(frozen=True, slots=True)
class Now:
    """What is known when a question is asked. known: rows that were asked before; by: of the last night; keys: (m, d)
    the memories as that night left them; query: f_Q after the last step."""

    known: Int64
    query: Adapter
    by: Fitted | None
    keys: Float32


Ask = Callable[[int, Now], Figures]  # one question's figures, each (1,)


def stream(
    pairs: PairSet,
    order: Int64,
    ask: Ask,
    parts: Parts | None,
    settings: FitSettings,
    online: OnlineSettings,
    night: int = NIGHT,
    least: int = LEAST,
) -> Figures:
    """In `order`. parts: fitted each night; None: no night, the online step alone."""
    shape = online.shape
    born = Adapter.born(pairs.queries.shape[1], shape.hidden, shape.alpha, shape.seed)
    learner, by, keys = OnlineLearner(born, online, key_of(online)), None, pairs.memories
    found = []
    for n, row in enumerate(order.tolist()):
        if parts is not None and n >= least and (n - least) % night == 0:
            by = fitted_at_night(pairs, order[:n], parts, settings)
            keys = pairs.memories if by.key is None else by.key.apply(pairs.memories)
            learner = OnlineLearner(by.query, online, key_of(online, night=n))
        now = Now(order[:n], learner.adapter, by, keys)
        found.append(ask(row, now))
        for lesson in lessons_of(pairs, row, now):
            learner.learn(lesson)
    return joined(found)


def fitted_at_night(pairs: PairSet, known: Int64, parts: Parts, settings: FitSettings) -> Fitted:
    """On what is known, the newest of it saying when to stop."""
    cut = len(known) - max(1, round(STOPS * len(known)))
    return fitted(pairs, known[:cut], known[cut:], parts, settings)


def lessons_of(pairs: PairSet, row: int, now: Now) -> list[Pair]:
    """One per evidence turn. What did not help is what stands nearest, whether or not the learner will keep it."""
    pool = np.arange(len(now.keys)) if pairs.pools is None else pairs.pools[row]
    others = np.setdiff1d(pool, pairs.gold[row])
    scores = now.keys[others] @ now.query.apply(pairs.queries[row])
    negatives = now.keys[others[np.argsort(-scores, kind="stable")[:SHOWN]]]
    subject = int(pairs.subject[row])
    vector = pairs.subjects[subject] if subject >= 0 else None
    name = pairs.names[row] if pairs.names else str(row)
    return [
        Pair(f"{name}/{gold}", pairs.queries[row], now.keys[gold], negatives, vector, at=float(pairs.at[row]))
        for gold in pairs.gold[row].tolist()
    ]


def by_cosine(pairs: PairSet, settings: FitSettings) -> Ask:
    """A question asked by cosine alone, and under f_V by what interests add."""

    def ask(row: int, now: Now) -> Figures:
        asked = np.array([row], np.int64)
        scores = now.query.apply(pairs.queries[asked]) @ now.keys.T
        if now.by is not None and now.by.value is not None:
            scores = scores + useful(now.by, now.keys, interests_at(pairs, now.known, asked), settings)
        return ranked_figures(scores, pairs, asked)

    return ask


RUNS: dict[str, Parts | None] = {"fq": None, "fk": "qk", "fv": "qkv", "fq_nightly": "q"}


def prequential(
    pairs: PairSet,
    order: Int64,
    groups: Int64,
    settings: FitSettings,
    online: OnlineSettings,
    night: int = NIGHT,
    runs: dict[str, Parts | None] = RUNS,
) -> dict[str, Any]:
    """The split's JSON, by cosine. groups: of all questions: what the bootstrap draws together."""
    ask = by_cosine(pairs, settings)
    told: Told = {PLAIN: ranked_figures(pairs.queries[order] @ pairs.memories.T, pairs, order)}
    told |= {name: stream(pairs, order, ask, parts, settings, online, night) for name, parts in runs.items()}
    return {"night": night, "least": LEAST} | told_in_order(told, groups[order])


def told_in_order(told: Told, groups: Int64) -> dict[str, Any]:
    """Figures in the order of asking, what the rule says half way, and how far the gain has come by then."""
    half = len(groups) // 2
    result: dict[str, Any] = {"n": len(groups)}
    result |= {name: told_of(told[PLAIN], values, groups, name != PLAIN) for name, values in told.items()}
    chosen = chosen_of({n: _cut(v, slice(half)) for n, v in told.items() if n != "fq_nightly"}, groups[:half])
    late = slice(half, None)
    result["promoted"] = told_of(_cut(told[PLAIN], late), _cut(told[chosen], late), groups[late]) | {
        "ships": chosen, "judged_on": half, "reported_on": len(groups) - half
    }  # fmt: skip
    result["cumulative"] = {name: cumulative(values) for name, values in told.items()}
    return result


def cumulative(values: Figures, points: int = 10) -> list[float]:
    """MRR over all questions until then, at so many points of the stream."""
    ends = np.linspace(0, len(values[MAIN]), points + 1).astype(int)[1:]
    return [round(float(values[MAIN][:end].mean()), 4) for end in ends.tolist() if end]


def other_orders(pairs: PairSet, groups: Int64, online: OnlineSettings, seed: int = 1) -> dict[str, dict[str, Any]]:
    """fq alone in two other orders: conversation after conversation, and shuffled (no order of time at all)."""
    settings = FitSettings()
    orders = {
        "conversation_after_conversation": np.lexsort((np.arange(len(pairs)), pairs.at, pairs.groups)),
        "shuffled": np.random.default_rng(seed).permutation(len(pairs)),
    }
    found = {}
    for name, order in orders.items():
        plain = ranked_figures(pairs.queries[order] @ pairs.memories.T, pairs, order)
        learned = stream(pairs, order, by_cosine(pairs, settings), None, settings, online)
        found[name] = told_of(plain, learned, groups[order])
    return found


def _cut(values: Figures, where: slice) -> Figures:
    return {name: own[where] for name, own in values.items()}
