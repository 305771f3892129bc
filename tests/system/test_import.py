"""`recalld import` as a user runs it: beside a real daemon and without one, twice, killed in the middle, under load."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import zipfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from recalld_client import Session
from recalld_daemon.demo.private import PrivateDaemon, wait_until_indexed
from recalld_daemon.paths import home_under
from recalld_daemon.store.reader import open_reader
from recalld_daemon.store.writer import open_writer
from recalld_protocol.messages import Forget, Forgotten, Hits, Problem, Search
from running import PATIENCE_SECONDS, running, settle

pytestmark = pytest.mark.models

BIRDS = "heron avocet bittern curlew dunlin egret fulmar gannet knot osprey plover quail ruff sanderling tern".split()  # noqa: SIM905


def imported(
    home: Path, models: Path, *arguments: str | Path, daemon: PrivateDaemon | None = None
) -> subprocess.Popen[str]:
    """`recalld import --json`, running."""
    runtime = _runtime(daemon) if daemon else home / "run"
    runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
    config = home / "import.toml"
    config.write_text("[sources]\ntranscripts = false\n")
    command = [sys.executable, "-m", "recalld_daemon", "import", "--home", str(home), "--model-cache", str(models)]
    command += ["--config", str(config), "--json", *map(str, arguments)]
    environ = dict(os.environ, RECALLD_RUNTIME_DIR=str(runtime))
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _runtime(daemon: PrivateDaemon) -> Path:
    return Path(daemon.endpoints.request.removeprefix("ipc://")).parent


def ended(process: subprocess.Popen[str], code: int = 0) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=5 * PATIENCE_SECONDS)
    assert process.returncode == code, err
    rows: list[dict[str, Any]] = json.loads(out)["paths"] if out else []
    return rows


def found(daemon: PrivateDaemon, query: str) -> list[str]:
    reply = daemon.link.request(Search(query=query, limit=5, all_scopes=True), PATIENCE_SECONDS)
    assert isinstance(reply, Hits)
    return [hit.text for hit in reply.hits]


def written(directory: Path, words: Sequence[str], each: int = 1) -> Path:
    directory.mkdir(exist_ok=True)
    for word in words:
        parts = [f"# Part {n}\n\nThe {word} of part {n} was seen from the north tower.\n" for n in range(each)]
        (directory / f"{word}.md").write_text("\n".join(parts))
    return directory


def test_beside_a_daemon_twice_and_again_after_a_restart(tmp_path: Path, model_cache: Path) -> None:
    home, notes = tmp_path / "home", written(tmp_path / "notes", BIRDS[:3])
    with running(home, model_cache) as daemon:
        (first,) = ended(imported(home, model_cache, notes, daemon=daemon))
        assert (first["known"], first["files"], first["kept"]["newer"]) == (False, {"Markdown": 3}, 3)
        assert "avocet" in found(daemon, "where was the avocet seen")[0]
        (again,) = ended(imported(home, model_cache, notes, daemon=daemon))
        assert (again["known"], again["kept"]["passages"], again["kept"]["newer"]) == (True, 3, 0)
        (notes / "late.md").write_text("# Late\n\nThe petrel was seen from the south tower.\n")
        (more,) = ended(imported(home, model_cache, notes, notes / "late.md", daemon=daemon))[:1]
        assert more["known"]
        missing = imported(home, model_cache, tmp_path / "nothing", daemon=daemon)
        assert ended(missing, code=1) == []
    with running(home, model_cache) as daemon:  # nobody names the directory, and it is still read
        (notes / "later.md").write_text("# Later\n\nThe shearwater was seen from a boat.\n")
        (last,) = ended(imported(home, model_cache, notes, daemon=daemon))
        assert last["kept"]["passages"] >= 4
        assert any("petrel" in text for text in found(daemon, "petrel"))


def test_without_a_daemon_it_is_read_and_embedded_here(tmp_path: Path, model_cache: Path) -> None:
    home, notes = tmp_path / "home", written(tmp_path / "notes", BIRDS[:2])
    (row,) = ended(imported(home, model_cache, notes))
    assert (row["kept"]["files"], row["kept"]["passages"], row["kept"]["newer"]) == (2, 2, 2)
    (again,) = ended(imported(home, model_cache, notes))
    assert (again["known"], again["kept"]["newer"]) == (True, 0)
    with running(home, model_cache) as daemon:
        status = daemon.status()
        assert status is not None
        assert status.topics["index"]["embedded"] == 2
        assert "avocet" in found(daemon, "which towers were avocets watched from")[0]


def test_p034_killed_in_the_middle_and_again(tmp_path: Path, model_cache: Path) -> None:
    """kill -9 of an import without a daemon: the next one reads on, and everything is there once."""
    home, notes = tmp_path / "home", written(tmp_path / "notes", BIRDS, each=60)
    process = imported(home, model_cache, notes)
    database = home_under(home).database
    for _ in range(int(PATIENCE_SECONDS / 0.02)):
        if process.poll() is not None or (database.exists() and _passages(database) > 100):
            break
        threading.Event().wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (row,) = ended(imported(home, model_cache, notes))
    assert row["known"]
    assert row["kept"] | {"newer": 0} == {
        "files": len(BIRDS), "failed": 0, "unfinished": 0, "problems": 0, "passages": 60 * len(BIRDS), "newer": 0,
    }  # fmt: skip
    with open_reader(database) as reader:
        live = reader.live_snapshot()
        assert live is not None
        assert reader.count_missing(live[0], 0) == 0
        texts = [passage.text for ids in reader.walk_passages() for passage in reader.passages([int(i) for i in ids])]
    assert len(texts) == len(set(texts)) == 60 * len(BIRDS)


def _passages(database: Path) -> int:
    try:
        with open_reader(database) as reader:
            return reader.counts()["passages"]
    except Exception:  # noqa: BLE001 - it is being made
        return 0


def test_p034_a_daemon_killed_while_it_imports_goes_on_when_it_starts(tmp_path: Path, model_cache: Path) -> None:
    home, notes = tmp_path / "home", written(tmp_path / "notes", BIRDS, each=60)
    with running(home, model_cache) as daemon:
        process = imported(home, model_cache, notes, "--no-wait", daemon=daemon)
        ended(process)
        daemon.process.kill()
        daemon.process.wait()
    with running(home, model_cache) as daemon:
        (row,) = ended(imported(home, model_cache, notes, daemon=daemon))
        assert (row["known"], row["kept"]["passages"], row["kept"]["unfinished"]) == (True, 60 * len(BIRDS), 0)


def test_p034_while_eight_sessions_recall_and_a_program_outside_reads(tmp_path: Path, model_cache: Path) -> None:
    home, small, big = (tmp_path / name for name in ("home", "small", "big"))
    written(small, BIRDS[:8])
    written(big, BIRDS[8:], each=40)
    database, done = home_under(home).database, threading.Event()
    settled: dict[str, str] = {}
    counted: list[int] = []

    def talk(word: str) -> None:
        with Session("test", cwd="/", endpoints=daemon.endpoints) as session:
            assert session.connect(PATIENCE_SECONDS), session.problem
            for n in range(50):
                call = session.tool_started("bash", f"look for the {word} of part {n} at the north tower")
                session.tool_ended(call, "done", True)
                session.boundary()
            settled[word] = settle(session, call=call.id).outcome

    def count() -> None:
        while not done.is_set():
            with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
                counted.extend(db.execute("SELECT count(*) FROM passages").fetchone())

    with running(home, model_cache, [small]) as daemon:
        process = imported(home, model_cache, big, daemon=daemon)
        outside = threading.Thread(target=count)
        threads = [outside, *(threading.Thread(target=talk, args=(word,)) for word in BIRDS[:8])]
        for thread in threads:
            thread.start()
        (row,) = ended(process)
        for thread in threads[1:]:
            thread.join(5 * PATIENCE_SECONDS)
        done.set()
        outside.join()
        assert row["kept"]["passages"] == 40 * len(BIRDS[8:])
        assert sorted(settled) == sorted(BIRDS[:8])
        assert "failed" not in settled.values()
        assert counted[-1] == row["kept"]["passages"] + 8
        assert any("osprey" in text for text in found(daemon, "osprey"))
    with open_writer(database) as writer:
        assert writer.check() == []


def test_ctrl_c_leaves_it_noted(tmp_path: Path, model_cache: Path) -> None:
    home, notes = tmp_path / "home", written(tmp_path / "notes", BIRDS, each=60)
    process = imported(home, model_cache, notes)
    database = home_under(home).database
    while process.poll() is None and not (database.exists() and _passages(database) > 10):
        threading.Event().wait(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=5 * PATIENCE_SECONDS)
    assert process.returncode == 130, err
    assert "what was noted is read on" in err
    assert out == ""
    with running(home, model_cache) as daemon:
        wait_until_indexed(daemon, lambda line: None)
        with open_reader(database) as reader:
            assert reader.kept_below(str(notes)).passages == 60 * len(BIRDS)


def test_a_copy_lets_the_download_be_deleted(tmp_path: Path, model_cache: Path) -> None:
    home, download = tmp_path / "home", tmp_path / "talk.md"
    download.write_text("# Talk\n\nThe heron is asked before every rollback.\n")
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inner/notes.md", "# Inner\n\nThe avocet nests by the salt pans.\n")
        file.writestr("../outside.md", "# Outside\n\nThe cuckoo lays its eggs elsewhere.\n")
        file.writestr("picture.png", b"\x89PNG")
    refused = imported(home, model_cache, archive)
    assert ended(refused, code=1) == []
    rows = ended(imported(home, model_cache, "--copy", download, archive))
    assert [row["kept"]["passages"] for row in rows] == [1, 1]
    assert not (tmp_path / "outside.md").exists()
    download.unlink()
    archive.unlink()
    with running(home, model_cache) as daemon:
        assert "heron" in found(daemon, "who is asked before a rollback")[0]
        assert "avocet" in found(daemon, "where does the avocet nest")[0]
        assert not any("cuckoo" in text for text in found(daemon, "cuckoo"))
        for row, original in zip(rows, (download, archive), strict=True):
            told = daemon.link.request(Forget(path=str(original)), PATIENCE_SECONDS)
            assert isinstance(told, Problem)
            assert (told.code, row["copy"] in told.text) == ("failed", True)  # not: nothing is known of it
            assert isinstance(daemon.link.request(Forget(path=row["copy"]), PATIENCE_SECONDS), Forgotten)
