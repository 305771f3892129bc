"""The tuning itself: batches of lessons, both losses in one pass, AdamW with a warm-up and a straight way down.

A batch is made of one data set, and of one pool as far as its lessons go: the other queries' answers are then hard
negatives of the same conversation or meeting. How much of each set an epoch takes is the `shares`; larger sets are
sampled. Everything follows from the seed, up to the rounding of the machine's bf16.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recalld_daemon.models.tokens import TokenizedText
from training.encoder_lessons import Course, Lesson
from training.encoder_lora import TunedModel, tensors
from training.encoder_loss import drift, info_nce, max_sims

Log = Callable[[str], None]
EVERY = 50  # steps between two lines of the log


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to tune. Chosen on dev sets that are not trained on; see docs/benchmarks.md."""

    rank: int = 16
    epochs: float = 1.0
    batch: int = 32  # queries
    negatives: int = 1  # mined, per query and step
    rate: float = 1e-3
    projection_rate: float = 5e-4
    warm_up: float = 0.06  # share of the steps
    late_temperature: float = 0.03
    pooled_temperature: float = 0.05  # the model's own training: a scale of 20
    pooled_weight: float = 0.5
    drift_weight: float = 0.2
    kept: float = 1.0  # of what was learned; the rest of the way stays with the start (WiSE-FT, arXiv 2109.01903)
    shares: Mapping[str, int] = field(default_factory=dict)  # set -> lessons per epoch; others are taken whole
    seconds: float = float("inf")  # the schedule is cut to what fits
    seed: int = 0


def fit(model: TunedModel, courses: Sequence[Course], recipe: Recipe, log: Log) -> list[float]:
    """Tune the model in place; the loss of each step."""
    rng = random.Random(recipe.seed)
    begin = time.monotonic()
    steps = list(_batches(courses, recipe, rng))
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.learned() if p is not model.projection], "lr": recipe.rate},
        {"params": [model.projection], "lr": recipe.projection_rate},
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
    rates = [group["lr"] for group in groups]
    losses: list[float] = []
    for number, (course, lessons) in enumerate(steps):
        share = max(number / len(steps), (time.monotonic() - begin) / recipe.seconds)
        if share >= 1.0:
            break
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, (number + 1) / (recipe.warm_up * len(steps) + 1)) * (1.0 - share)
        parts = step(model, course, lessons, recipe, rng)
        loss = parts[0] + recipe.pooled_weight * parts[1] + recipe.drift_weight * parts[2]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.learned(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
        if number % EVERY == 0:
            late, pooled, moved = (float(part.detach()) for part in parts)
            spent = time.monotonic() - begin
            log(
                f"{number}/{len(steps)} {course[0].set_name} late {late:.3f} pooled {pooled:.3f} drift {moved:.3f}"
                f" mean {np.mean(losses[-EVERY:]):.3f} {spent:.0f} s"
            )
    return losses


def step(
    model: TunedModel, courses: Sequence[Course], lessons: Sequence[Lesson], recipe: Recipe, rng: random.Random
) -> tuple[Tensor, Tensor, Tensor]:
    """The three losses of one batch: max-sim, pooled, drift. courses[i] is the one that lessons[i] is of."""
    columns: dict[tuple[int, int], int] = {}  # (course, row) -> place in the batch
    owner = {id(course): course for course in courses}
    gold = []
    for course, lesson in zip(courses, lessons, strict=True):
        answer = (id(course), int(rng.choice(lesson.gold.tolist())))
        gold.append(columns.setdefault(answer, len(columns)))
        near = lesson.near.tolist()
        for row in rng.sample(near, min(len(near), recipe.negatives)):
            columns.setdefault((id(course), row), len(columns))
    left_out = torch.zeros(len(lessons), len(columns), dtype=torch.bool)
    for at, (course, lesson) in enumerate(zip(courses, lessons, strict=True)):
        for (of, row), column in columns.items():
            left_out[at, column] = of == id(course) and row in lesson.known and column != gold[at]
    passages = [owner[of].passages[row] for of, row in columns]
    queries = [course.queries[lesson.query] for course, lesson in zip(courses, lessons, strict=True)]
    p_pooled, p_tokens, p_kept = encode(model, passages)
    q_pooled, q_tokens, q_kept = encode(model, queries)
    before_p = np.array([owner[of].before_passages[row] for of, row in columns], dtype=np.float32)
    before_q = np.array([c.before_queries[le.query] for c, le in zip(courses, lessons, strict=True)], dtype=np.float32)
    late = max_sims(q_tokens, q_kept, p_tokens, p_kept)
    pooled = q_pooled @ p_pooled.T
    right = torch.tensor(gold)
    return (
        info_nce(late, right, left_out, recipe.late_temperature),
        info_nce(pooled, right, left_out, recipe.pooled_temperature),
        drift(pooled, torch.from_numpy(before_q @ before_p.T), recipe.pooled_temperature),
    )


def encode(model: TunedModel, texts: Sequence[TokenizedText]) -> tuple[Tensor, Tensor, Tensor]:
    """pooled (n, d), tokens (n, t, dims) and kept (n, t), in the order given; short and long ones pass apart."""
    order = sorted(range(len(texts)), key=lambda at: len(texts[at].ids))
    half = len(order) // 2 if len(order) >= 16 else 0
    pooled, tokens, kept = [], [], []
    for part in (order[:half], order[half:]):
        if part:
            ids, mask, of_part = tensors([texts[at] for at in part])
            own, of_tokens = model(ids, mask)
            pooled.append(own)
            tokens.append(of_tokens)
            kept.append(of_part)
    width = max(x.shape[1] for x in tokens)
    back = torch.tensor(np.argsort(np.array(order)))
    wide = [torch.nn.functional.pad(x, (0, 0, 0, width - x.shape[1])) for x in tokens]
    wide_kept = [torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in kept]
    return torch.cat(pooled)[back], torch.cat(wide)[back], torch.cat(wide_kept)[back]


def _batches(courses: Sequence[Course], recipe: Recipe, rng: random.Random) -> list[tuple[list[Course], list[Lesson]]]:
    """All steps of the run, in a random order within each epoch; the last epoch may be a part of one."""
    sets: dict[str, list[Course]] = defaultdict(list)
    for course in courses:
        sets[course.set_name].append(course)
    found: list[tuple[list[Course], list[Lesson]]] = []
    left = recipe.epochs
    while left > 0:
        epoch = [batch for name, of_set in sets.items() for batch in _of_set(name, of_set, recipe, rng)]
        rng.shuffle(epoch)
        found += epoch[: round(len(epoch) * min(1.0, left))]
        left -= 1.0
    return found


def _of_set(
    name: str, courses: Sequence[Course], recipe: Recipe, rng: random.Random
) -> list[tuple[list[Course], list[Lesson]]]:
    pairs = []
    for course in rng.sample(list(courses), len(courses)):
        pairs += [(course, lesson) for lesson in rng.sample(course.lessons, len(course.lessons))]
    share = recipe.shares.get(name, len(pairs))
    if share < len(pairs):  # lessons of one pool stay together
        kept = set(rng.sample(range(len(pairs)), share))
        pairs = [pair for at, pair in enumerate(pairs) if at in kept]
    cut = [pairs[at : at + recipe.batch] for at in range(0, len(pairs), recipe.batch)]
    return [([c for c, _ in part], [le for _, le in part]) for part in cut if len(part) >= recipe.batch // 2]
