"""Where the sockets lie, and which directories are trusted."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from recalld_protocol.endpoints import (
    SOCKET_PATH_LIMIT,
    check_runtime_dir,
    endpoints,
    endpoints_in,
    prepare_runtime_dir,
    runtime_dir,
    socket_path,
)
from recalld_protocol.errors import EndpointError, EndpointTooLong, RuntimeDirMissing, UnsafeRuntimeDir

NOWHERE = Path("/nonexistent/run/user")


def place(run_user: Path = NOWHERE, **env: str) -> str:
    return str(runtime_dir(env, run_user=run_user))


def test_the_order_of_places(tmp_path):
    login = tmp_path / str(os.getuid())
    login.mkdir()
    everything = {"RECALLD_RUNTIME_DIR": "/r", "XDG_RUNTIME_DIR": "/x", "XDG_STATE_HOME": "/s", "HOME": "/h"}
    expected = ["/r", "/x/recalld", f"{login}/recalld"]
    for name, where in zip([*everything][:3], expected, strict=True):
        assert place(tmp_path, **everything) == where
        del everything[name]
    assert place(XDG_STATE_HOME="/s", HOME="/h") == "/s/recalld/run"
    assert place(HOME="/h") == "/h/.local/state/recalld/run"


def test_p046_a_login_without_its_variables_comes_to_the_same_place(tmp_path):
    login = tmp_path / str(os.getuid())
    login.mkdir()
    assert place(tmp_path, XDG_RUNTIME_DIR=str(login)) == place(tmp_path, HOME="/h")


def test_relative_and_empty_values(tmp_path):
    assert place(XDG_RUNTIME_DIR="x", XDG_STATE_HOME="s", HOME="/h") == "/h/.local/state/recalld/run"
    assert place(RECALLD_RUNTIME_DIR="", XDG_RUNTIME_DIR="", HOME="/h") == "/h/.local/state/recalld/run"
    with pytest.raises(EndpointError, match="must be an absolute path"):
        place(RECALLD_RUNTIME_DIR="run")
    with pytest.raises(EndpointError, match="set RECALLD_RUNTIME_DIR"):
        place()


def test_never_tmp(tmp_path):
    (tmp_path / str(os.getuid())).symlink_to("/tmp")
    assert place(tmp_path, HOME="/h", TMPDIR="/tmp") == "/h/.local/state/recalld/run"


def test_addresses():
    found = endpoints({"RECALLD_RUNTIME_DIR": "/run/user/1000/recalld"})
    assert found.request == "ipc:///run/user/1000/recalld/req.sock"
    assert found.events == "ipc:///run/user/1000/recalld/pub.sock"
    assert socket_path(found.events) == Path("/run/user/1000/recalld/pub.sock")


def directory_of(bytes_in_all: int, under: Path) -> Path:
    """A directory whose request socket's path has exactly that many bytes."""
    return under / ("é" + "d" * (bytes_in_all - len(os.fsencode(under)) - len("/é/hook.sock") - 1))


def test_the_longest_path_is_one_the_os_takes(tmp_path):
    directory = directory_of(SOCKET_PATH_LIMIT, tmp_path)
    directory.mkdir()
    path = endpoints_in(directory).hooks  # the longest name of the three
    with socket.socket(socket.AF_UNIX) as at_the_limit, socket.socket(socket.AF_UNIX) as past_it:
        at_the_limit.bind(str(path))
        with pytest.raises(OSError, match="too long"):
            past_it.bind(f"{path}2")


def test_a_longer_path_is_refused_with_the_numbers_and_the_remedy(tmp_path):
    directory = directory_of(SOCKET_PATH_LIMIT + 1, tmp_path)
    with pytest.raises(EndpointTooLong, match="RECALLD_RUNTIME_DIR") as caught:
        endpoints_in(directory)
    assert (caught.value.length, caught.value.limit) == (SOCKET_PATH_LIMIT + 1, SOCKET_PATH_LIMIT)
    for part in (str(directory), str(SOCKET_PATH_LIMIT), str(SOCKET_PATH_LIMIT + 1)):
        assert part in str(caught.value)


def test_a_path_that_is_no_utf8_is_refused():
    with pytest.raises(EndpointError, match="not UTF-8"):
        endpoints_in(Path("/run/\udcff"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_p048_the_daemon_makes_private_directories(tmp_path):
    umask = os.umask(0o022)
    try:
        prepare_runtime_dir(tmp_path / "state" / "recalld" / "run")
    finally:
        os.umask(umask)
    for made in ("state", "state/recalld", "state/recalld/run"):
        assert mode(tmp_path / made) == 0o700
    check_runtime_dir(tmp_path / "state" / "recalld" / "run")


def test_a_readable_directory_is_narrowed_by_the_daemon_and_avoided_by_the_client(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o755)
    with pytest.raises(UnsafeRuntimeDir, match="mode 0755, 0700 is needed"):
        check_runtime_dir(tmp_path / "run")
    prepare_runtime_dir(tmp_path / "run")
    assert mode(tmp_path / "run") == 0o700
    check_runtime_dir(tmp_path / "run")


def both_refuse(directory: Path, why: str) -> None:
    for look in (prepare_runtime_dir, check_runtime_dir):
        with pytest.raises(UnsafeRuntimeDir, match=why):
            look(directory)


def test_a_directory_that_others_could_write_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    both_refuse(tmp_path / "run", "mode 0777")
    assert mode(tmp_path / "run") == 0o777


def test_a_symlink_or_a_file_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").touch(mode=0o700)
    both_refuse(tmp_path / "link", "is a symlink")
    both_refuse(tmp_path / "dangling", "is a symlink")
    both_refuse(tmp_path / "file", "is no directory")


def test_p048_another_users_directory_is_refused(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: (tmp_path / "run").lstat().st_uid + 1)
    both_refuse(tmp_path / "run", "belongs to user")


def test_an_absent_directory_means_that_no_daemon_runs(tmp_path):
    with pytest.raises(RuntimeDirMissing, match="recalld run"):
        check_runtime_dir(tmp_path / "run")


def test_p003_a_directory_that_cannot_be_entered_is_told(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0)
    with pytest.raises(UnsafeRuntimeDir, match="mode 0000"):
        check_runtime_dir(tmp_path / "run")
    (tmp_path / "file").touch()
    with pytest.raises(UnsafeRuntimeDir, match="can't look at"):
        check_runtime_dir(tmp_path / "file" / "run")
    with pytest.raises(EndpointError, match="can't make"):
        prepare_runtime_dir(tmp_path / "file" / "run")
