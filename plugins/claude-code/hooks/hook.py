"""The hook's process: hands standard input to the daemon as it came, prints what comes back, and is gone.

It runs at each of the agent's boundaries, so it is all start-up cost: only modules that are built into the interpreter
(and `_socket`), no package of ours, no exit handlers. Whatever happens, it exits with 0 and prints all of the answer or
nothing. One timer stands over everything, from the host's pipe to the daemon's last byte: a daemon that is stopped or
busy costs the agent DEADLINE_SECONDS, and one that is not there nothing. Why nothing came is told once in `hook.log`,
and not again until the cause is another one or all was well in between. How it is run: `hook_command.py`.

The first rules of `recalld_protocol.endpoints` are repeated here, in bytes; a test holds both against each other.
"""

import _signal  # type: ignore[import-not-found]  # `signal` would import enum
import _socket
import posix
import sys
import time

DEADLINE_SECONDS = 0.150  # of the host's time, from this process's start
RESERVE_SECONDS = 0.025  # of it, for the log and for what the machine makes of a timer
LEAST_SECONDS = 0.005  # where the start alone has taken all of it
PAYLOAD_LIMIT = 8 * 1024 * 1024  # bytes; the daemon's own
ANSWER_LIMIT = 64 * 1024  # bytes: fits a pipe that nobody reads yet; three lines have under 4 KB
LOG_LIMIT = 256 * 1024  # bytes; then the log begins anew, beside the one before
CHUNK = 65_536
RUN_USER = b"/run/user"
TYPE, DIRECTORY, LINK = 0o170000, 0o040000, 0o120000  # of st_mode


class Trouble(Exception):
    """Why nothing comes of this hook; the text names the place, the cause and the remedy."""


class Late(BaseException):
    """The time is over."""


def main() -> None:
    """Never returns."""
    try:
        _signal.signal(_signal.SIGALRM, _over)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))  # a mask is inherited from the host
        _signal.setitimer(_signal.ITIMER_REAL, max(LEAST_SECONDS, DEADLINE_SECONDS - RESERVE_SECONDS - age()))
        _run(sys.argv[1:], posix.environ)
    except BaseException:  # noqa: BLE001  whatever it is, the agent goes on
        pass
    posix._exit(0)


def age() -> float:
    """Seconds since this process was started, by the system's own note (Linux), else what it has worked since.

    On a busy machine an interpreter waits longer for its start than it works for it, and the host waits with it.
    """
    worked = time.process_time()
    try:
        file = posix.open("/proc/self/stat", posix.O_RDONLY)
        ticks = int(posix.read(file, 1024).rpartition(b")")[2].split()[19])
        posix.close(file)
        waited = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / posix.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return worked
    return waited if worked <= waited < 1.0 else worked


def _over(number: int, frame: object) -> None:
    """Late; and if what follows hangs too (a log on a dead file server), the end."""
    _signal.signal(_signal.SIGALRM, _end)
    _signal.setitimer(_signal.ITIMER_REAL, RESERVE_SECONDS)
    raise Late


def _end(number: int, frame: object) -> None:
    posix._exit(0)


def _run(arguments: list[str], env: dict[bytes, bytes]) -> None:
    if env.get(b"RECALLD_OFF") == b"1":  # a child run of our own, or a user who wants quiet
        _read_all()
        return
    host, event = (*arguments, "", "")[:2]
    waits_for = "standard input: the host does not close it"
    try:
        payload = _read_all()
        waits_for = f"{_shown(runtime_dir(env))}/hook.sock: is recalld stopped, or very busy?"
        answer = ask(env, host, event, payload)
    except Late:
        _tell(env, host, f"nothing within {DEADLINE_SECONDS * 1000:.0f} ms from {waits_for}")
    except (Trouble, OSError) as error:
        _tell(env, host, str(error))
    else:
        _signal.setitimer(_signal.ITIMER_REAL, 0)  # what is begun to be printed is printed to its end
        while answer:
            answer = answer[posix.write(1, answer) :]
        _healed(env)


def _read_all(file: int = 0) -> bytes:
    """All of standard input, so that the host never writes into a closed pipe. Raises Trouble when it is too much."""
    parts, size = [], 0
    while part := posix.read(file, CHUNK):
        size += len(part)
        parts.append(part)
        if size > PAYLOAD_LIMIT:
            parts.clear()
    if size > PAYLOAD_LIMIT:
        raise Trouble(f"a payload over {PAYLOAD_LIMIT // 1024 // 1024} MiB was not handed on: nothing to mend")
    return b"".join(parts)


# ---------------------------------------------------------------- the daemon


def ask(env: dict[bytes, bytes], host: str, event: str, payload: bytes) -> bytes:
    """What the daemon says to this; b"" is what it says most. Raises Trouble."""
    if env.get(b"RECALLD_TCP"):
        raise Trouble("RECALLD_TCP is set: hooks speak to a daemon on their own machine only; unset it for the host")
    directory = runtime_dir(env)
    path = directory + b"/hook.sock"
    check_runtime_dir(directory)
    with_daemon = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        with_daemon.connect(path)
        with_daemon.sendall(f"recalld-hook/1 {host or '-'} {event or '-'} {len(payload)}\n".encode("ascii") + payload)
        answer = b""
        while part := with_daemon.recv(CHUNK):
            answer += part
            if len(answer) > ANSWER_LIMIT:
                raise ValueError(f"an answer over {ANSWER_LIMIT // 1024} KiB: that is no recalld")
        return answer
    except (OSError, ValueError) as error:
        raise Trouble(f"{_shown(path)}: {_why(error)}") from None


