"""A night beside a real daemon, with the real encoder: it is told, swaps while it serves, and can go back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recalld_client import Session
from recalld_daemon.demo.private import PrivateDaemon, wait_until_indexed
from recalld_daemon.paths import Home, home_under
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.sleep.building import build_index, far_from
from recalld_daemon.sleep.going_live import activate
from recalld_daemon.sleep.phases import PHASES
from recalld_daemon.sleep.ports import Answer, projection_of
from recalld_daemon.sleep.reproject import project_all
from recalld_daemon.store import ImpressionRecord, RecallRecord, SessionRecord, open_writer
from recalld_daemon.store.reader import open_reader
from recalld_protocol.messages import Activate, Activated, Hits, Search
from running import PATIENCE_SECONDS, running

pytestmark = pytest.mark.models

THINGS = "crane ledger ferry kiln orchard turbine bakery archive tunnel beacon quarry loom".split()  # noqa: SIM905
PLACES = "Aarhus Bergen".split()  # noqa: SIM905


def said(thing: str, place: str) -> str:
    return f"The {thing} in {place} was moved to the north side before winter came."


def filled(daemon: PrivateDaemon) -> Home:
    """Memories, and a log in which a question was asked about each."""
    with Session("test", cwd="/", endpoints=daemon.endpoints) as session:
        assert session.connect(10.0), session.problem
        texts = [said(thing, place) for thing in THINGS for place in PLACES]
        for text in texts:
            assert session.remember(text, scope="global", wait_seconds=10.0)
    wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)
    home = home_under(daemon.home)
    with open_reader(home.database) as reader, open_writer(home.database) as writer:
        ids = [int(id) for found in reader.walk_passages() for id in found]
        for n, passage in enumerate(reader.passages(ids)):
            recall, at = f"r{n}", 1_900_000_000.0 + 60 * n
            writer.touch_session(SessionRecord(f"s{n // 4}", scope=1))
            asked = f"what happened to the {passage.text.split()[1]} up in {passage.text.split()[3]}"
            writer.record_recall(RecallRecord(recall, f"s{n // 4}", "turn 1", asked, at, "ready"))
            shown = ImpressionRecord(
                f"i{n}", recall, f"s{n // 4}", passage.id, "/x", 0, 1, "x", 1, 1.0, 0.5, "late", "won", 1, at, 1.0
            )
            writer.record_impressions([shown])
            writer.record_feedback(f"i{n}", "used", at=at + 1)
    return home


def first(daemon: PrivateDaemon) -> str:
    hits = daemon.link.request(Search(query=said("ferry", "Bergen"), cwd="/"), PATIENCE_SECONDS)
    assert isinstance(hits, Hits), hits
    return hits.hits[0].text


def runtime_of(daemon: PrivateDaemon) -> str:
    return str(Path(daemon.endpoints.request.removeprefix("ipc://")).parent)


def a_key(dims: int) -> Adapter:
    """f_K that moves every vector a little."""
    born = Adapter.born(dims)
    return replace(born, w2=np.random.default_rng(1).normal(size=born.w2.shape).astype(np.float32) * np.float32(0.05))


def test_a_running_daemon_swaps_to_projected_vectors_while_it_serves_and_back(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, model_cache) as daemon:
        home = filled(daemon)
        monkeypatch.setenv("RECALLD_RUNTIME_DIR", runtime_of(daemon))
        stop, wrong, served = threading.Event(), list[str](), list[int]()

        def keep_asking() -> None:
            while not stop.is_set():
                served.append(1)
                wrong.extend([] if "ferry" in (text := first(daemon)) else [text])

        asking = threading.Thread(target=keep_asking)
        asking.start()
        try:
            with open_writer(home.database) as writer, open_reader(home.database) as reader:
                key = a_key(384)
                version = writer.begin_version(1, at=1.0, vectors=None, why="f_K")
                writer.put_artefact(1, version, "key", "made", key.to_bytes())
                project_all(writer, reader, 1, version, projection_of(key), lambda what, done, total: None, 16)
                build_index(home.index, reader, 1, version, lambda what, done, total: None)
                assert far_from(reader, 1, version, key) == ""
                writer.finish_version(1, version, metrics="{}", drift=0.1)
            assert activate(home, 1, version) == Answer(True, "daemon")
        finally:
            stop.set()
            asking.join()
        assert wrong == []
        assert served
        status = daemon.status()
        assert status is not None
        assert (status.topics["index"]["version"], status.topics["index"]["snapshot"]) == (version, version)
        assert "ferry" in first(daemon)
        assert isinstance(daemon.link.request(Activate(version=0), PATIENCE_SECONDS), Activated)
        assert "ferry" in first(daemon)
        refused = activate(home, 1, 99)
        assert (refused.live, refused.again) == (False, False)
        assert "there is no version 99" in refused.problem
    assert activate(home, 1, version) == Answer(True, "here")  # no daemon any more
    with open_reader(home.database) as reader:
        assert reader.live_version(1) == version


def test_a_whole_night_of_the_command_with_the_real_encoder_beside_a_daemon(tmp_path: Path, model_cache: Path) -> None:
    with running(tmp_path, model_cache) as daemon:
        home = filled(daemon)
        home.config_file.write_text("[learning]\nleast_queries = 20\n")
        command = [sys.executable, "-m", "recalld_daemon", "sleep", "--home", str(tmp_path)]
        command += ["--model-cache", str(model_cache), "--json"]
        environ = dict(os.environ, RECALLD_RUNTIME_DIR=runtime_of(daemon))
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        report = json.loads(ran.stdout)
        assert report["collected"]["distinct_queries"] == len(THINGS) * len(PLACES)
        for parts in ("q", "qk", "qkv"):
            assert report["trained"][parts]["epochs"] > 0
        assert "too few" in report["trained"]["rankers"] or "are needed" in report["trained"]["rankers"]
        chosen = report["chosen"]
        for name, row in report["judged"]["candidates"].items():
            if name == chosen:
                assert row["gain"]["mrr"]["low"] >= 0 < row["gain"]["mrr"]["gain"]
        status = daemon.status()
        assert status is not None
        assert status.topics["index"]["version"] == (1 if chosen else 0)
        assert ran.stderr.startswith(f"[1/{len(PHASES)} collect]")
        assert "ferry" in first(daemon)
