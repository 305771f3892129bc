"""Learning as its users meet it: a daemon, the real encoder, a verdict, and the next search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from recalld_client import Session
from recalld_client.link import Subscription
from recalld_daemon.demo.private import PrivateDaemon, wait_until_indexed
from recalld_protocol.messages import Hits, Search
from running import PATIENCE_SECONDS, running, settle

pytestmark = pytest.mark.models

QUERY = "how do we restart the invoice worker after a deploy?"  # one whose pair is not held out
MEMORIES = {
    "gold": "After every deploy restart the invoice worker by hand, since systemd keeps the old unit file.",
    "other": "The invoice template is translated once a year by the harbour office in Aarhus.",
    "third": "Gulls nest on crane four until August, so nobody may paint it before.",
}


@contextmanager
def open_daemon(home: Path, models: Path, *flags: str) -> Iterator[PrivateDaemon]:
    with running(home, models, flags=flags) as daemon:
        yield daemon


def dense(daemon: PrivateDaemon) -> Mapping[str, float]:
    """The cosine of each memory with the query, as the recall finds it."""
    hits = daemon.link.request(Search(query=QUERY, cwd="/"), PATIENCE_SECONDS)
    assert isinstance(hits, Hits)
    found = {hit.text: hit.lanes["dense"] for hit in hits.hits if "dense" in hit.lanes}
    return {name: found[text] for name, text in MEMORIES.items() if text in found}


def lead(cosines: Mapping[str, float]) -> float:
    return cosines["gold"] - cosines["other"]


def topic(daemon: PrivateDaemon) -> Mapping[str, object]:
    status = daemon.status()
    assert status is not None
    return status.topics["learning"]


def said_good(daemon: PrivateDaemon) -> str:
    """Ask, be shown what helps, say so, and wait for what follows; returns what was said of learning."""
    with (
        Session("test", cwd="/", session_id="learns", endpoints=daemon.endpoints) as session,
        Subscription(daemon.endpoints, ["learning."]) as events,
    ):
        assert session.connect(10.0), session.problem
        session.turn(QUERY)
        settle(session, turn=1)
        shown = session.boundary()
        assert shown
        assert shown[0].text.replace("…", "").strip() in MEMORIES["gold"]
        session.feedback(shown[0], "good")
        session.feedback(shown[0], "good")
        for _ in range(int(PATIENCE_SECONDS)):
            if event := events.receive(1.0):
                assert event.data["impression"] == shown[0].id
                return event.what
    raise AssertionError("nothing was said of learning")


def test_what_was_good_once_leads_by_more_the_next_time_and_after_a_restart(tmp_path: Path, model_cache: Path) -> None:
    with open_daemon(tmp_path, model_cache) as daemon:
        with Session("test", cwd="/", endpoints=daemon.endpoints) as session:
            assert session.connect(10.0), session.problem
            for text in MEMORIES.values():
                assert session.remember(text, scope="global", wait_seconds=10.0)
        wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)
        before = dense(daemon)
        assert topic(daemon)["state"] == "resting"
        assert said_good(daemon) == "learning.step"
        after, learned = dense(daemon), topic(daemon)
        assert (learned["steps"], learned["state"]) == (1, "ready")
        assert float(str(learned["w2"])) > 0
        assert lead(after) > lead(before)
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert "libtorch" not in maps
    with open_daemon(tmp_path, model_cache) as daemon:
        again, learned = dense(daemon), topic(daemon)
        assert again == pytest.approx(after, abs=1e-4)
        assert (learned["steps"], learned["state"]) == (1, "resting")
    with open_daemon(tmp_path, model_cache, "--config", str(offline(tmp_path))) as daemon:
        assert dense(daemon) == pytest.approx(before, abs=1e-4)
        assert topic(daemon)["state"] == "off"


def offline(directory: Path) -> Path:
    path = directory / "off.toml"
    path.write_text("[learning]\nonline = false\n")
    return path
