"""install, doctor and uninstall with a real daemon: what is installed is run as it stands, and a memory arrives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recalld_client.cli import main
from recalld_client.hosts.installing.places import HOSTS
from recalld_daemon.demo.private import PrivateDaemon
from recalld_protocol.messages import Search, SessionRow, Sessions, SessionsAsk
from running import running

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Iterator[PrivateDaemon]:
    notes = tmp_path_factory.mktemp("notes")
    (notes / "quays.md").write_text("# Quays\n\nThe crane at the north quay is painted every spring.\n")
    with running(tmp_path_factory.mktemp("home"), model_cache, [notes]) as daemon:
        yield daemon


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with nothing in it, at a path with a space and a quote (P005)."""
    home = tmp_path / "a b" / "c'd"
    (home / "project").mkdir(parents=True)
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CODEX_HOME",
        "COPILOT_HOME",
        "CLAUDE_CONFIG_DIR",
        "GEMINI_CLI_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no real host: none is asked for its version, nor for its trust
    return home


def recallctl(daemon: PrivateDaemon, home: Path, *args: str) -> int:
    runtime = Path(daemon.endpoints.hooks).parent
    return main([*args, "--runtime-dir", str(runtime), "--cwd", str(home / "project")])


def sessions(daemon: PrivateDaemon) -> list[SessionRow]:
    reply = daemon.link.request(SessionsAsk(), 5.0)
    assert isinstance(reply, Sessions)
    return reply.sessions


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize(
    ("host", "flags"), [(host, ()) for host in HOSTS] + [("claude-code", ("--transport", "command"))],
    ids=[*HOSTS, "claude-code by a command"],
)  # fmt: skip
def test_a_memory_arrives_through_what_is_installed(
    host: str, flags: tuple[str, ...], scope: str, daemon: PrivateDaemon, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if host == "opencode" and not shutil.which("node"):
        pytest.skip("opencode: its plugin needs node, which is not on PATH")
    assert recallctl(daemon, home, "install", host, "--scope", scope, *flags) == 0
    assert recallctl(daemon, home, "install", host, "--scope", scope, *flags, "--json") == 0
    assert '"action": "unchanged"' in capsys.readouterr().out
    code = recallctl(daemon, home, "doctor", host, "--json")
    told = json.loads(capsys.readouterr().out)
    assert code == 0, told
    assert [f["text"] for f in told["findings"] if "a memory arrived" in f["text"]], told
    hits = daemon.link.request(Search(query="How much may the crane at the quay lift?", all_scopes=True), 5.0)
    assert not [hit for hit in getattr(hits, "hits", []) if hit.path.startswith("memory:")], "what was planted is gone"
    assert not [row for row in sessions(daemon) if row.session.startswith("recalld-doctor-") and row.connected]
    assert recallctl(daemon, home, "uninstall", host, "--scope", scope) == 0
    left = {path for path in home.rglob("*") if path.is_file()}
    assert left == set(), "what recalld made is gone again"


def test_what_is_planted_is_no_other_projects_business(
    daemon: PrivateDaemon, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its scope is a temporary directory's, and its sessions are that directory's too."""
    recallctl(daemon, home, "install", "gemini")
    assert recallctl(daemon, home, "doctor", "gemini") == 0
    rows = [row for row in sessions(daemon) if row.session.startswith("recalld-doctor-")]
    assert rows
    assert {Path(row.scope).name.startswith("recalld-doctor-") for row in rows} == {True}
    assert not any(Path(row.scope).exists() for row in rows)
    recallctl(daemon, home, "uninstall", "gemini")
    capsys.readouterr()
