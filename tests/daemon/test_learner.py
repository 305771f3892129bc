"""The learner: what a verdict leads to, once; what is kept, and under which key; and that it harms no recall."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing

from learner_house import (
    LearnerHouse,
    ScriptedSteps,
    adapter_with,
    ground_of,
    state_of,
    stepped,
    steps_in,
    with_learner,
)
from log_house import DIMS, NOON, LogHouse
from recalld_daemon.adapters.settings import LossSettings, OnlineSettings, ShapeSettings
from recalld_daemon.learn_worker import Opening, StateRefused, StepFailed
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.learner import QUEUE
from recalld_daemon.online_kept import NOTHING, keep, online_key, read_kept

QUERY = "where is the staging key"
TEXTS = ["The staging key is in the vault", "The harbour office opens at nine", "Soup is on Thursdays", "Crane four"]


def bias(house: LearnerHouse) -> float:
    """What the scripted steps put into the adapter: their number; 0: nothing is used."""
    adapter = house.learner.f_q(house.ground.learned)
    return 0.0 if adapter is None else float(adapter.b2[0])


def one_good(log: LogHouse, query: str = QUERY, verdict: str = "good", at: float = NOON) -> str:
    passages = log.reader.passage_ids("/notes/a.md") or log.remember("/notes/a.md", TEXTS)
    (impression,) = log.asked(query, [(passages[0], verdict)], at=at)
    return impression


def test_what_helped_is_learned_and_used_and_said(tmp_path: Path) -> None:
    async def body(house: LearnerHouse) -> None:
        impression = one_good(house.log)
        assert bias(house) == 0.0
        await house.judged(impression)
        assert bias(house) == 1.0
        opening, pair = house.steps.asked[0]
        np.testing.assert_allclose(pair.query, house.log.live.encode_query(QUERY)[0])
        assert opening.state == b""
        ((what, data),) = house.heard.take()
        assert what == "learning.step"
        assert data.pop("after_ms") >= 0
        assert data == {
            "impression": impression, "loss": 1.0, "ms": 2.0, "drift": 0.25, "steps": 1, "held": False,
        }  # fmt: skip
        topic = house.learner.topic()
        assert (topic["steps"], topic["drift"], topic["held_mrr"], topic["held_pairs"]) == (1, 0.25, 0.5, 9)
        assert topic["b2"] == pytest.approx(np.sqrt(DIMS), abs=1e-3)
        assert topic["w2"] == 0.0
        assert topic["step_ms_p50"] == topic["step_ms_p95"] == 2.0

    with_learner(tmp_path, body)


@pytest.mark.parametrize("verdict", ["bad", "ignored", "unknown"])
def test_what_did_not_help_alone_makes_no_step(tmp_path: Path, verdict: str) -> None:
    async def body(house: LearnerHouse) -> None:
        await house.judged(one_good(house.log, verdict=verdict), verdict=verdict)
        await house.judged(one_good(house.log, verdict=verdict), verdict="good")  # told so, but the log says otherwise
        assert house.steps.asked == []
        assert house.heard.take() == []

    with_learner(tmp_path, body)


def test_a_verdict_is_learned_once_however_often_it_is_said(tmp_path: Path) -> None:
    async def body(house: LearnerHouse) -> None:
        impression, again = one_good(house.log), one_good(house.log, at=NOON + 60)
        await house.judged(impression, impression)
        await house.judged(impression, verdict="used")
        await house.judged(again)
        assert len(house.steps.asked) == 1
        await house.judged(one_good(house.log, "is there soup"))
        assert len(house.steps.asked) == 2

    with_learner(tmp_path, body)


def test_a_restart_uses_what_was_learned_at_once_and_learns_on(tmp_path: Path) -> None:
    async def first(house: LearnerHouse) -> None:
        await house.judged(one_good(house.log), one_good(house.log, "is there soup", at=NOON + 10))
        assert bias(house) == 2.0

    async def second(house: LearnerHouse) -> None:
        assert bias(house) == 2.0
        assert house.learner.topic()["steps"] == 2
        assert house.learner.topic()["held_mrr"] == 0.5
        assert house.steps.asked == []
        await house.judged(one_good(house.log, "when does the office open", at=NOON + 20))
        assert steps_in(house.steps.asked[0][0].state) == 2
        assert bias(house) == 3.0

    with_learner(tmp_path, first)
    with_learner(tmp_path, second)


def test_what_was_said_while_the_step_was_in_flight_is_learned_after_a_restart(tmp_path: Path) -> None:
    async def first(house: LearnerHouse) -> None:
        await house.judged(one_good(house.log))
        one_good(house.log, "is there soup")  # on disk, at the same time, but the daemon dies before it is learned
        one_good(house.log, "is crane four free", verdict="ignored", at=NOON + 11)

    async def second(house: LearnerHouse) -> None:
        assert [steps_in(opening.state) for opening, _ in house.steps.asked] == [1]
        assert bias(house) == 2.0

    with_learner(tmp_path, first)
    with_learner(tmp_path, second)


OTHERS: dict[str, dict[str, Any]] = {
    "learning rate": {"settings": OnlineSettings(learning_rate=2e-3)},
    "loss": {"settings": OnlineSettings(loss=LossSettings(subject_weight=0.3))},
    "width": {"settings": OnlineSettings(shape=ShapeSettings(hidden=64))},
    "version": {"learned": Learned(version=3)},
    "its weights": {"learned": Learned(query=adapter_with(0.5))},
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_state_is_not_resumed_under_another(tmp_path: Path, what: str) -> None:
    async def first(house: LearnerHouse) -> None:
        await house.judged(one_good(house.log))

    async def second(house: LearnerHouse) -> None:
        own = house.ground.learned.query
        assert bias(house) == (0.0 if own is None else 0.5)
        assert house.learner.topic()["steps"] == 0
        await house.judged(one_good(house.log, "is there soup"))
        assert house.steps.asked[0][0].state == b""

    with_learner(tmp_path, first)
    with_learner(tmp_path, second, **OTHERS[what])


def test_the_key_names_the_encoder_and_the_extraction_too(tmp_path: Path) -> None:
    with LogHouse(tmp_path) as log:
        ground = ground_of(log)
        key = online_key(OnlineSettings(), ground)
        assert key == online_key(OnlineSettings(), ground)
        others = [
            online_key(OnlineSettings(), replace(ground, fingerprint="another encoder")),
            online_key(OnlineSettings(), ground, extraction="facts=llm-1 subjects=rules-1 whens=rules-1"),
            online_key(OnlineSettings(), replace(ground, learned=Learned(vectors=2))),
        ]
        assert len({key, *others}) == 4
        keep(log.writer, log.encoder, key, stepped(1), NOON)
        assert read_kept(log.reader, log.encoder, DIMS, key).state == state_of(1)
        assert all(read_kept(log.reader, log.encoder, DIMS, other) == NOTHING for other in others)
        assert read_kept(log.reader, log.encoder, DIMS + 1, key) == NOTHING


@pytest.mark.parametrize("name", ["online", "online f_Q"])
def test_what_has_changed_on_disk_is_not_gone_on_from(tmp_path: Path, name: str) -> None:
    with LogHouse(tmp_path) as log:
        keep(log.writer, log.encoder, "key", stepped(1), NOON)
        assert read_kept(log.reader, log.encoder, DIMS, "key").state == state_of(1)
        record = log.reader.learning_state(name, log.encoder)
        assert record is not None
        log.writer.put_state(replace(record, data=record.data[:-1] + bytes([record.data[-1] ^ 1])))
        assert read_kept(log.reader, log.encoder, DIMS, "key") == NOTHING


def test_a_step_that_fails_costs_itself(tmp_path: Path) -> None:
    def script(opening: Opening, pair: Any, steps: int) -> Any:
        if len(house_steps.asked) == 2:
            raise StepFailed("the worker ended")
        return stepped(steps)

    house_steps = ScriptedSteps(script)

    async def body(house: LearnerHouse) -> None:
        await house.judged(one_good(house.log))
        house.heard.take()
        failing = one_good(house.log, "is there soup")
        await house.judged(failing)
        assert bias(house) == 1.0
        assert house.heard.take() == [("learning.failed", {"impression": failing, "why": "the worker ended"})]
        await house.judged(one_good(house.log, "when does the office open"))
        assert bias(house) == 2.0
        assert steps_in(house.steps.asked[-1][0].state) == 1
        assert house.learner.topic()["failed"] == 1

    with_learner(tmp_path, body, steps=house_steps)


def test_an_adapter_that_is_broken_is_not_used(tmp_path: Path) -> None:
    answers = [stepped(1), stepped(2, adapter_with(float("nan"))), stepped(2, adapter_bytes=b"no adapter")]
    steps = ScriptedSteps(lambda opening, pair, n: answers.pop(0))

    async def body(house: LearnerHouse) -> None:
        for query in (QUERY, "is there soup", "when does the office open"):
            await house.judged(one_good(house.log, query))
        assert bias(house) == 1.0
        assert [what for what, _ in house.heard.take()] == ["learning.step", "learning.failed", "learning.failed"]
        assert steps.distrusted == 2
        assert steps_in(steps.asked[-1][0].state) == 1

    with_learner(tmp_path, body, steps=steps)


def test_a_state_that_is_refused_is_begun_anew(tmp_path: Path) -> None:
    def script(opening: Opening, pair: Any, steps: int) -> Any:
        if steps_in(opening.state) == 7:
            raise StateRefused("no such state")
        return stepped(7 if steps == 1 and len(steps_.asked) == 1 else steps)

    steps_ = ScriptedSteps(script)

    async def body(house: LearnerHouse) -> None:
        await house.judged(one_good(house.log))
        await house.judged(one_good(house.log, "is there soup"))
        assert [steps_in(opening.state) for opening, _ in steps_.asked] == [0, 7, 0]
        assert bias(house) == 1.0

    with_learner(tmp_path, body, steps=steps_)


def test_a_step_waits_for_the_recalls_under_way(tmp_path: Path) -> None:
    idle = trio.Event()

    async def body(house: LearnerHouse) -> None:
        impression = one_good(house.log)
        house.learner.on_verdict(impression, "good")
        await trio.testing.wait_all_tasks_blocked()
        assert house.steps.asked == []
        idle.set()
        await house.rest()
        assert len(house.steps.asked) == 1

    with_learner(tmp_path, body, until_idle=idle.wait)


def test_of_too_many_verdicts_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    async def body(house: LearnerHouse) -> None:
        first = one_good(house.log)
        last = one_good(house.log, "is there soup")
        for impression in (first, *(f"none-{n}" for n in range(QUEUE)), last):
            house.learner.on_verdict(impression, "good")
        assert house.learner.topic()["queue"] == QUEUE
        await house.rest()
        assert house.learner.topic()["dropped"] == 2
        assert len(house.steps.asked) == 1

    with_learner(tmp_path, body)


def test_another_version_going_live_in_mid_step_is_what_is_learned_over(tmp_path: Path) -> None:
    begun, go_on = trio.Event(), trio.Event()

    async def slow(steps: int) -> Any:
        begun.set()
        await go_on.wait()
        return stepped(steps)

    steps = ScriptedSteps(lambda opening, pair, n: stepped(n) if begun.is_set() else slow(n))

    async def body(house: LearnerHouse) -> None:
        house.learner.on_verdict(one_good(house.log), "good")
        await begun.wait()
        version = Learned(version=4, query=adapter_with(0.25))
        house.learner.stand_on(replace(house.ground, learned=version), anew=True)
        assert house.learner.f_q(version) is version.query
        go_on.set()
        await house.rest()
        assert house.learner.f_q(PLAIN) is None  # a recall over what was live before has nothing of it
        adapter = house.learner.f_q(version)
        assert adapter is not None
        assert float(adapter.b2[0]) == 1.0
        first, second = (opening for opening, _ in steps.asked)
        assert first.key != second.key
        assert second.state == b""
        assert second.promoted == version.query.to_bytes() if version.query else False
        assert house.learner.topic()["version"] == 4

    with_learner(tmp_path, body, steps=steps)


def test_going_back_to_a_version_is_going_back_to_it_as_it_was_made(tmp_path: Path) -> None:
    """Also to the one that is live: there is no other way to be rid of what was learned over it."""

    async def first(house: LearnerHouse) -> None:
        await house.judged(one_good(house.log))
        assert bias(house) == 1.0
        house.learner.stand_on(replace(house.ground), anew=True)
        await house.rest()
        assert bias(house) == 0.0
        assert house.learner.topic()["steps"] == 0
        assert house.steps.distrusted == 1
        await house.judged(one_good(house.log, "is there soup"))
        assert house.steps.asked[-1][0].state == b""
        house.learner.stand_on(replace(house.ground), anew=True)
        await house.rest()

    async def second(house: LearnerHouse) -> None:
        assert bias(house) == 0.0
        assert house.steps.asked == []

    with_learner(tmp_path, first)
    with_learner(tmp_path, second)


def test_a_return_to_the_promoted_version_is_said(tmp_path: Path) -> None:
    why = "on 9 pairs held out its MRR is 0.300, the promoted version's 0.500"
    steps = ScriptedSteps(lambda opening, pair, n: stepped(n, adapter_with(0.0), reverted=why))

    async def body(house: LearnerHouse) -> None:
        impression = one_good(house.log)
        await house.judged(impression)
        assert house.heard.take() == [("learning.reverted", {"impression": impression, "why": why})]
        assert house.learner.topic()["reverted"] == 1
        assert bias(house) == 0.0

    with_learner(tmp_path, body, steps=steps)


def test_the_process_may_rest_after_a_quiet_while(tmp_path: Path) -> None:
    async def body(house: LearnerHouse) -> None:
        assert house.steps.rests == 0
        await house.judged(one_good(house.log))
        while not house.steps.rests:
            await trio.lowlevel.checkpoint()
        await house.judged(one_good(house.log, "is there soup"))
        assert len(house.steps.asked) == 2

    with_learner(tmp_path, body, quiet_seconds=0.05)


def test_where_it_is_off_the_versions_own_adapter_is_used(tmp_path: Path) -> None:
    async def body(house: LearnerHouse) -> None:
        house.learner.on_verdict(one_good(house.log), "good")
        assert house.learner.f_q(house.ground.learned) is house.ground.learned.query
        assert house.learner.topic()["state"] == "off"
        assert house.learner.topic()["queue"] == 0

    with_learner(tmp_path, body, learned=Learned(version=2, query=adapter_with(0.1)), enabled=False)
