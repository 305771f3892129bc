"""All hosts' sessions on one machine, read by one daemon: found, each by its own project, and never an echo of ours."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_house import HostedDaemon, hosted_daemon
from recalld_client import Session
from recalld_protocol.messages import Hits, Search
from running import PATIENCE_SECONDS, settle
from transcripts import FORMATS, GEMINI, RECORDED, Format

pytestmark = pytest.mark.models

SAID = {
    "claude-code": "The berth_booking index must be made concurrently, or the lock stops all bookings for minutes.",
    "codex": "The invoice worker on the harbour host is restarted by hand after every deploy.",
    "copilot": "The waitlist export is written in latin1 because the accountant's program reads nothing else.",
    "gemini": "The tide table is fetched at four in the morning, when the ministry's server is awake.",
}
RULE = "The quay crane is locked whenever the wind gauge reads more than twelve metres per second."
VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME")


def places(home: Path) -> dict[str, Path]:
    return {
        "claude-code": home / ".claude" / "projects" / "-p",
        "codex": home / ".codex" / "sessions" / "2026" / "03" / "02",
        "copilot": home / ".copilot" / "session-state",
        "gemini": home / ".gemini" / "tmp" / "tide" / "chats",
    }


def write(form: Format, directory: Path, project: Path, text: str) -> None:
    """A session held in `project`, in which this was said."""
    lines = form.lines("how do we do that here", text)
    form.write(directory, *(line.replace("/home/ada/tidewater", str(project)) for line in lines))
    if form is GEMINI:  # which names its project by a hash, and the directory beside
        opening = json.loads(lines[0]) | {"projectHash": sha(project), "directories": None}
        form.write(directory, json.dumps(opening), *lines[1:])
        (directory.parent / ".project_root").write_text(str(project))


def sha(project: Path) -> str:
    return hashlib.sha256(str(project).encode()).hexdigest()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Iterator[HostedDaemon]:
    home = tmp_path_factory.mktemp("user")
    project = home / "tide"
    (project / ".git").mkdir(parents=True)
    (project / "CLAUDE.md").write_text(f"# Rules\n\n{RULE}\n")
    where = places(home)
    for form in FORMATS:
        write(form, where[form.kind], project, SAID[form.kind])
    for file in RECORDED.glob("*.jsonl"):  # three sessions and more of one project, each full of our own lines
        kind = next(form.kind for form in FORMATS if file.name.startswith(form.kind))
        name = f"{file.stem}/events.jsonl" if kind == "copilot" else file.name
        (where[kind] / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, where[kind] / name)
    config = f"[sources]\nwatch = [{str(project)!r}]\n"
    with pytest.MonkeyPatch.context() as patch:
        for variable in VARIABLES:
            patch.delenv(variable, raising=False)
        with hosted_daemon(home, model_cache, config) as daemon:
            yield daemon


def hits(daemon: HostedDaemon, query: str) -> list[str]:
    reply = daemon.link.request(Search(query=query, limit=20, all_scopes=True), PATIENCE_SECONDS)
    assert isinstance(reply, Hits)
    return [hit.text for hit in reply.hits]


def recalled(daemon: HostedDaemon, host: str, name: str, cwd: Path, asked: str) -> list[str]:
    """The words of what comes to mind in a session of its own."""
    with Session(host, cwd=str(cwd), session_id=name, endpoints=daemon.endpoints) as session:
        assert session.connect(PATIENCE_SECONDS), session.problem
        session.turn(asked)
        settle(session, turn=1)
        return [injection.text for injection in session.boundary()]


ASKED = {
    "claude-code": "add an index to berth_booking without stopping the bookings",
    "codex": "deploy the invoice worker to the harbour host",
    "copilot": "change the encoding of the waitlist export for the accountant",
    "gemini": "when is the tide table fetched from the ministry's server?",
}


@pytest.mark.parametrize("kind", SAID)
def test_what_was_said_in_one_host_comes_to_mind_in_another(daemon: HostedDaemon, kind: str) -> None:
    words = " ".join(recalled(daemon, "test", f"asks-{kind}", daemon.home / "tide", ASKED[kind]))
    assert words
    assert words.split()[0] in SAID[kind]


@pytest.mark.parametrize("kind", SAID)
def test_p014_in_another_project_it_does_not(daemon: HostedDaemon, kind: str) -> None:
    assert recalled(daemon, "test", f"other-{kind}", daemon.home / "elsewhere", ASKED[kind]) == []


def test_p013_no_line_or_wrapper_of_ours_is_found(daemon: HostedDaemon) -> None:
    for query in ("the harbour pump needs two keys to start", "notes/pump.md", "PostToolBatch hook additional context"):
        for text in hits(daemon, query):
            assert not any(ours in text for ours in ("recalled:", "pump", "two keys", "hook", "notes/"))


def test_what_is_in_the_prompt_anyway_comes_to_mind_only_where_it_is_not(daemon: HostedDaemon) -> None:
    asked = "is the quay crane locked when the wind gauge reads fifteen metres per second?"
    project = daemon.home / "tide"
    assert recalled(daemon, "claude-code", "loaded", project, asked) == []
    assert recalled(daemon, "gemini", "not-loaded", project, asked) != []


def test_a_session_does_not_recall_its_own_transcript(daemon: HostedDaemon) -> None:
    """Every session here is called 0a1b, so to that one all of them are its own."""
    for kind, asked in ASKED.items():
        assert recalled(daemon, kind, "0a1b", daemon.home / "tide", asked) == []
