"""One encoder's folder in the cache: what was prepared for it on this machine, and whether that still holds.

    <cache_dir>/encoders/<weights>/runtime.json     the choice of runtimes, with what was measured
                                   tokens-64.npy    the token projection
                                   int8.onnx        graphs of the runtimes that were chosen

What is missing, torn, or made for another processor or other library versions is prepared again, by `prepare` in a
process of its own; two workers that start together prepare once.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recalld_daemon.models import cache, projection
from recalld_daemon.models.files import ModelError, ModelFiles
from recalld_daemon.models.measure import Measured
from recalld_daemon.models.projection import Projection
from recalld_daemon.models.runtimes import GRAPHS

FORMAT = "1"  # of the folder; another one is prepared again
LIBRARIES = ("torch", "onnxruntime", "transformers", "sentence-transformers")
WAIT_SECONDS = 0.2  # between two looks at a lock that another worker holds

Progress = Callable[[str, int, int], None]  # phase, done, total


class Choice(msgspec.Struct, frozen=True):
    """runtime.json. `key`: what it was measured with; `notes`: what could not be had, and why."""

    key: dict[str, str]
    query: str
    passages: str
    measured: dict[str, Measured] = {}
    notes: list[str] = []


class Job(msgspec.Struct, frozen=True):
    """What `prepare` is asked on its command line, as JSON."""

    model: str
    cache_dir: str
    token_dims: int


class Step(msgspec.Struct, frozen=True):
    """A line of JSON from `prepare`: progress, or (with `error`) why it gave up."""

    phase: str
    done: int = 0
    total: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Home:
    """The folder; reads only what is intact."""

    folder: Path

    @classmethod
    def of(cls, files: ModelFiles, cache_dir: Path) -> Home:
        """Where this model's things lie."""
        return cls(cache_dir / "encoders" / files.weights)

    def graph(self, runtime: str) -> Path:
        """The file of an ONNX runtime; KeyError for others."""
        return self.folder / GRAPHS[runtime]

    def projection_file(self, dims: int) -> Path:
        return self.folder / f"tokens-{dims}.npy"

    def projection(self, dims: int) -> Projection | None:
        """None when it has to be fitted."""
        path = self.projection_file(dims)
        return projection.load(path) if cache.intact(path) else None

    def choice(self) -> Choice | None:
        """The last choice that was made here, for whatever machine and versions."""
        path = self.folder / "runtime.json"
        if not cache.intact(path):
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=Choice)
        except msgspec.MsgspecError:
            return None

    def keep(self, choice: Choice) -> None:
        """Write the choice, last of all, and drop the graphs it does not need."""
        for runtime in GRAPHS:
            if runtime not in (choice.query, choice.passages):
                cache.drop(self.graph(runtime))
        text = msgspec.json.format(msgspec.json.encode(choice), indent=2).decode()
        cache.make_text(self.folder / "runtime.json", text + "\n")

    def current(self, dims: int) -> tuple[Choice, Projection] | None:
        """What was prepared, if all of it is there, intact, and of this machine and these versions."""
        choice, fitted = self.choice(), self.projection(dims)
        if choice is None or fitted is None or choice.key != machine_key():
            return None
        needed = {self.graph(name) for name in (choice.query, choice.passages) if name in GRAPHS}
        return (choice, fitted) if all(cache.intact(path) for path in needed) else None


def prepared(files: ModelFiles, job: Job, progress: Progress) -> tuple[Choice, Projection]:
    """What the cache holds for this model, made now if need be. Raises ModelError, OSError."""
    home = Home.of(files, Path(job.cache_dir))
    if found := home.current(job.token_dims):
        return found

    def waiting() -> None:
        progress("waiting for another worker's preparation", 0, 0)
        time.sleep(WAIT_SECONDS)

    with cache.locked(home.folder / ".lock", waiting):
        if not (found := home.current(job.token_dims)):
            _prepare_elsewhere(job, progress)
            found = home.current(job.token_dims)
    if found is None:
        raise ModelError(f"model {files.name!r}: what was prepared in {home.folder} is not readable")
    return found


def machine_key() -> dict[str, str]:
    """What a measurement depends on beside the weights; no library is imported for it."""
    key = {"format": FORMAT, "processor": _processor()}
    for name in LIBRARIES:
        key[name] = "none"
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            key[name] = importlib.metadata.version(name)
    return key


def _processor() -> str:
    """The processor's name and a digest of what it can do (names of virtual ones say little)."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            fields[name.strip()] = value.strip()
    flags = hashlib.sha256(fields.get("flags", fields.get("Features", "")).encode()).hexdigest()[:8]
    return f"{fields.get('model name') or platform.machine()} {flags}"


def _prepare_elsewhere(job: Job, progress: Progress) -> None:
    """Run `prepare` and relay its progress. It ends with this process: its stdin is a pipe from here."""
    command = [sys.executable, "-P", "-m", "recalld_daemon.models.prepare", msgspec.json.encode(job).decode()]
    error = ""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            step = msgspec.json.decode(line, type=Step)
            if step.error:
                error = step.error
            else:
                progress(step.phase, step.done, step.total)
        process.wait()  # before its stdin is closed, which would end it early
    if process.returncode != 0:
        raise ModelError(error or f"model {job.model!r}: preparation ended with status {process.returncode}")
