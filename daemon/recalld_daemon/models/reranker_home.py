"""A cross-encoder's folder in the cache: the runtime that was chosen for it on this machine, and that one's graph.

    <cache_dir>/rerankers/<weights>/runtime.json    the choice, with what was measured
                                    int8.onnx       the graph, where an ONNX runtime was chosen

As with encoders, what is missing, torn, or made for another processor or other library versions is made again, by
`reranker_prepare` in a process of its own; two that start together prepare once.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recalld_daemon.models import cache
from recalld_daemon.models.files import ModelError
from recalld_daemon.models.home import WAIT_SECONDS, Progress, Step, machine_key
from recalld_daemon.models.reranker_files import RerankerFiles
from recalld_daemon.models.runtimes import GRAPHS

FORMAT = "2"  # of the folder and of the export


class PairsMeasured(msgspec.Struct, frozen=True):
    """One runtime on this machine. agrees: the correlation of its scores with those of fp32."""

    pair_ms: float
    agrees: float


class RerankerChoice(msgspec.Struct, frozen=True):
    """runtime.json. `key`: what it was measured with; `notes`: what could not be had, and why."""

    key: dict[str, str]
    runtime: str
    measured: dict[str, PairsMeasured] = {}
    notes: list[str] = []


class RerankerJob(msgspec.Struct, frozen=True):
    """What `reranker_prepare` is asked on its command line, as JSON."""

    model: str
    cache_dir: str


@dataclass(frozen=True, slots=True)
class RerankerHome:
    """The folder; reads only what is intact."""

    folder: Path

    @classmethod
    def of(cls, files: RerankerFiles, cache_dir: Path) -> RerankerHome:
        """Where this model's things lie."""
        return cls(cache_dir / "rerankers" / files.weights)

    def graph(self, runtime: str) -> Path:
        """The file of an ONNX runtime; KeyError for others."""
        return self.folder / GRAPHS[runtime]

    def keep(self, choice: RerankerChoice) -> None:
        """Write the choice, last of all, and drop the graphs it does not need."""
        for runtime in GRAPHS:
            if runtime != choice.runtime:
                cache.drop(self.graph(runtime))
        text = msgspec.json.format(msgspec.json.encode(choice), indent=2).decode()
        cache.make_text(self.folder / "runtime.json", text + "\n")

    def current(self) -> RerankerChoice | None:
        """The choice, if all it needs is there, intact, and of this machine and these versions."""
        path = self.folder / "runtime.json"
        if not cache.intact(path):
            return None
        try:
            choice = msgspec.json.decode(path.read_bytes(), type=RerankerChoice)
        except msgspec.MsgspecError:
            return None
        whole = choice.runtime not in GRAPHS or cache.intact(self.graph(choice.runtime))
        return choice if whole and choice.key == reranker_key() else None


def reranker_key() -> dict[str, str]:
    """What a choice depends on beside the weights."""
    return machine_key() | {"reranker": FORMAT}


def prepared_reranker(files: RerankerFiles, model: str, cache_dir: Path, progress: Progress) -> RerankerChoice:
    """What the cache holds for this model, made now if need be. Raises ModelError, OSError."""
    home = RerankerHome.of(files, cache_dir)
    if found := home.current():
        return found

    def waiting() -> None:
        progress("waiting for another worker's preparation", 0, 0)
        time.sleep(WAIT_SECONDS)

    with cache.locked(home.folder / ".lock", waiting):
        if not (found := home.current()):
            _prepare_elsewhere(RerankerJob(model, str(cache_dir)), progress)
            found = home.current()
    if found is None:
        raise ModelError(f"cross-encoder {files.name!r}: what was prepared in {home.folder} is not readable")
    return found


def _prepare_elsewhere(job: RerankerJob, progress: Progress) -> None:
    """Run `reranker_prepare` and relay its progress. It ends with this process: its stdin is a pipe from here."""
    module = "recalld_daemon.models.reranker_prepare"
    command = [sys.executable, "-P", "-m", module, msgspec.json.encode(job).decode()]
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
        raise ModelError(error or f"cross-encoder {job.model!r}: preparation ended with status {process.returncode}")
