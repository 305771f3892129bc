"""recallctl doctor: a scripted daemon with a real hook socket, real settings files and the real hook process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from doctor_house import TOPICS, Memory, doctor_house
from recalld_client.cli import host_commands, main
from recalld_client.hosts import HOSTS, Heard
from recalld_client.hosts.checking import machine, proof
from recalld_client.hosts.checking.codex import trust_of
from recalld_client.hosts.checking.finding import Finding
from recalld_client.hosts.installing.entries import FORMS, MARK_HEADER, Way
from scripted_control import ScriptedControl
from scripted_daemon import short_directory

EVENTS = {host: [*form.handlers(Way())] for host, form in FORMS.items()}


# ---------------------------------------------------------------- the machine


def only(findings: Sequence[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_p048_what_others_can_read_is_found(tmp_path: Path) -> None:
    state = tmp_path / ".local" / "state" / "recalld"
    state.mkdir(parents=True, mode=0o700)
    (state / "hook.log").touch(0o644)
    env = {"HOME": str(tmp_path)}
    assert list(machine.permissions(env)) == [], "in a directory that nobody can enter, modes do not matter"
    state.chmod(0o755)
    found = [finding.text for finding in machine.permissions(env)]
    assert found == [f"{state} can be read by others", f"{state / 'hook.log'} can be read by others"]


@pytest.mark.parametrize(
    ("script", "state", "told"),
    [("echo yes", "ok", "go on"), ("echo no", "note", "enable-linger"), ("exit 1", "note", "recalld run")],
)
def test_p046_linger_is_told_with_its_remedy(script: str, state: str, told: str, tmp_path: Path) -> None:
    program = tmp_path / "loginctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    finding = machine.linger({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert finding is not None
    assert finding.state == state
    assert told in f"{finding.text} {finding.remedy}"


def test_p046_without_systemd_nothing_is_said_of_it(tmp_path: Path) -> None:
    assert machine.linger({"PATH": str(tmp_path)}) is None
    with short_directory() as runtime:
        runtime.chmod(0o700)
        env = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(runtime)}
        told = machine.runtime(env)
    assert "XDG_RUNTIME_DIR is not set" in told.text or "does not exist" in told.text


def test_p003_why_the_last_hook_brought_nothing_is_told(tmp_path: Path) -> None:
    env = {"RECALLD_RUNTIME_DIR": str(tmp_path)}
    assert machine.hook_log(env).state == "ok"
    (tmp_path / "hook.log").write_text("an older one\n2026-11-30 recalld hook (codex): no daemon listens\n")
    (tmp_path / "hook.trouble").write_text("no daemon listens")
    told = machine.hook_log(env)
    assert told.state == "note"
    assert "no daemon listens" in told.text
    assert "older" not in told.text


@pytest.mark.parametrize(
    ("hooks", "trust"),
    [
        ([{"enabled": True, "trustStatus": "trusted"}], "trusted"),
        ([{"enabled": True, "trustStatus": "trusted"}, {"enabled": True, "trustStatus": "untrusted"}], "untrusted"),
        ([{"enabled": False, "trustStatus": "trusted"}], "disabled"),
        ([], "unknown"),
    ],
)
def test_codex_is_asked_what_it_thinks_of_our_hooks(hooks: list[dict[str, object]], trust: str, tmp_path: Path) -> None:
    rows = [{"sourcePath": "/h/hooks.json", **hook} for hook in hooks] + [{"sourcePath": "/other", "trustStatus": "x"}]
    answer = json.dumps({"id": 2, "result": {"data": [{"cwd": "/", "hooks": rows}]}})
    program = tmp_path / "codex"
    program.write_text(
        f"#!/bin/sh\n[ $1 = app-server ] || exit 1\nread line; echo not json; echo '{answer}'; cat >&2\n"
    )
    program.chmod(0o700)
    assert trust_of(str(program), Path("/h/hooks.json"), tmp_path, {"PATH": os.environ["PATH"]}) == trust
    assert trust_of(str(tmp_path / "none"), Path("/h/hooks.json"), tmp_path, {}) == "unknown"


# ---------------------------------------------------------------- the command


class Doctor:
    """recallctl over a home of its own; what it printed is in `out` and `err`."""

    def __init__(self, runtime: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.runtime, self.home, self._capsys = runtime, home, capsys
        self.out = self.err = ""

    def __call__(self, *args: str) -> int:
        code = main([*args, "--runtime-dir", str(self.runtime), "--cwd", str(self.home / "project")])
        self.out, self.err = self._capsys.readouterr()
        return code

    @property
    def wrong(self) -> list[str]:
        return [line for line in self.out.splitlines() if line.startswith("wrong")]


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[Doctor, ScriptedControl, Memory]]:
    home = tmp_path / "a b" / "c'd"
    home.mkdir(parents=True, mode=0o700)
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_DATA_HOME",
        "CODEX_HOME",
        "COPILOT_HOME",
        "CLAUDE_CONFIG_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(proof, "PAUSE_SECONDS", (0.0,) * 4)
    with short_directory() as directory, doctor_house(directory / "run") as (control, memory):
        yield Doctor(directory / "run", home, capsys), control, memory


House = tuple[Doctor, ScriptedControl, Memory]


@pytest.mark.parametrize("host", ["codex", "copilot", "gemini"])
def test_p005_all_is_well_through_the_very_line_that_is_installed(doctor: House, host: str) -> None:
    run, _, memory = doctor
    assert run("install", host) == 0
    assert run("doctor", host) == 0, run.out
    assert f"ok    {host}  a memory arrived through the hook" in run.out
    assert memory.texts == {}, "what was planted is removed"
    assert {*memory.ended} == {heard.session for heard in memory.heard}, "and its sessions are over"
    assert run.wrong == []


def test_claude_code_by_its_command(doctor: House) -> None:
    run, _, memory = doctor
    assert run("install", "claude-code", "--transport", "command") == 0
    assert run("doctor") == 0, run.out
    assert "claude-code  a memory arrived" in run.out
    assert {heard.event for heard in memory.heard} >= {"UserPromptSubmit", "SessionEnd"}


def test_json_has_every_finding(doctor: House) -> None:
    run, _, _ = doctor
    run("install", "gemini")
    assert run("doctor", "gemini", "--json") == 0
    told = json.loads(run.out)
    assert (told["kind"], told["ok"]) == ("doctor", True)
    assert {"daemon", "machine", "gemini"} == {finding["about"] for finding in told["findings"]}
    assert all({*finding} == {"about", "state", "text", "remedy"} for finding in told["findings"])


def test_nothing_installed_is_told(doctor: House) -> None:
    run, _, _ = doctor
    assert run("doctor") == 1
    assert "no agent's program has recalld's hooks" in run.wrong[0]
    assert run("doctor", "codex") == 1
    assert run.wrong == ["wrong codex  nothing of ours is in its settings: recallctl install codex"]


def test_an_entry_that_has_rotted_is_told_with_its_remedy(doctor: House) -> None:
    run, _, _ = doctor
    run("install", "codex")
    settings = run.home / ".codex" / "hooks.json"
    settings.write_text(settings.read_text().replace(str(Path(os.sys.executable)), "/gone/python"))
    assert run("doctor", "codex") == 1
    assert "its interpreter /gone/python is not there any more: recallctl install codex" in run.wrong[0]
    assert "a memory did not arrive: it ended with 127" in run.wrong[1]
    run("install", "codex")
    assert run("doctor", "codex") == 0


def test_p049_what_the_users_shell_prints_is_told(doctor: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codex runs hooks by a login shell: a profile that prints breaks every answer."""
    run, _, _ = doctor
    monkeypatch.setenv("SHELL", "/bin/bash")
    (run.home / ".bash_profile").write_text("echo Welcome home\n")
    run("install", "codex")
    assert run("doctor", "codex") == 1
    assert "something else printed 'Welcome home' first" in run.wrong[0]


