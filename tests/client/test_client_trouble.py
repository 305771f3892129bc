"""Invariant: the client never raises into, blocks or slows the agent's loop, whatever has become of the daemon."""

from __future__ import annotations

import inspect
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import recalld_client.link
from recalld_client import Injection, Session
from recalld_client.link import Link
from recalld_protocol.endpoints import Endpoints, endpoints_in
from recalld_protocol.messages import (
    Acked,
    Feedback,
    Hello,
    Inject,
    Ping,
    Problem,
    Remember,
    Remembered,
    ToolStarted,
    Turn,
    Welcome,
)
from scripted_daemon import (
    PATIENCE_SECONDS,
    Puppet,
    Stock,
    child_daemon,
    served,
    short_directory,
    snippet,
)

FOR_EVER = 3600.0  # a wait that would fail the test if it were waited


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


@pytest.fixture
def where(directory: Path) -> Endpoints:
    return endpoints_in(directory)


def until(session: Session, condition: Callable[[], bool]) -> None:
    """Look at the socket until it is so."""
    clock = session._correspondence.clock
    end = clock() + PATIENCE_SECONDS
    while not condition():
        assert clock() < end, f"never came true; problem: {session.problem!r}"
        session._correspondence.link.rest(0.01)


def goes_on(session: Session) -> None:
    """An agent's round, which must come to its end without a daemon."""
    session.turn("A")
    with session.tool("bash", "ls"):
        pass
    assert session.boundary(wait_seconds=FOR_EVER) == []
    assert session.search("A", wait_seconds=FOR_EVER) == []


def recalls(session: Session) -> list[Injection]:
    """An agent's round with the stock daemon, which brings something to mind."""
    session.turn("B")
    return session.boundary(wait_seconds=PATIENCE_SECONDS)


# ---------------------------------------------------------------- absent


def test_an_absent_daemon_is_silence_and_its_cause_is_logged_once(
    where: Endpoints, caplog: pytest.LogCaptureFixture
) -> None:
    with Session(endpoints=where) as session:
        goes_on(session)
        goes_on(session)
        assert not session.connected
        assert session.problem == f"no daemon at {where.request[6:]}: start it with `recalld run`"
    assert [record.message for record in caplog.records] == [f"no recall: {session_problem(where)}"]


def session_problem(where: Endpoints) -> str:
    return f"no daemon at {where.request[6:]}: start it with `recalld run`"


def test_a_daemon_that_comes_later_is_told_of_the_turn(where: Endpoints, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "recalld.client")
    stock = Stock()
    with Session(endpoints=where) as session:
        session.turn("A")
        session.boundary()
        with served(where, stock):
            assert session.connect(PATIENCE_SECONDS)
            assert (session.connected, session.problem) == (True, "")
            until(session, lambda: len(stock.heard) >= 2)
            hello, turn = stock.heard[:2]
            assert isinstance(hello, Hello)
            assert (hello.turn, hello.boundary) == (1, 1)
            assert isinstance(turn, Turn)
            assert turn.text == "A"
            assert recalls(session)
    assert caplog.messages[-1] == "connected to recalld 0.1.0 (pid 1)"


def test_p003_an_unsafe_directory_is_named_and_healed(directory: Path, where: Endpoints) -> None:
    with served(where):
        directory.chmod(0o755)
        with Session(endpoints=where) as session:
            goes_on(session)
            assert "mode 0755, 0700 is needed" in session.problem
            directory.chmod(0o700)
            assert session.connect(PATIENCE_SECONDS)


def test_a_missing_directory_is_named(directory: Path) -> None:
    with Session(endpoints=endpoints_in(directory / "none")) as session:
        goes_on(session)
        assert session.problem == f"{directory}/none does not exist: start the daemon with `recalld run`"


def test_a_path_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECALLD_RUNTIME_DIR", "/" + "x" * 200)
    with Session() as session:
        goes_on(session)
        assert "may have 107" in session.problem


def test_a_stale_socket_file_is_no_daemon(where: Endpoints) -> None:
    Puppet(where).close()
    with Session(endpoints=where) as session:
        goes_on(session)
        assert not session.connected


# ---------------------------------------------------------------- hung