def _why(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number in (2, 111, 61):  # ENOENT, ECONNREFUSED on Linux and on macOS
        return "no daemon listens: start it with `recalld run`"
    if number in (1, 13):
        return "permission denied: see who owns it, or set RECALLD_RUNTIME_DIR"
    if number in (32, 104, 54):  # EPIPE, ECONNRESET: what had not been read is lost, and the daemon wrote down why
        return "the daemon hung up: its log says why"
    return getattr(error, "strerror", None) or str(error)


def check_runtime_dir(directory: bytes) -> None:
    """As `endpoints.check_runtime_dir`: a real directory, ours, 0700. Raises Trouble."""
    try:
        found = posix.lstat(directory)
    except OSError as error:
        raise Trouble(f"{_shown(directory)}: {_why(error)}") from None
    if found.st_mode & TYPE == LINK:
        raise Trouble(f"{_shown(directory)} is a symlink: remove it, or set RECALLD_RUNTIME_DIR to its target")
    if found.st_mode & TYPE != DIRECTORY:
        raise Trouble(f"{_shown(directory)} is no directory: remove it, or set RECALLD_RUNTIME_DIR")
    if found.st_uid != posix.getuid():
        raise Trouble(f"{_shown(directory)} belongs to user {found.st_uid}, not to this one: set RECALLD_RUNTIME_DIR")
    if found.st_mode & 0o7777 != 0o700:
        raise Trouble(f"{_shown(directory)} has mode {found.st_mode & 0o7777:04o}, 0700 is needed: `chmod 700` it")


# ---------------------------------------------------------------- places


def runtime_dir(env: dict[bytes, bytes], run_user: bytes = RUN_USER) -> bytes:
    """As `endpoints.runtime_dir`. Raises Trouble."""
    if chosen := env.get(b"RECALLD_RUNTIME_DIR"):
        if not chosen.startswith(b"/"):
            raise Trouble(f"RECALLD_RUNTIME_DIR must be an absolute path, not {_shown(chosen)!r}")
        return chosen
    if given := _absolute(env, b"XDG_RUNTIME_DIR"):
        return given + b"/recalld"
    if _is_ours(of_login := run_user + b"/%d" % posix.getuid()):
        return of_login + b"/recalld"
    return _state_home(env) + b"/recalld/run"


def state_dir(env: dict[bytes, bytes]) -> bytes:
    """As `endpoints.state_dir`. Raises Trouble."""
    return _absolute(env, b"RECALLD_RUNTIME_DIR") or _state_home(env) + b"/recalld"


def _state_home(env: dict[bytes, bytes]) -> bytes:
    if given := _absolute(env, b"XDG_STATE_HOME"):
        return given
    if home := _absolute(env, b"HOME"):
        return home + b"/.local/state"
    raise Trouble("neither XDG_RUNTIME_DIR, XDG_STATE_HOME nor HOME is set: set RECALLD_RUNTIME_DIR")


def _absolute(env: dict[bytes, bytes], name: bytes) -> bytes:
    value = env.get(name, b"")
    return value if value.startswith(b"/") else b""


def _is_ours(directory: bytes) -> bool:
    try:
        found = posix.lstat(directory)
    except OSError:
        return False
    return found.st_mode & TYPE == DIRECTORY and found.st_uid == posix.getuid()


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")


# ---------------------------------------------------------------- the log


def _tell(env: dict[bytes, bytes], host: str, cause: str) -> None:
    """Once per cause: `hook.trouble` beside the log holds the one that was told last."""
    directory = state_dir(env)
    _make(directory)
    marker, now = directory + b"/hook.trouble", cause.encode("utf-8", "replace")
    if _is_known(marker, now):
        return
    log = directory + b"/hook.log"
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} recalld hook ({host}): {cause}\n"
    file = posix.open(log, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND, 0o600)
    if posix.fstat(file).st_size > LOG_LIMIT:
        posix.rename(log, log + b".1")
        file = posix.open(log, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND, 0o600)
    posix.write(file, line.encode("utf-8", "replace"))


def _is_known(marker: bytes, cause: bytes) -> bool:
    """Whether it was told already; if not, it counts as told now. Of many at once one is the first."""
    try:
        file = posix.open(marker, posix.O_RDWR | posix.O_CREAT | posix.O_EXCL, 0o600)
    except FileExistsError:
        file = posix.open(marker, posix.O_RDWR)
        told = posix.read(file, 4096)
        if told in (cause, b""):  # b"": another one has made it just now, and is about to write
            return True
        posix.ftruncate(file, 0)
        posix.lseek(file, 0, 0)
    posix.write(file, cause)
    return False


def _healed(env: dict[bytes, bytes]) -> None:
    """The next trouble is a new one."""
    try:
        posix.unlink(state_dir(env) + b"/hook.trouble")
    except FileNotFoundError:
        return


def _make(directory: bytes) -> None:
    """Make it and its missing parents, 0700."""
    try:
        posix.mkdir(directory, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make(directory.rpartition(b"/")[0] or b"/")
        posix.mkdir(directory, 0o700)
