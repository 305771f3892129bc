"""Installing into real files: as they were before, whatever they are, wherever they lie, whoever interferes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recalld_client.hosts.installing import files
from recalld_client.hosts.installing import install as installing
from recalld_client.hosts.installing.entries import FORMS, Way
from recalld_client.hosts.installing.files import Changed, FileFault
from recalld_client.hosts.installing.install import BOM, KEPT, PLUGIN, http_hook, install, uninstall
from recalld_client.hosts.installing.notebook import Notebook
from recalld_client.hosts.installing.places import HOSTS, Place, place_of
from recalld_client.hosts.installing.standing import standing
from recalld_protocol.hook_http import http_hook_file, read_http_hook

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


def in_users_words(event: str) -> bytes:
    """Settings with the user's own hook, odd order and indentation, no newline at the end."""
    hook = {"type": "command", "command": USERS_HOOK}
    value = {"z": [1, 2], "hooks": {"Notification": [], event: [{"hooks": [hook]}]}, "a": "\u00e9"}
    return json.dumps(value, indent=3, ensure_ascii=False).encode()


LAYOUTS: dict[str, Callable[[str], bytes]] = {
    "plain": in_users_words,
    "crlf": lambda event: in_users_words(event).replace(b"\n", b"\r\n"),
    "bom": lambda event: BOM + in_users_words(event) + b"\n",
    "one line": lambda event: b'{"a": 1}',
    "empty object": lambda event: b"{}\n",
    "empty file": lambda event: b"",
    "blank lines": lambda event: b"\n\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("host", JSON_HOSTS)
def test_p049_install_twice_uninstall_once_is_byte_identical(host: str, layout: str, env: Env) -> None:
    place = user_place(host, env)
    before = LAYOUTS[layout](next(iter(FORMS[host].handlers(way_of(host, env)))))
    put(place, before)
    assert install(place, way_of(host, env), env).action == "installed"
    once = place.path.read_bytes()
    assert install(place, way_of(host, env), env).action == "unchanged"
    assert place.path.read_bytes() == once
    assert json.loads(once.removeprefix(BOM))["hooks"]
    assert (USERS_HOOK.encode() in once) == (USERS_HOOK.encode() in before)
    assert uninstall(place, env).action == "removed"
    assert place.path.read_bytes() == before
    assert mode_of(place.path) == 0o644
    assert uninstall(place, env).action == "absent"


@pytest.mark.parametrize("host", HOSTS)
def test_what_we_made_is_gone_again(host: str, env: Env) -> None:
    place, home = user_place(host, env), Path(env["HOME"])
    assert install(place, way_of(host, env), env).action == "installed"
    assert standing(place, env).state == "current"
    assert uninstall(place, env).action == "removed"
    assert tree(home) <= {".local", ".local/state"}
    assert read_http_hook(env) is None


@pytest.mark.parametrize("host", HOSTS)
def test_a_dry_run_changes_nothing_and_shows_all(host: str, env: Env) -> None:
    place = user_place(host, env)
    told = install(place, Way(http=http_hook(env, dry_run=True) if host == "claude-code" else None), env, dry_run=True)
    assert told.action == "installed"
    assert told.after
    assert tree(Path(env["HOME"])) == set()
    install(place, way_of(host, env), env)
    there = tree(Path(env["HOME"]))
    assert uninstall(place, env, dry_run=True).action == "removed"
    assert tree(Path(env["HOME"])) == there


@pytest.mark.parametrize("host", JSON_HOSTS)
def test_without_a_note_only_ours_goes(host: str, env: Env) -> None:
    place = user_place(host, env)
    put(place, b'{\n  "a": 1\n}\n')
    install(place, way_of(host, env), env)
    place.path.write_text(place.path.read_text().replace('"a": 1', '"a": 1,\n  "b": 2'))
    Notebook(env).write(place.path, None)
    assert uninstall(place, env).action == "removed"
    assert place.path.read_text() == '{\n  "a": 1,\n  "b": 2\n}\n'


def test_another_installations_entries_are_replaced(env: Env) -> None:
    place = user_place("codex", env)
    put(place, in_users_words("Stop"))
    install(place, Way(python="/gone/python3"), env)
    assert standing(place, env).state == "stale"
    assert "/gone/python3" in standing(place, env).problem
    assert install(place, Way(), env).action == "updated"
    assert b"/gone/" not in place.path.read_bytes()
    assert standing(place, env).state == "current"
    assert uninstall(place, env).action == "removed"
    assert place.path.read_bytes() == in_users_words("Stop")


def test_the_interpreters_other_name_changes_no_line(env: Env, tmp_path: Path) -> None:
    """Codex trusts the line: `python` and `python3` of one installation must not make two of it."""
    other = tmp_path / "python3.99"
    other.symlink_to(os.path.realpath(sys.executable))
    place = user_place("codex", env)
    install(place, Way(python=str(other)), env)
    assert install(place, Way(), env).action == "unchanged"


def test_p048_a_file_with_the_token_is_the_users_alone_and_gets_its_mode_back(env: Env) -> None:
    place = user_place("claude-code", env)
    put(place, b"{}", 0o664)
    told = install(place, way_of("claude-code", env), env)
    assert any("0600, was 0664" in note for note in told.notes)
    assert mode_of(place.path) == 0o600
    assert mode_of(http_hook_file(env)) == 0o600
    assert mode_of(http_hook_file(env).with_name("installed.json")) == 0o600
    assert mode_of(http_hook_file(env).parent) == 0o700
    place.path.chmod(0o644)
    assert install(place, way_of("claude-code", env), env).action == "updated"
    assert mode_of(place.path) == 0o600
    assert uninstall(place, env).action == "removed"
    assert (mode_of(place.path), place.path.read_bytes()) == (0o644, b"{}")


def test_going_over_to_the_command_gives_the_mode_back(env: Env) -> None:
    place = user_place("claude-code", env)
    put(place, b"{}", 0o640)
    install(place, way_of("claude-code", env), env)
    assert install(place, Way(), env).action == "updated"
    assert mode_of(place.path) == 0o640
    assert b"Bearer" not in place.path.read_bytes()


def test_a_symlink_stays_one(env: Env, tmp_path: Path) -> None:
    place, target = user_place("gemini", env), tmp_path / "dotfiles" / "gemini.json"
    target.parent.mkdir()
    target.write_bytes(b'{ // mine\n  "a": 1\n}')
    place.path.parent.mkdir(parents=True)
    place.path.symlink_to(target)
    install(place, Way(), env)
    assert place.path.is_symlink()
    assert b"hook" in target.read_bytes()
    uninstall(place, env)
    assert (place.path.is_symlink(), target.read_bytes()) == (True, b'{ // mine\n  "a": 1\n}')


@pytest.mark.parametrize(
    ("data", "told"),
    [(b'{\n  "a": 1,\n}', "line 3"), (b"\xff\xfe{\x00", "not UTF-8 at byte 0"), (b'{"hooks": []}', "line 1")],
)
@pytest.mark.parametrize("host", JSON_HOSTS)
def test_what_does_not_parse_is_told_and_left(host: str, data: bytes, told: str, env: Env) -> None:
    place = user_place(host, env)
    put(place, data)
    with pytest.raises(FileFault, match=told) as caught:
        install(place, way_of(host, env), env)
    assert str(place.path) in str(caught.value)
    assert "nothing is changed" in str(caught.value)
    assert place.path.read_bytes() == data
    assert standing(place, env).state == "unreadable"


def test_what_is_no_file_is_told_and_not_waited_for(env: Env) -> None:
    place = user_place("codex", env)
    place.path.parent.mkdir()
    os.mkfifo(place.path)
    with pytest.raises(FileFault, match="no regular file"):
        install(place, Way(), env)
    place.path.unlink()
    place.path.mkdir()
    with pytest.raises(FileFault, match="Is a directory"):
        uninstall(place, env)


def test_notes_that_are_none_are_told(env: Env) -> None:
    place = user_place("codex", env)
    notes = Path(env["HOME"]) / ".local" / "state" / "recalld" / "installed.json"
    notes.parent.mkdir(parents=True)
    notes.write_text("[]")
    with pytest.raises(FileFault, match="move it away"):
        install(place, Way(), env)
    assert not place.path.exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may open any directory")
def test_a_state_directory_that_can_t_be_opened_is_told(env: Env) -> None:
    directory = Path(env["HOME"]) / ".local" / "state" / "recalld"
    directory.mkdir(parents=True, mode=0o000)
    with pytest.raises(FileFault, match="chmod 700"):
        install(user_place("codex", env), Way(), env)


def test_a_change_by_somebody_else_meanwhile_is_kept(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude Code writes its settings too: what it wrote between our reading and our writing must not be lost."""
    place = user_place("claude-code", env)
    put(place, b'{"a": 1}')
    moments = iter([b'{"a": 2}'])

    def interfere(found: files.Found, data: bytes, mode: int | None = None) -> tuple[Path, ...]:
        if found.path == place.path and (now := next(moments, None)):
            place.path.write_bytes(now)
        return replace(found, data, mode)

    replace = files.replace
    monkeypatch.setattr(installing.files, "replace", interfere)
    install(place, way_of("claude-code", env), env)
    assert json.loads(place.path.read_bytes())["a"] == 2
    uninstall(place, env)
    assert place.path.read_bytes() == b'{"a": 2}'


def test_many_at_once_leave_every_note(env: Env) -> None:
    """Ten processes, two for each host: each is installed once, and each can be undone."""
    command = [sys.executable, "-m", "recalld_client.cli", "install"]
    running = [
        subprocess.Popen([*command, host], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for host in (*HOSTS, *HOSTS)
    ]
    for process in running:
        out, err = process.communicate()
        assert process.returncode == 0, (out, err)
    assert Notebook(env).hosts() == {*HOSTS}
    for host in HOSTS:
        assert standing(user_place(host, env), env).state == "current"
        assert uninstall(user_place(host, env), env).action == "removed"
    assert tree(Path(env["HOME"])) <= {".local", ".local/state", ".local/state/recalld"}


def test_who_never_stops_writing_is_told(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    place = user_place("codex", env)
    put(place, b"{}")

    def always(found: files.Found) -> None:
        raise Changed(f"{found.path} was changed")

    monkeypatch.setattr(files, "unchanged", always)
    with pytest.raises(FileFault):
        install(place, Way(), env)
    assert (place.path.read_bytes(), len(list(place.path.parent.iterdir()))) == (b"{}", 1)


def test_an_interrupted_write_leaves_the_old_file_and_nothing_beside_it(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = user_place("codex", env)
    put(place, b'{"a": 1}')
    real = os.fsync

    def full(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode) and b"hooks" in Path(f"/proc/self/fd/{handle}").read_bytes():
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(FileFault, match="No space left"):
        install(place, Way(), env)
    assert place.path.read_bytes() == b'{"a": 1}'
    assert [path.name for path in place.path.parent.iterdir()] == ["hooks.json"]
    monkeypatch.undo()
    assert uninstall(place, env).action == "absent"  # the note that was written first undoes nothing
    assert place.path.read_bytes() == b'{"a": 1}'


@pytest.mark.parametrize("installing", [True, False])
def test_what_one_that_was_killed_left_beside_goes_with_the_next(installing: bool, env: Env) -> None:
    place = user_place("claude-code", env)
    put(place, b"{}")
    left = place.path.parent / ".settings.json.k1ll3d.recalld"
    left.write_text("half of it, with the token")
    if installing:
        install(place, Way(), env)
    else:
        uninstall(place, env)
    assert [path.name for path in place.path.parent.iterdir()] == ["settings.json"]


# ---------------------------------------------------------------- the plugin


def test_the_plugin_is_a_copy_and_an_older_one_is_replaced(env: Env) -> None:
    place = user_place("opencode", env)
    put(place, PLUGIN.read_bytes() + b"// older\n")
    assert standing(place, env).state == "stale"
    assert install(place, Way(), env).action == "updated"
    assert place.path.read_bytes() == PLUGIN.read_bytes()
    assert install(place, Way(), env).action == "unchanged"


def test_a_plugin_of_that_name_that_is_not_ours_stays(env: Env) -> None:
    place = user_place("opencode", env)
    put(place, b"export const Mine = 1 // recalld\n")
    with pytest.raises(FileFault, match="not recalld's"):
        install(place, Way(), env)
    assert uninstall(place, env).action == "absent"
    assert place.path.read_bytes() == b"export const Mine = 1 // recalld\n"


def test_a_plugin_that_the_user_changed_is_kept_beside(env: Env) -> None:
    place = user_place("opencode", env)
    install(place, Way(), env)
    place.path.write_bytes(PLUGIN.read_bytes() + b"// mine\n")
    told = uninstall(place, env)
    kept = place.path.with_name(place.path.name + KEPT)
    assert (told.action, kept.read_bytes().endswith(b"// mine\n")) == ("removed", True)
    assert str(kept) in told.notes[0]