def test_hooks_that_are_switched_off_are_told(doctor: House) -> None:
    run, _, _ = doctor
    settings = run.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"disableAllHooks": true}')
    run("install", "claude-code", "--transport", "command")
    assert run("doctor") == 1
    assert '"disableAllHooks" is true' in run.wrong[0]


def test_a_token_that_others_can_read_is_told(doctor: House) -> None:
    run, _, memory = doctor
    run("install", "claude-code")
    (run.home / ".claude" / "settings.json").chmod(0o644)
    memory.topics = {**TOPICS, "hooks": {"http": "off"}}
    assert run("doctor") == 1
    assert "holds a token and can be read by others" in run.wrong[0]
    assert "[hooks] http in config.toml" in run.wrong[1]


def test_http_hooks_that_nobody_answers_are_told(doctor: House) -> None:
    run, _, _ = doctor
    run("install", "claude-code")
    assert MARK_HEADER in (run.home / ".claude" / "settings.json").read_text()
    assert run("doctor") == 1
    assert "a memory did not arrive: nothing answers at http://127.0.0.1:" in run.wrong[0]


def test_a_memory_that_never_comes_is_told(doctor: House) -> None:
    run, _, memory = doctor
    run("install", "gemini")
    memory.quote = lambda text, heard, count: b""
    assert run("doctor", "gemini") == 1
    assert "a memory did not arrive: 4 memories were asked for at 4 boundaries each" in run.wrong[0]
    assert "the daemon says: injection is switched off" in run.wrong[0], "and not that it has answered that already"
    assert (memory.planted, memory.texts) == (4, {})


