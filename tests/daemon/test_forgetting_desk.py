"""P018 in sessions under way: what is forgotten is not offered, not shown, not logged any more; nor watched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio.testing

from desk_house import DeskHouse, at_the_desk
from recalld_daemon import purging
from recalld_daemon.followed_paths import FollowedPaths
from recalld_daemon.forgetting import AT_ONCE, Forgetting, batches
from recalld_daemon.recall.quotes import MASK
from recalld_daemon.store.reader import open_reader
from recalld_daemon.store.rows import Source
from recalld_protocol import messages as wire

LEDGER = "The quexalorn ledger of berth_booking lies in the harbour office since April"
PUMP = "The pump of the harbour office leaks when the tide is high"
TEXTS = {"ledger": LEDGER, "pump": PUMP}
MEMORY, OTHER = "memory:1", "memory:2"
Body = Callable[[DeskHouse, Forgetting], Awaitable[None]]


class NothingLearned:
    def __init__(self) -> None:
        self.unlearned: list[list[int]] = []

    async def unlearn(self, passages: list[int]) -> None:
        self.unlearned.append(list(passages))


async def no_indexes() -> None:
    """There are none in this house."""


def forgetting(tmp_path: Path, body: Body) -> None:
    async def main(house: DeskHouse) -> None:
        writer, turns = house.journal._writer, house.journal._turns
        memory: Any = SimpleNamespace(
            reader=house.reader, writer=writer, turns=turns, ingest=None, index=None, purge_indexes=no_indexes
        )
        feed, learner = house.answers.feed, NothingLearned()
        followed = FollowedPaths(house.reader, writer, turns, None, feed, lambda: None)  # type: ignore[arg-type]
        fakes: Any = learner
        room = Forgetting(memory, house.journal, house.book, house.desk, fakes, followed, feed, frozenset({"/watched"}))
        house.answers.forgetting = room
        await body(house, room)

    at_the_desk(tmp_path, TEXTS, main)


async def ask(house: DeskHouse, question: wire.FromAgent) -> wire.FromDaemon:
    house.take(wire.Forgotten), house.take(wire.Problem)
    house.say(question)
    while not (found := house.take(wire.Forgotten) + house.take(wire.Problem)):
        await trio.testing.wait_all_tasks_blocked()
    return found[0]  # type: ignore[no-any-return]


def call(house: DeskHouse, id: str, args: str, session: str = "s") -> None:
    house.say(wire.ToolStarted(session=session, call=id, name="Bash", args=args))


def on_disk(tmp_path: Path) -> bytes:
    return b"".join(path.read_bytes() for path in tmp_path.glob("db*"))


def test_what_was_sent_is_withdrawn_and_never_an_impression(tmp_path: Path) -> None:
    async def body(house: DeskHouse, room: Forgetting) -> None:
        house.hello()
        call(house, "c1", "open the ledger")
        await house.settled()
        (snippet,) = house.take(wire.Inject)[-1].snippets
        answer = await ask(house, wire.Forget(path=MEMORY))
        assert isinstance(answer, wire.Forgotten)
        assert (answer.path, answer.passages) == (MEMORY, 1)
        assert house.take(wire.Inject)[-1].snippets == []
        house.say(wire.ToolEnded(session="s", call="c1"))
        house.say(wire.Boundary(session="s", number=1, taken=[snippet.id]))  # the client had shown it just before
        await house.settled()
        house.book.get("s").race.validate()
        assert house.reader.counts()["impressions"] == 0
        assert b"quexalorn" not in on_disk(tmp_path)

    forgetting(tmp_path, body)


def test_a_hook_that_comes_later_gets_what_is_left(tmp_path: Path) -> None:
    async def body(house: DeskHouse, room: Forgetting) -> None:
        house.hello(delivery="pull")
        call(house, "c1", "open the ledger beside the pump")
        await house.settled()
        await ask(house, wire.Forget(path=MEMORY))
        house.say(wire.Outbox(session="s"))
        (injections,) = house.take(wire.Injections)
        assert [snippet.path for snippet in injections.snippets] == [OTHER]

    forgetting(tmp_path, body)


def test_a_recall_that_found_it_before_offers_and_logs_nothing_of_it(tmp_path: Path) -> None:
    async def body(house: DeskHouse, room: Forgetting) -> None:
        house.hello()
        house.recaller.deeper = trio.Event()  # its deep answer waits; what the shallow one found is judged before
        call(house, "c1", "open the ledger beside the pump")
        await trio.testing.wait_all_tasks_blocked()
        answer: list[wire.FromDaemon] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: keep(answer, ask(house, wire.Forget(path=MEMORY))))
            await trio.testing.wait_all_tasks_blocked()
            house.recaller.deeper.set()
        assert isinstance(answer[0], wire.Forgotten)
        await house.settled()
        assert [snippet.path for snippet in house.take(wire.Inject)[-1].snippets] == [OTHER]
        assert house.desk.recalls.forgotten == set()
        house.say(wire.Boundary(session="s", number=1))
        await house.settled()
        assert b"quexalorn" not in on_disk(tmp_path)

    forgetting(tmp_path, body)


def test_a_recall_that_judged_it_before_its_rows_went_offers_nothing_of_it_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds was read before; the rows tell it nothing any more."""
    guarded: list[set[int]] = []

    async def body(house: DeskHouse, room: Forgetting) -> None:
        take, ids = Forgetting._take, set(house.reader.passage_ids(MEMORY))

        def seen(self: Forgetting, *arguments: Any) -> Any:
            guarded.append(set(house.desk.recalls.forgotten))
            return take(self, *arguments)

        monkeypatch.setattr(Forgetting, "_take", seen)
        house.hello()
        house.recaller.deeper = trio.Event()
        call(house, "c1", "open the ledger beside the pump")
        await trio.testing.wait_all_tasks_blocked()
        with house.desk.recalls.forgetting(ids):
            house.recaller.deeper.set()
        await house.settled()
        assert {snippet.path for inject in house.take(wire.Inject)[1:] for snippet in inject.snippets} == {OTHER}
        await ask(house, wire.Forget(path=MEMORY))
        assert guarded == [ids]

    forgetting(tmp_path, body)


