"""A worker process as the daemon keeps it: started, restarted with doubling back-off, taken down.

A worker's death costs silence only: what was asked of it fails at once. The child is opened in a session of its own, so
that a terminal's Ctrl-C reaches only the daemon, and it ends itself when the daemon's end of its pipe closes, however
the daemon died. (PR_SET_PDEATHSIG would not do: it fires when the *thread* that started the child ends, and trio starts
children from threads that it lets go after some seconds.)
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Literal, TypeVar

import trio

from recalld_daemon.recall.types import EncoderUnavailable
from recalld_daemon.worker_link import Link, RequestFailed
from recalld_daemon.worker_state import ModelChoice, Phase, WorkerState
from recalld_daemon.worker_wire import (
    Failed,
    LearnOpened,
    LearnStepped,
    PassagesEncoded,
    QueryEncoded,
    Reply,
    Request,
    Reranked,
)

Role = Literal["live", "bulk", "learn"]
OneReply = TypeVar("OneReply", QueryEncoded, Reranked, PassagesEncoded, LearnOpened, LearnStepped)

FIRST_BACKOFF_SECONDS = 0.25  # until the first restart; doubles with each death
LONGEST_BACKOFF_SECONDS = 30.0
HEALTHY_SECONDS = 60.0  # a life this long counts as a success: the back-off begins anew
STOP_SECONDS = 0.5  # from closing the pipe to SIGKILL; the worker needs a few milliseconds
HANG_SECONDS: dict[Role, float] = {
    "live": 10.0,  # a query takes 2 ms
    "bulk": 120.0,  # 256 long passages on a slow, busy machine; a parser that skips a 600 MB line
    "learn": 60.0,  # a step takes some milliseconds, at low priority beside whatever else the machine does
}
LOAD_SECONDS = 300.0  # silence while loading: between two progress frames lie at most some seconds
DOWNLOAD_SECONDS = 3600.0  # silence while loading, where a download is allowed

log = logging.getLogger(__name__)


class WorkerProcess:
    """One worker, alive again and again, while `run` runs.

    `on_change(state)` is called in the trio thread at each change of phase and each step of progress. `command` and
    the seconds are for tests.
    """

    role: Role

    def __init__(
        self,
        choice: ModelChoice,
        *,
        on_change: Callable[[WorkerState], None] = lambda state: None,
        command: Sequence[str] = (),
        hang_seconds: float | None = None,
        first_backoff_seconds: float = FIRST_BACKOFF_SECONDS,
    ) -> None:
        self.state = WorkerState()
        self._choice = choice
        self._on_change = on_change
        # -P: a file named torch.py in the directory the daemon was started in must not be imported
        self._command = [*command] or [sys.executable, "-P", "-m", "recalld_daemon.worker", self.role]
        self._hang_seconds = hang_seconds or HANG_SECONDS[self.role]
        self._first_backoff_seconds = first_backoff_seconds
        self._link: Link | None = None
        self._changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the worker alive until cancelled; then it is gone and reaped. Started once the process exists."""
        backoff = self._first_backoff_seconds
        try:
            while True:
                await self._until_wanted()
                born = trio.current_time()
                rests = await self._live_once(task_status)
                task_status = trio.TASK_STATUS_IGNORED
                if rests or trio.current_time() - born >= HEALTHY_SECONDS:
                    backoff = self._first_backoff_seconds
                if rests:
                    continue
                self.state.restarts += 1
                await trio.sleep(backoff)
                backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)
        finally:
            self._enter("stopped", "", pid=0)

    async def _until_wanted(self) -> None:
        """Before each life. Here: at once."""

    async def _serve(self, link: Link) -> bool:
        """One life, once the process is there. Returns when the worker is lost, or, True, to let it rest."""
        raise NotImplementedError

    async def _live_once(self, task_status: trio.TaskStatus[None]) -> bool:
        """One life, from exec to reaping; whether it ended because nothing was to be done."""
        self._enter("starting", "")
        try:
            process = await trio.lowlevel.open_process(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as error:
            self._enter("restarting", f"cannot start {self._command[0]}: {error.strerror}")
            log.error("%s worker: %s", self.role, self.state.detail)
            task_status.started()
            return False
        link = Link(process, hang_seconds=self._hang_seconds, load_seconds=self._load_seconds())
        try:
            self._link = link
            self._enter("loading", "", pid=process.pid)
            task_status.started()
            rests = await self._serve(link)
        finally:
            self._link = None
            await _take_down(process)
        if rests:
            self._enter("resting", "", pid=0)
            return True
        self._enter("restarting", f"{link.lost} (exit status {process.returncode})", pid=0)
        log.warning("%s worker: %s; starting it again", self.role, self.state.detail)
        return False

    def _threads(self) -> int:
        choice = self._choice
        return {"live": choice.live_threads, "bulk": choice.bulk_threads, "learn": 1}[self.role]

    def _load_seconds(self) -> float:
        return DOWNLOAD_SECONDS if self._choice.allow_download else LOAD_SECONDS

    def _environment(self) -> dict[str, str]:
        """The daemon's own, with threads bounded before any library can read it, and no network unless allowed."""
        threads = str(self._threads())
        bounds = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
        env = dict(os.environ) | dict.fromkeys(bounds, threads)
        env |= {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
        env |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        env |= {"TORCHINDUCTOR_CACHE_DIR": str(self._choice.cache_dir / "inductor")}  # else in the temporary directory
        env |= {"ORT_DISABLE_TELEMETRY": "1", "ORT_TELEMETRY_DISABLED": "1"}  # see models/__init__.py
        if self.role == "bulk":  # batches of all sizes on huge pages: its heap grew to 2.4 GB over 100,000 passages
            env |= {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
        if not self._choice.allow_download:
            env |= {"HF_HUB_OFFLINE": "1"}
        return env

    def _enter(self, phase: Phase, detail: str, pid: int | None = None) -> None:
        self.state.phase, self.state.detail = phase, detail
        if pid is not None:
            self.state.pid = pid
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        self._on_change(self.state)


async def only_reply(link: Link, request: Request, kind: type[OneReply]) -> OneReply:
    """The one reply to this request."""
    try:
        with link.ask(request) as replies:
            reply = await next_reply(link, replies)
    finally:
        link.forget(request.id)
    if not isinstance(reply, kind):
        raise RequestFailed(f"the worker answered {type(request).__name__} with {type(reply).__name__}")
    return reply


async def next_reply(link: Link, replies: trio.MemoryReceiveChannel[Reply]) -> Reply:
    try:
        reply = await replies.receive()
    except trio.EndOfChannel:
        raise EncoderUnavailable(link.lost) from None
    if isinstance(reply, Failed):
        raise RequestFailed(reply.text)
    return reply


async def _take_down(process: trio.Process) -> None:
    """Close the pipe, wait a little, kill, reap. Cannot be cancelled."""
    with trio.CancelScope(shield=True):
        assert process.stdin is not None
        assert process.stdout is not None
        async with aclosing(process.stdin), aclosing(process.stdout):
            pass
        with trio.move_on_after(STOP_SECONDS):
            await process.wait()
        process.kill()  # nothing when it is dead already
        await process.wait()
