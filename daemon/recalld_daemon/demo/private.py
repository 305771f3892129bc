"""A daemon of one's own for a while: `recalld run` as a child process over a temporary home, shown while it prepares.

`recalld demo` and `recalld replay` talk to it through the public client and nothing else. It goes down with its parent:
SIGTERM at the end, SIGKILL if that takes too long, and the directory is removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from recalld_client.link import Link
from recalld_daemon.paths import Home, default_home
from recalld_protocol.endpoints import Endpoints, endpoints
from recalld_protocol.messages import Status, StatusAsk

START_SECONDS = 60.0  # until sockets answer; a cold disk and a busy machine included
STOP_SECONDS = 4.0


class DidNotStart(Exception):
    """The private daemon ended or stayed silent; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class PrivateDaemon:
    endpoints: Endpoints
    link: Link
    process: subprocess.Popen[bytes]
    home: Path

    def status(self) -> Status | None:
        reply = self.link.request(StatusAsk(), 5.0)
        return reply if isinstance(reply, Status) else None


@contextmanager
def private_daemon(
    watch: Sequence[Path], home: Path | None = None, flags: Sequence[str] = ()
) -> Iterator[PrivateDaemon]:
    """Start one that indexes `watch`. With `home` its data stays there for the next time; else nothing stays."""
    directory = Path(tempfile.mkdtemp(prefix="recalld-"))
    try:
        runtime = directory / "run"
        runtime.mkdir(mode=0o700)
        environ = dict(os.environ, RECALLD_RUNTIME_DIR=str(runtime))
        where = endpoints(environ)
        base = home or directory / "home"
        command = [sys.executable, "-m", "recalld_daemon", "run", "--home", str(base), "--no-transcripts"]
        command += ["--model-cache", str(_model_cache(base)), "--no-withholding"]  # what is shown here is looked at
        for root in watch:
            command += ["--watch", str(root)]
        with (directory / "log").open("w+b") as log:
            process = subprocess.Popen([*command, *flags], env=environ, stdin=subprocess.DEVNULL, stderr=log)
            try:
                with _linked(where, process, directory / "log") as link:
                    yield PrivateDaemon(where, link, process, base)
            finally:
                _stop(process)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _model_cache(base: Path) -> Path:
    """The user's prepared models if there are any, since they hold nothing of the user's; else a place under `base`."""
    users: Home = default_home()
    return users.models if users.models.is_dir() and any(users.models.iterdir()) else base / "models"


@contextmanager
def _linked(where: Endpoints, process: subprocess.Popen[bytes], log: Path) -> Iterator[Link]:
    deadline = time.monotonic() + START_SECONDS
    while True:
        link = Link(where)
        try:
            if link.open() and link.request(StatusAsk(), 1.0) is not None:
                yield link
                return
        finally:
            link.close()
        if process.poll() is not None or time.monotonic() > deadline:
            why = f"exit {process.returncode}" if process.returncode is not None else "no answer"
            tail = log.read_text(errors="replace")[-2_000:]
            raise DidNotStart(f"the daemon did not start ({why}); the end of its log:\n{tail}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    if process.poll() is None:
        process.kill()
    process.wait()


def wait_until_indexed(daemon: PrivateDaemon, show: Callable[[str], None], poll_seconds: float = 0.1) -> Status:
    """Until the model is loaded and every passage has its vector, showing one line of progress as it changes.

    Raises DidNotStart if the daemon dies or its model can't be loaded.
    """
    last = ""
    while True:
        status = daemon.status()
        if daemon.process.poll() is not None:
            raise DidNotStart(f"the daemon ended (exit {daemon.process.returncode}) while it was indexing")
        if status is not None:
            if status.topics["models"].get("state") == "failed":
                raise DidNotStart(f"the model can't be loaded: {status.topics['models'].get('phase')}")
            line = progress_line(status)
            if line != last:
                show(line)
                last = line
            if is_settled(status):
                return status
        time.sleep(poll_seconds)


def is_settled(status: Status) -> bool:
    index = status.topics["index"]
    return status.topics["models"].get("state") == "ready" and index.get("state") == "ready"


def progress_line(status: Status) -> str:
    models, index = status.topics["models"], status.topics["index"]
    phase = str(models.get("phase") or models.get("state"))
    if models.get("phase_total"):
        phase += f" {models.get('phase_done')}/{models.get('phase_total')}"
    model = "ready" if models.get("state") == "ready" else phase
    files = f"files {index.get('files_done')}/{index.get('files_total')}"
    passages = f"passages embedded {index.get('embedded')}/{index.get('passages')}"
    return f"model: {model} · {files} · {passages}"
