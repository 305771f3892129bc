"""The handle on the process that learns, against a real process whose lessons are scripted."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing

import scripted_worker
from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.adapters.settings import LossSettings, OnlineSettings
from recalld_daemon.learn_worker import LearnWorker, Opening, StateRefused, StepFailed, step_request
from recalld_daemon.worker_learning import pair_of
from recalld_daemon.worker_state import ModelChoice
from recalld_daemon.worker_wire import LearnOpen, LearnStepped, decode_request, encode

OPENING = Opening(b"promoted", OnlineSettings(), "key")


def lesson(key: str = "lesson") -> Pair:
    return Pair(key, np.ones(4, np.float32), np.ones(4, np.float32), np.zeros((0, 4), np.float32))


def after(stepped: LearnStepped) -> Opening:
    return replace(OPENING, state=stepped.state)


def check(conversation: Callable[[LearnWorker], Awaitable[None]], **options: object) -> None:
    """Run a conversation with a worker; afterwards its process must be gone."""
    options.setdefault("command", [sys.executable, "-P", scripted_worker.__file__, "learn"])
    worker = LearnWorker(ModelChoice(Path("/nonexistent")), first_backoff_seconds=0.01, **options)  # type: ignore[arg-type]

    async def run() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.run)
                await conversation(worker)
                pid = worker.state.pid
                nursery.cancel_scope.cancel()
        if pid:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    trio.run(run)
    assert worker.state.phase == "stopped"


async def until(worker: LearnWorker, phase: str) -> None:
    while worker.state.phase != phase:
        await worker._changed.wait()


def test_it_is_there_from_the_first_lesson_until_it_may_rest() -> None:
    async def conversation(worker: LearnWorker) -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert (worker.state.phase, worker.state.pid) == ("resting", 0)
        first = await worker.step(OPENING, lesson())
        second = await worker.step(after(first), lesson())
        assert (first.steps, second.steps) == (1, 2)
        pid = worker.state.pid
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
        assert os.sched_getscheduler(pid) == os.SCHED_OTHER
        worker.rest()
        third = await worker.step(after(second), lesson())  # at once: it waits for the next life
        assert third.steps == 3
        assert worker.state.pid != pid
        assert worker.state.restarts == 0
        worker.rest()
        await until(worker, "resting")
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    check(conversation)


def test_a_lesson_that_kills_it_costs_itself() -> None:
    async def conversation(worker: LearnWorker) -> None:
        first = await worker.step(OPENING, lesson())
        with pytest.raises(StepFailed):
            await worker.step(after(first), lesson("die"))
        second = await worker.step(after(first), lesson())
        assert second.steps == 2
        assert worker.state.restarts == 1

    check(conversation)


def test_a_dead_one_is_started_again_by_the_next_lesson_only() -> None:
    async def conversation(worker: LearnWorker) -> None:
        with pytest.raises(StepFailed):
            await worker.step(OPENING, lesson("die"))
        await until(worker, "restarting")
        await trio.testing.wait_all_tasks_blocked(0.05)  # longer than the back-off
        assert worker.state.phase == "restarting"
        assert (await worker.step(OPENING, lesson())).steps == 1

    check(conversation)


def test_a_lesson_that_hangs_costs_itself() -> None:
    async def conversation(worker: LearnWorker) -> None:
        with pytest.raises(StepFailed, match="no answer"):
            await worker.step(OPENING, lesson("hang"))
        assert (await worker.step(OPENING, lesson())).steps == 1

    check(conversation, hang_seconds=1.0)


def test_after_a_step_that_failed_it_goes_on_from_what_was_given_out() -> None:
    async def conversation(worker: LearnWorker) -> None:
        first = await worker.step(OPENING, lesson())
        with pytest.raises(StepFailed, match="not in this house"):
            await worker.step(after(first), lesson("raise:not in this house"))
        assert (await worker.step(OPENING, lesson())).steps == 1  # what the daemon says counts, not what it remembers
        worker.distrust()
        assert (await worker.step(after(first), lesson())).steps == 2

    check(conversation)


def test_another_key_is_opened_anew() -> None:
    async def conversation(worker: LearnWorker) -> None:
        await worker.step(OPENING, lesson())
        other = await worker.step(replace(OPENING, key="other version"), lesson())
        assert other.state == b"1 other version"
        with pytest.raises(StateRefused, match="this state is none"):
            await worker.step(replace(OPENING, state=b"refuse"), lesson())
        assert (await worker.step(OPENING, lesson())).steps == 1

    check(conversation)


@pytest.mark.parametrize("command", [[sys.executable, "-c", "pass"], ["/nonexistent/python"]])
def test_one_that_cannot_start_fails_the_lesson(command: list[str]) -> None:
    async def conversation(worker: LearnWorker) -> None:
        for _ in range(2):
            with pytest.raises(StepFailed):
                await worker.step(OPENING, lesson())

    check(conversation, command=command)


def test_settings_and_lessons_travel_whole() -> None:
    settings = OnlineSettings(loss=LossSettings(subject_weight=0.7), learning_rate=2e-3)
    opening = LearnOpen(id=1, promoted=b"p", settings=settings, key="k", state=b"s")
    assert decode_request(encode(opening)) == opening
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    pair = Pair("k", rows[0], rows[1], rows, rows[1], 1.5, 7.0)
    back = pair_of(decode_request(encode(step_request(2, pair))), 4)  # type: ignore[arg-type]
    assert (back.key, back.weight, back.at) == ("k", 1.5, 7.0)
    for name in ("query", "gold", "negatives", "subject"):
        np.testing.assert_array_equal(getattr(back, name), getattr(pair, name))
    with pytest.raises(ValueError, match="a lesson's vector has 4 numbers, the adapter takes 3"):
        pair_of(step_request(3, pair), 3)
