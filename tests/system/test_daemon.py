"""The daemon as its users meet it: real processes, real sockets, the real encoder, real files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recalld_client import Session
from recalld_client.link import Subscription
from recalld_daemon.demo.private import PrivateDaemon, wait_until_indexed
from recalld_protocol.messages import Hits, Search, Why, WhyAsk
from running import call_through, running, settle, wait_event

pytestmark = pytest.mark.models

NOTES = {
    "deploy.md": "# Deploy\n\nAfter every deploy restart the invoice worker by hand, since systemd keeps the old "
    "unit file until daemon-reload has run on the harbour host.\n",
    "postgres.md": "# Postgres\n\nNever create an index on berth_booking without CONCURRENTLY: in April the lock "
    "stopped all bookings for eleven minutes while the migration ran.\n",
    "tea.md": "# Kitchen\n\nThe good oolong is in a blue tin behind the coffee filters, refilled on Fridays.\n",
}


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


def connected(daemon: PrivateDaemon, name: str, **more: object) -> Session:
    session = Session("test", cwd="/", session_id=name, endpoints=daemon.endpoints, **more)  # type: ignore[arg-type]
    assert session.connect(10.0), session.problem
    return session


INDEX_CALL = "psql -c 'create index booking_idx on berth_booking (berth_id)' # add the index to berth_booking"


def test_a_tool_call_brings_what_was_written_down(daemon: PrivateDaemon, notes: Path) -> None:
    with connected(daemon, "brings") as session:
        session.turn("add an index to the berth_booking table")
        settle(session, turn=1)
        injections = session.boundary()
        more, settled = call_through(session, "Bash", INDEX_CALL)
        injections += more
    assert [injection.path for injection in injections] == ["notes/postgres.md"]
    (injection,) = injections
    raw = (notes / "postgres.md").read_bytes()[injection.start : injection.end].decode()
    assert 8 <= len(injection.text.split()) <= 12
    assert " ".join(raw.split()) == injection.text
    assert re.fullmatch(r'recalled: "… .+ …" — notes/postgres\.md:\d+-\d+ \(\d{4}-\d\d-\d\d\)', str(injection))
    assert settled.stage == "late"
    assert set(settled.stage_ms) <= {"fused", "late"}


def test_p009_the_same_passage_comes_once_in_a_session(daemon: PrivateDaemon) -> None:
    with connected(daemon, "once") as session:
        session.turn("how do we add an index to berth_booking without a lock?")
        settle(session, turn=1)
        shown = session.boundary()
        for table in ("berth_booking", "berth_booking migration", "berth_booking index lock", "berth_booking bookings"):
            shown += call_through(session, "Bash", f"alembic create index concurrently on {table}")[0]
    assert len({injection.id for injection in shown}) == len(shown)
    assert [injection.path for injection in shown].count("notes/postgres.md") == 1


@pytest.mark.parametrize("text", ["QQQQ zzxv plover-9913", "ok", "thanks", "go on"])
def test_p010_nonsense_and_small_talk_are_met_with_silence(daemon: PrivateDaemon, text: str) -> None:
    with connected(daemon, f"nonsense {text}") as session:
        session.turn(text)
        settled = settle(session, turn=1)
        assert session.boundary() == []
    assert settled.outcome == "silent"
    assert settled.reason


def test_a_pull_session_gets_its_snippets_from_the_outbox(daemon: PrivateDaemon) -> None:
    with connected(daemon, "pull", delivery="pull") as session, Subscription(daemon.endpoints, ["recall."]) as events:
        session.turn("what must be done after every deploy of the invoice worker?")
        assert wait_event(events.receive, "recall.settled").session == "pull"
        first = session.outbox(wait_seconds=10.0)
        assert [injection.path for injection in first] == ["notes/deploy.md"]
        assert session.outbox(wait_seconds=10.0) == []


def test_why_explains_what_was_shown_and_what_was_not(daemon: PrivateDaemon) -> None:
    with connected(daemon, "why") as session:
        injections, _ = call_through(session, "Bash", INDEX_CALL)
        _, silent = call_through(session, "Write", "card.txt a haiku about red maple leaves in autumn")
        why = daemon.link.request(WhyAsk(target=injections[0].id), 5.0)
        nothing = daemon.link.request(WhyAsk(target=silent.recall), 5.0)
    assert isinstance(why, Why)
    assert isinstance(nothing, Why)
    best = why.candidates[0]
    assert (why.outcome, best.path, best.impression) == ("won", "notes/postgres.md", injections[0].id)
    assert best.lanes.keys() >= {"dense", "lexical", "late"}
    assert all(verdict.startswith("passed") for verdict in best.gates.values())
    assert nothing.outcome == "silent"
    assert any(v.startswith("stopped") for candidate in nothing.candidates for v in candidate.gates.values())


def test_search_and_remember(daemon: PrivateDaemon) -> None:
    with connected(daemon, "remembers") as session:
        path = session.remember(
            "The staging certificate of puffin expires on 3 February", scope="global", wait_seconds=10.0
        )
        at_once = session.search("when does puffin's staging certificate expire?", wait_seconds=10.0)
        wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)
        hits = session.search("when does puffin's staging certificate expire?", wait_seconds=10.0)
    assert path.startswith("memory:")
    assert path in [hit.path for hit in at_once]  # by its words, before it has a vector
    assert hits[0].path == path
    assert "3 February" in hits[0].text


def test_a_memory_of_one_project_stays_there(daemon: PrivateDaemon, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    ask = "which colour has the ferry's funnel?"
    with Session("t", cwd=str(tmp_path / "a"), endpoints=daemon.endpoints) as mine:
        mine.connect(10.0)
        mine.remember("The ferry's funnel colour is heliotrope", wait_seconds=10.0)
        found = mine.search(ask, wait_seconds=10.0)
    with Session("t", cwd=str(tmp_path / "b"), endpoints=daemon.endpoints) as other:
        other.connect(10.0)
        missed = other.search(ask, wait_seconds=10.0)
    everywhere = daemon.link.request(Search(query=ask, all_scopes=True), 10.0)
    assert any("heliotrope" in hit.text for hit in found)
    assert not any("heliotrope" in hit.text for hit in missed)
    assert isinstance(everywhere, Hits)
    assert any("heliotrope" in hit.text for hit in everywhere.hits)


def test_edited_away_text_is_never_shown(daemon: PrivateDaemon, notes: Path) -> None:
    page = notes / "port.md"
    with Subscription(daemon.endpoints, ["ingest.file"]) as events:
        page.write_text("# Port\n\nThe admin console of the ferry listens on port 8080 behind the quay firewall.\n")
        wait_event(events.receive, "ingest.file")
        page.write_text("# Port\n\nThe admin console of the ferry listens on port 9421 behind the quay firewall.\n")
        wait_event(events.receive, "ingest.file")
    wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)
    hits = daemon.link.request(Search(query="admin console ferry port quay firewall"), 10.0)
    assert isinstance(hits, Hits)
    texts = [hit.text for hit in hits.hits if hit.path == "notes/port.md"]
    assert len(texts) == 1
    assert "9421" in texts[0]


def test_feedback_is_acknowledged_and_bound_to_its_impression(daemon: PrivateDaemon) -> None:
    with connected(daemon, "feedback") as session, Subscription(daemon.endpoints, ["feedback"]) as events:
        injections, _ = call_through(session, "Bash", INDEX_CALL)
        session.feedback(injections[0], "good")
        while (event := wait_event(events.receive, "feedback")).data["verdict"] == "unknown":
            pass  # of a session that ended
    assert event.data == {"impression": injections[0].id, "verdict": "good"}


def test_a_second_start_refuses_and_names_the_pid(daemon: PrivateDaemon) -> None:
    command = [sys.executable, "-m", "recalld_daemon", "run", "--home", str(daemon.home), "--no-transcripts"]
    environ = dict(os.environ, RECALLD_RUNTIME_DIR=str(Path(daemon.link.address).parent))
    second = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert second.returncode == 3
    assert f"pid {daemon.process.pid}" in second.stderr
    assert daemon.status() is not None


def test_the_daemon_process_has_no_torch_and_its_files_are_private(daemon: PrivateDaemon) -> None:
    maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
    assert "libtorch" not in maps
    places = [daemon.home, Path(daemon.link.address).parent]
    files = [path for place in places for path in place.rglob("*") if "models" not in path.parts]
    assert files
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_status_is_documented(daemon: PrivateDaemon) -> None:
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    status = daemon.status()
    assert status is not None
    for topic, values in status.topics.items():
        rows = " ".join(line for line in page.splitlines() if line.startswith(f"| {topic} |"))
        for key in values:
            assert f"`{key}`" in rows, f"docs/status.md does not tell of {topic} {key}"


def test_a_restarted_daemon_goes_on_with_its_sessions(tmp_path: Path, model_cache: Path, notes: Path) -> None:
    """What was shown is not shown again, also after kill -9; what was remembered is there."""
    with running(tmp_path / "home", model_cache, [notes]) as daemon, connected(daemon, "goes on") as session:
        first, _ = call_through(session, "Bash", INDEX_CALL)
        path = session.remember("Gulls nest on crane four until August", scope="global", wait_seconds=10.0)
        session.boundary()
        session.search("anything", wait_seconds=10.0)  # what was said before it is handled by now
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
    assert [injection.path for injection in first] == ["notes/postgres.md"]
    with running(tmp_path / "home", model_cache, [notes]) as daemon, connected(daemon, "goes on") as session:
        again, settled = call_through(session, "Bash", INDEX_CALL + " again")
        hits = session.search("where do gulls nest?", wait_seconds=10.0)
    assert "notes/postgres.md" not in [injection.path for injection in again], settled.reason
    assert path in [hit.path for hit in hits]


def test_sigterm_stops_the_whole_tree(tmp_path: Path, model_cache: Path, notes: Path) -> None:
    with running(tmp_path / "home", model_cache, [notes]) as daemon:
        tree = [psutil.Process(daemon.process.pid), *psutil.Process(daemon.process.pid).children(recursive=True)]
        daemon.process.send_signal(signal.SIGTERM)
        code = daemon.process.wait(30)
        _, alive = psutil.wait_procs(tree, timeout=10)
    assert code == 0
    assert len(tree) >= 3
    assert alive == []
    assert not Path(daemon.link.address).exists()


def test_a_dead_worker_costs_silence_only(tmp_path: Path, model_cache: Path, notes: Path) -> None:
    with (
        running(tmp_path / "home", model_cache, [notes]) as daemon,
        connected(daemon, "worker dies") as session,
        Subscription(daemon.endpoints, ["worker.state"]) as events,
    ):
        for child in psutil.Process(daemon.process.pid).children(recursive=True):
            child.kill()
        _, settled = call_through(session, "Bash", "tell me of the kitchen, where is the oolong tea?")
        while (event := wait_event(events.receive, "worker.state")).data["role"] != "live" or event.data[
            "state"
        ] != "ready":
            continue
        injections, healed = call_through(session, "Bash", INDEX_CALL)
        status = daemon.status()
    assert settled.outcome in ("ready", "silent", "failed")
    assert healed.stage == "late"
    assert [injection.path for injection in injections] == ["notes/postgres.md"]
    assert status is not None
    assert status.topics["models"]["live_restarts"] == 1


def test_recallctl_against_a_real_daemon(daemon: PrivateDaemon) -> None:
    environ = dict(os.environ, RECALLD_RUNTIME_DIR=str(Path(daemon.link.address).parent))

    def ctl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "recalld_client.cli", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)

    assert json.loads(ctl("ping", "--json").stdout)["pid"] == daemon.process.pid
    found = json.loads(ctl("search", "--json", "index on berth_booking").stdout)
    assert found["hits"][0]["path"] == "notes/postgres.md"
    assert "won" in ctl("status").stdout
    assert ctl("why", "no such id").returncode == 4
    assert "test" in ctl("sessions").stdout or ctl("sessions").returncode == 0