def test_an_answer_against_the_hosts_contract_is_told(doctor: House) -> None:
    run, _, memory = doctor
    run("install", "gemini")

    def nearly(text: str, heard: Heard, count: int) -> bytes:
        return json.dumps({"additionalContext": text}).encode()

    memory.quote = nearly
    assert run("doctor", "gemini") == 1
    assert "its keys are ['additionalContext']" in run.wrong[0]


def test_a_model_that_is_not_there_is_waited_for_and_told(doctor: House, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _, memory = doctor
    run("install", "gemini")
    memory.topics = {"models": {"state": "failed"}}
    assert run("doctor", "gemini") == 0
    assert "its model is not ready" in run.out
    assert memory.planted == 0


def test_settings_that_do_not_parse_are_told(doctor: House) -> None:
    run, _, _ = doctor
    settings = run.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{,}")
    assert run("doctor", "gemini") == 1
    assert f"{settings}: line 1" in run.wrong[0]
    assert "mend that file" in run.wrong[0]
    assert run("install", "gemini") == 1
    assert "line 1" in run.err


def test_without_a_daemon_it_says_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with short_directory() as directory:
        assert main(["doctor", "codex", "--runtime-dir", str(directory / "none"), "--cwd", str(tmp_path)]) == 3
    assert "wrong daemon  no daemon at" in capsys.readouterr().out


def test_the_plugin_is_known_and_not_beside_our_entries(doctor: House) -> None:
    run, _, _ = doctor
    settings = run.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"enabledPlugins": {"recalld@recalld": true, "recalld@other": false, "notes@recalld": true}}')
    assert run("doctor") == 0, run.out
    assert "note  claude-code  our hooks are there as the plugin recalld@recalld" in run.out
    run("install", "claude-code", "--transport", "command")
    assert run("doctor") == 1
    assert [line.split("  ")[1] for line in run.wrong] == [
        "the plugin recalld@recalld and entries in its settings both run hooks: "
        "`claude plugin uninstall recalld@recalld`, or `recallctl uninstall claude-code`"
    ]


def test_the_commands_know_the_hosts_by_name() -> None:
    assert tuple(HOSTS) == host_commands.HOSTS


def test_the_list_of_hosts(doctor: House) -> None:
    run, _, _ = doctor
    run("install", "codex")
    assert run("install", "--json") == 0
    rows = {row["host"]: row for row in json.loads(run.out)["hosts"]}
    assert [*rows] == [*HOSTS]
    assert rows["codex"]["user"]["state"] == "current"
    assert rows["gemini"]["user"]["state"] == "absent"
    assert run("install") == 0
    assert "installed in" in run.out


def test_no_project_is_made_for_a_directory_that_is_not_there(doctor: House) -> None:
    run, _, _ = doctor
    shutil.rmtree(run.home / "project", ignore_errors=True)
    assert run("install", "codex", "--scope", "project") == 1
    assert "there is no such directory" in run.err
    assert not (run.home / "project").exists()


def test_a_dry_run_shows_the_diff_without_the_token(doctor: House) -> None:
    run, _, _ = doctor
    assert run("install", "claude-code", "--dry-run") == 0
    assert '+              "Authorization": "Bearer ***",' in run.out
    assert "port and token are chosen when it is installed" in run.err
    assert not (run.home / ".claude").exists()
    run("install", "claude-code")
    token = (run.runtime / "http-hook").read_text().split()[1]
    assert run("uninstall", "claude-code", "--dry-run") == 0
    assert token not in run.out + run.err
    assert "Bearer ***" in run.out
    assert run("install", "claude-code", "--dry-run", "--json", "--transport", "command") == 0
    assert token not in run.out
