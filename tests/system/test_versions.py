"""What was learned goes live and is gone back from, in a real daemon, beside a process that writes the store."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalld_client.cli import main
from recalld_client.link import Subscription
from recalld_daemon.demo.private import PrivateDaemon
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.store import open_reader, open_writer
from recalld_protocol.messages import Hits, Search
from running import running, wait_event

pytestmark = pytest.mark.models

NOTES = {
    "deploy.md": "# Deploy\n\nAfter every deploy restart the invoice worker by hand on the harbour host.\n",
    "postgres.md": "# Postgres\n\nNever create an index on berth_booking without CONCURRENTLY.\n",
    "tea.md": "# Kitchen\n\nThe good oolong is in a blue tin behind the coffee filters.\n",
}
ASKED = "how does one restart the invoice worker"


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    notes = tmp_path / "notes"
    notes.mkdir()
    for name, text in NOTES.items():
        (notes / name).write_text(text)
    return tmp_path / "home", notes


def shifted(dims: int, seed: int) -> Adapter:
    rng = np.random.default_rng(seed)
    born = Adapter.born(dims, seed=seed)
    b2 = rng.normal(0, 0.2, dims).astype(np.float32)
    return Adapter(born.w1, born.b1, rng.normal(0, 0.1, born.w2.shape).astype(np.float32), b2, born.alpha)


def learn(home: Path) -> int:
    """A version as the nightly cycle makes it, beside the daemon that runs."""
    with open_writer(home / "data" / "recalld.db") as writer, open_reader(home / "data" / "recalld.db") as reader:
        encoder, _ = reader.live_snapshot() or (0, 0)
        record = reader.encoder(encoder)
        assert record is not None
        version = writer.begin_version(encoder, at=1e9, vectors=None, why="f_Q + f_K")
        query, key = shifted(record.dims, 1), shifted(record.dims, 2)
        writer.put_artefact(encoder, version, "query", "made", query.to_bytes())
        writer.put_artefact(encoder, version, "key", "made", key.to_bytes())
        for hashes, frozen in reader.walk_vectors(encoder):
            writer.put_projected(encoder, version, hashes, key.apply(frozen).astype(np.float16))
        writer.finish_version(encoder, version, metrics='{"challenger": {"mrr": 0.61}}', drift=0.25)
    return version


def dense(daemon: PrivateDaemon) -> dict[str, float]:
    """path -> cosine of a search; what has no vector yet is found by its words only."""
    hits = daemon.link.request(Search(query=ASKED, all_scopes=True), 10.0)
    assert isinstance(hits, Hits)
    return {hit.path: hit.lanes["dense"] for hit in hits.hits if "dense" in hit.lanes}


Ctl = Callable[..., Any]


@pytest.fixture
def ctl(capsys: pytest.CaptureFixture[str]) -> Ctl:
    def run(daemon: PrivateDaemon, *argv: str, code: int = 0) -> Any:
        runtime = str(Path(daemon.endpoints.request.removeprefix("ipc://")).parent)
        assert main(["--runtime-dir", runtime, "--timeout", "30", *argv]) == code
        out, err = capsys.readouterr()
        return err if code else json.loads(out)

    return run


def test_a_version_goes_live_outlives_kill_9_and_is_gone_back_from(
    places: tuple[Path, Path], model_cache: Path, ctl: Ctl
) -> None:
    home, notes = places
    with running(home, model_cache, [notes]) as daemon:
        plain = dense(daemon)
        (row,) = ctl(daemon, "versions", "--json")["versions"]
        assert (row["version"], row["live"]) == (0, True)
        assert learn(home) == 1
        with Subscription(daemon.endpoints) as events:
            assert ctl(daemon, "rollback", "1", "--json")["version"] == 1
            told = wait_event(events.receive, "version.activated").data
        assert (told["version"], told["from"]) == (1, 0)
        learned = dense(daemon)
        assert learned != plain
        assert ctl(daemon, "status", "--json")["topics"]["index"]["version"] == 1
        assert ctl(daemon, "rollback", "7", code=4).startswith("recallctl: there is no version 7")
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
    with running(home, model_cache, [notes]) as daemon:
        assert dense(daemon) == pytest.approx(learned, abs=1e-4)
        frozen, row = ctl(daemon, "versions", "--json")["versions"]
        assert (frozen["live"], row["live"], row["why"]) == (False, True, "f_Q + f_K")
        assert row["metrics"] == {"challenger.mrr": 0.61}
        assert min(row["w2"], row["b2"], row["bytes"]) > 0
        (notes / "late.md").write_text("# Late\n\nThe invoice worker wants to be restarted at night only.\n")
        for _ in range(2_000):
            if "notes/late.md" in dense(daemon):
                break
        ctl(daemon, "rollback", "0", "--json")
        again = dense(daemon)
        assert "notes/late.md" in again
        assert {path: again[path] for path in plain} == pytest.approx(plain, abs=1e-4)
