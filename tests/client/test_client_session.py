"""A session over a real socket: what it sends, in which order, and what it gives at its boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recalld_client import Call, Session
from recalld_protocol.endpoints import Endpoints, endpoints_in
from recalld_protocol.messages import (
    Boundary,
    Bye,
    Compacted,
    Hello,
    Inject,
    Injections,
    Outbox,
    Pack,
    Problem,
    Said,
    Settled,
    Snippet,
    ToolEnded,
    ToolStarted,
    Turn,
    Welcome,
)
from scripted_daemon import PATIENCE_SECONDS, Puppet, short_directory, snippet


@pytest.fixture
def where() -> Iterator[Endpoints]:
    with short_directory() as directory:
        yield endpoints_in(directory)


@pytest.fixture
def daemon(where: Endpoints) -> Iterator[Puppet]:
    with Puppet(where) as puppet:
        yield puppet


@pytest.fixture
def session(where: Endpoints, daemon: Puppet) -> Iterator[Session]:
    with Session("tests", session_id="s1", endpoints=where) as session:
        daemon.welcome()
        assert session.connect(PATIENCE_SECONDS)
        yield session


def arrive(session: Session, daemon: Puppet, *messages: Inject | Settled | Injections | Problem | Welcome) -> None:
    """Say it and wait until it is there to be read."""
    daemon.say(*messages, to="s1")
    assert session._correspondence.link.wait(PATIENCE_SECONDS)


def inject(recall: str, *snippets: Snippet, turn: int = 1, boundary: int = 0, session: str = "s1") -> Inject:
    return Inject(session=session, recall=recall, stage="late", turn=turn, boundary=boundary, snippets=list(snippets))


def test_hello_comes_first_and_tells_who_asks(where: Endpoints, daemon: Puppet, tmp_path: Path) -> None:
    with Session("agent", cwd=tmp_path, session_id="s1", project="/p", all_scopes=True, endpoints=where) as session:
        session.turn("deploy")
        hello = daemon.welcome()
        assert (hello.host, hello.cwd, hello.project) == ("agent", str(tmp_path), "/p")
        assert hello.all_scopes
        assert daemon.hear_a(Turn).text == "deploy"
    assert daemon.hear_a(Bye).session == "s1"


def test_a_tool_call_is_told_at_both_ends(session: Session, daemon: Puppet) -> None:
    session.said("I shall push")
    call = session.tool_started("bash", {"command": "git push"}, parent="c0", as_of=12.0)
    session.tool_ended(call, "x" * 9_000, ok=False)
    assert daemon.hear_a(Said).text == "I shall push"
    started = daemon.hear_a(ToolStarted)
    assert (started.name, started.args, started.parent, started.as_of) == (
        "bash",
        '{"command":"git push"}',
        "c0",
        12.0,
    )
    ended = daemon.hear_a(ToolEnded)
    assert (ended.call, ended.ok, len(ended.result), ended.result_bytes) == (started.call, False, 2_048, 9_000)


def test_the_with_block_raises_what_its_body_raised(session: Session, daemon: Puppet) -> None:
    with session.tool("bash", "make") as call:
        call.result = "fine"
    with pytest.raises(ZeroDivisionError), session.tool("bash", "make"):
        _ = 1 / 0
    assert (daemon.hear_a(ToolStarted).call, daemon.hear_a(ToolEnded).result) == (call.id, "fine")
    daemon.hear_a(ToolStarted)
    ended = daemon.hear_a(ToolEnded)
    assert (ended.ok, ended.result) == (False, "division by zero")


def test_a_boundary_takes_what_is_there_and_says_so_at_once(session: Session, daemon: Puppet) -> None:
    session.turn("deploy")
    daemon.hear_a(Turn)
    arrive(session, daemon, inject("r1", snippet("i1")))
    taken = session.boundary()
    assert [(one.id, one.recall, one.stage) for one in taken] == [("i1", "r1", "late")]
    assert daemon.hear_a(Boundary) == Boundary(session="s1", number=1, turn=1, taken=["i1"])
    assert session.boundary() == []


def test_empty_boundaries_travel_in_front_of_the_next_message(session: Session, daemon: Puppet) -> None:
    assert session.boundary() == session.boundary() == []
    session.said("on")
    assert [daemon.hear_a(Boundary).number, daemon.hear_a(Boundary).number] == [1, 2]
    daemon.hear_a(Said)
    session.boundary()
    session.turn("next")
    assert daemon.hear_a(Boundary) == Boundary(session="s1", number=3, turn=0)
    daemon.hear_a(Turn)


def test_p006_a_new_turn_does_not_get_the_last_turns_memories(session: Session, daemon: Puppet) -> None:
    session.turn("A")
    daemon.hear_a(Turn)
    session.turn("B")
    arrive(session, daemon, inject("late", snippet("of A"), turn=1), inject("kept", snippet("fits B"), turn=2))
    assert [one.id for one in session.boundary(PATIENCE_SECONDS)] == ["fits B"]


def test_another_sessions_injection_is_never_shown(session: Session, daemon: Puppet) -> None:
    session.turn("A")
    daemon.hear_a(Turn)
    arrive(session, daemon, inject("r", snippet("i"), session="s2"))
    assert session.boundary() == []


def test_a_waiting_boundary_goes_on_when_all_is_settled(session: Session, daemon: Puppet) -> None:
    session.turn("A")
    call = session.tool_started("bash", "ls")
    session.tool_ended(call)
    daemon.hear_a(Turn)
    daemon.say(
        Settled(session="s1", recall="r1", turn=1, outcome="silent"),
        Settled(session="s1", recall="r2", calls=[call.id], outcome="silent"),
    )
    assert session.boundary(wait_seconds=3600) == []


def test_a_waiting_boundary_does_not_wait_where_nothing_can_come(session: Session) -> None:
    assert session.boundary(wait_seconds=3600) == []


def test_an_outbox_is_one_round_trip_and_its_late_answer_comes_next_time(where: Endpoints, daemon: Puppet) -> None:
    with Session(session_id="s1", delivery="pull", endpoints=where) as session:
        assert daemon.welcome().delivery == "pull"
        session.connect(PATIENCE_SECONDS)
        assert session.outbox(wait_seconds=0) == []
        asked = daemon.hear_a(Outbox)
        arrive(session, daemon, Injections(session="s1", re=asked.id, snippets=[snippet("i1")]))
        assert [one.id for one in session.boundary(PATIENCE_SECONDS)] == ["i1"]


def test_recall_asks_for_a_block_within_the_wires_bounds(session: Session, daemon: Puppet) -> None:
    assert session.recall("the port", token_budget=9_000, wait_seconds=0) == ""
    asked = daemon.hear_a(Pack)
    assert (asked.query, asked.token_budget, asked.session) == ("the port", 1_500, "s1")
    assert session.recall("the port", token_budget=1, wait_seconds=0) == ""
    assert daemon.hear_a(Pack).token_budget == 50


def test_a_compaction_is_told(session: Session, daemon: Puppet) -> None:
    session.compacted()
    assert daemon.hear_a(Compacted).session == "s1"


def test_bad_input_is_logged_and_never_raises(
    session: Session, daemon: Puppet, caplog: pytest.LogCaptureFixture
) -> None:
    session.turn(None)  # type: ignore[arg-type]
    session.feedback("i1", "great")  # type: ignore[arg-type]
    session.tool_ended("", "")
    session.tool_ended(object(), object())  # type: ignore[arg-type]
    assert session.remember("   ") == ""
    assert session.search("x", limit="many") == []  # type: ignore[arg-type]
    assert session.recall("x", token_budget="many") == ""  # type: ignore[arg-type]
    assert "feedback 'great' is none of good, bad, acted, used, ignored" in caplog.text
    assert "there is no text to keep" in caplog.text
    assert daemon.hear_a(Turn).text == "null"


def test_texts_are_cut_to_what_the_wire_takes(session: Session, daemon: Puppet) -> None:
    session.turn("ä" * 100_000 + "\ud800")
    call = session.tool_started("n" * 1_000, "a" * 100_000, call_id="i" * 1_000)
    assert len(daemon.hear_a(Turn).text) == 32_768
    started = daemon.hear_a(ToolStarted)
    assert (len(started.name), len(started.args), started.call) == (256, 8_192, call.id)


def test_a_closed_session_does_nothing(session: Session) -> None:
    session.close()
    session.turn("A")
    assert isinstance(session.tool_started("bash"), Call)
    assert session.boundary(wait_seconds=3600) == []
    assert (session.connected, session.problem) == (False, "closed")
    session.close()


def test_nothing_after_close_can_be_heard(session: Session, daemon: Puppet) -> None:
    session.close()
    session.said("too late")
    assert isinstance(daemon.hear(), Bye)
    with Session(session_id="s2", endpoints=session._correspondence.link._endpoints):
        assert isinstance(daemon.hear(), Hello)
