"""The real programs with our hooks in them, a real daemon over real notes, and a scripted model on loopback.

What is looked at is what the program sent to its model, and nothing else counts: P008 was a snippet that a hook had
printed and no model had seen. The versions are those in `host_programs`; their names stand in the tests' names.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from host_house import (
    DEPLOY,
    GATED,
    INDEX,
    MORE_INDEX,
    NEVER_WAITS,
    NOTES,
    PROMPT,
    Gates,
    HostedDaemon,
    comparable,
    difference,
    hosted_daemon,
    notes_told,
    open_gates,
    write,
)
from host_programs import PROGRAMS, Home, Program, install_hooks, installed_or_skipped
from mock_models import MockModel, Script

pytestmark = pytest.mark.models

GATES = ("psql-1", "deploy-1", "psql-2")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Iterator[HostedDaemon]:
    home = tmp_path_factory.mktemp("user")
    write(home / "notes", NOTES)
    config = f"[sources]\nwatch = [{str(home / 'notes')!r}]\ntranscripts = false\n[hooks]\n{NEVER_WAITS}\n"
    with hosted_daemon(home, model_cache, config) as daemon:
        yield daemon


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def binary(program: Program) -> Path:
    return installed_or_skipped(program)


def script(program: Program) -> Script:
    return Script({PROMPT: [[program.shell(command)] for command in (INDEX, DEPLOY, MORE_INDEX)]})


def home_of(program: Program, binary: Path, model: MockModel, path: Path, extra: Mapping[str, str]) -> Home:
    home = Home(path, program, binary, model.url, dict(extra))
    home.prepare({"psql": GATED, "deploy": GATED, "README.md": "# Bookings\n"})
    return home


def test_p008_p009_what_comes_to_mind_stands_in_the_request_after_the_tool_and_once(
    daemon: HostedDaemon, program: Program, binary: Path, tmp_path: Path
) -> None:
    """The turn's recall slips to the first tool's end; the second tool's comes at its end where we hear of its start,
    else at the third's; nothing comes twice."""
    needs = dict(zip(GATES, (2, 3, 4) if program.tells_starts else (1, 2, 3), strict=True))

    def talk(number: int) -> Gates:
        model.asked.clear()
        model.script = script(program)
        home = home_of(program, binary, model, tmp_path / f"home-{number}", daemon.environ)
        install_hooks(home)
        gates = Gates(home.project, daemon.endpoints, needs)
        with gates.watched():
            home.run(PROMPT)
        return gates

    with MockModel(script(program)).serving() as model:
        gates = daemon.in_time(talk)
    told = [notes_told(one) for one in model.of(PROMPT)]
    assert len(told) == len(GATES) + 1
    deploy_at = 2 if program.tells_starts else 3
    assert told[0] == []  # hook_wait_seconds is 0: nobody waited
    assert told[1] == ["postgres.md"], gates.events
    assert told[deploy_at] == told[3] == ["postgres.md", "deploy.md"], gates.events


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

    def difference(self, program: Program, binary: Path, environ: Mapping[str, str]) -> list[str]:
        """Of two talks, if the first differs: what a busy machine makes of a program does not come twice, ours does."""
        for _ in range(2):
            found = difference(self.with_us(program, binary, environ), self.without_us(program, binary))
            if not found:
                break
            self.plain.pop(program.host)
        return found

    def _talk(self, program: Program, binary: Path, environ: Mapping[str, str], hooked: bool) -> list[str]:
        path = self.place / program.host
        shutil.rmtree(path, ignore_errors=True)
        with MockModel(script(program)).serving() as model:
            home = home_of(program, binary, model, path, environ)
            open_gates(home.project, GATES)
            if hooked:
                install_hooks(home)
            home.run(PROMPT)
        assert len(model.of(PROMPT)) == len(GATES) + 1
        return comparable([one.body for one in model.asked])


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Talks:
    return Talks(tmp_path_factory.mktemp("talks"))


def test_without_a_daemon_the_conversation_is_byte_for_byte_what_it_is_without_us(
    talks: Talks, program: Program, binary: Path, tmp_path: Path
) -> None:
    """But for what varies by itself from one run to the next: see `host_house.VARIES`."""
    assert talks.difference(program, binary, {"RECALLD_RUNTIME_DIR": str(tmp_path / "nobody")}) == []


def test_with_a_stopped_daemon_the_conversation_is_byte_for_byte_what_it_is_without_us(
    daemon: HostedDaemon, talks: Talks, program: Program, binary: Path
) -> None:
    with daemon.stopped():
        assert talks.difference(program, binary, daemon.environ) == []
