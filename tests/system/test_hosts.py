"""The real programs with our hooks in them, a real daemon over real notes, and a scripted model on loopback.

What is looked at is what the program sent to its model, and nothing else counts: P008 was a snippet that a hook had
printed and no model had seen. The versions are those in `host_programs`; their names stand in the tests' names.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from host_house import GATED, Gates, HostedDaemon, comparable, hosted_daemon, open_gate
from host_programs import PROGRAMS, Home, NotInstalled, Program, install_hooks, installed
from mock_models import Asked, MockModel, Script

pytestmark = pytest.mark.models

REQUIRED = os.environ.get("RECALLD_TEST_HOSTS_REQUIRED", "").split()  # hosts that must not be skipped
NOTES = {
    "deploy.md": "# Deploy\n\nAfter every deploy restart the invoice worker by hand, since systemd keeps the old "
    "unit file until daemon-reload has run on the harbour host.\n",
    "postgres.md": "# Postgres\n\nNever create an index on berth_booking without CONCURRENTLY: in April the lock "
    "stopped all bookings for eleven minutes while the migration ran.\n",
    "tea.md": "# Kitchen\n\nThe good oolong is in a blue tin behind the coffee filters, refilled on Fridays.\n",
}
PROMPT = "Please add an index to the berth_booking table so that bookings are found quickly."
COMMANDS = (
    "./psql -c 'create index booking_idx on berth_booking (berth_id)'",
    "./deploy invoice-worker --host harbour",
    "./psql -c 'create index waitlist_idx on berth_booking (waitlist_rank)'",
)
LINE = re.compile(r"recalled: \\*\"… [^…]+ …\\*\" — [^\s:\\]+:\d+-\d+ \(\d{4}-\d\d-\d\d\)")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Iterator[HostedDaemon]:
    """One that never waits at a boundary: what is recalled for a turn has always slipped when it comes."""
    home = tmp_path_factory.mktemp("user")
    write(home / "notes", NOTES)
    config = f"[sources]\nwatch = [{str(home / 'notes')!r}]\ntranscripts = false\n[hooks]\nhook_wait_seconds = 0.0\n"
    with hosted_daemon(home, model_cache, config) as daemon:
        yield daemon


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def binary(program: Program) -> Path:
    try:
        return installed(program)
    except NotInstalled as missing:
        if program.host in REQUIRED:
            pytest.fail(f"{program.name}: {missing}")
        pytest.skip(f"{program.name}: {missing}")


def write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def script(program: Program) -> Script:
    return Script({PROMPT: [[program.shell(command)] for command in COMMANDS]})


def home_of(program: Program, binary: Path, model: MockModel, path: Path, extra: Mapping[str, str]) -> Home:
    home = Home(path, program, binary, model.url, dict(extra))
    home.prepare({"psql": GATED, "deploy": GATED, "README.md": "# Bookings\n"})
    return home


def lines_in(asked: Asked) -> list[str]:
    return LINE.findall(asked.text)


def test_p008_p009_what_comes_to_mind_stands_in_the_request_after_the_tool_and_once(
    daemon: HostedDaemon, program: Program, binary: Path, tmp_path: Path
) -> None:
    """The turn's recall slips to the first tool's end; the second tool's comes at its end where we hear of its start,
    else at the third's; nothing comes twice."""
    needs = (2, 3, 4) if program.tells_starts else (1, 2, 3)
    with MockModel(script(program)).serving() as model:
        home = home_of(program, binary, model, tmp_path / "home", daemon.environ)
        install_hooks(home)
        gates = Gates(home.project, daemon.endpoints, needs)
        with gates.watched():
            done = home.run(PROMPT)
    talk = model.of(PROMPT)
    assert len(talk) == 4, done.stderr
    told = [[line.split(" — ")[1].split(":")[0] for line in lines_in(one)] for one in talk]
    deploy_at = 2 if program.tells_starts else 3
    assert told[0] == []  # hook_wait_seconds is 0: nobody waited
    assert told[1] == ["notes/postgres.md"], gates.events
    assert told[deploy_at] == ["notes/postgres.md", "notes/deploy.md"], gates.events
    assert told[3] == ["notes/postgres.md", "notes/deploy.md"]


@dataclass(slots=True)
class Talks:
    """What programs sent in the same talk with and without our hooks; each talk in a new home at the same place."""

    place: Path
    plain: dict[str, list[str]] = field(default_factory=dict)

    def without_us(self, program: Program, binary: Path) -> list[str]:
        if program.host not in self.plain:
            self.plain[program.host] = self._talk(program, binary, {}, hooked=False)
        return self.plain[program.host]

    def with_us(self, program: Program, binary: Path, environ: Mapping[str, str]) -> list[str]:
        return self._talk(program, binary, environ, hooked=True)

    def _talk(self, program: Program, binary: Path, environ: Mapping[str, str], hooked: bool) -> list[str]:
        path = self.place / program.host
        shutil.rmtree(path, ignore_errors=True)
        with MockModel(script(program)).serving() as model:
            home = home_of(program, binary, model, path, environ)
            for number in range(1, len(COMMANDS) + 1):
                open_gate(home.project, number)
            if hooked:
                install_hooks(home)
            home.run(PROMPT)
        assert len(model.of(PROMPT)) == len(COMMANDS) + 1
        return comparable([one.body for one in model.asked])


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Talks:
    return Talks(tmp_path_factory.mktemp("talks"))


def test_without_a_daemon_the_conversation_is_byte_for_byte_what_it_is_without_us(
    talks: Talks, program: Program, binary: Path, tmp_path: Path
) -> None:
    """But for what varies by itself from one run to the next: see `host_house.VARIES`."""
    hooked = talks.with_us(program, binary, {"RECALLD_RUNTIME_DIR": str(tmp_path / "nobody")})
    assert hooked == talks.without_us(program, binary)


def test_with_a_stopped_daemon_the_conversation_is_byte_for_byte_what_it_is_without_us(
    daemon: HostedDaemon, talks: Talks, program: Program, binary: Path
) -> None:
    with daemon.stopped():
        hooked = talks.with_us(program, binary, daemon.environ)
    assert hooked == talks.without_us(program, binary)
