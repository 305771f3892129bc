"""The hook's process as hosts run it: exit code 0, a whole answer or nothing, in bounded time, the cause told once."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld_client.hosts import hook
from recalld_client.hosts.hook_command import BOOTSTRAP, HOOK_DIRECTORY, hook_command
from recalld_protocol.endpoints import check_runtime_dir, runtime_dir, state_dir
from recalld_protocol.errors import EndpointError

PATIENCE_SECONDS = 30.0  # bounds what would otherwise hang; no test measures time


@pytest.fixture
def place() -> Iterator[Path]:
    """Short, since a Unix socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="rh-") as directory:
        yield Path(directory)


def patient(command: list[str]) -> list[str]:
    """The same hook with all the time in the world: what is not about time must not depend on it."""
    slow = "[h:=__import__('hook'),setattr(h,'DEADLINE_SECONDS',20.0),h.main()]"
    assert "__import__('hook').main()" in BOOTSTRAP
    return [part.replace("__import__('hook').main()", slow) for part in command]


def run(
    env: Mapping[str, str], payload: bytes = b"{}", event: str = "PostToolUse", *, hurried: bool = False
) -> subprocess.CompletedProcess[bytes]:
    command = hook_command("codex", event)
    return subprocess.run(
        command if hurried else patient(command),
        input=payload, capture_output=True, env=env, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip


def silent(done: subprocess.CompletedProcess[bytes]) -> bool:
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def log_of(place: Path) -> list[str]:
    log = place / "state" / "recalld" / "hook.log"
    return log.read_text().splitlines() if log.exists() else []


def environ(place: Path, **more: str) -> dict[str, str]:
    """Runtime directory and state apart, as on a user's machine."""
    return {"XDG_RUNTIME_DIR": str(place / "run"), "XDG_STATE_HOME": str(place / "state"), **more}


@contextmanager
def daemon(
    place: Path, answer: bytes = b"", mode: int = 0o700, hold: threading.Event | None = None
) -> Iterator[list[bytes]]:
    """A raw socket in the daemon's place; what it is sent is kept. hold: it answers when this is set."""
    directory = place / "run" / "recalld"
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / "hook.sock"))
        listening.listen()
        directory.chmod(mode)

        def serve() -> None:
            while True:
                peer, _ = listening.accept()
                with peer, peer.makefile("rb") as stream:
                    line = stream.readline()
                    if not line:
                        return
                    heard.append(line + stream.read(int(line.split()[3])))
                    if hold is not None:
                        hold.wait(PATIENCE_SECONDS)
                    try:
                        peer.sendall(answer)
                    except BrokenPipeError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield heard
        finally:
            if hold is not None:
                hold.set()
            directory.chmod(0o700)
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(directory / "hook.sock"))
            thread.join()
            (directory / "hook.sock").unlink()


# ---------------------------------------------------------------- the exchange


def test_standard_input_goes_out_as_it_is_and_the_answer_comes_back_as_it_is(place: Path) -> None:
    payload = '{"prompt": "ü\\ud83d \x00"}'.encode() + b"\xff"
    answer = '{"additionalContext": "…"}'.encode()
    with daemon(place, answer) as heard:
        done = run(environ(place), payload)
    assert (done.returncode, done.stdout, done.stderr) == (0, answer, b"")
    assert heard == [b"recalld-hook/1 codex PostToolUse %d\n" % len(payload) + payload]
    assert log_of(place) == []


def test_an_event_that_the_payload_names_is_a_dash(place: Path) -> None:
    with daemon(place) as heard:
        assert silent(run(environ(place), event=""))
    assert heard == [b"recalld-hook/1 codex - 2\n{}"]


def test_a_payload_of_megabytes_is_handed_on(place: Path) -> None:
    payload = os.urandom(1 << 20)
    with daemon(place) as heard:
        assert silent(run(environ(place), payload))
    assert heard[0].endswith(payload)


def test_too_large_a_payload_is_read_to_its_end_and_not_sent(place: Path) -> None:
    with daemon(place) as heard:
        assert silent(run(environ(place), b"x" * (hook.PAYLOAD_LIMIT + 1)))
    assert heard == []
    with (place / "payload").open("w+b") as payload:
        payload.truncate(hook.PAYLOAD_LIMIT + 100_000)
        with pytest.raises(hook.Trouble, match="not handed on"):
            hook._read_all(payload.fileno())
        assert payload.read(1) == b""


