"""A daemon for the real programs to meet, and the talk that they have: what is told, when tools end, what is compared.

Nothing here measures or waits for time. The tools that the scripted model calls are scripts which end when their gate
is opened, and it is opened once every recall that was to have come by then has settled, as the daemon's events tell.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mock_models import Asked
from recalld_client import Session
from recalld_client.link import Link, Subscription
from recalld_daemon.demo.private import wait_until_indexed
from recalld_protocol.endpoints import Endpoints, endpoints
from recalld_protocol.hook_http import make_http_hook
from recalld_protocol.messages import Status, StatusAsk

PATIENCE_SECONDS = 60.0  # bounds what would otherwise never end
GATE_SECONDS = 20.0  # without an event, and a tool ends anyhow: a hook was late, and what it had to tell is lost
TRIES = 3  # of a talk in which a hook was late, as on a busy machine each may be: it has 150 ms
QUIET_SECONDS = 0.2  # between two events of one message lie microseconds
GATED = """#!/bin/sh
# A tool that takes as long as the test wants it to: its first call ends at the gate NAME-1, its second at NAME-2.
name=${0##*/}; n=$(($(cat .calls-$name 2>/dev/null || echo 0) + 1)); echo $n > .calls-$name
until [ -e .gates/$name-$n ]; do sleep 0.02; done
echo done
"""
NOTES = {
    "deploy.md": "# Deploy\n\nAfter every deploy restart the invoice worker by hand, since systemd keeps the old "
    "unit file until daemon-reload has run on the harbour host.\n",
    "postgres.md": "# Postgres\n\nNever create an index on berth_booking without CONCURRENTLY: in April the lock "
    "stopped all bookings for eleven minutes while the migration ran.\n",
    "tea.md": "# Kitchen\n\nThe good oolong is in a blue tin behind the coffee filters, refilled on Fridays.\n",
}
PROMPT = "Please add an index to the berth_booking table so that bookings are found quickly."
INDEX, DEPLOY = (
    "./psql -c 'create index booking_idx on berth_booking (berth_id)'",
    "./deploy invoice-worker --host harbour",
)
MORE_INDEX = "./psql -c 'create index waitlist_idx on berth_booking (waitlist_rank)'"
NEVER_WAITS = "hook_wait_seconds = 0.0"  # what is recalled for a turn has always slipped when it comes
LINE = re.compile(r"recalled: \\*\"… [^…]+ …\\*\" — [^\s:\\]+:\d+-\d+ \(\d{4}-\d\d-\d\d\)")


@dataclass(slots=True)
class HostedDaemon:
    """A daemon over `home`; `environ` leads hooks to it. It is what `wait_until_indexed` asks a PrivateDaemon to be."""

    home: Path
    runtime: Path
    process: subprocess.Popen[bytes]
    link: Link
    endpoints: Endpoints

    @property
    def environ(self) -> dict[str, str]:
        return {"RECALLD_RUNTIME_DIR": str(self.runtime)}

    def status(self) -> Status | None:
        reply = self.link.request(StatusAsk(), 5.0)
        return reply if isinstance(reply, Status) else None

    def in_time(self, talk: Callable[[int], Gates]) -> Gates:
        """The first talk in which every hook was in time; `talk` is given the number of the try."""
        for number in range(TRIES):
            before = self.abandoned
            gates = talk(number)
            if not gates.late and self.abandoned == before:
                break
        return gates

    @property
    def abandoned(self) -> int:
        """Answers that came when their hook had gone."""
        status = self.status()
        return int(status.topics["hooks"]["abandoned"] or 0) if status else 0

    def wait_until(self, holds: Callable[[Status], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (status := self.status()) is None or not holds(status):
            assert time.monotonic() < deadline, status
            time.sleep(0.05)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All of its processes that answer hooks, but not the one that stands in front of it for HTTP."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def hosted_daemon(home: Path, models: Path, config: str) -> Iterator[HostedDaemon]:
    """With its user's home at `home` and `config` as its config.toml; indexed when it is handed out."""
    runtime = Path(tempfile.mkdtemp(prefix="recalld-"))  # short: a socket's path has a limit
    (home / "recalld.toml").write_text(config)
    environ = {**os.environ, "HOME": str(home), "RECALLD_RUNTIME_DIR": str(runtime)}
    command = [sys.executable, "-m", "recalld_daemon", "run", "--home", str(home / "recalld")]
    command += ["--config", str(home / "recalld.toml"), "--model-cache", str(models), "--no-withholding"]
    make_http_hook(environ)  # as an earlier `recallctl install` did: a new one is looked for every two seconds
    try:
        with (home / "recalld.log").open("w+b") as log:
            process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stderr=log)
            try:
                where = endpoints(environ)
                with _linked(where, process, home / "recalld.log") as link:
                    daemon = HostedDaemon(home, runtime, process, link, where)
                    wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)  # type: ignore[arg-type]
                    daemon.wait_until(lambda status: status.topics["hooks"]["http"] == "serving")
                    yield daemon
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE_SECONDS)
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