def test_p002_a_frozen_daemon_costs_nothing_and_heals(directory: Path, where: Endpoints) -> None:
    with child_daemon(directory) as daemon, Session(endpoints=where) as session:
        assert session.connect(PATIENCE_SECONDS)
        daemon.freeze()
        for _ in range(400):  # more than zmq's queue holds
            session.tool_started("bash", "x" * 8_000)
            session.boundary()
        until(session, lambda: not session.connected)
        goes_on(session)
        until(session, lambda: "no answer from the daemon" in session.problem)
        daemon.thaw()
        assert session.connect(PATIENCE_SECONDS)
        assert recalls(session)


def test_a_daemon_whose_loop_hangs_is_found_out_by_its_silence(where: Endpoints) -> None:
    now = [1000.0]
    with Puppet(where) as daemon, Session(endpoints=where) as session:
        daemon.welcome()
        assert session.connect(PATIENCE_SECONDS)
        session._correspondence.clock = lambda: now[0]
        session._correspondence.handshake.heard(now[0])
        now[0] += 6  # the heartbeat is 5 s
        session.said("anything")
        daemon.hear_a(Ping)
        assert session.connected
        now[0] += 2
        goes_on(session)
        assert "takes messages but does not answer" in session.problem
        daemon.say(Problem(session=session.id, code="busy", text="sorry"))
        assert session._correspondence.link.wait(PATIENCE_SECONDS)
        assert (session.connected, session.problem) == (True, "")


def test_a_hello_that_nobody_answers_is_said_again(where: Endpoints) -> None:
    now = [1000.0]
    with Puppet(where) as daemon, Session(endpoints=where) as session:
        session._correspondence.clock = lambda: now[0]
        first = daemon.hear_a(Hello)
        now[0] = first_try = session._correspondence.handshake._asked_at + 1.5
        assert "takes messages but does not answer" in session.problem
        assert daemon.welcome().id > first.id
        until(session, lambda: session.connected)
        assert now[0] == first_try


# ---------------------------------------------------------------- restarted


def test_a_restarted_daemon_learns_the_conversation_again(where: Endpoints) -> None:
    with served(where, Stock("first")), Session(endpoints=where) as session:
        assert session.connect(PATIENCE_SECONDS)
        assert recalls(session)
    stock = Stock("second")
    with Session(endpoints=where) as session:
        with served(where, Stock("first")):
            assert session.connect(PATIENCE_SECONDS)
            assert [one.id for one in recalls(session)] == ["i-first-1"]
        until(session, lambda: not session.connected)
        with served(where, stock):
            assert session.connect(PATIENCE_SECONDS)
            until(session, lambda: any(isinstance(message, Turn) for message in stock.heard))
            hello = stock.heard[0]
            assert isinstance(hello, Hello)
            assert (hello.turn, hello.boundary) == (1, 1)
            assert [one.id for one in recalls(session)] == ["i-second-2"]


def test_a_daemon_that_forgot_the_session_is_greeted_again(where: Endpoints) -> None:
    with Puppet(where) as daemon, Session(session_id="s", endpoints=where) as session:
        daemon.welcome()
        session.turn("A")
        session.boundary()
        daemon.hear_a(Turn)
        daemon.say(Problem(session="s", code="unknown_session", text="who?", of="turn"))
        assert session._correspondence.link.wait(PATIENCE_SECONDS)
        session.tool_started("bash")
        hello = daemon.welcome()
        assert (hello.turn, hello.boundary) == (1, 1)
        assert daemon.hear_a(Turn).text == "A"
        daemon.hear_a(ToolStarted)


def test_an_impression_sent_again_after_a_restart_is_not_shown_again(where: Endpoints) -> None:
    with Puppet(where) as daemon, Session(session_id="s", endpoints=where) as session:
        daemon.welcome()
        session.turn("A")
        for epoch in ("first", "second"):
            welcome = Welcome(session="s", version=1, epoch=epoch)
            inject = Inject(session="s", recall=epoch, stage="late", turn=1, boundary=0, snippets=[snippet("i1")])
            daemon.say(welcome, inject)
            assert session._correspondence.link.wait(PATIENCE_SECONDS)
            until(session, lambda: session.connected and session._correspondence.handshake.epoch == epoch)  # noqa: B023
            assert len(session.boundary(wait_seconds=0.05)) == (epoch == "first")


# ---------------------------------------------------------------- other versions, garbage