def test_an_answer_that_is_cut_off_or_endless_is_not_printed(place: Path) -> None:
    with daemon(place, b"x" * (hook.ANSWER_LIMIT + 1)):
        assert silent(run(environ(place)))
    assert "that is no recalld" in log_of(place)[0]


def test_a_child_run_of_our_own_says_nothing(place: Path) -> None:
    with daemon(place, b"answer") as heard:
        assert silent(run(environ(place, RECALLD_OFF="1")))
    assert heard == []


# ---------------------------------------------------------------- faults


def test_p002_without_a_daemon_twenty_calls_are_silent_and_tell_it_once(place: Path) -> None:
    for _ in range(20):
        assert silent(run(environ(place)))
    (line,) = log_of(place)
    assert line.endswith(f"recalld hook (codex): {place}/run/recalld: no daemon listens: start it with `recalld run`")


def test_p002_a_daemon_that_hangs_costs_a_bounded_time(place: Path) -> None:
    hold = threading.Event()
    with daemon(place, b"too late", hold=hold):
        for _ in range(3):
            assert silent(run(environ(place), hurried=True))
    assert all("nothing within 150 ms" in line for line in log_of(place))
    assert 1 <= len(log_of(place)) <= 3  # one, or on a busy machine the same of standard input between


def test_a_host_s_signal_mask_does_not_undo_the_deadline(place: Path) -> None:
    masked = "import os,signal as s,sys;s.pthread_sigmask(s.SIG_BLOCK,[s.SIGALRM]);os.execv(sys.argv[1],sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", masked, *hook_command("codex")], stdin=subprocess.PIPE, env=environ(place)
    )
    assert process.wait(PATIENCE_SECONDS) == 0
    process.communicate()


