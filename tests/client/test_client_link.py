"""The link alone: questions and answers, waiting, and the subscription to the daemon's events."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from recalld_client.link import Link, Subscription
from recalld_protocol.endpoints import Endpoints, endpoints_in
from recalld_protocol.messages import Event, Hits, Ping, Pong, Problem, Said, Search, Settled
from recalld_protocol.wire import encode
from scripted_daemon import PATIENCE_SECONDS, Puppet, served, short_directory


@pytest.fixture
def where() -> Iterator[Endpoints]:
    with short_directory() as directory:
        yield endpoints_in(directory)


def test_a_request_gets_its_own_answer_and_the_rest_is_kept(where: Endpoints) -> None:
    settled = Settled(session="s", recall="r", outcome="silent")
    with Puppet(where) as daemon, Link(where, session="s") as link:
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(link.request(Search(query="q"), PATIENCE_SECONDS)))
        asking.start()
        asked = daemon.hear_a(Search)
        assert (asked.session, asked.id) == ("s", 1)
        daemon.say(settled, Hits(re=99), Hits(re=asked.id, stage="late"))
        asking.join()
        assert answers == [Hits(re=asked.id, stage="late")]
        assert link.receive_nowait() == [settled, Hits(re=99)]
        assert link.problem == ""


def test_a_problem_is_an_answer(where: Endpoints) -> None:
    def refuses(message: object) -> list[Problem]:
        return [Problem(re=message.id, code="busy", text="later")] if isinstance(message, Ping) else []

    with served(where, refuses), Link(where) as link:
        assert link.request(Ping(), PATIENCE_SECONDS) == Problem(re=1, code="busy", text="later")


def test_a_request_that_is_not_answered_says_so(where: Endpoints) -> None:
    with Puppet(where), Link(where) as link:
        assert link.request(Ping(), 0.02) is None
        assert link.problem == f"the daemon at {where.request[6:]} did not answer within 0.02 s"


def test_a_request_to_nobody_returns_at_once(where: Endpoints) -> None:
    with Link(where) as link:
        assert link.open()
        assert link.request(Ping(), 3600) is None
        assert link.problem == f"no daemon at {where.request[6:]}: start it with `recalld run`"
        assert not link.send_nowait(Ping())
        assert (link.up, link.wait(3600.0) if link.up else False) == (False, False)


def test_what_breaks_the_limits_is_not_sent(where: Endpoints, caplog: pytest.LogCaptureFixture) -> None:
    with Puppet(where) as daemon, Link(where) as link:
        assert not link.send_nowait(Said(text="x" * 1_000_000))
        assert "1000" in caplog.text
        assert link.send_nowait(Ping())
        daemon.hear_a(Ping)


def test_waiting_ends_with_what_arrives(where: Endpoints) -> None:
    with Puppet(where) as daemon, Link(where) as link:
        assert not link.wait(0.02)
        assert link.send_nowait(Ping(id=7))
        daemon.hear_a(Ping)
        daemon.say(Pong(re=7))
        assert link.wait(PATIENCE_SECONDS)
        assert link.receive_nowait() == [Pong(re=7)]
        assert link.receive_nowait() == []


def test_a_closed_link_does_nothing(where: Endpoints) -> None:
    with Puppet(where):
        link = Link(where)
        assert link.open()
        link.close()
        link.close()
        assert not link.open()
        assert not link.send_nowait(Ping())
        assert link.receive_nowait() == []
        assert link.request(Ping(), 3600) is None


def test_a_subscription_receives_its_topics_and_skips_garbage(where: Endpoints) -> None:
    context = zmq.Context()
    publisher = context.socket(zmq.XPUB)
    publisher.bind(where.events)
    event = Event(seq=3, at=1.0, what="recall.settled", data={"ms": 8.5})
    with Subscription(where, ["recall."]) as subscription:
        assert publisher.poll(round(PATIENCE_SECONDS * 1000))
        assert publisher.recv() == b"\x01recall."
        publisher.send_multipart([b"ingest.file", encode(Event(seq=1, at=1.0, what="ingest.file"))])
        publisher.send_multipart([b"recall.settled", b"\xc1"])
        publisher.send_multipart([b"recall.settled", encode(event)])
        assert subscription.receive(PATIENCE_SECONDS) == event
        assert subscription.receive(0.0) is None
        publisher.send_multipart([b"recall.settled", encode(event)])
        assert next(iter(subscription)) == event
    publisher.close(linger=0)
    context.destroy(0)


def test_a_subscription_to_nobody_says_why(where: Endpoints) -> None:
    missing = endpoints_in(Path(where.request[6:]).parent / "none")
    with Subscription(missing) as subscription:
        assert subscription.receive(3600) is None
        assert list(subscription) == []
        assert "does not exist" in subscription.problem


def test_importing_the_client_imports_neither_zmq_nor_an_event_loop() -> None:
    program = "import recalld_client, sys; print({'zmq', 'asyncio', 'trio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
