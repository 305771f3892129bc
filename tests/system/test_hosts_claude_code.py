"""Claude Code's own paths, with the real program: subagents, resumed and compacted conversations, switched off; and
both ways of running its hooks. What holds of all hosts: `test_hosts.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_house import (
    DEPLOY,
    GATED,
    INDEX,
    LINE,
    MORE_INDEX,
    NEVER_WAITS,
    NOTES,
    PROMPT,
    Gates,
    HostedDaemon,
    hosted_daemon,
    notes_told,
    open_gates,
    write,
)
from host_programs import CLAUDE_CODE, Home, install_hooks, installed_or_skipped, one_run_of_claude_code
from mock_models import Call, MockModel, Say, Script

pytestmark = pytest.mark.models

shell = CLAUDE_CODE.shell
AGAIN = "And now one more index on berth_booking, please."
ONCE_MORE = "Is there anything else to know before an index on berth_booking is made?"
ERRAND = "Roll out what is ready."


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Iterator[HostedDaemon]:
    home = tmp_path_factory.mktemp("user")
    write(home / "notes", NOTES)
    config = f"[sources]\nwatch = [{str(home / 'notes')!r}]\ntranscripts = false\n[hooks]\n{NEVER_WAITS}\n"
    with hosted_daemon(home, model_cache, config) as daemon:
        yield daemon


@pytest.fixture
def model() -> Iterator[MockModel]:
    with MockModel(Script({})).serving() as model:
        yield model


@pytest.fixture
def new_home(daemon: HostedDaemon, model: MockModel, tmp_path: Path) -> Callable[[int], Home]:
    """A home for the try of that number, with gated tools and no hooks yet; the model forgets what it was asked."""

    def made(number: int = 0) -> Home:
        model.asked.clear()
        model.script.told.clear()
        binary = installed_or_skipped(CLAUDE_CODE)
        home = Home(tmp_path / f"home-{number}", CLAUDE_CODE, binary, model.url, dict(daemon.environ))
        home.prepare({"psql": GATED, "deploy": GATED, "README.md": "# Bookings\n"})
        return home

    return made


def requests(daemon: HostedDaemon) -> int:
    status = daemon.status()
    assert status is not None
    return int(status.topics["hooks"]["claude-code"] or 0)


@pytest.mark.parametrize("transport", ["http", "command"])
def test_p009_what_was_shown_is_not_shown_again_when_the_conversation_is_resumed(
    daemon: HostedDaemon, model: MockModel, new_home: Callable[[int], Home], transport: str
) -> None:
    model.script = Script({AGAIN: [[shell(MORE_INDEX)], [Say("Made.")]], PROMPT: [[shell(INDEX)], [Say("Made.")]]})

    def talk(number: int) -> Gates:
        home = new_home(number)
        install_hooks(home, "--transport", transport)
        gates = Gates(home.project, daemon.endpoints, {"psql-1": 1, "psql-2": 3})
        with gates.watched():
            home.run(PROMPT)
            home.run(AGAIN, again=True)
        return gates

    gates = daemon.in_time(talk)
    assert notes_told(model.of(PROMPT)[-1]) == ["postgres.md"], gates.events
    assert notes_told(model.of(AGAIN)[-1]) == ["postgres.md"], gates.events


def test_p009_after_a_compaction_the_same_may_come_once_more(
    daemon: HostedDaemon, model: MockModel, new_home: Callable[[int], Home]
) -> None:
    model.script = Script({ONCE_MORE: [[shell(MORE_INDEX)], [Say("Made.")]], PROMPT: [[shell(INDEX)], [Say("Made.")]]})

    def talk(number: int) -> Gates:
        home = new_home(number)
        install_hooks(home)
        gates = Gates(home.project, daemon.endpoints, {"psql-1": 2, "psql-2": 4})
        with gates.watched(), one_run_of_claude_code(home) as say:
            say(PROMPT)
            say("/compact")
            say(ONCE_MORE)
        return gates

    gates = daemon.in_time(talk)
    assert notes_told(model.of(PROMPT)[1]) == ["postgres.md"], gates.events
    first, *_, last = model.of(ONCE_MORE)
    assert notes_told(first) == []  # the summary that the scripted model wrote holds nothing
    assert notes_told(last) == ["postgres.md"], gates.events


def test_a_subagent_is_told_what_it_needs_in_its_own_conversation(
    daemon: HostedDaemon, model: MockModel, new_home: Callable[[int], Home]
) -> None:
    errand = Call("Agent", {"description": "rolls out", "prompt": ERRAND, "subagent_type": "general-purpose"})
    mine, its = [[errand], [shell(INDEX)], [Say("Made.")]], [[shell(DEPLOY)], [Say("Done.")]]
    model.script = Script({PROMPT: mine, ERRAND: its})

    def talk(number: int) -> Gates:
        home = new_home(number)
        install_hooks(home)
        gates = Gates(home.project, daemon.endpoints, {"deploy-1": 4, "psql-1": 4})  # a turn, three calls
        with gates.watched():
            home.run(PROMPT)
        return gates

    gates = daemon.in_time(talk)
    before, after = model.of(ERRAND)
    assert (notes_told(before), notes_told(after)) == ([], ["deploy.md"]), gates.events
    main = notes_told(model.of(PROMPT)[2])
    assert main.count("postgres.md") == 1, gates.events
    assert "deploy.md" not in main


@pytest.mark.parametrize("transport", ["http", "command"])
def test_p013_a_run_with_recalld_off_is_told_nothing_and_tells_nothing(
    daemon: HostedDaemon, model: MockModel, new_home: Callable[[int], Home], transport: str
) -> None:
    model.script = Script({PROMPT: [[shell(INDEX)], [Say("Made.")]]})
    home = new_home(0)
    install_hooks(home, "--transport", transport)
    open_gates(home.project, ["psql-1"])
    home.extra["RECALLD_OFF"] = "1"
    before = requests(daemon)
    home.run(PROMPT)
    assert requests(daemon) == before
    assert len(model.of(PROMPT)) == 2
    assert not any(LINE.search(one.text) for one in model.asked)
