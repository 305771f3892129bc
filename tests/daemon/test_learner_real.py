"""The learner with its real process: torch, Adam and the bounds of a step, over a store with a log."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from learner_house import LearnerHouse, with_learner
from log_house import NOON, LogHouse
from recalld_daemon.adapters.settings import OnlineSettings, ShapeSettings
from recalld_daemon.learn_worker import LearnWorker
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32
from recalld_daemon.worker_state import ModelChoice

SETTINGS = OnlineSettings(shape=ShapeSettings(hidden=16), learning_rate=0.005, held_every=3, least_held=6, held_kept=16)
THINGS = ("anchor", "beacon", "capstan", "dredger", "estuary", "fender", "gangway", "hawser", "islet", "jetty", "keel",
          "lantern", "mooring", "nautilus", "oar", "pilot", "quay", "rudder", "sextant", "tiller")  # fmt: skip


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "recalld_daemon.learner")


def real(**options: object) -> LearnWorker:
    return LearnWorker(ModelChoice(Path("/nonexistent")), **options)  # type: ignore[arg-type]


def notes(log: LogHouse) -> dict[str, int]:
    """thing -> the passage about it."""
    ids = log.reader.passage_ids("/notes/things.md") or log.remember(
        "/notes/things.md", [f"the {thing} stands in shed {n}" for n, thing in enumerate(THINGS)]
    )
    return dict(zip(THINGS, ids, strict=True))


def question(thing: str) -> str:
    return f"what is known about our {thing}"


def ranks(house: LearnerHouse, adapter: Adapter | None) -> Float32:
    """Of each thing's passage for the question about it, by cosine, from 1."""
    ids = list(notes(house.log).values())
    found, rows = house.log.reader.plain_vectors(ids, house.log.encoder)
    order = np.argsort(found)
    rows = rows[order]
    places = []
    for n, thing in enumerate(THINGS):
        query, _ = house.log.live.encode_query(question(thing))
        cosines = rows @ (query if adapter is None else adapter.apply(query))
        places.append(1 + int((cosines > cosines[n]).sum()))
    return np.array(places, np.float32)


async def teach(house: LearnerHouse, at: float = NOON) -> None:
    """Each question's passage was found good."""
    for n, (thing, passage) in enumerate(notes(house.log).items()):
        (impression,) = house.log.asked(question(thing), [(passage, "good")], at=at + n)
        await house.judged(impression)


def test_f_q_is_learned_and_a_restart_keeps_it(tmp_path: Path) -> None:
    kept: list[Adapter] = []

    async def first(house: LearnerHouse) -> None:
        house.log.live.shift = 0.8  # what f_Q can learn: all queries lie off in one direction
        before = ranks(house, None)
        await teach(house)
        adapter = house.learner.f_q(house.ground.learned)
        assert adapter is not None
        assert not adapter.is_identity
        kept.append(adapter)
        after = ranks(house, adapter)
        assert (1 / after).mean() > (1 / before).mean()
        topic = house.learner.topic()
        assert topic["failed"] == topic["reverted"] == 0
        assert int(topic["steps"] or 0) + int(topic["held_pairs"] or 0) == len(THINGS)
        assert topic["w2"] > 0  # type: ignore[operator]
        assert topic["b2"] > 0  # type: ignore[operator]

    async def second(house: LearnerHouse) -> None:
        house.log.live.shift = 0.8
        adapter = house.learner.f_q(house.ground.learned)
        assert adapter is not None
        assert house.steps.state.pid == 0  # without the process that learns
        np.testing.assert_array_equal(adapter.w2, kept[0].w2)
        steps = house.learner.topic()["steps"]
        await teach(house, at=NOON + 500)  # all of it is said again
        assert house.learner.topic()["steps"] == steps
        assert house.steps.state.pid == 0

    with_learner(tmp_path, first, steps=real(), settings=SETTINGS)
    with_learner(tmp_path, second, steps=real(), settings=SETTINGS)


def test_poisoned_feedback_is_thrown_away_and_said(tmp_path: Path) -> None:
    """What is said to help does not: on the pairs held out before, the adapter becomes worse than plain search."""

    async def body(house: LearnerHouse) -> None:
        await teach(house)
        house.heard.take()
        for round in range(12):
            await poison(house, round)
            if house.learner.topic()["reverted"]:
                break
        reverted = [data for what, data in house.heard.take() if what == "learning.reverted"]
        assert len(reverted) == 1
        assert "held out" in reverted[0]["why"]
        adapter = house.learner.f_q(house.ground.learned)
        assert adapter is None or adapter.is_identity

    with_learner(tmp_path, body, steps=real(), settings=SETTINGS)


async def poison(house: LearnerHouse, round: int) -> None:
    """Other questions, each answered by a passage that has nothing to do with it: always the same few."""
    passages = notes(house.log)
    for n, thing in enumerate(THINGS[2:], 2):
        shown = passages[THINGS[n % 2]]
        text = f"{question(thing)} round {round}"
        (impression,) = house.log.asked(text, [(shown, "good")], at=NOON + 1000 * (round + 1) + n)
        await house.judged(impression)
        if house.learner.topic()["reverted"]:
            return
