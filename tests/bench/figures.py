"""What a ranking is worth: hits, recall, strict recall, reciprocal rank, and how sure one may be of it.

All of it is counted over units, which are passages or, where the gold names documents, documents: a document's rank is
that of its best passage. Intervals are 95 % bootstraps: questions are drawn again with replacement and, where
conversations were held out, conversations first and then questions within each. Questions without gold never come here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEPTHS = (1, 5, 10, 20)
NAMES = tuple(f"{kind}{depth}" for kind in ("r", "hit", "strict") for depth in DEPTHS)
FIGURES = (*NAMES, "mrr")
DRAWS = 1000
SEED = 20260101


@dataclass(frozen=True, slots=True)
class Scored:
    """One question's figures: values (len(FIGURES),); group: the conversation it belongs to; kind: its category.

    also: further kinds that it counts for.
    """

    values: NDArray[np.float64]
    group: str
    kind: str
    also: tuple[str, ...] = ()


def score(
    units: Iterable[Hashable], gold: frozenset[Any], group: str = "", kind: str = "", also: tuple[str, ...] = ()
) -> Scored:
    """units: best first, repeats allowed (the first counts).

    r: share of the gold within the depth; hit: whether any is; strict: whether all are; mrr: 1 / rank of the first.

    >>> found = score(["a", "x", "x", "b"], frozenset("ab"))
    >>> {name: float(value) for name, value in zip(FIGURES, found.values) if name in ("r1", "hit1", "strict5", "mrr")}
    {'r1': 0.5, 'hit1': 1.0, 'strict5': 1.0, 'mrr': 1.0}
    """
    if not gold:
        raise ValueError("a question without gold has no rank")
    ranks = [rank for rank, unit in enumerate(dict.fromkeys(units), 1) if unit in gold]
    counts = [sum(rank <= depth for rank in ranks) for depth in DEPTHS]
    values = [count / len(gold) for count in counts]
    values += [float(count > 0) for count in counts]
    values += [float(count == len(gold)) for count in counts]
    return Scored(np.array([*values, 1 / ranks[0] if ranks else 0.0]), group, kind, also)


def means(scored: Sequence[Scored], names: Sequence[str] = FIGURES) -> dict[str, Any]:
    """Each figure's mean, rounded, and n."""
    columns = [FIGURES.index(name) for name in names]
    values = np.array([row.values for row in scored]).reshape(len(scored), len(FIGURES))[:, columns]
    mean = values.mean(axis=0) if len(scored) else np.full(len(names), np.nan)
    return {name: round(float(value), 4) for name, value in zip(names, mean, strict=True)} | {"n": len(scored)}


def intervals(
    scored: Sequence[Scored], names: Sequence[str] = FIGURES, *, by_group: bool = False, draws: int = DRAWS
) -> dict[str, list[float]]:
    """name -> [low, high], the middle 95 % of the means of `draws` resamples. by_group: conversations are drawn too."""
    columns = [FIGURES.index(name) for name in names]
    values = np.array([row.values for row in scored]).reshape(len(scored), len(FIGURES))[:, columns]
    if not len(values):
        return {}
    rng = np.random.default_rng(SEED)
    groups = _groups(scored) if by_group else [np.arange(len(scored))]
    drawn = np.array([values[_draw(groups, rng, by_group)].mean(axis=0) for _ in range(draws)])
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0).round(4).tolist()
    return {name: [low[at], high[at]] for at, name in enumerate(names)}


def difference(left: Sequence[Scored], right: Sequence[Scored], name: str = "mrr") -> tuple[float, float, float]:
    """(mean, low, high) of right - left over the same questions, paired: whether a change is more than chance."""
    column = FIGURES.index(name)
    gaps = np.array([b.values[column] - a.values[column] for a, b in zip(left, right, strict=True)])
    rng = np.random.default_rng(SEED)
    drawn = [gaps[rng.integers(len(gaps), size=len(gaps))].mean() for _ in range(DRAWS)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return round(float(gaps.mean()), 4), round(float(low), 4), round(float(high), 4)


def by_kind(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    found: dict[str, list[Scored]] = defaultdict(list)
    for row in scored:
        for kind in (row.kind, *row.also):
            found[kind].append(row)
    return dict(sorted(found.items()))


def cell(mean: float, interval: Sequence[float]) -> str:
    """As a table shows it.

    >>> cell(0.5, [0.42, 0.581])
    '.500 [.420 .581]'
    """
    low, high = interval
    return f"{_short(mean)} [{_short(low)} {_short(high)}]"


def share_interval(hits: Sequence[bool]) -> tuple[float, list[float]]:
    """A share and its 95 % bootstrap interval; of no questions, nan."""
    values = np.array(hits, float)
    if not len(values):
        return float("nan"), [float("nan")] * 2
    rng = np.random.default_rng(SEED)
    drawn = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    return round(float(values.mean()), 4), np.percentile(drawn, [2.5, 97.5]).round(4).tolist()


def _groups(scored: Sequence[Scored]) -> list[NDArray[np.int64]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(scored):
        places[row.group].append(place)
    return [np.array(own) for own in places.values()]


def _draw(groups: list[NDArray[np.int64]], rng: np.random.Generator, by_group: bool) -> NDArray[np.int64]:
    chosen = rng.integers(len(groups), size=len(groups)) if by_group else range(len(groups))
    return np.concatenate([rng.choice(groups[at], size=len(groups[at])) for at in chosen])


def _short(value: float) -> str:
    text = f"{value:.3f}"
    return text.removeprefix("0") if text.startswith("0") else text
