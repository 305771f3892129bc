"""From what an agent does with a snippet to a row of feedback; and what is withheld at random."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio.testing

from desk_house import DeskHouse, at_the_desk
from recalld_daemon.recall.withholding import is_withheld
from recalld_daemon.store.rows import ImpressionRecord
from recalld_protocol import messages as wire

INDEX = "Never create an index on berth_booking without CONCURRENTLY, the lock stopped all bookings in April"
TEXTS = {"berth_booking": INDEX}
ASK_INDEX = "create an index on berth_booking now"
ALL = 0.999_999  # the share of which practically everything is withheld; 1 is not allowed


async def ask(house: DeskHouse, question: wire.FromAgent) -> wire.FromDaemon:
    house.router.sent.clear()
    house.say(question)
    while not house.router.sent:
        await trio.testing.wait_all_tasks_blocked()
    return house.router.sent[-1][1]


async def shown(house: DeskHouse, session: str = "s") -> str:
    """A call is made and ends; its snippet is shown at boundary 1. Its id."""
    house.say(wire.ToolStarted(session=session, call="c1", name="Bash", args=ASK_INDEX))
    await house.settled()
    (snippet,) = house.take(wire.Inject)[-1].snippets
    house.say(wire.ToolEnded(session=session, call="c1"))
    house.say(wire.Boundary(session=session, number=1, taken=[snippet.id]))
    await house.settled()
    return str(snippet.id)


async def boundaries(house: DeskHouse, *numbers: int) -> None:
    for number in numbers:
        house.say(wire.ToolStarted(session="s", call=f"w{number}", name="Bash", args="make all"))
        house.say(wire.ToolEnded(session="s", call=f"w{number}", result="built"))
        house.say(wire.Boundary(session="s", number=number))
    await house.settled()


def verdicts(house: DeskHouse, impression: str) -> list[tuple[str, str]]:
    return [(row.verdict, row.key) for row in house.reader.feedback(impression)]


def withheld(house: DeskHouse, recall: str) -> list[ImpressionRecord]:
    return [row for row in house.reader.impressions(recall) if row.outcome == "withheld"]


def test_use_is_written_down_and_who_learns_is_told_once_it_is(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        told: list[tuple[str, str, list[tuple[str, str]]]] = []
        house.desk.watching.on_verdict = lambda id, verdict: told.append((id, verdict, verdicts(house, id)))
        house.hello()
        id = await shown(house)
        house.say(wire.Said(session="s", text="CONCURRENTLY then: the lock would have stopped all of April's trips"))
        house.say(wire.Said(session="s", text="CONCURRENTLY, or the lock stopped us"))
        await house.settled()
        kept = [("used", f"{id}/used")]
        assert verdicts(house, id) == kept
        assert told == [(id, "used", kept)]
        await boundaries(house, 2, 3, 4, 5, 6)
        assert verdicts(house, id) == kept

    at_the_desk(tmp_path, TEXTS, body)


def test_what_was_asked_itself_is_no_use(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        id = await shown(house)
        house.say(wire.Said(session="s", text="I create the index on berth_booking"))
        await house.settled()
        assert verdicts(house, id) == []

    at_the_desk(tmp_path, TEXTS, body)


def test_ignored_after_so_many_boundaries(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        id = await shown(house)
        await boundaries(house, 2, 3, 4)
        assert verdicts(house, id) == []
        await boundaries(house, 5)
        assert verdicts(house, id) == [("ignored", f"{id}/ignored")]
        assert len(house.book.get("s").observer) == 0  # type: ignore[union-attr]

    at_the_desk(tmp_path, TEXTS, body)


def test_a_session_that_ends_is_unknown_and_nobody_learns_of_it(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        told: list[str] = []
        house.desk.watching.on_verdict = lambda id, verdict: told.append(verdict)
        house.hello()
        id = await shown(house)
        house.say(wire.Bye(session="s"))
        await house.settled()
        assert verdicts(house, id) == [("unknown", f"{id}/unknown")]
        assert told == []

    at_the_desk(tmp_path, TEXTS, body)


def test_unknown_is_kept_and_is_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(house: DeskHouse) -> None:
        heard: list[str] = []
        monkeypatch.setattr(house.desk.watching._feed, "emit", lambda what, *rest, **data: heard.append(what))
        house.hello()
        id = await shown(house)
        await ask(house, wire.Feedback(impression=id, verdict="good", key="k"))
        house.say(wire.Bye(session="s"))
        await house.settled()
        assert [verdict for verdict, _ in verdicts(house, id)] == ["good", "unknown"]
        assert heard.count("feedback") == 1  # what was said

    at_the_desk(tmp_path, TEXTS, body)


def test_our_own_tools_are_no_sign_of_use(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        id = await shown(house)
        args = f"recallctl search CONCURRENTLY lock stopped all bookings in April; recallctl good {id}"
        house.say(wire.ToolStarted(session="s", call="c2", name="Bash", args=args))
        for number in range(2, 6):
            house.say(wire.Boundary(session="s", number=number))
        await house.settled()
        assert verdicts(house, id) == [("unknown", f"{id}/unknown")]

    at_the_desk(tmp_path, TEXTS, body)


def test_the_outbox_of_a_host_without_a_thread_is_watched_alike(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello(delivery="pull")
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        await house.settled()
        house.say(wire.Outbox(session="s"))
        (delivered,) = house.take(wire.Injections)
        for _ in range(4):
            house.say(wire.ToolStarted(session="s", call="w", name="Bash", args="make all"))
            house.say(wire.Outbox(session="s"))
        await house.settled()
        assert [verdict for verdict, _ in verdicts(house, delivered.snippets[0].id)] == ["ignored"]

    at_the_desk(tmp_path, TEXTS, body)


def test_feedback_that_is_said_is_told_when_it_is_on_disk_and_once(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        told: list[tuple[str, str]] = []
        house.answers.on_verdict = lambda id, verdict: told.append((id, verdict))
        house.hello()
        id = await shown(house)
        for _ in range(2):
            assert isinstance(await ask(house, wire.Feedback(impression=id, verdict="good", key="k")), wire.Acked)
        assert told == [(id, "good")]
        assert verdicts(house, id) == [("good", "k")]

    at_the_desk(tmp_path, TEXTS, body)


# ---------------------------------------------------------------- withheld at random


def test_what_is_withheld_is_logged_once_watched_and_never_sent(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        (settled,) = house.take(wire.Settled)
        assert settled.outcome == "silent"
        assert settled.reason.startswith("withheld at random")
        (row,) = withheld(house, settled.recall)
        assert (row.passage, row.rank, row.boundary, row.stage) == (1, 1, 1, "late")
        assert row.propensity == ALL
        assert row.probability > 0.0
        house.say(wire.ToolEnded(session="s", call="c1"))
        house.say(wire.Boundary(session="s", number=1, taken=[row.id]))  # nobody was given this id
        await boundaries(house, 2, 3, 4, 5)
        house.say(wire.ToolStarted(session="s", call="c2", name="Bash", args=ASK_INDEX + " please, once more"))
        await house.settled()
        assert house.take(wire.Inject) == []
        assert verdicts(house, row.id) == [("ignored", f"{row.id}/ignored")]
        again = house.take(wire.Settled)[-1].recall
        assert withheld(house, again) == []
        assert house.reader.delivered_passages("s") == set()

    at_the_desk(tmp_path, TEXTS, body, withheld_share=ALL)


def test_why_says_that_it_was_withheld(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        recall = house.take(wire.Settled)[0].recall
        why = await ask(house, wire.WhyAsk(target=recall))
        assert isinstance(why, wire.Why)
        (candidate,) = why.candidates
        assert why.outcome == "withheld"
        assert candidate.gates["lot"].startswith("stopped: withheld at random")
        assert candidate.impression == f"{recall}-1"

    at_the_desk(tmp_path, TEXTS, body, withheld_share=ALL)


def test_a_verdict_on_what_was_withheld_is_taken(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        id = f"{house.take(wire.Settled)[0].recall}-1"
        assert isinstance(await ask(house, wire.Feedback(impression=id, verdict="good", key="k")), wire.Acked)
        assert verdicts(house, id) == [("good", "k")]

    at_the_desk(tmp_path, TEXTS, body, withheld_share=ALL)


def test_a_restart_neither_shows_nor_logs_it_again(tmp_path: Path) -> None:
    kept: list[ImpressionRecord] = []

    async def first(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        assert house.reader.withheld_passages("s") == {1}
        kept.extend(withheld(house, "e.1.1"))

    async def second(house: DeskHouse) -> None:
        house.recaller.words["berth_booking"] = 1
        house.hello(boundary=1)
        assert house.book.get("s").withheld == {1}  # type: ignore[union-attr]
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        assert house.take(wire.Inject) == []
        assert house.take(wire.Settled)[-1].recall == "e.1.1"  # the house's epoch is always the same
        assert withheld(house, "e.1.1") == kept

    at_the_desk(tmp_path, TEXTS, first, withheld_share=ALL)
    at_the_desk(tmp_path, {}, second, withheld_share=ALL)


def test_of_several_some_are_withheld_and_the_others_keep_their_rank(tmp_path: Path) -> None:
    share = 0.5
    session = next(
        f"s{n}" for n in range(99) if [is_withheld(f"s{n}", p, share) for p in (1, 2, 3)] == [True, False, False]
    )

    async def body(house: DeskHouse) -> None:
        house.hello(session)
        house.say(wire.ToolStarted(session=session, call="c1", name="Bash", args=" ".join(QUAY)))
        await house.settled()
        inject = house.take(wire.Inject)[-1]
        assert [snippet.path for snippet in inject.snippets] == ["memory:2", "memory:3"]
        house.say(wire.ToolEnded(session=session, call="c1"))
        house.say(wire.Boundary(session=session, number=1, taken=[snippet.id for snippet in inject.snippets]))
        await house.settled()
        rows = house.reader.impressions(inject.recall)
        assert [(row.passage, row.rank, row.outcome) for row in rows] == [
            (1, 1, "withheld"), (2, 2, "won"), (3, 3, "won"),
        ]  # fmt: skip
        assert [row.propensity for row in rows] == [share, 1 - share, 1 - share]

    at_the_desk(tmp_path, QUAY, body, withheld_share=share)


QUAY = {
    "bollard": "every bollard was painted crimson before the regatta",
    "gangway": "a gangway steeper than eight degrees needs a second steward",
    "capstan": "the capstan motor trips its fuse when salt gets into the housing",
}


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5])
def test_the_lot_falls_as_often_as_it_should(share: float) -> None:
    n = 20_000
    drawn = sum(is_withheld(f"session {number % 50}", number // 50, share) for number in range(n))
    assert abs(drawn - share * n) <= 5 * (share * (1 - share) * n) ** 0.5
