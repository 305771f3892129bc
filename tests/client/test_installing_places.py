"""Whose settings are written, where they lie, what else has a say in them, and how a shell runs what stands there."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from recalld_client.hosts.hook_command import hook_command
from recalld_client.hosts.installing.entries import FORMS, Way
from recalld_client.hosts.installing.files import FileFault
from recalld_client.hosts.installing.install import http_hook, install
from recalld_client.hosts.installing.places import HOSTS, PROJECT_FILES, NoHome, Place, place_of
from recalld_client.hosts.installing.probes import claude_version, git_would_commit
from recalld_client.hosts.installing.standing import standing, switched_off

USERS_HOOK = "node ~/recalld-notes/x.js"
JSON_HOSTS = [host for host in HOSTS if host != "opencode"]
Env = dict[str, str]


@pytest.fixture
def env(tmp_path: Path) -> Env:
    """A user's environment over a home of its own, whose path is as awkward as paths get (P005)."""
    home = tmp_path / "a b" / "c'd"
    home.mkdir(parents=True)
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def user_place(host: str, env: Env) -> Place:
    return place_of(host, "user", env, Path(env["HOME"]))


def way_of(host: str, env: Env) -> Way:
    return Way(http=http_hook(env, dry_run=False) if host == "claude-code" else None)


def put(place: Place, data: bytes, mode: int = 0o644) -> None:
    place.path.parent.mkdir(parents=True, exist_ok=True)
    place.path.write_bytes(data)
    place.path.chmod(mode)


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------- whose, where, and by what


@pytest.mark.parametrize("host", ["codex", "copilot", "gemini"])
def test_p005_a_shell_runs_the_installed_line_as_it_is_meant(host: str, env: Env, tmp_path: Path) -> None:
    """Interpreter and hook under `/a b/c'd/`: the line is run by the shells that hosts use, and runs just that."""
    home = Path(env["HOME"])
    python = home / "py thon"
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{home}/seen"\n')
    python.chmod(0o700)
    place = user_place(host, env)
    install(place, Way(python=str(python)), env)
    (event, handler), *_ = standing(place, env).hooks
    line = handler.get("command") or handler["bash"]
    for shell in (["sh", "-c"], ["bash", "-lc"]):
        subprocess.run([*shell, line], env=env, check=True, cwd=tmp_path)
        named = [host, event] if host == "copilot" else [host]
        expected = hook_command(*named, python=str(python))[1:]
        assert (home / "seen").read_text().splitlines() == expected
        (home / "seen").unlink()
    assert shlex.split(line)[0] == str(python)


def test_p046_another_users_home_is_not_written(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo` without -H: HOME is still the other user's."""
    monkeypatch.setattr(os, "getuid", lambda: 4_242)
    with pytest.raises(FileFault, match=r"belongs to user \d+, .*sudo -H"):
        install(user_place("codex", env), Way(), env)
    assert tree(Path(env["HOME"])) == set()


def test_p046_without_a_home_it_says_so() -> None:
    with pytest.raises(NoHome, match="HOME is not set"):
        place_of("codex", "user", {}, Path("/"))
    assert place_of("codex", "project", {}, Path("/p")).path == Path("/p/.codex/hooks.json")


@pytest.mark.parametrize(
    ("host", "name", "path"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"), ("codex", "CODEX_HOME", "hooks.json"),
        ("copilot", "COPILOT_HOME", "hooks/recalld.json"), ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/plugins/recalld.js"),
    ],
)  # fmt: skip
def test_each_host_says_by_its_own_variable_where_its_settings_lie(host: str, name: str, path: str) -> None:
    assert place_of(host, "user", {"HOME": "/h", name: "/c f"}, Path("/")).path == Path("/c f") / path


def test_a_hosts_version_is_asked_for_and_bounded(env: Env, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\n[ "$RECALLD_OFF" = 1 ] && echo "2.1.99 (Claude Code)"\n')
    program.chmod(0o700)
    assert claude_version(str(program), env) == (2, 1, 99)
    program.write_text("#!/bin/sh\necho hello\n")
    assert claude_version(str(program), env) is None
    assert claude_version(str(tmp_path / "nothing"), env) is None


def test_whether_git_would_commit_it(env: Env, tmp_path: Path) -> None:
    project = tmp_path / "project"
    place = place_of("codex", "project", env, project)
    project.mkdir()
    assert not git_would_commit(place.path, env)
    subprocess.run(["git", "init", "-q", str(project)], check=True, env=env)
    assert git_would_commit(place.path, env)
    (project / ".git" / "info" / "exclude").write_text(".codex/\n")
    assert not git_would_commit(place.path, env)


@pytest.mark.parametrize(
    ("host", "file", "text", "told"),
    [
        ("claude-code", ".claude/settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
        ("claude-code", ".claude/settings.json", '{"allowedHttpHookUrls": ["https://x/*"]}', "allowedHttpHookUrls"),
        ("copilot", ".copilot/settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled"),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"disabled": ["recalld"]}}', "/hooks enable"),
    ],
)  # fmt: skip
def test_what_switches_hooks_off_is_found(host: str, file: str, text: str, told: str, env: Env) -> None:
    place, path = user_place(host, env), Path(env["HOME"]) / file
    assert list(switched_off(place, env, Path(env["HOME"]))) == []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert told in next(switched_off(place, env, Path(env["HOME"])))
    path.write_text("{not json")
    assert list(switched_off(place, env, Path(env["HOME"]))) == []


# ---------------------------------------------------------------- what docs/hosts.md says


@pytest.mark.parametrize("host", HOSTS)
def test_the_page_names_the_files_and_the_timeouts(host: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "hosts.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{host}` |"))
    _, _, user, project, timeout, *_ = [cell.strip() for cell in row.split("|")]
    assert user.replace("~", "/h") == f"`{place_of(host, 'user', {'HOME': '/h'}, Path('/')).path}`"
    assert project == f"`{PROJECT_FILES[host]}`"
    if form := FORMS.get(host):
        handlers = [*form.handlers(Way()).values()]
        assert str(handlers[0].get("timeout", handlers[0].get("timeoutSec"))) in timeout
