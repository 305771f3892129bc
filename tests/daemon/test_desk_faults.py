"""What no message may do: end the daemon, or make a session's race deliver in a way its client does not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from desk_house import DeskHouse, at_the_desk
from recalld_daemon.recall.types import Query
from recalld_daemon.session import Conversation
from recalld_protocol import messages as wire

TEXTS = {
    "berth_booking": "Never create an index on berth_booking without CONCURRENTLY, it locks all bookings.",
    "tide": "Tide tables are taken from the harbour office each Monday, never from the almanac.",
}
ASK_INDEX = "how do we create an index on berth_booking without locking bookings"
ASK_TIDES = "where do the tide tables of the harbour come from each Monday"


@pytest.mark.parametrize("cwd", ["/a\0b", "/" + "x" * 300, "/a/" + "y/" * 2000])
def test_a_directory_that_cannot_be_is_no_fault(tmp_path: Path, cwd: str) -> None:
    async def body(house: DeskHouse) -> None:
        house.say(wire.Hello(session="s", versions=[1], cwd=cwd))
        house.say(wire.Search(session="s", query="tide tables", cwd=cwd))
        await house.settled()
        assert len(house.take(wire.Welcome)) == 1

    at_the_desk(tmp_path, TEXTS, body)


def test_a_fault_in_handling_a_message_is_answered_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(self: Conversation) -> Query:
        raise RuntimeError("a fault of ours")

    async def body(house: DeskHouse) -> None:
        house.hello()
        with monkeypatch.context() as patched:
            patched.setattr(Conversation, "focus_for_turn", faulty)
            house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX, id=7))
        (problem,) = house.take(wire.Problem)
        assert (problem.re, problem.of, problem.code) == (7, "turn", "failed")
        assert "a fault of ours" in problem.text
        house.say(wire.Turn(session="s", turn=2, text=ASK_INDEX))
        await house.settled()
        assert house.take(wire.Inject)[-1].snippets

    at_the_desk(tmp_path, TEXTS, body)


def test_a_session_that_changes_its_delivery_gets_nothing_twice(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        await house.settled()
        pushed = house.take(wire.Inject)[-1].snippets
        house.say(wire.Boundary(session="s", number=1, turn=1, taken=[pushed[0].id]))
        house.hello(delivery="pull", turn=1, boundary=1)
        house.say(wire.Turn(session="s", turn=2, text=ASK_TIDES))
        await house.settled()
        house.say(wire.ToolStarted(session="s", call="c", name="Bash", args=ASK_INDEX))
        await house.settled()
        assert house.take(wire.Inject) == []
        house.say(wire.Outbox(session="s"))
        (pulled,) = house.take(wire.Injections)
        assert [s.path for s in pushed] == ["memory:1"]
        assert [s.path for s in pulled.snippets] == ["memory:2"]
        assert house.desk.counts()["won"] == 2
        house.hello(turn=2, boundary=2)
        house.say(wire.Turn(session="s", turn=3, text=ASK_TIDES + " and " + ASK_INDEX))
        await house.settled()
        assert [inject for inject in house.take(wire.Inject) if inject.snippets] == []

    at_the_desk(tmp_path, TEXTS, body)


def test_what_was_not_taken_before_the_delivery_changed_may_come_the_other_way(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello(delivery="pull")
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        await house.settled()
        house.hello(turn=1)
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        await house.settled()
        assert [s.path for s in house.take(wire.Inject)[-1].snippets] == ["memory:1"]
        assert house.desk.counts()["stale"] == 1

    at_the_desk(tmp_path, TEXTS, body)
