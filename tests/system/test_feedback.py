"""From what an agent does, or a person says, to the log: a real daemon, real sockets, the real encoder."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recalld_client import Injection, Session
from recalld_client.cli import main
from recalld_client.link import Subscription
from recalld_daemon.demo.private import PrivateDaemon
from recalld_daemon.store.reader import open_reader
from recalld_protocol.messages import Why, WhyAsk
from running import call_through, running, wait_event

pytestmark = pytest.mark.models

NOTES = {
    "deploy.md": "# Deploy\n\nAfter every deploy restart the invoice worker by hand, since systemd keeps the old "
    "unit file until daemon-reload has run on the harbour host.\n",
    "postgres.md": "# Postgres\n\nNever create an index on berth_booking without CONCURRENTLY: in April the lock "
    "stopped all bookings for eleven minutes while the migration ran.\n",
}
INDEX_CALL = "psql -c 'create index booking_idx on berth_booking (berth_id)' # add the index to berth_booking"


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("memory") / "notes"
    directory.mkdir()
    for name, text in NOTES.items():
        (directory / name).write_text(text)
    return directory


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path, notes: Path) -> Iterator[PrivateDaemon]:
    with running(tmp_path_factory.mktemp("home"), model_cache, [notes]) as daemon:
        yield daemon


def shown(session: Session) -> Injection:
    assert session.connect(10.0), session.problem
    (injection,), _ = call_through(session, "Bash", INDEX_CALL)
    assert injection.path == "notes/postgres.md"
    return injection


def verdict(events: Subscription, impression: str) -> object:
    """The next one on it; sessions of other tests have theirs."""
    while (event := wait_event(events.receive, "feedback")).data["impression"] != impression:
        pass
    return event.data["verdict"]


def test_opening_the_file_is_acting_on_the_snippet(daemon: PrivateDaemon, notes: Path) -> None:
    with Subscription(daemon.endpoints) as events, Session("t", cwd="/", endpoints=daemon.endpoints) as session:
        injection = shown(session)
        session.tool_started("Read", json.dumps({"file_path": str(notes / "postgres.md")}))
        assert verdict(events, injection.id) == "acted"


def test_saying_what_only_the_snippet_said_is_using_it(daemon: PrivateDaemon) -> None:
    with Subscription(daemon.endpoints) as events, Session("t", cwd="/", endpoints=daemon.endpoints) as session:
        injection = shown(session)
        session.said(f"I remember: {injection.text}")
        assert verdict(events, injection.id) == "used"


def test_a_session_that_ends_at_once_is_unknown_and_that_is_no_event(daemon: PrivateDaemon) -> None:
    with Subscription(daemon.endpoints) as events, open_reader(daemon.home / "data" / "recalld.db") as reader:
        with Session("t", cwd="/", endpoints=daemon.endpoints) as session:
            injection = shown(session)
        recall, _, _ = injection.id.rpartition("-")
        for _ in range(5_000):  # round trips: the observer looks when no recall runs
            if verdicts := [row.verdicts for row in reader.judged_of(recall) if row.verdicts]:
                break
            assert daemon.status() is not None
        assert verdicts == [("unknown",)]
        with Session("t", cwd="/", endpoints=daemon.endpoints) as session:
            later = shown(session)
            session.said(f"I remember: {later.text}")
            assert wait_event(events.receive, "feedback").data["impression"] == later.id


def test_a_person_trains_it(
    daemon: PrivateDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(stdin: str, *argv: str) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        place = ["--runtime-dir", str(Path(daemon.endpoints.request.removeprefix("ipc://")).parent)]
        assert main([*place, "--timeout", "30", "train", "--json", "--cwd", "/", *argv]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    question, answer, end = train("1\n", "--query", "how does one restart the invoice worker")
    assert {candidate["path"] for candidate in question["candidates"]} == {"notes/deploy.md", "notes/postgres.md"}
    assert (len(answer["good"]), len(answer["bad"]), end["answered"]) == (1, 1, 1)
    with open_reader(daemon.home / "data" / "recalld.db") as reader:
        (good,) = (row for row in reader.judged_of(question["recall"]) if row.verdicts == ("good",))
        assert (good.impression, good.outcome) == (answer["good"][0], "asked")
    why = daemon.link.request(WhyAsk(target=good.impression), 30.0)
    assert isinstance(why, Why)
    assert why.outcome == "asked"
    *told, end = train("s\n" * 9)
    asked = [line["query"] for line in told if line["kind"] == "training"]
    assert any("berth_booking" in query for query in asked)  # what the sessions before asked
    assert question["query"] not in asked
    assert end["skipped"] == end["asked"] == len(asked)
