"""Encoders tuned for a bench: on whom, that they learn, and what they never see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import eval_pools
import house_tuned
import numpy as np
import pytest
from eval_pools import Judged
from house_encoders import Encoders
from pool_types import Pool

import bench_samples


class Recorded(house_tuned.Tuning):
    """Tunes nothing, and keeps the names of the conversations that it was to tune on."""

    def __init__(self, encoders: Encoders) -> None:
        super().__init__(0.0)
        self.encoders = encoders
        self.asked: list[list[str]] = []

    def on(self, others: Sequence[Judged]) -> house_tuned.TunedEncoders:
        self.asked.append([judged.pool.name for judged in others])
        return self.encoders  # type: ignore[return-value]


@pytest.fixture
def talks(tmp_path: Path) -> list[Judged]:
    return eval_pools.locomo(bench_samples.write_locomo(tmp_path / "talks"))


def test_what_misleads_teaches_nothing(talks: list[Judged]) -> None:
    pool = house_tuned.lesson_pool(talks[0])
    assert len(talks[0].pool.asks) == 6
    assert len(pool.asks) == 5
    assert all(ask.gold and ask.kind != eval_pools.ADVERSARIAL for ask in pool.asks)


@pytest.mark.models
def test_no_conversation_is_searched_with_an_encoder_that_saw_it(
    talks: list[Judged], tmp_path: Path, model_cache: Path
) -> None:
    tuning = Recorded(Encoders(model_cache, tmp_path / "work"))
    with house_tuned.cross_tuned(talks, tuning) as courts:
        assert [court.name for court in courts] == ["talk-1", "talk-2", "talk-3"]
    assert tuning.asked == [["talk-2", "talk-3"], ["talk-1", "talk-3"], ["talk-1", "talk-2"]]
    tuning.asked.clear()
    with house_tuned.tuned_on(talks[1:], talks[:1], tuning) as (teachers, judged):
        assert [court.name for court in teachers] == ["talk-2", "talk-3"]
        assert [court.name for court in judged] == ["talk-1"]
    assert tuning.asked == [["talk-3"], ["talk-2"], ["talk-2", "talk-3"]]


@pytest.mark.models
def test_a_tuned_encoder_has_learned_what_answers_and_encodes_a_house(
    talks: list[Judged], tmp_path: Path, model_cache: Path
) -> None:
    for judged in talks:
        judged.pool.asks *= 4  # a batch is 16 questions or more
        judged.golds *= 4
    tuning = house_tuned.Tuning(30.0)
    tuned, untaught = tuning.on(talks[1:]), house_tuned.Tuning(1e-9).on(talks[1:])
    assert tuned.live.fingerprint != untaught.live.fingerprint
    taught = [house_tuned.lesson_pool(judged) for judged in talks[1:]]
    assert np.mean([margin(tuned, pool) for pool in taught]) > np.mean([margin(untaught, pool) for pool in taught])
    with house_tuned.convened(talks[:1], tuned) as (court,):
        assert court.house.memory.index is not None
        assert court.house.memory.index.encoder.fingerprint == tuned.live.fingerprint


def margin(encoders: Encoders, pool: Pool) -> float:
    """How much nearer a question is to its answer than to the nearest of the rest, by vectors, in the mean."""
    rows = encoders.bulk.encode_passages([f"{row.speaker}: {row.text}" for row in pool.rows]).vectors
    gaps = []
    for ask in pool.asks:
        scores = rows.astype(np.float32) @ encoders.query(ask.focus.user_text).vector
        right = np.array([row in ask.gold for row in range(len(rows))])
        gaps.append(scores[right].max() - scores[~right].max())
    return float(np.mean(gaps))
