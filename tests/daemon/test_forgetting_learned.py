"""P018 in what was learned online: where its vectors are among the pairs that are replayed, learning begins anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from learner_house import LearnerHouse, with_learner
from log_house import NOON
from recalld_daemon.online_kept import STATE, holds_any
from recalld_daemon.recall.adapter import unit
from recalld_daemon.store.rows import StateRecord

TEXTS = ["The staging key is in the vault", "The harbour office opens at nine", "Soup is on Thursdays", "Crane four"]
GOLD, NEGATIVE, OTHER = 0, 2, 3
QUERY = "where is the staging key"


async def learned(house: LearnerHouse) -> list[int]:
    """One lesson was learned, and its pair is kept: gold and a negative, in half precision."""
    log = house.log
    passages = log.remember("/notes/a.md", TEXTS)
    (impression,) = log.asked(QUERY, [(passages[GOLD], "good")], at=NOON)
    await house.judged(impression)
    ids, rows = log.reader.plain_vectors(passages, log.encoder)
    vectors = dict(zip(ids.tolist(), unit(rows), strict=True))
    kept = np.zeros((1, 6, rows.shape[1]), np.float16)
    kept[0, 1], kept[0, 3] = vectors[passages[GOLD]], vectors[passages[NEGATIVE]]
    data = safetensors.numpy.save({"buffer.vectors": kept, "buffer.counts": np.array([1])})
    log.writer.put_state(StateRecord(STATE, log.encoder, "any key", data, NOON))
    return passages


def steps(house: LearnerHouse) -> float:
    adapter = house.learner.f_q(house.ground.learned)
    return 0.0 if adapter is None else float(adapter.b2[0])


@pytest.mark.parametrize(("which", "anew"), [(GOLD, True), (NEGATIVE, True), (OTHER, False)])
def test_only_what_a_lesson_holds_costs_what_was_learned(tmp_path: Path, which: int, anew: bool) -> None:
    async def body(house: LearnerHouse) -> None:
        passages = await learned(house)
        assert steps(house) == 1.0
        assert holds_any(house.log.reader, house.ground, [passages[which]]) is anew
        await house.learner.unlearn([passages[which]])
        await house.rest()
        assert steps(house) == (0.0 if anew else 1.0)
        assert (house.log.reader.learning_state(STATE, house.log.encoder) is None) is anew

    with_learner(tmp_path, body)


def test_nobody_asks_where_nothing_was_learned(tmp_path: Path) -> None:
    async def body(house: LearnerHouse) -> None:
        passages = house.log.remember("/notes/a.md", TEXTS)
        await house.learner.unlearn(passages)
        await house.rest()
        assert steps(house) == 0.0

    with_learner(tmp_path, body)
