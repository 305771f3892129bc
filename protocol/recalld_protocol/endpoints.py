"""Where the sockets lie, for the daemon that makes them and the client that looks for them.

Both sides must come to the same directory without talking, also where XDG_RUNTIME_DIR is unset (sudo, cron, a
container), and a directory that another user could write must never be trusted: whoever owns the socket's directory
reads all that the agent says. Invariant: there is no fallback to /tmp, and no abstract socket.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import EndpointError, EndpointTooLong, RuntimeDirMissing, UnsafeRuntimeDir

SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107  # bytes: sockaddr_un.sun_path, less its NUL
KEY_CHARS = 40  # of a CURVE key in Z85
RUN_USER = Path("/run/user")  # where systemd-logind puts XDG_RUNTIME_DIR
REQUEST_SOCKET = "req.sock"  # ROUTER: sessions and questions
EVENTS_SOCKET = "pub.sock"  # XPUB: inspection
HOOK_SOCKET = "hook.sock"  # raw stream: hosts' hooks, which are processes too short-lived for ZeroMQ


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """What a client needs to speak to a daemon over TCP; keys are 40 characters of Z85."""

    daemon: str  # the daemon's public key: whom to trust
    public: str  # the client's own, which the daemon lists
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """ZeroMQ addresses: "ipc://" and an absolute path, or "tcp://host:port" with keys. `events` is "" over TCP.

    `hooks` is the path of a Unix stream socket; "" over TCP.
    """

    request: str
    events: str
    keys: CurveKeys | None = None
    hooks: str = ""


def endpoints(env: Mapping[str, str]) -> Endpoints:
    """The addresses under `runtime_dir(env)`, or `$RECALLD_TCP` with the keys in the file `$RECALLD_TCP_KEYS`.

    Raises EndpointError, EndpointTooLong.
    """
    address = env.get("RECALLD_TCP", "")
    if not address:
        return endpoints_in(runtime_dir(env))
    if not env.get("RECALLD_TCP_KEYS"):
        raise EndpointError(f"{address}: TCP is only spoken encrypted: name the key file in RECALLD_TCP_KEYS")
    return Endpoints(request=address, events="", keys=read_keys(Path(env["RECALLD_TCP_KEYS"]).expanduser()))


def read_keys(path: Path) -> CurveKeys:
    """The keys in a client's key file: lines `daemon KEY`, `public KEY`, `secret KEY`. Raises EndpointError."""
    try:
        if path.stat().st_mode & 0o077:
            raise EndpointError(f"{path}: holds a secret key and can be read by others: chmod 600 it")
        found = dict(line.split() for line in path.read_text().splitlines() if len(line.split()) == 2)
    except (OSError, UnicodeDecodeError) as error:
        raise EndpointError(f"{path}: the key file can't be read: {error}") from error
    missing = [name for name in ("daemon", "public", "secret") if len(found.get(name, "")) != KEY_CHARS]
    if missing:
        raise EndpointError(f"{path}: needs a line `{missing[0]} KEY` with {KEY_CHARS} characters; see `recalld keys`")
    return CurveKeys(found["daemon"], found["public"], found["secret"])


def endpoints_in(directory: Path) -> Endpoints:
    """The addresses under `directory`. Raises EndpointError, EndpointTooLong."""
    return Endpoints(
        request=_ipc(directory / REQUEST_SOCKET),
        events=_ipc(directory / EVENTS_SOCKET),
        hooks=_ipc(directory / HOOK_SOCKET).removeprefix("ipc://"),
    )


def socket_path(endpoint: str) -> Path:
    """The file behind an "ipc://" address.

    >>> socket_path("ipc:///run/user/1000/recalld/req.sock").name
    'req.sock'
    """
    return Path(endpoint.removeprefix("ipc://"))


def runtime_dir(env: Mapping[str, str], *, run_user: Path = RUN_USER) -> Path:
    """The directory of the sockets; it need not exist. The first of these that is there to be had:

    1. `$RECALLD_RUNTIME_DIR`
    2. `$XDG_RUNTIME_DIR/recalld` (a relative value is ignored, as the XDG specification wants it)
    3. `/run/user/<uid>/recalld`, if `/run/user/<uid>` exists and is this user's: where 2 would lead after a login
    4. `$XDG_STATE_HOME/recalld/run`, by default `~/.local/state/recalld/run`

    Raises: EndpointError when RECALLD_RUNTIME_DIR is relative, or when there is no home either.
    """
    if chosen := env.get("RECALLD_RUNTIME_DIR"):
        if not os.path.isabs(chosen):
            raise EndpointError(f"RECALLD_RUNTIME_DIR must be an absolute path, not {chosen!r}")
        return Path(chosen)
    if given := _absolute(env, "XDG_RUNTIME_DIR"):
        return given / "recalld"
    if _is_ours(of_login := run_user / str(os.getuid())):
        return of_login / "recalld"
    return _state_home(env) / "recalld" / "run"


