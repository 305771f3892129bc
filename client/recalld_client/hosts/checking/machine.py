"""What stands around the hooks: the runtime directory, who can read our files, whether services outlive a logout."""

from __future__ import annotations

import getpass
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from recalld_protocol.endpoints import check_runtime_dir, runtime_dir, state_dir
from recalld_protocol.errors import EndpointError

from .finding import Finding, note, ok, split, wrong

ABOUT = "machine"
PATIENCE_SECONDS = 5.0
MOST_FILES = 20_000  # looked at; a state directory has some dozens
LOG_TAIL = 64 * 1024  # bytes of the hooks' log that are read


def findings(env: Mapping[str, str]) -> Iterator[Finding]:
    """All of them, one line each. Raises EndpointError where no directory can be told at all."""
    yield runtime(env)
    yield from permissions(env)
    if lingering := linger(env):
        yield lingering
    yield hook_log(env)


def runtime(env: Mapping[str, str]) -> Finding:
    directory = runtime_dir(env)
    if "XDG_RUNTIME_DIR" not in env and "RECALLD_RUNTIME_DIR" not in env:
        said = f"XDG_RUNTIME_DIR is not set (sudo, cron or a container), so {directory} is used"
    else:
        said = f"sockets lie in {directory}"
    try:
        check_runtime_dir(directory)
    except EndpointError as error:
        return wrong(ABOUT, *split(str(error)))
    return ok(ABOUT, said)


def permissions(env: Mapping[str, str]) -> Iterator[Finding]:
    """Files of ours that others can read (P048): they hold what was said to an agent."""
    for directory in dict.fromkeys((state_dir(env), _data_home(env))):
        for path in _open_to_others(directory):
            yield wrong(ABOUT, f"{path} can be read by others", f"chmod go= '{path}'")


def linger(env: Mapping[str, str]) -> Finding | None:
    """Whether a user service goes on after the last logout. None: there is no systemd to ask."""
    program = shutil.which("loginctl", path=env.get("PATH"))
    if program is None:
        return None
    try:
        user = getpass.getuser()
        said = subprocess.run(
            [program, "show-user", user, "--property=Linger", "--value"], env=env, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=PATIENCE_SECONDS, check=True,
        ).stdout.decode("utf-8", "replace").strip()  # fmt: skip
    except (OSError, KeyError, subprocess.SubprocessError):
        return note(
            ABOUT, "systemd does not know this login, so no user service runs here",
            "run `recalld run` in a terminal, or from whatever starts this container",
        )  # fmt: skip
    if said == "yes":
        return ok(ABOUT, "services go on after you log out (linger)")
    return note(ABOUT, "your services end at your last logout (no linger)", f"loginctl enable-linger {user}")


def hook_log(env: Mapping[str, str]) -> Finding:
    """Why the last hook brought nothing, if it was for a fault."""
    log, trouble = state_dir(env) / "hook.log", state_dir(env) / "hook.trouble"
    if not trouble.exists():
        return ok(ABOUT, "the hooks' log tells of no fault that lasts")
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    told = lines[-1] if lines else trouble.read_text(errors="replace")
    return note(ABOUT, f"the last hook brought nothing: {told}", f"see {log}")


def _open_to_others(directory: Path) -> Iterator[Path]:
    """In a directory that others can enter: what they can read or write. Symlinks are not followed."""
    if not directory.is_dir() or not directory.stat().st_mode & 0o077:
        return
    yield directory
    seen = 0
    for root, _, names in os.walk(directory):
        for name in names:
            seen += 1
            path = Path(root) / name
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and about.st_mode & 0o077:
                yield path
            if seen >= MOST_FILES:
                return


def _data_home(env: Mapping[str, str]) -> Path:
    given = env.get("XDG_DATA_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path(env.get("HOME", "/")) / ".local" / "share") / "recalld"
