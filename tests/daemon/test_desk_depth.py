"""The desk where a recall goes deeper than its boundary, where a context is compacted, and where much is asked."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.testing

from desk_house import DeskHouse, at_the_desk
from recalld_daemon.recall.budget import TOOL_MS
from recalld_protocol import messages as wire
from recalld_protocol.tokens import snippet_tokens, tokens_of

INDEX = "Never create an index on berth_booking without CONCURRENTLY, the lock stopped all bookings in April"
LONG = """Rolling out the spring schema took the harbour two attempts. The first attempt built the index on the bookings
table in one transaction, the lock held back all skippers for eleven minutes, and support counted forty calls. The next
used CONCURRENTLY, outside of any transaction, with a timeout of five seconds and a retry at night."""
TWIN = LONG.replace("two attempts", "two attempts, as everybody remembers").replace("all skippers", "every skipper")
TIDES = "The tidefeed answers 429 when more than sixty harbour windows are asked for within one minute"
TEXTS = {"berth_booking": INDEX, "tidefeed": TIDES}
ASK_INDEX = "create an index on berth_booking now"
ASK_BOTH = "create an index on berth_booking while the tidefeed answers 429 for harbour windows"


async def taken(house: DeskHouse, call: str, args: str, number: int) -> list[str]:
    """A tool call of which all is taken that it brings: the paths."""
    house.say(wire.ToolStarted(session="s", call=call, name="Bash", args=args))
    await house.settled()
    shown = [snippet for inject in house.take(wire.Inject)[-1:] for snippet in inject.snippets]
    house.say(wire.ToolEnded(session="s", call=call))
    house.say(wire.Boundary(session="s", number=number, taken=[snippet.id for snippet in shown]))
    await house.settled()
    return [snippet.path for snippet in shown]


def test_p009_after_a_compaction_the_same_may_come_once_more(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        assert await taken(house, "c1", ASK_INDEX, 1) == ["memory:1"]
        assert await taken(house, "c2", f"{ASK_INDEX} again", 2) == []
        house.say(wire.Compacted(session="s"))
        assert await taken(house, "c3", f"{ASK_INDEX}, please", 3) == ["memory:1"]
        assert await taken(house, "c4", f"{ASK_INDEX} once more", 4) == []

    at_the_desk(tmp_path, TEXTS, body)


def test_p009_what_is_nearly_the_same_as_something_shown_is_known(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        assert await taken(house, "c1", "look at berth_booking index", 1) == ["memory:1"]
        house.say(
            wire.ToolStarted(session="s", call="c2", name="Bash", args="create the concurrently index for bookings")
        )
        await house.settled()
        (settled,) = [one for one in house.take(wire.Settled) if one.calls == ["c2"]]
        assert (settled.outcome, settled.reason) == ("silent", "known: nearly the same was shown in this session")

    at_the_desk(tmp_path, {"berth_booking": LONG, "concurrently": TWIN}, body)


def test_a_deeper_answer_slips_where_it_holds_something_else(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.recaller.deeper = trio.Event()
        house.say(wire.ToolStarted(session="s", call="c1", name="Read", args=ASK_BOTH.partition(" while")[0]))
        while not (injects := house.take(wire.Inject)):
            await trio.testing.wait_all_tasks_blocked(0.01)
        (first,) = injects[-1].snippets
        house.say(wire.ToolEnded(session="s", call="c1"))
        house.say(wire.Boundary(session="s", number=1, taken=[first.id]))
        (settled,) = house.take(wire.Settled)
        assert (settled.recall, settled.outcome, settled.stage) == (injects[-1].recall, "ready", "fused")
        house.recaller.deeper.set()
        await house.settled()
        (later,) = house.take(wire.Inject)
        (second,) = later.snippets
        assert (first.path, second.path) == ("memory:1", "memory:2")
        assert later.recall != injects[-1].recall
        house.say(wire.Boundary(session="s", number=2, taken=[second.id]))
        await house.settled()
        impressions = [house.reader.impression(snippet.id) for snippet in (first, second)]
        assert [(one.recall, one.outcome) for one in impressions if one] == [
            (injects[-1].recall, "won"),
            (later.recall, "slipped"),
        ]
        assert {verdict: house.desk.counts()[verdict] for verdict in ("won", "slipped", "failed")} == {
            "won": 1, "slipped": 1, "failed": 0,
        }  # fmt: skip

    at_the_desk(tmp_path, TEXTS, body)


def test_a_recall_knows_how_much_time_its_tool_leaves(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        for number, name in enumerate(("Read", "Bash")):
            house.say(wire.ToolStarted(session="s", call=f"c{number}", name=name, args=f"{ASK_INDEX} {number}"))
            await house.settled()
        assert [round(budget.ms) for budget in house.recaller.budgets] == [TOOL_MS["read"], TOOL_MS["bash"]]
        assert "judge" in house.desk.recalls.costs.table()

    at_the_desk(tmp_path, TEXTS, body)


def test_p009_tokens_shown_are_counted(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        (snippet,) = house.take(wire.Inject)[-1].snippets
        house.say(wire.Boundary(session="s", number=1, taken=[snippet.id]))
        assert house.desk.tokens_shown == snippet_tokens(snippet) > 12
        house.say(wire.SessionsAsk())
        await house.settled()
        (row,) = house.take(wire.Sessions)[-1].sessions
        assert row.tokens == snippet_tokens(snippet)
        house.say(wire.Bye(session="s"))
        assert house.desk.tokens_shown == snippet_tokens(snippet)

    at_the_desk(tmp_path, TEXTS, body)


def test_a_block_is_packed_within_its_tokens(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.say(wire.Pack(query="what of the berth_booking index and the tidefeed?", token_budget=200))
        await trio.testing.wait_all_tasks_blocked(0.05)
        while not (found := house.take(wire.Packed)):
            await trio.testing.wait_all_tasks_blocked(0.01)
        (packed,) = found
        assert packed.passages == 2
        assert packed.tokens == tokens_of(packed.text) <= 200
        assert all(text in packed.text for text in (INDEX, TIDES, "memory:1:0-", "14 November 2023"))
        house.say(wire.Pack(query="!?"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert house.take(wire.Packed) == [wire.Packed(re=2)]

    at_the_desk(tmp_path, TEXTS, body)