def test_a_host_that_never_closes_standard_input_is_left(place: Path) -> None:
    with daemon(place, b"answer") as heard:
        process = subprocess.Popen(
            hook_command("codex"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ(place)
        )
        assert process.stdin is not None
        assert process.wait(PATIENCE_SECONDS) == 0
        process.communicate()
    assert heard == []
    assert "the host does not close it" in log_of(place)[0]


def test_what_heals_is_told_again_when_it_comes_back(place: Path) -> None:
    env = environ(place)
    for _ in range(2):
        run(env)
        with daemon(place):
            run(env)
    assert len(log_of(place)) == 2
    (place / "run" / "recalld").chmod(0o755)
    run(env)
    run(env)
    (place / "run" / "recalld").chmod(0o700)
    run(env)
    assert [("mode 0755" in line, "no daemon" in line) for line in log_of(place)[2:]] == [(True, False), (False, True)]


def test_p003_a_runtime_directory_that_is_not_ours_alone_is_not_trusted(place: Path) -> None:
    with daemon(place, b"answer", mode=0o770) as heard:
        assert silent(run(environ(place)))
    assert heard == []
    assert "has mode 0770, 0700 is needed" in log_of(place)[0]
    (place / "run" / "recalld").rename(place / "elsewhere")
    (place / "run" / "recalld").symlink_to(place / "elsewhere")
    assert silent(run(environ(place)))
    assert "is a symlink" in log_of(place)[1]


def test_p003_a_directory_that_can_t_be_read_is_named(place: Path) -> None:
    (place / "run" / "recalld").mkdir(parents=True, mode=0o700)
    (place / "run" / "recalld").chmod(0o000)
    assert silent(run(environ(place)))
    assert f"{place}/run/recalld has mode 0000" in log_of(place)[0]


def test_p003_a_log_that_can_t_be_written_is_done_without(place: Path) -> None:
    (place / "state").write_text("a file where a directory should be")
    for _ in range(3):
        assert silent(run(environ(place)))
    assert silent(run({}))  # neither home nor anything else
    assert silent(run(environ(place, RECALLD_RUNTIME_DIR="relative")))
    assert silent(run(environ(place, XDG_STATE_HOME="/dev/full")))


def test_p043_ten_hooks_at_one_instant_without_a_daemon_start_none(place: Path) -> None:
    (place / "payload").write_bytes(b"{}")
    processes = []
    for _ in range(10):
        with (place / "payload").open() as payload:
            command = patient(hook_command("codex"))
            processes.append(subprocess.Popen(command, stdin=payload, stdout=subprocess.PIPE, env=environ(place)))
    assert [(process.communicate()[0], process.returncode) for process in processes] == [(b"", 0)] * 10
    assert len(log_of(place)) == 1
    assert not (place / "run").exists()


def test_the_log_is_its_owners_and_bounded(place: Path) -> None:
    env = environ(place)
    run(env)
    log = place / "state" / "recalld" / "hook.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    log.write_bytes(b"x" * (hook.LOG_LIMIT + 1))
    (log.parent / "hook.trouble").unlink()
    run(env)
    assert len(log_of(place)) == 1
    assert log.with_name("hook.log.1").stat().st_size > hook.LOG_LIMIT


def test_a_closed_standard_output_ends_it_quietly(place: Path) -> None:
    with daemon(place, b"answer"):
        process = subprocess.Popen(
            hook_command("codex"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environ(place),
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.close()
        assert process.stdin is not None
        process.stdin.write(b"{}")
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()


# ---------------------------------------------------------------- how it is run


def test_a_hook_that_was_left_behind_by_an_uninstall_is_silent(place: Path) -> None:
    """Python would exit with 2 for a script that is gone, which hosts take as an order to block the prompt."""
    command = [part if part != str(HOOK_DIRECTORY) else str(place) for part in hook_command("codex")]
    done = subprocess.run(command, input=b"{}", capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert silent(done)


def test_it_loads_nothing_that_is_not_built_in_but_the_socket(place: Path) -> None:
    listing = BOOTSTRAP.replace(".main()", "") + ";print(*sorted(sys.modules))"
    command = [sys.executable, "-I", "-S", "-E", "-c", listing, str(HOOK_DIRECTORY)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    bare = [*command[:4], "-c", "import sys;print(*sorted(sys.modules))"]
    without = subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) - set(without) == {"hook", "_socket"}


def test_it_knows_its_age_by_the_system_or_by_its_work() -> None:
    code = "import sys,time;sys.path.insert(0,sys.argv[1]);import hook;print(time.process_time(),hook.age())"
    command = [sys.executable, "-I", "-S", "-c", code, str(HOOK_DIRECTORY)]
    worked, age = map(float, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert 0.0 < worked <= age
    assert age < PATIENCE_SECONDS
    assert hook.age() <= time.process_time()  # this process is too old for a hook: its work is all that counts


def test_the_command_is_absolute_and_names_host_and_event() -> None:
    command = hook_command("copilot", "postToolUse")
    assert os.path.isabs(command[0])
    assert command[1:4] == ["-I", "-S", "-E"]
    assert command[-3:] == [str(HOOK_DIRECTORY), "copilot", "postToolUse"]
    assert hook_command("codex")[-1] == "codex"
    assert "\n" not in BOOTSTRAP


def test_sigalrm_is_the_only_signal_it_touches(place: Path) -> None:
    """A host that ends it by a signal sees that."""
    process = subprocess.Popen(hook_command("codex"), stdin=subprocess.PIPE, env=environ(place))
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) in (-signal.SIGTERM, 0)
    assert process.stdin is not None
    process.stdin.close()


# ---------------------------------------------------------------- the rules it repeats

values = st.sampled_from(["", "/", "/a", "/a/b c", "relative", "/ü/x", "/trailing/", "//two"])
names = ("RECALLD_RUNTIME_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(names, values)), st.booleans())
def test_places_are_those_of_the_protocol(env: dict[str, str], login: bool) -> None:
    raw = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    run_user = Path("/nowhere")
    with tempfile.TemporaryDirectory() as directory:
        if login:
            run_user = Path(directory)
            (run_user / str(os.getuid())).mkdir()
        for ours, theirs in (
            (lambda: hook.runtime_dir(raw, os.fsencode(run_user)), lambda: runtime_dir(env, run_user=run_user)),
            (lambda: hook.state_dir(raw), lambda: state_dir(env)),
        ):
            try:
                wanted = theirs()
            except EndpointError:
                with pytest.raises(hook.Trouble):
                    ours()
            else:
                assert str(Path(os.fsdecode(ours()))).lstrip("/") == str(wanted).lstrip("/")


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755, 0o707, 0o500, 0o1700, 0o000])
def test_a_directory_is_trusted_by_the_protocols_rule(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    directory.chmod(mode)
    try:
        check_runtime_dir(directory)
    except EndpointError:
        with pytest.raises(hook.Trouble, match="0700"):
            hook.check_runtime_dir(os.fsencode(directory))
    else:
        hook.check_runtime_dir(os.fsencode(directory))
    directory.chmod(0o700)


def test_what_is_no_directory_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for name, why in (("file", "no directory"), ("link", "symlink"), ("absent", "no daemon")):
        with pytest.raises(EndpointError):
            check_runtime_dir(tmp_path / name)
        with pytest.raises(hook.Trouble, match=why):
            hook.check_runtime_dir(os.fsencode(tmp_path / name))
