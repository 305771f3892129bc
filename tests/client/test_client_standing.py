"""The sans-IO parts that mend a session: the handshake by its clock, and the pledges in their bounded queue."""

from __future__ import annotations

import logging

import pytest

from recalld_client.handshake import Handshake
from recalld_client.pledges import AGAIN_SECONDS, MAX_CHARACTERS, MAX_PLEDGES, Pledges
from recalld_client.quiet import quiet, quiet_async
from recalld_protocol.messages import Feedback, Pong, Remember, Welcome


def welcomed(epoch: str = "e", now: float = 0.0) -> Handshake:
    handshake = Handshake()
    handshake.hello_sent(now)
    handshake.heard(now)
    assert handshake.welcome(Welcome(version=1, epoch=epoch, heartbeat_seconds=5))
    return handshake


def test_hello_is_due_at_first_and_again_ever_later_while_nobody_answers() -> None:
    handshake, said = Handshake(), []
    for now in range(40):
        if handshake.hello_due(now):
            handshake.hello_sent(now)
            said.append(now)
    assert said == [0, 1, 3, 7, 15, 23, 31, 39]
    assert handshake.silent(40)


def test_a_welcome_settles_it_and_tells_whether_it_is_another_daemon() -> None:
    handshake = welcomed("first")
    assert handshake.settled
    assert not handshake.hello_due(1_000)
    assert not handshake.welcome(Welcome(version=1, epoch="first"))
    assert handshake.welcome(Welcome(version=1, epoch="second"))


def test_a_ping_is_due_after_a_heartbeat_of_silence_and_must_be_answered() -> None:
    handshake = welcomed(now=0)
    assert not handshake.ping_due(4.9)
    assert handshake.ping_due(5.0)
    handshake.pinged(5.0)
    assert not handshake.ping_due(5.1)
    assert not handshake.silent(6.0)
    assert handshake.silent(6.1)
    handshake.heard(6.2)
    assert handshake.settled
    assert not handshake.silent(100)


def test_a_pong_of_another_epoch_is_a_restart() -> None:
    handshake = welcomed("first")
    handshake.pong(Pong(epoch="first"))
    assert handshake.welcomed
    handshake.pong(Pong(epoch="second"))
    assert not handshake.welcomed
    assert handshake.hello_due(0)


def test_a_refusal_is_asked_about_again_after_a_while() -> None:
    handshake = Handshake()
    handshake.hello_sent(0)
    handshake.welcome(Welcome(version=9, epoch="e"))
    assert "9" in handshake.refusal
    assert not handshake.hello_due(29)
    assert handshake.hello_due(30)
    handshake.hello_sent(30)
    assert not handshake.hello_due(59)
    handshake.welcome(Welcome(version=1, epoch="e"))
    assert (handshake.refusal, handshake.welcomed) == ("", True)


def test_a_busy_daemon_is_asked_again_sooner() -> None:
    handshake = Handshake()
    handshake.hello_sent(0)
    handshake.refuse("full", busy=True)
    assert not handshake.hello_due(4)
    assert handshake.hello_due(5)
    handshake.lost()
    assert handshake.refusal == ""


def feedback(id: int) -> Feedback:
    return Feedback(id=id, impression=f"i{id}", verdict="good", key=f"k{id}")


def test_a_pledge_is_due_until_it_is_done() -> None:
    pledges = Pledges()
    assert pledges.add(feedback(1)) == []
    assert pledges.due(0) == [feedback(1)]
    pledges.sent(1, 0)
    assert pledges.due(AGAIN_SECONDS - 0.1) == []
    assert pledges.due(AGAIN_SECONDS) == [feedback(1)]
    pledges.lost()
    assert pledges.due(0.1) == [feedback(1)]
    assert pledges.done(1) == feedback(1)
    assert (pledges.done(1), len(pledges)) == (None, 0)


def test_pledges_are_bounded_in_number_and_size() -> None:
    pledges = Pledges()
    given_up = [old for id in range(1, MAX_PLEDGES + 3) for old in pledges.add(feedback(id))]
    assert given_up == [feedback(1), feedback(2)]
    pledges.clear()
    for id in range(1, 1_000):
        pledges.add(Remember(id=id, text="x" * 32_768, key=str(id)))
    assert len(pledges) == MAX_CHARACTERS // 32_768
    assert 999 in pledges


def test_the_outer_edge_swallows_and_logs_each_cause_once(caplog: pytest.LogCaptureFixture) -> None:
    @quiet(list[int])
    def fails(error: BaseException) -> list[int]:
        raise error

    assert fails(ValueError("first")) == fails(ValueError("second")) == fails(KeyError("other")) == []
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    with pytest.raises(KeyboardInterrupt):
        fails(KeyboardInterrupt())


def test_the_outer_edge_of_coroutines_too(caplog: pytest.LogCaptureFixture) -> None:
    @quiet_async(str)
    async def fails() -> str:
        raise ValueError("inside")

    with pytest.raises(StopIteration) as end:
        fails().send(None)  # type: ignore[attr-defined]
    assert end.value.value == ""
    assert "fails failed, the agent goes on without recall" in caplog.text
