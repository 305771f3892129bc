"""One daemon per home; and what systemd is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from recalld_daemon.lock import AlreadyRunning, held_lock
from recalld_daemon.notify import Notifier
from recalld_daemon.paths import default_home, home_under, transcripts_dir

HOLDER = """
import sys
from pathlib import Path
from recalld_daemon.lock import held_lock
with held_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_start_refuses_and_names_the_pid(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_lock(path), pytest.raises(AlreadyRunning) as caught, held_lock(path):
        pass
    assert caught.value.pid == os.getpid()
    assert f"pid {os.getpid()} holds {path}" in str(caught.value)


def test_a_killed_holder_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunning, match=f"pid {holder.pid}"), held_lock(path):
            pass
        holder.send_signal(signal.SIGKILL)
    with held_lock(path):
        assert path.read_text() == f"{os.getpid()}\n"


def test_the_lock_is_private(tmp_path: Path) -> None:
    with held_lock(tmp_path / "lock"):
        assert (tmp_path / "lock").stat().st_mode & 0o077 == 0


def test_systemd_is_told_what_it_asked_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000000"})
        notifier.ready("serving")
        notifier.alive()
        notifier.stopping()
        told = [systemd.recv(200).decode() for _ in range(3)]
    assert told == ["READY=1\nSTATUS=serving", "WATCHDOG=1", "STOPPING=1\nSTATUS=draining"]
    assert notifier.watchdog_seconds == 20.0


def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    quiet = Notifier({})
    quiet.ready("serving")
    assert quiet.watchdog_seconds == 0.0
    gone = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    gone.status("nobody hears")
    other = Notifier({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"})
    assert other.watchdog_seconds == 0.0


def test_homes_follow_xdg_and_are_private(tmp_path: Path) -> None:
    home = default_home({"HOME": "/home/ada", "XDG_CACHE_HOME": "/fast"})
    assert home.database == Path("/home/ada/.local/share/recalld/recalld.db")
    assert home.models == Path("/fast/recalld/models")
    assert home.config_file == Path("/home/ada/.config/recalld/config.toml")
    assert transcripts_dir({"HOME": "/home/ada"}) == Path("/home/ada/.claude/projects")
    assert transcripts_dir({"HOME": "/home/ada", "CLAUDE_CONFIG_DIR": "/c"}) == Path("/c/projects")
    mine = home_under(tmp_path / "home")
    mine.make()
    assert mine.data.stat().st_mode & 0o077 == 0
    assert mine.models.stat().st_mode & 0o077 == 0