@pytest.mark.parametrize(
    "answer",
    [
        Problem(code="version", text="this client speaks v1, this daemon v3: upgrade recalld", of="hello"),
        Welcome(version=3, epoch="e"),
    ],
)
def test_another_version_is_silence_with_the_remedy(
    where: Endpoints, answer: Problem | Welcome, caplog: pytest.LogCaptureFixture
) -> None:
    with Puppet(where) as daemon, Session(session_id="s", endpoints=where) as session:
        daemon.hear_a(Hello)
        daemon.say(answer)
        assert session._correspondence.link.wait(PATIENCE_SECONDS)
        goes_on(session)
        assert not session.connected
        assert "3" in session.problem
        assert "upgrade recalld" in session.problem
    assert len(caplog.records) == 1


def test_a_daemon_that_is_full_says_so(where: Endpoints) -> None:
    with Puppet(where) as daemon, Session(session_id="s", endpoints=where) as session:
        daemon.hear_a(Hello)
        daemon.say(Problem(code="busy", text="this daemon serves 200 sessions already: try again later", of="hello"))
        until(session, lambda: "200 sessions" in session.problem)
        goes_on(session)
        clock = session._correspondence.clock
        session._correspondence.clock = lambda: clock() + 6
        session.boundary()
        daemon.welcome()
        until(session, lambda: session.connected)
        assert daemon.hear_a(Turn).text == "A"


def test_garbage_is_skipped(where: Endpoints) -> None:
    with Puppet(where) as daemon, Session(session_id="s", endpoints=where) as session:
        daemon.welcome()
        session.turn("A")
        daemon.hear_a(Turn)
        for frame in (b"", b"\xc1", b"\x81" * 5000, b"\x81\xa4kind\xa3new", b"\x93\x01\x02\x03", os.urandom(64)):
            daemon.say_raw(frame)
        daemon.say(Inject(session="s", recall="r", stage="late", turn=1, boundary=0, snippets=[snippet("i1")]))
        assert [one.id for one in session.boundary(PATIENCE_SECONDS)] == ["i1"]
        assert session._correspondence.link.garbled == 6


def test_an_oversize_frame_costs_the_connection_and_no_more(where: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalld_client.link, "RENEW_SECONDS", 0.1)
    with Puppet(where) as daemon, Session(session_id="s", endpoints=where) as session:
        daemon.welcome()
        until(session, lambda: session.connected)
        daemon.say_raw(bytes(3 << 20))
        until(session, lambda: not session.connected)
        until(session, lambda: not (session.connected or session._correspondence.handshake.idle))
        daemon.welcome()
        until(session, lambda: session.connected)


# ---------------------------------------------------------------- what must arrive


def test_feedback_and_memories_are_sent_until_they_are_acknowledged(where: Endpoints) -> None:
    with Session(session_id="s", endpoints=where) as session:
        session.feedback("i1", "good")
        assert session.remember("tag after CI") == ""
        with Puppet(where) as daemon:
            until(session, lambda: session._correspondence.link.up)
            assert not session.connected
            daemon.welcome()
            first = daemon.hear_a(Feedback), daemon.hear_a(Remember)
            until(session, lambda: session.connected)
            daemon.say(Problem(session="s", code="unknown_session", text="who?"))
            until(session, lambda: not session.connected)
            daemon.welcome()
            again = daemon.hear_a(Feedback), daemon.hear_a(Remember)
            assert [one.key for one in again] == [one.key for one in first]
            daemon.say(Acked(session="s", re=again[0].id), Remembered(session="s", re=again[1].id, memory="memory:1"))
            until(session, lambda: session.connected and not session._correspondence.pledges)


def test_a_refused_pledge_is_given_up_and_a_busy_daemon_asked_again(where: Endpoints) -> None:
    with Puppet(where) as daemon, Session(session_id="s", endpoints=where) as session:
        daemon.welcome()
        session.feedback("i1", "good")
        asked = daemon.hear_a(Feedback)
        daemon.say(Problem(session="s", re=asked.id, code="busy", text="later", of="feedback"))
        assert session._correspondence.link.wait(PATIENCE_SECONDS)
        assert session.connected
        clock = session._correspondence.clock
        session._correspondence.clock = lambda: clock() + 4.9  # nothing else is due before the fifth second
        session.boundary()
        session._correspondence.clock = lambda: clock() + 5.1
        session.boundary()
        again = daemon.hear_until(Feedback)
        assert again == asked
        daemon.say(Problem(session="s", re=again.id, code="not_found", text="no such impression", of="feedback"))
        until(session, lambda: session.connected and not session._correspondence.pledges)