@contextmanager
def _linked(where: Endpoints, process: subprocess.Popen[bytes], log: Path) -> Iterator[Link]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        link = Link(where)
        try:
            if link.open() and link.request(StatusAsk(), 1.0) is not None:
                yield link
                return
        finally:
            link.close()
    raise AssertionError(f"the daemon did not start:\n{log.read_text(errors='replace')[-2000:]}")


# ---------------------------------------------------------------- gates


@dataclass(slots=True)
class Gates:
    """Lets the tools in `project` end. gates: name -> how many of the daemon's events "turn" and "tool.started" must
    have come before it opens; every recall has settled then, too."""

    project: Path
    endpoints: Endpoints
    gates: Mapping[str, int]
    late: bool = False  # they were opened by the clock
    events: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watched(self) -> Iterator[Callable[[], None]]:
        """Hands out what waits until all gates are open."""
        open_gates(self.project, [])
        with heard_from(self.endpoints, ["turn", "tool.started", "recall."]) as subscription:
            thread = threading.Thread(target=self._watch, args=(subscription,))
            thread.start()
            try:
                yield thread.join
            finally:
                self._over.set()
                thread.join()

    def _watch(self, subscription: Subscription) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS  # until the program has started
        left = dict(self.gates)
        while left and not self._over.is_set():
            event = subscription.receive(QUIET_SECONDS)
            if event is not None:
                self.events.append(event.what)
                deadline = time.monotonic() + GATE_SECONDS
                continue
            told = self.events.count("turn") + self.events.count("tool.started")
            running = self.events.count("recall.started") - self.events.count("recall.settled")
            self.late |= time.monotonic() > deadline
            for name, need in list(left.items()):
                if self.late or (told >= need and running == 0):
                    open_gates(self.project, [name])
                    del left[name]


@contextmanager
def heard_from(where: Endpoints, topics: Sequence[str]) -> Iterator[Subscription]:
    """A subscription through which events come already: what is emitted before it has reached the daemon is lost."""
    with Subscription(where, [*topics, "session.opened"]) as subscription:
        assert subscription.open(), subscription.problem
        for number in range(int(PATIENCE_SECONDS / QUIET_SECONDS)):
            with Session("probe", session_id=f"probe-{id(subscription)}-{number}", endpoints=where) as probe:
                assert probe.connect(PATIENCE_SECONDS), probe.problem
            if subscription.receive(QUIET_SECONDS) is not None:
                break
        yield subscription


def open_gates(project: Path, names: Iterable[str]) -> None:
    (project / ".gates").mkdir(exist_ok=True)
    for name in names:
        (project / ".gates" / name).touch()


# ---------------------------------------------------------------- what is compared

STRAGGLERS = re.compile(r"\\nBackground PIDs: [\d, ]+")  # Gemini: what of a command's processes it still saw
VARIES = re.compile(
    r"""[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}   # ids of sessions, turns, messages, devices
      | \b[0-9a-f]{64}\b
      | \b(?:ses|prt|msg)_[0-9A-Za-z]{20,}
      | \d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:\d\d)?)?               # a run may see midnight
      | \b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,\s\w+\s\d+,\s\d{4}
      | (?<=Chunk\sID:\s)[0-9a-f]{6} | (?<=Wall\stime:\s)[\d.]+ | (?<=_unix_ms\\":)\d+  # Codex
      | (?<=Process\sGroup\sPGID:\s)\d+ | (?<=run_shell_command_)\d+_\d  # Gemini
    """,
    re.VERBOSE,
)


def comparable(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Line for line what a program sent, less what varies from run to run by itself. Codex's metadata has no order."""
    whole = json.dumps(bodies, ensure_ascii=False, sort_keys=True, indent=1)
    return VARIES.sub("*", STRAGGLERS.sub("", whole)).splitlines()


def difference(ours: Sequence[str], plain: Sequence[str]) -> list[str]:
    return [line for line in difflib.ndiff(plain, ours) if line[:1] in "+-?"] if ours != plain else []


def notes_told(asked: Asked) -> list[str]:
    """Which notes the snippets in a request quote, in their order there."""
    return [line.split(" — ")[1].split(":")[0].removeprefix("notes/") for line in LINE.findall(asked.text)]


def write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
