"""The gate's calibrated probabilities: one small logistic model per stage, and where each cuts.

Fitted by `python -m training.gate` on public data, kept with provenance and report in gate_weights.json. A model is a
ridge logistic regression, calibrated as it is: on kinds of memories that the fit had not seen, an isotonic step on top
of it cost log loss (.281 for .261) and gained little in ten bins (ECE .024 for .031). Where to cut is the user's choice
of a false rate: of boundaries at which nothing fits, the share that may get something. The table of rates and cuts was
measured on memories that the fit had not seen, too.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any

from recalld_daemon.recall.signals import FEATURES
from recalld_daemon.recall.types import Answer

FALSE_RATE = 0.05  # the default: one in twenty
SHALLOWER = {"cross": "ranked", "ranked": "late", "late": "fused"}  # who judges where a stage has no model


@dataclass(frozen=True, slots=True)
class Model:
    """p = 1 / (1 + exp(-(bias + sum of weight * (x - mean) / scale))).

    cuts: (false rate, threshold), rates ascending, thresholds falling; none: `threshold` at any rate. usual: signal ->
    the middle score in a large memory, for `signals.pool_of`.
    """

    names: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    threshold: float
    cuts: tuple[tuple[float, float], ...] = ()
    usual: Mapping[str, float] = field(default_factory=dict)

    def probability(self, signals: Mapping[str, float]) -> float:
        rows = zip(self.names, self.means, self.scales, self.weights, strict=True)
        logit = self.bias + sum(w * (signals[name] - mean) / scale for name, mean, scale, w in rows)
        return 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, logit))))

    def cut(self, false_rate: float) -> float:
        """The threshold at a false rate: between two rates of the table on a line over the rate's logarithm.

        >>> model = Model((), (), (), (), 0.0, 0.5, ((0.01, 0.8), (0.1, 0.4)))
        >>> [round(model.cut(rate), 2) for rate in (0.001, 0.01, 0.0316, 0.1, 0.5)]
        [0.8, 0.8, 0.6, 0.4, 0.4]
        """
        if not self.cuts:
            return self.threshold
        at = bisect_left(self.cuts, (false_rate, -1.0))
        if at in (0, len(self.cuts)):
            return self.cuts[min(at, len(self.cuts) - 1)][1]
        (low, high_cut), (high, low_cut) = self.cuts[at - 1], self.cuts[at]
        share = (math.log(false_rate) - math.log(low)) / (math.log(high) - math.log(low))
        return high_cut + share * (low_cut - high_cut)


@lru_cache(maxsize=1)
def models() -> dict[str, Model]:
    """The fitted models by stage ("lexical": without an encoder), read once from the package."""
    text = resources.files(__package__).joinpath("gate_weights.json").read_text(encoding="utf-8")
    return {stage: model_of(stage, row) for stage, row in json.loads(text)["models"].items()}


def model_of(stage: str, row: Mapping[str, Any]) -> Model:
    """A model from its JSON row. ValueError if it was fitted on other signals than this version computes."""
    names: Sequence[str] = row["features"]
    if not set(names) <= set(FEATURES[stage]):
        raise ValueError(f"gate_weights.json: stage {stage} was fitted on other signals; run python -m training.gate")
    means, scales, weights = (tuple(float(x) for x in row[key]) for key in ("means", "scales", "weights"))
    return Model(
        tuple(names), means, scales, weights, float(row["bias"]), float(row["threshold"]),
        cuts=tuple((float(rate), float(cut)) for rate, cut in row.get("cuts", ())),
        usual={signal: float(value) for signal, value in row.get("usual", {}).items()},
    )  # fmt: skip


def row_of(model: Model) -> dict[str, Any]:
    """The JSON row of a model."""
    return {
        "features": model.names, "means": model.means, "scales": model.scales, "weights": model.weights,
        "bias": model.bias, "threshold": model.threshold, "cuts": model.cuts, "usual": dict(model.usual),
    }  # fmt: skip


def stage_of(answer: Answer) -> str:
    """Which model judges an answer: by what its candidates carry, not by what the stage is called."""
    for stage in ("cross", "ranked", "late"):
        if any(getattr(candidate, stage) is not None for candidate in answer.candidates):
            return stage
    return "fused" if any("dense" in candidate.lanes for candidate in answer.candidates) else "lexical"


def model_for(stage: str, fitted: Mapping[str, Model]) -> Model:
    """The stage's own model or, where none was fitted, the next shallower one's: its signals are all there."""
    while stage not in fitted:
        stage = SHALLOWER[stage]
    return fitted[stage]


def shifted(threshold: float, log_odds: float) -> float:
    """A probability moved by some log-odds.

    >>> shifted(0.5, 0.0), round(shifted(0.5, 1.0), 3)
    (0.5, 0.731)
    """
    return 1.0 / (1.0 + (1.0 - threshold) / threshold * math.exp(-log_odds))
