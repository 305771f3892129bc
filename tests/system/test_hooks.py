"""Hooks as hosts run them: real processes, real HTTP, a real daemon, in health and in every kind of trouble."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hook_payloads import batch, claude, context_in, prompt, recorded
from recalld_client.hosts.hook_command import hook_command
from recalld_client.link import Link
from recalld_daemon.demo.private import PrivateDaemon, wait_until_indexed
from recalld_protocol.hook_http import HttpHook, make_http_hook
from recalld_protocol.messages import Search
from running import PATIENCE_SECONDS, running

pytestmark = pytest.mark.models

NOTES = {
    "postgres.md": "# Postgres\n\nNever create an index on berth_booking without CONCURRENTLY: in April the lock "
    "stopped all bookings for eleven minutes while the migration ran.\n",
    "tea.md": "# Kitchen\n\nThe good oolong is in a blue tin behind the coffee filters, refilled on Fridays.\n",
}
ASKED = "how do we add an index to berth_booking without a lock?"
INDEX_CALL = "psql -c 'create index booking_idx on berth_booking (berth_id)' # add the index to berth_booking"
CALLS = 20  # of each kind of trouble


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


def environ_of(daemon: PrivateDaemon) -> dict[str, str]:
    return {**os.environ, "RECALLD_RUNTIME_DIR": str(Path(daemon.endpoints.hooks).parent)}


def hook(env: dict[str, str], payload: bytes, host: str = "claude-code", event: str = "") -> bytes:
    """What one hook prints; it must end well, whatever it met."""
    done = subprocess.run(
        hook_command(host, event), input=payload, capture_output=True, env=env, timeout=PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def hooks_topic(daemon: PrivateDaemon) -> dict[str, Any]:
    status = daemon.status()
    assert status is not None
    return dict(status.topics["hooks"])


def until_said(env: dict[str, str], session: str, words: str) -> list[str]:
    """One tool call after another about the index, until `words` come: on a busy machine a recall slips."""
    said = []
    for n in range(50):
        said.append(context_in(hook(env, batch((f"{session}-{n}", f"{INDEX_CALL} {n}"), session=session))))
        if words in said[-1]:
            return said
    raise AssertionError(f"{words!r} never came: {said}")


# ---------------------------------------------------------------- in health


def test_a_turn_or_its_tool_calls_bring_what_was_written_down(daemon: PrivateDaemon, notes: Path) -> None:
    env = environ_of(daemon)
    before = hooks_topic(daemon)
    said = [context_in(hook(env, prompt(ASKED, session="brings")))]
    if not said[0]:
        said += until_said(env, "brings", "CONCURRENTLY")
    (line,) = [one for one in said if one]
    assert line.startswith('recalled: "… ')
    assert "notes/postgres.md:" in line
    after = hooks_topic(daemon)
    assert after["claude-code"] == before["claude-code"] + len(said)
    assert after["answered"] == before["answered"] + 1
    assert not (Path(env["RECALLD_RUNTIME_DIR"]) / "hook.trouble").exists()


CONTRACT = {
    "claude-code": ("UserPromptSubmit", "PostToolBatch"),
    "codex": ("UserPromptSubmit", "PostToolUse"),
    "gemini": ("BeforeAgent", "AfterTool"),
    "copilot": ("userPromptSubmitted", "postToolUse"),
}


@pytest.mark.parametrize("host", CONTRACT)
def test_each_host_is_answered_in_its_own_words(daemon: PrivateDaemon, host: str) -> None:
    """The recorded payloads of that host, whose turn asks about the index, as its tool calls do."""
    env, answers = environ_of(daemon), []
    turn, tool = CONTRACT[host]
    said = [(event or json.loads(payload)["hook_event_name"], json.loads(payload)) for event, payload in recorded(host)]
    asking = next(payload for event, payload in said if event == turn)
    calling = next(payload for event, payload in said if event == tool and "error" not in str(payload))
    key = "sessionId" if host == "copilot" else "session_id"
    given = turn if host == "copilot" else ""
    asking = {**asking, key: f"host-{host}", "prompt": ASKED}
    answers.append(hook(env, json.dumps(asking).encode(), host, given))
    for n in range(50):
        if answers[-1]:
            break
        again = {**calling, key: f"host-{host}", "timestamp": n if host == "copilot" else f"{n}"}
        if host == "claude-code":
            again["tool_calls"] = [
                {**calling["tool_calls"][0], "tool_use_id": f"t{n}", "tool_input": f"{INDEX_CALL} {n}"}
            ]
        again |= {"tool_use_id": f"t{n}", "tool_input": f"{INDEX_CALL} {n}", "toolArgs": f"{INDEX_CALL} {n}"}
        answers.append(hook(env, json.dumps(again).encode(), host, tool if host == "copilot" else ""))
    answer = json.loads(answers[-1])
    text = answer["additionalContext"] if host == "copilot" else answer["hookSpecificOutput"]["additionalContext"]
    assert "CONCURRENTLY" in text
    assert set(answer) == {"additionalContext" if host == "copilot" else "hookSpecificOutput"}
    if host != "copilot":
        assert answer["hookSpecificOutput"]["hookEventName"] in (turn, tool)


def test_p009_a_hundred_calls_about_one_subject_show_it_once_per_compaction_epoch(daemon: PrivateDaemon) -> None:
    env = environ_of(daemon)
    said = until_said(env, "once", "CONCURRENTLY")
    said += [context_in(hook(env, batch((f"a{n}", f"{INDEX_CALL} -- {n}"), session="once"))) for n in range(100)]
    assert ["CONCURRENTLY" in one for one in said].count(True) == 1
    hook(env, claude("PostCompact", "once", compact_summary="berths"))
    again = until_said(env, "once", "CONCURRENTLY")
    again += [context_in(hook(env, batch((f"b{n}", f"{INDEX_CALL} -- {n}"), session="once"))) for n in range(10)]
    assert ["CONCURRENTLY" in one for one in again].count(True) == 1


def test_what_is_malformed_is_silent_and_in_the_status(daemon: PrivateDaemon) -> None:
    env = environ_of(daemon)
    before = hooks_topic(daemon)["refused"]
    for payload in (b"", b"{", b"[]", b'{"session_id": 7}', b"\xff" * 1000):
        assert hook(env, payload) == b""
    assert hook(env, b"{}", "no-such-host") == b""
    topic = hooks_topic(daemon)
    assert topic["refused"] == before + 6
    assert "no host 'no-such-host'" in topic["last_problem"]


# ---------------------------------------------------------------- in trouble


def test_p002_absent_then_there_then_killed(tmp_path: Path, model_cache: Path, notes: Path) -> None:
    with running(tmp_path, model_cache, [notes]) as daemon:
        env = environ_of(daemon)
        daemon.process.kill()
        daemon.process.wait()
        for n in range(CALLS):
            assert hook(env, batch((f"t{n}", INDEX_CALL))) == b""
        assert "no daemon listens" in (Path(env["RECALLD_RUNTIME_DIR"]) / "hook.log").read_text()


def test_p003_a_configuration_that_can_t_be_read_stops_the_daemon_and_no_hook(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[hooks\nhttp = perhaps")
    env = {**os.environ, "RECALLD_RUNTIME_DIR": str(tmp_path / "run")}
    command = [sys.executable, "-m", "recalld_daemon", "run", "--config", str(tmp_path / "config.toml")]
    refused = subprocess.run(command, capture_output=True, env=env, timeout=PATIENCE_SECONDS, check=False)
    assert refused.returncode != 0
    assert b"config.toml: not valid TOML" in refused.stderr
    for n in range(3):
        assert hook(env, batch((f"t{n}", INDEX_CALL))) == b""


def test_p002_while_the_model_loads_hooks_are_answered_at_once_and_empty(
    tmp_path: Path, model_cache: Path, notes: Path
) -> None:
    loading = 0
    with running(tmp_path, model_cache, [notes], indexed=False) as daemon:
        env = environ_of(daemon)
        for n in range(CALLS):
            answer = hook(env, batch((f"t{n}", f"{INDEX_CALL} {n}"), session="early"))
            status = daemon.status()
            assert status is not None
            if status.topics["models"]["state"] in ("starting", "loading"):
                assert answer == b""
                loading += 1
        wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)
        if not loading:
            pytest.skip("the model was there before the first hook")
        until_said(env, "later", "CONCURRENTLY")


def test_p002_beside_two_hundred_queries_hooks_end_well(daemon: PrivateDaemon) -> None:
    env = environ_of(daemon)

    def ask() -> None:
        link = Link(daemon.endpoints)
        try:
            assert link.open()
            for n in range(25):
                link.request(Search(query=f"{ASKED} {n}"), PATIENCE_SECONDS)
        finally:
            link.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    said = [context_in(hook(env, batch((f"q{n}", f"{INDEX_CALL} {n}"), session="busy"))) for n in range(CALLS)]
    for thread in threads:
        thread.join()
    said += [context_in(hook(env, batch((f"r{n}", f"{INDEX_CALL} again {n}"), session="busy"))) for n in range(CALLS)]
    assert ["CONCURRENTLY" in one for one in said].count(True) == 1


def test_p002_a_stopped_daemon_is_left_waiting_and_heals(tmp_path: Path, model_cache: Path, notes: Path) -> None:
    with running(tmp_path, model_cache, [notes]) as daemon:
        env = environ_of(daemon)
        port = make_http_hook(env)
        until_served(daemon)
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            for n in range(CALLS):
                assert hook(env, batch((f"t{n}", f"{INDEX_CALL} {n}"), session="stopped")) == b""
                assert post(port, batch((f"h{n}", f"{INDEX_CALL} {n}"), session="stopped")) == (200, b"")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        log = (Path(env["RECALLD_RUNTIME_DIR"]) / "hook.log").read_text().splitlines()
        told = next(line for line in log if "nothing within 150 ms" in line)
        assert told.endswith("is recalld stopped, or very busy?")
        said = until_said(env, "stopped", "CONCURRENTLY")
        said += [context_in(hook(env, batch((f"u{n}", INDEX_CALL), session="stopped"))) for n in range(5)]
        assert ["CONCURRENTLY" in one for one in said].count(True) == 1
        topic = hooks_topic(daemon)
        assert topic["abandoned"] >= CALLS
        assert "HTTP hook answered empty" in topic["last_problem"]


def test_p043_ten_hooks_at_one_instant_are_all_served(daemon: PrivateDaemon) -> None:
    env = environ_of(daemon)
    before = hooks_topic(daemon)["requests"]
    answers: list[bytes] = []
    payloads = [batch((f"t{n}", INDEX_CALL), session=f"crowd-{n}") for n in range(10)]
    threads = [threading.Thread(target=lambda one=payload: answers.append(hook(env, one))) for payload in payloads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 10
    asked = hooks_topic(daemon)["requests"] - before
    assert 0 < asked <= 10  # on a busy machine some give up before they have started
    assert "CONCURRENTLY" in until_said(env, "crowd", "CONCURRENTLY")[-1]


# ---------------------------------------------------------------- HTTP


def until_served(daemon: PrivateDaemon) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while hooks_topic(daemon)["http"] != "serving":
        assert time.monotonic() < deadline, hooks_topic(daemon)
        time.sleep(0.05)


def post(served: HttpHook, payload: bytes, host: str = "claude-code") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("POST", f"/hooks/{host}", payload, {"Authorization": f"Bearer {served.token}"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_an_http_hook_is_answered_like_a_command(tmp_path: Path, model_cache: Path, notes: Path) -> None:
    with running(tmp_path, model_cache, [notes]) as daemon:
        served = make_http_hook(environ_of(daemon))
        until_served(daemon)
        said = [context_in(post(served, prompt(ASKED, session="http"))[1])]
        for n in range(50):
            if said[-1]:
                break
            said.append(context_in(post(served, batch((f"t{n}", f"{INDEX_CALL} {n}"), session="http"))[1]))
        assert "CONCURRENTLY" in said[-1]
        assert post(HttpHook(served.port, "guess"), prompt(ASKED))[0] == 401
        topic = hooks_topic(daemon)
        assert topic["http_port"] == served.port
        front = psutil.Process(topic["http_pid"])
        assert served.token not in " ".join(front.cmdline())
        daemon.process.kill()
        daemon.process.wait()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while front.is_running() and front.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(ConnectionRefusedError):
            post(served, prompt(ASKED))
