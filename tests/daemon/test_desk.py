"""The desk: each message handled at once, whatever it holds; the race's instructions carried out and written down."""

from __future__ import annotations

from pathlib import Path

import msgspec
import trio
import trio.testing

from desk_house import DeskHouse, at_the_desk
from recalld_protocol import messages as wire

INDEX = "Never create an index on berth_booking without CONCURRENTLY, the lock stopped all bookings in April"
TIDES = "The tidefeed answers 429 when more than sixty harbour windows are asked for within one minute"
TEXTS = {"berth_booking": INDEX, "tidefeed": TIDES}
ASK_INDEX = "create an index on berth_booking now"
ASK_TIDES = "why does the tidefeed answer with 429 for harbour windows"


async def ask(house: DeskHouse, question: wire.FromAgent) -> wire.FromDaemon:
    house.router.sent.clear()
    house.say(question)
    while not house.router.sent:
        await trio.testing.wait_all_tasks_blocked()
    return house.router.sent[-1][1]


def test_a_call_is_answered_with_its_passage_and_everything_is_written_down(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        (welcome,) = house.take(wire.Welcome)
        assert (welcome.re, welcome.epoch, welcome.version) == (1, "e", 1)
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        inject = house.take(wire.Inject)[-1]
        (settled,) = house.take(wire.Settled)
        assert (inject.calls, inject.turn, inject.boundary) == (["c1"], 0, 0)
        assert (settled.calls, settled.outcome, settled.stage) == (["c1"], "ready", "late")
        (snippet,) = inject.snippets
        assert snippet.path == "memory:1"
        house.say(wire.ToolEnded(session="s", call="c1"))
        house.say(wire.Boundary(session="s", number=1, taken=[snippet.id]))
        await house.settled()
        impression = house.reader.impression(snippet.id)
        record = house.reader.recall(inject.recall)
        assert impression is not None
        assert record is not None
        assert (impression.outcome, impression.boundary, impression.passage) == ("won", 1, 1)
        assert (record.outcome, record.session) == ("won", "s")
        assert record.cause.startswith("tool call c1: Bash")
        assert house.desk.counts()["won"] == 1

    at_the_desk(tmp_path, TEXTS, body)


def test_p006_a_late_answer_is_dropped_when_the_new_turn_is_about_something_else(
    tmp_path: Path,
) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.recaller.gate = trio.Event()
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        house.say(wire.Turn(session="s", turn=2, text=ASK_TIDES))
        await trio.testing.wait_all_tasks_blocked()
        house.recaller.gate.set()
        await house.settled()
        injects = house.take(wire.Inject)
        assert {inject.turn for inject in injects} == {2}
        assert {snippet.path for inject in injects for snippet in inject.snippets} == {"memory:2"}
        assert house.desk.counts()["stale"] == 1

    at_the_desk(tmp_path, TEXTS, body)


def test_p006_a_late_answer_that_still_fits_comes_with_the_new_turn(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.recaller.gate = trio.Event()
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        house.say(wire.Turn(session="s", turn=2, text="and what else on berth_booking would lock the bookings index"))
        await trio.testing.wait_all_tasks_blocked()
        house.recaller.gate.set()
        await house.settled()
        injects = [inject for inject in house.take(wire.Inject) if inject.snippets]
        assert injects
        assert {inject.turn for inject in injects} == {2}
        assert {snippet.path for inject in injects for snippet in inject.snippets} == {"memory:1"}

    at_the_desk(tmp_path, TEXTS, body)


def test_a_turn_that_asks_nothing_leaves_what_was_pending(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        await house.settled()
        assert house.take(wire.Inject)[-1].turn == 1
        house.say(wire.Turn(session="s", turn=2, text="go on"))
        await house.settled()
        again = house.take(wire.Inject)[-1]
        assert (again.turn, [snippet.path for snippet in again.snippets]) == (2, ["memory:1"])
        assert house.take(wire.Settled)[-1].outcome == "silent"

    at_the_desk(tmp_path, TEXTS, body)


def test_an_outbox_is_answered_once_with_what_is_there(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello(delivery="pull")
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        await house.settled()
        assert house.take(wire.Inject) == []
        house.say(wire.Outbox(session="s", id=41))
        house.say(wire.Outbox(session="s", id=42))
        first, second = house.take(wire.Injections)
        assert (first.re, [snippet.path for snippet in first.snippets]) == (41, ["memory:1"])
        assert (second.re, second.snippets) == (42, [])

    at_the_desk(tmp_path, TEXTS, body)


def test_p013_our_own_tools_start_no_recall_and_whoever_waits_is_told(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args="recallctl search berth_booking index"))
        await house.settled()
        (settled,) = house.take(wire.Settled)
        assert (settled.calls, settled.outcome) == (["c1"], "silent")
        assert house.recaller.views == []

    at_the_desk(tmp_path, TEXTS, body)


def test_a_recall_that_breaks_costs_silence_only(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.recaller.fault = ValueError("a fault of ours")
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        (settled,) = house.take(wire.Settled)
        assert settled.outcome == "failed"
        house.recaller.fault = None
        house.say(wire.ToolStarted(session="s", call="c2", name="Bash", args=ASK_INDEX))
        await house.settled()
        assert house.take(wire.Inject)[-1].snippets

    at_the_desk(tmp_path, TEXTS, body)


def test_injection_can_be_switched_off(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        (settled,) = house.take(wire.Settled)
        assert (settled.outcome, settled.reason) == ("silent", "injection is switched off ([recall] inject)")
        assert house.take(wire.Inject) == []

    at_the_desk(tmp_path, TEXTS, body, inject=False)


def test_a_replayed_moment_is_what_recall_looks_by(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX, as_of=1_600_000_000.0))
        await house.settled()
        assert [view.as_of for view in house.recaller.views] == [1_600_000_000.0]

    at_the_desk(tmp_path, TEXTS, body)


def test_a_session_that_is_not_open_is_told_to_say_hello(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.say(wire.Turn(session="ghost", turn=1, text="hi", id=9))
        (problem,) = house.take(wire.Problem)
        assert (problem.code, problem.re, problem.of, problem.session) == ("unknown_session", 9, "turn", "ghost")

    at_the_desk(tmp_path, TEXTS, body)


def test_whatever_a_frame_holds_the_answer_is_a_message(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.raw(b"\xc1 not msgpack")
        house.raw(msgspec.msgpack.encode({"kind": "dream", "id": 3}))
        house.raw(msgspec.msgpack.encode({"kind": "turn", "session": "s", "turn": "one"}))
        house.say(wire.Hello(session="s", versions=[7]))
        house.say(wire.Hello(session="", versions=[1]))
        codes = [problem.code for problem in house.take(wire.Problem)]
        assert codes == ["malformed", "unknown_kind", "malformed", "version", "malformed"]

    at_the_desk(tmp_path, TEXTS, body)


def test_a_full_or_stopping_daemon_says_so(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        for name in "abc":
            house.hello(name)
        (problem,) = house.take(wire.Problem)
        assert (problem.code, problem.session) == ("busy", "c")
        assert "[daemon] max_sessions" in problem.text
        house.say(wire.Bye(session="a"))
        house.desk.draining = True
        house.hello("d")
        (problem,) = house.take(wire.Problem)
        assert "is stopping" in problem.text
        house.hello("b")  # an open one may still resume
        assert house.take(wire.Problem) == []

    at_the_desk(tmp_path, TEXTS, body, max_sessions=2)


def test_the_way_back_is_learned_from_any_message(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.Said(session="s", text="I come by another socket"), identity=b"two")
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX), identity=b"three")
        await house.settled()
        assert {identity for identity, message in house.router.sent if isinstance(message, wire.Inject)} == {b"three"}

    at_the_desk(tmp_path, TEXTS, body)


def test_a_session_that_resumes_is_not_shown_the_same_again(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        (snippet,) = house.take(wire.Inject)[-1].snippets
        house.say(wire.ToolEnded(session="s", call="c1"))
        house.say(wire.Boundary(session="s", number=1, taken=[snippet.id]))
        house.say(wire.Bye(session="s"))
        await house.settled()
        assert len(house.book) == 0
        house.hello(boundary=1)  # as after a restart of the daemon: only the store knows
        house.say(wire.ToolStarted(session="s", call="c2", name="Bash", args=ASK_INDEX + " again"))
        await house.settled()
        assert [inject for inject in house.take(wire.Inject) if inject.snippets] == []
        assert house.take(wire.Settled)[-1].outcome == "silent"

    at_the_desk(tmp_path, TEXTS, body)


def test_questions_are_answered(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        assert isinstance(pong := await ask(house, wire.Ping(session="s")), wire.Pong)
        assert pong.epoch == "e"
        sessions = await ask(house, wire.SessionsAsk())
        assert isinstance(sessions, wire.Sessions)
        assert [(row.session, row.connected) for row in sessions.sessions] == [("s", True)]
        hits = await ask(house, wire.Search(query="berth_booking index"))
        assert isinstance(hits, wire.Hits)
        assert [hit.path for hit in hits.hits] == ["memory:1"]
        kept = await ask(house, wire.Remember(text="the quay is closed on Sundays", key="k1"))
        again = await ask(house, wire.Remember(text="the quay is closed on Sundays", key="k1"))
        assert isinstance(kept, wire.Remembered)
        assert isinstance(again, wire.Remembered)
        assert kept.memory == again.memory == "memory:3"
        for question, of in (
            (wire.WhyAsk(target="none"), "why_ask"),
            (wire.Feedback(impression="none", verdict="good"), "feedback"),
        ):
            problem = await ask(house, question)
            assert isinstance(problem, wire.Problem)
            assert (problem.code, problem.of) == ("not_found", of)
            assert "ids are in `recallctl tail`" in problem.text

    at_the_desk(tmp_path, TEXTS, body)


def test_sessions_that_ended_are_told_of_beside_those_that_are_open(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.Turn(session="s", turn=1, text=ASK_INDEX))
        await house.settled()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args="ls"))
        house.say(wire.Bye(session="s"))
        await house.settled()
        house.hello("t")
        await house.settled()
        answer = await ask(house, wire.SessionsAsk())
        assert isinstance(answer, wire.Sessions)
        opened, ended = answer.sessions
        assert (opened.session, opened.connected) == ("t", True)
        assert (ended.session, ended.connected, ended.turns, ended.calls) == ("s", False, 1, 1)
        assert 0 < ended.opened_at <= ended.last_seen_at

    at_the_desk(tmp_path, TEXTS, body)


def test_a_memory_without_text_is_refused(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.say(wire.Remember(text=" \0\n"))
        while not (problems := house.take(wire.Problem)):
            await trio.testing.wait_all_tasks_blocked()
        assert (problems[0].code, problems[0].of) == ("malformed", "remember")

    at_the_desk(tmp_path, TEXTS, body)


def test_p047_a_client_that_is_gone_is_known_to_be_gone_at_the_first_answer(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.router.gone.add(b"one")
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        assert [live.row(live.route is not None).connected for live in house.book] == [False]
        house.router.gone.clear()
        house.say(wire.Said(session="s", text="I was only slow"))
        assert [live.route for live in house.book] == [b"one"]

    at_the_desk(tmp_path, TEXTS, body)


def test_p016_a_secret_is_not_kept_when_it_is_remembered(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.say(wire.Remember(text="the bucket's key is AKIAIOSFODNN7EXAMPLE, region eu-north-1"))
        while not house.take(wire.Remembered):
            await trio.testing.wait_all_tasks_blocked()
        await house.journal.flush()
        assert "AKIA" not in str(house.reader.memory_text("memory:3"))
        assert b"AKIAIOSFODNN7EXAMPLE" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())

    at_the_desk(tmp_path, TEXTS, body)


def test_p016_a_secret_in_a_prompt_or_a_call_is_not_kept_in_the_log(tmp_path: Path) -> None:
    key, password = "AKIAIOSFODNN7EXAMPLE", "Tr0ub4dor-9x"

    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.Turn(session="s", turn=1, text=f"{ASK_INDEX} with {key}"))
        house.say(wire.Said(session="s", text=f"I use {key} at berth_booking"))
        args = f'{{"command": "create index berth_booking", "password": "{password}"}}'
        house.say(wire.ToolStarted(session="s", call="c1", name="mcp__db__run", args=args))
        await house.settled()
        causes = [house.reader.recall(inject.recall) for inject in house.take(wire.Inject)]
        assert any(record and "berth_booking" in record.query for record in causes)
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert key.encode() not in kept
        assert password.encode() not in kept

    at_the_desk(tmp_path, TEXTS, body)


def test_p037_a_search_for_marks_alone_finds_nothing(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        for query in ("😀🎉", '"' * 5000, "*", "( -"):
            hits = await ask(house, wire.Search(query=query))
            assert isinstance(hits, wire.Hits)
            assert hits.hits == []
        assert house.recaller.views == []

    at_the_desk(tmp_path, TEXTS, body)


def test_why_knows_what_was_shown_a_moment_ago(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        house.say(wire.ToolStarted(session="s", call="c1", name="Bash", args=ASK_INDEX))
        await house.settled()
        (snippet,) = house.take(wire.Inject)[-1].snippets
        house.say(wire.ToolEnded(session="s", call="c1"))
        house.say(wire.Boundary(session="s", number=1, taken=[snippet.id]))
        async with house.journal._turns:  # the disk is busy: nothing of it is written yet
            house.say(wire.WhyAsk(target=snippet.id))
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert house.take(wire.Why) == []
        while not (told := house.take(wire.Why)):
            await trio.testing.wait_all_tasks_blocked()
        assert told[0].outcome == "won"

    at_the_desk(tmp_path, TEXTS, body)