async def keep(found: list[wire.FromDaemon], answer: Awaitable[wire.FromDaemon]) -> None:
    found.append(await answer)


def test_what_was_shown_of_it_is_watched_no_more_and_what_is_said_of_it_masked(tmp_path: Path) -> None:
    async def body(house: DeskHouse, room: Forgetting) -> None:
        house.hello()
        call(house, "c1", "open the ledger beside the pump")
        await house.settled()
        offered = [snippet.id for inject in house.take(wire.Inject) for snippet in inject.snippets]
        house.say(wire.ToolEnded(session="s", call="c1"))
        house.say(wire.Boundary(session="s", number=1, taken=offered))
        house.say(wire.Turn(session="s", turn=1, text=f"I told you: {LEDGER}. And the pump?"))
        await house.settled()
        shown = house.reader.counts()["impressions"]
        assert shown == len(house.book.get("s").observer) == 2  # type: ignore[union-attr]
        await ask(house, wire.Forget(path=MEMORY))
        live = house.book.get("s")
        assert live is not None
        assert not any("quexalorn" in text for text in live.conversation.texts())
        assert f"I told you: {MASK}. And the pump?" in live.conversation.texts()
        house.say(wire.Said(session="s", text="the quexalorn ledger of berth_booking lies in the office since April"))
        call(house, "c2", "look at the pump")
        await house.settled()
        assert len(live.observer) == house.reader.counts()["impressions"] == 1
        queries = [record.query for record in house.reader.recalls("s")]
        assert any(MASK in query for query in queries)

    forgetting(tmp_path, body)


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("memory:77", "not_found", "nothing is known of 'memory:77'"),
        ("/nowhere/at all.md", "not_found", "nothing is known of"),
        ("/watched", "failed", "is watched"),
        ("nul\0byte", "not_found", "nothing is known of"),
    ],
)
def test_what_is_not_known_or_not_ours_is_refused(tmp_path: Path, path: str, code: str, text: str) -> None:
    async def body(house: DeskHouse, room: Forgetting) -> None:
        answer = await ask(house, wire.Forget(path=path))
        assert isinstance(answer, wire.Problem)
        assert (answer.code, answer.of) == (code, "forget")
        assert text in answer.text
        assert house.reader.counts()["memories"] == 2

    forgetting(tmp_path, body)


def test_a_reader_elsewhere_holds_it_up_and_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found no more, but the log still holds it: asked again once the reader has gone, it ends."""
    monkeypatch.setattr(purging, "CUT_SECONDS", 0.3)

    async def body(house: DeskHouse, room: Forgetting) -> None:
        with open_reader(tmp_path / "db") as other:
            walk = other._pool.lend()
            db = walk.__enter__()
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM passages").fetchone()
            busy = await ask(house, wire.Forget(path=MEMORY))
            assert isinstance(busy, wire.Problem)
            assert (busy.code, "another process reads the store" in busy.text) == ("busy", True)
            assert house.reader.source(MEMORY) is None
            assert b"quexalorn" in on_disk(tmp_path)
            db.rollback()
            walk.__exit__(None, None, None)
        again = await ask(house, wire.Forget(path=MEMORY))
        assert again == wire.Forgotten(re=again.re, path=MEMORY, passages=0)
        assert b"quexalorn" not in on_disk(tmp_path)
        assert isinstance(await ask(house, wire.Forget(path=MEMORY)), wire.Problem)

    forgetting(tmp_path, body)


def test_many_who_ask_at_once_share_a_purge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    purges: list[int] = []

    async def body(house: DeskHouse, room: Forgetting) -> None:
        real = purging.purge

        async def counted(*arguments: Any) -> None:
            purges.append(1)
            await real(*arguments)

        monkeypatch.setattr("recalld_daemon.forgetting.purge", counted)
        answers: list[wire.FromDaemon] = []
        async with trio.open_nursery() as nursery:
            for path in (MEMORY, OTHER, "memory:9"):
                nursery.start_soon(keep, answers, room.forget(wire.Forget(path=path)))
        assert sorted(type(answer).__name__ for answer in answers) == ["Forgotten", "Forgotten", "Problem"]
        assert len(purges) <= 2
        assert house.reader.counts()["memories"] == 0

    forgetting(tmp_path, body)


def test_sources_go_in_batches_of_so_many_passages() -> None:
    def source(path: str, passages: int) -> Source:
        return Source(1, 1, "text", path, path, 0, 0, 0, 0, "ok", "", 0, passages)

    half = AT_ONCE // 2
    many = [source("a", half), source("b", half), source("c", 1), source("d", 3 * AT_ONCE), source("e", 1)]
    assert batches(many) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert batches([]) == [[]]
