"""Fitting the ranker: lessons in, a forest as text out. The same for what ships and for a user's own feedback.

A lesson is one question with its candidates: their features, and which of them were right. LambdaMART (Burges 2010, as
LightGBM has it) learns from the order within a question alone, so lessons of other memories, with other scales, can
stand side by side. Trees have at most 16 leaves, the bound of `forest`. Lessons without a right candidate, or without a
wrong one, teach no order and are left out; how many were used stands in the provenance. A fit may go on from a forest
that is there (`base`): its trees stay, and the new ones learn what it still gets wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.ranking.features import FEATURES
from recalld_daemon.ranking.forest import LEAVES, Forest, read_forest
from recalld_daemon.recall.types import Float32

DIGITS = 6  # of a threshold or a leaf in the text: the text stays small, and scores equal to 1e-5


@dataclass(frozen=True, slots=True)
class Lesson:
    """One question. features: (n, f); right: (n,) bool; weight: how much it counts beside the others."""

    features: Float32
    right: NDArray[np.bool_]
    weight: float = 1.0
    kind: str = ""

    @property
    def teaches(self) -> bool:
        return bool(self.right.any() and not self.right.all())


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the fit. Chosen by cross-validation over conversations; flat around these values."""

    rounds: int = 160
    learning_rate: float = 0.06
    leaves: int = 15
    least_in_leaf: int = 60
    columns: float = 0.2  # share of the features that each tree may look at
    rows: float = 0.8
    ridge: float = 5.0
    depth: int = 20  # ranks down to which an exchange counts
    seed: int = 1


def fit(
    lessons: Sequence[Lesson],
    settings: Settings = Settings(),
    provenance: Mapping[str, Any] | None = None,
    base: str | None = None,
) -> str:
    """The text of a ranker, for `forest.read_forest`. base: the text of the one to go on from.

    Raises ValueError when no lesson teaches anything, ForestError for a base of other features.
    """
    import lightgbm  # takes half a second, and only fitting needs it

    used = [lesson for lesson in lessons if lesson.teaches]
    if not used:
        raise ValueError(f"none of {len(lessons)} lessons has both a right and a wrong candidate: there is no order")
    rows = np.concatenate([lesson.features for lesson in used])
    data = lightgbm.Dataset(
        rows,
        init_score=None if base is None else read_forest(base, FEATURES).scores(rows).astype(np.float64),
        label=np.concatenate([lesson.right for lesson in used]).astype(np.float32),
        weight=np.concatenate([np.full(len(lesson.right), lesson.weight, np.float32) for lesson in used]),
        group=[len(lesson.right) for lesson in used],
        free_raw_data=False,
    )
    booster = lightgbm.train(_parameters(settings), data, num_boost_round=settings.rounds)
    old = [] if base is None else json.loads(base)["trees"]
    trees = old + [_tree(info["tree_structure"]) for info in booster.dump_model()["tree_info"]]
    facts = {"lessons": len(lessons), "used": len(used), "settings": vars_of(settings), "continued": len(old)}
    gains = dict(zip(FEATURES, booster.feature_importance("gain").tolist(), strict=True))
    total = sum(gains.values()) or 1.0
    best = {name: round(gain / total, 3) for name, gain in sorted(gains.items(), key=lambda row: -row[1])[:20]}
    document = {"provenance": {**(provenance or {}), **facts}, "gain": best, "features": list(FEATURES)}
    return json.dumps({**document, "trees": trees}, separators=(",", ":"))


def fitted(lessons: Sequence[Lesson], settings: Settings = Settings()) -> Forest:
    """The same, ready to use."""
    return read_forest(fit(lessons, settings), FEATURES)


def vars_of(settings: Settings) -> dict[str, float]:
    return {name: getattr(settings, name) for name in Settings.__dataclass_fields__}


def _parameters(settings: Settings) -> dict[str, Any]:
    if not 2 <= settings.leaves <= LEAVES:
        raise ValueError(f"a tree may have 2 to {LEAVES} leaves, not {settings.leaves}")
    return {
        "objective": "lambdarank", "learning_rate": settings.learning_rate, "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.least_in_leaf, "feature_fraction": settings.columns,
        "bagging_fraction": settings.rows, "bagging_freq": 1, "lambda_l2": settings.ridge,
        "lambdarank_truncation_level": settings.depth, "label_gain": [0, 1], "seed": settings.seed,
        "num_threads": 1, "deterministic": True, "force_row_wise": True, "use_missing": False, "verbose": -1,
    }  # fmt: skip


def _tree(node: Mapping[str, Any]) -> dict[str, Any]:
    """LightGBM's node as `forest.forest_of` reads it."""
    if "leaf_value" in node and "split_feature" not in node:
        return {"v": round(float(node["leaf_value"]), DIGITS)}
    return {
        "f": int(node["split_feature"]),
        "t": _below(float(node["threshold"])),
        "l": _tree(node["left_child"]),
        "r": _tree(node["right_child"]),
    }


def _below(threshold: float) -> float:
    """The greatest float32 not above a threshold: features are float32, so x <= t stays what it was."""
    single = np.float32(threshold)
    return float(single if float(single) <= threshold else np.nextafter(single, np.float32(-np.inf)))