def test_a_long_memory_is_kept_whole_in_parts(where: Endpoints) -> None:
    text = "\n\n".join(f"paragraph {number} " + "word " * 200 for number in range(100))
    stock = Stock()
    with served(where, stock), Session(endpoints=where) as session:
        assert session.connect(PATIENCE_SECONDS)
        assert session.remember(text, title="notes", wait_seconds=PATIENCE_SECONDS) == "memory:17"
        until(session, lambda: session.connected and not session._correspondence.pledges)
    parts = [message for message in stock.heard if isinstance(message, Remember)]
    assert "".join(part.text for part in parts) == text
    assert [part.title for part in parts] == [f"notes ({n}/4)" for n in range(1, 5)]


# ---------------------------------------------------------------- threads, forks, exits


def test_a_thread_that_waits_does_not_hold_up_the_others(where: Endpoints) -> None:
    taken: list[Injection] = []
    with Puppet(where) as daemon, Session(session_id="s", endpoints=where) as session:
        daemon.welcome()
        session.turn("A")
        daemon.hear_a(Turn)
        waiting = threading.Thread(target=lambda: taken.extend(session.boundary(PATIENCE_SECONDS)))
        waiting.start()
        session.tool_started("bash")
        daemon.hear_a(ToolStarted)
        daemon.say(Inject(session="s", recall="r", stage="late", turn=1, boundary=0, snippets=[snippet("i1")]))
        waiting.join()
    assert [one.id for one in taken] == ["i1"]


def test_threads_share_a_session_and_nothing_is_given_twice(where: Endpoints, caplog: pytest.LogCaptureFixture) -> None:
    taken: list[str] = []

    def work(session: Session) -> None:
        for _ in range(50):
            with session.tool("bash", "ls"):
                pass
            taken.extend(one.id for one in session.boundary(wait_seconds=0.002))

    with served(where), Session(endpoints=where) as session:
        assert session.connect(PATIENCE_SECONDS)
        threads = [threading.Thread(target=work, args=(session,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert taken
    assert len(taken) == len(set(taken))
    assert caplog.records == []


def test_a_forked_child_goes_on_as_a_session_of_its_own(where: Endpoints) -> None:
    with served(where), Session(session_id="s", endpoints=where) as session:
        assert session.connect(PATIENCE_SECONDS)
        assert recalls(session)
        child = os.fork()
        if child == 0:
            fine = session.id != "s" and not session.connected and session.connect(PATIENCE_SECONDS)
            fine = fine and bool(recalls(session))
            session.close()
            os._exit(0 if fine else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert session.id == "s"
        assert recalls(session)


@pytest.mark.parametrize("daemon", ["absent", "frozen"])
def test_p047_a_client_with_unsent_messages_exits_at_once(directory: Path, daemon: str) -> None:
    program = (
        "import sys; from pathlib import Path; from recalld_client import Session\n"
        "from recalld_protocol.endpoints import endpoints_in\n"
        "s = Session(endpoints=endpoints_in(Path(sys.argv[1])))\n"
        "print(s.connected, flush=True); input()\n"
        "for n in range(400): s.said('x' * 8000)\n"
    )
    with child_daemon(directory) as child:
        if daemon == "absent":
            child.kill()
        agent = subprocess.Popen(
            [sys.executable, "-c", program, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert agent.stdout is not None
        agent.stdout.readline()
        if daemon == "frozen":
            child.freeze()
        agent.communicate(b"\n", timeout=PATIENCE_SECONDS)
        assert agent.returncode == 0


# ---------------------------------------------------------------- whatever else


def test_no_public_method_raises_whatever_breaks_inside(
    where: Endpoints, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session(endpoints=where)

    def broken(*_: object) -> None:
        raise RuntimeError("broken inside")

    for name in ("events_nowait", "send_nowait", "receive_nowait", "rest"):
        monkeypatch.setattr(Link, name, broken)
    arguments = {"text": "t", "name": "n", "call": "c", "impression": "i", "verdict": "good", "query": "q"}
    for name, method in inspect.getmembers(session, callable):
        if not name.startswith("_"):
            wanted = inspect.signature(method).parameters
            method(**{key: value for key, value in arguments.items() if key in wanted})
    assert session.connected is False
    assert session.problem == ""
    assert "broken inside" in caplog.text
    monkeypatch.undo()
    session.close()