def prepare_runtime_dir(directory: Path) -> None:
    """For the daemon: make `directory` (and missing parents) 0700, or narrow one that is ours to 0700.

    Raises: UnsafeRuntimeDir for a symlink, another user's directory, or one that others could write until now;
    EndpointError when it can't be made.
    """
    try:
        _make_private(directory)
        found = directory.lstat()
    except OSError as error:
        raise EndpointError(f"can't make {directory}: {error.strerror}; set RECALLD_RUNTIME_DIR") from error
    _check_owner(directory, found)
    if found.st_mode & 0o022:
        raise UnsafeRuntimeDir(_open_to_others(directory, found))
    if stat.S_IMODE(found.st_mode) != 0o700:
        directory.chmod(0o700)


def check_runtime_dir(directory: Path) -> None:
    """For the client, before it connects: `directory` is a real directory, ours, 0700.

    Raises: RuntimeDirMissing, UnsafeRuntimeDir.
    """
    try:
        found = directory.lstat()
    except FileNotFoundError as error:
        raise RuntimeDirMissing(f"{directory} does not exist: start the daemon with `recalld run`") from error
    except OSError as error:
        raise UnsafeRuntimeDir(f"can't look at {directory}: {error.strerror}") from error
    _check_owner(directory, found)
    if stat.S_IMODE(found.st_mode) != 0o700:
        raise UnsafeRuntimeDir(_open_to_others(directory, found))


def _ipc(path: Path) -> str:
    encoded = os.fsencode(path)
    if len(encoded) > SOCKET_PATH_LIMIT:
        raise EndpointTooLong(os.fsdecode(encoded), len(encoded), SOCKET_PATH_LIMIT)
    try:
        return "ipc://" + encoded.decode()
    except UnicodeDecodeError as error:
        raise EndpointError(f"{encoded!r} is not UTF-8: set RECALLD_RUNTIME_DIR to a path that is") from error


def _absolute(env: Mapping[str, str], name: str) -> Path | None:
    value = env.get(name, "")
    return Path(value) if os.path.isabs(value) else None


def _is_ours(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def state_dir(env: Mapping[str, str]) -> Path:
    """Where the client's own files lie (the hooks' log, the HTTP hook's port and token); it need not exist.

    `$RECALLD_RUNTIME_DIR` where it is set, since that daemon stands apart from the user's; else
    `$XDG_STATE_HOME/recalld`, by default `~/.local/state/recalld`. Raises EndpointError.
    """
    chosen = _absolute(env, "RECALLD_RUNTIME_DIR")
    return chosen or _state_home(env) / "recalld"


def _state_home(env: Mapping[str, str]) -> Path:
    if given := _absolute(env, "XDG_STATE_HOME"):
        return given
    if home := _absolute(env, "HOME"):
        return home / ".local" / "state"
    raise EndpointError("neither XDG_RUNTIME_DIR, XDG_STATE_HOME nor HOME is set: set RECALLD_RUNTIME_DIR")


def _make_private(directory: Path) -> None:
    if not directory.parent.exists():
        _make_private(directory.parent)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return


def _check_owner(directory: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise UnsafeRuntimeDir(f"{directory} is a symlink: remove it, or set RECALLD_RUNTIME_DIR to its target")
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeRuntimeDir(f"{directory} is no directory: remove it, or set RECALLD_RUNTIME_DIR")
    if found.st_uid != os.getuid():
        raise UnsafeRuntimeDir(
            f"{directory} belongs to user {found.st_uid}, this process to {os.getuid()}: "
            "unset an inherited XDG_RUNTIME_DIR, or set RECALLD_RUNTIME_DIR"
        )


def _open_to_others(directory: Path, found: os.stat_result) -> str:
    mode = stat.S_IMODE(found.st_mode)
    return f"{directory} has mode {mode:04o}, 0700 is needed: see what is in it, then `chmod 700` it"
