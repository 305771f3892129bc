"""The daemon's handles on its two worker processes: start, load, ask, restart with doubling back-off, take down.

A worker's death costs silence only: what was asked of it fails at once, and the next life loads the same model from the
cache. The child is opened in a session of its own, so that a terminal's Ctrl-C reaches only the daemon, and it ends
itself when the daemon's end of its pipe closes, however the daemon died. (PR_SET_PDEATHSIG would not do: it fires when
the *thread* that started the child ends, and trio starts children from threads that it lets go after some seconds.)
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import trio

from recalld_daemon.recall.types import EncoderUnavailable, Float32, QueryEncoding
from recalld_daemon.worker_link import Link, RequestFailed
from recalld_daemon.worker_state import ModelChoice, Phase, WorkerState
from recalld_daemon.worker_wire import (
    EncodePassages,
    EncodeQuery,
    Failed,
    Load,
    Loaded,
    Parsed,
    ParseFile,
    PassagesEncoded,
    Progress,
    QueryEncoded,
    Reply,
    Request,
    Rerank,
    Reranked,
)

__all__ = ["BulkWorker", "LiveWorker", "ModelChoice", "ParsedStream", "RequestFailed", "WorkerState"]

Role = Literal["live", "bulk"]
OneReply = TypeVar("OneReply", QueryEncoded, Reranked, PassagesEncoded)

FIRST_BACKOFF_SECONDS = 0.25  # until the first restart; doubles with each death
LONGEST_BACKOFF_SECONDS = 30.0
HEALTHY_SECONDS = 60.0  # a life this long counts as a success: the back-off begins anew
FIRST_RELOAD_SECONDS = 60.0  # after a model that could not be loaded; doubles
LONGEST_RELOAD_SECONDS = 3600.0
STOP_SECONDS = 0.5  # from closing the pipe to SIGKILL; the worker needs a few milliseconds
LIVE_HANG_SECONDS = 10.0  # a query takes 2 ms
BULK_HANG_SECONDS = 120.0  # 256 long passages on a slow, busy machine; a parser that skips a 600 MB line
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
        self._hang_seconds = hang_seconds or (LIVE_HANG_SECONDS if self.role == "live" else BULK_HANG_SECONDS)
        self._first_backoff_seconds = first_backoff_seconds
        self._link: Link | None = None
        self._changed = trio.Event()

    @property
    def ready(self) -> bool:
        """A model is loaded and the process is there."""
        return self.state.phase == "ready" and self._link is not None and not self._link.lost

    async def wait_ready(self) -> Loaded:
        """Returns once the worker is ready, however long that takes (a model that fails is tried again later)."""
        while not (self.ready and self.state.loaded is not None):
            await self._changed.wait()
        return self.state.loaded

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the worker alive until cancelled; then it is gone and reaped. Started once the process exists."""
        backoff = self._first_backoff_seconds
        try:
            while True:
                born = trio.current_time()
                await self._live_once(task_status)
                task_status = trio.TASK_STATUS_IGNORED
                if trio.current_time() - born >= HEALTHY_SECONDS:
                    backoff = self._first_backoff_seconds
                self.state.restarts += 1
                await trio.sleep(backoff)
                backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)
        finally:
            self._enter("stopped", "", pid=0)

    async def _live_once(self, task_status: trio.TaskStatus[None]) -> None:
        """One life, from exec to reaping."""
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
            return
        link = Link(process, hang_seconds=self._hang_seconds, load_seconds=self._load_seconds())
        try:
            self._link = link
            self._enter("loading", "", pid=process.pid)
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._load, link)
                await link.run()
                nursery.cancel_scope.cancel()
        finally:
            self._link = None
            await _take_down(process)
        self._enter("restarting", f"{link.lost} (exit status {process.returncode})", pid=0)
        log.warning("%s worker: %s; starting it again", self.role, self.state.detail)

    async def _load(self, link: Link) -> None:
        """Load the model; where that fails, the process goes on without one and tries again later."""
        pause = FIRST_RELOAD_SECONDS
        while not await self._load_once(link):
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_RELOAD_SECONDS)

    async def _load_once(self, link: Link) -> bool:
        """True when there is nothing left to try: loaded, or the worker was lost."""
        async for reply in link.ask(self._load_request(link.new_id())):
            match reply:
                case Progress():
                    steps = f" {reply.done}/{reply.total}" if reply.total else ""
                    self._enter("loading", reply.phase + steps)
                case Loaded():
                    self.state.loaded = reply
                    self._enter("ready", "")
                    return True
                case Failed():
                    log.error("%s worker: no model: %s", self.role, reply.text)
                    self._enter("failed", reply.text)
                    return False
        return True

    def _load_request(self, request_id: int) -> Load:
        choice = self._choice
        return Load(
            id=request_id,
            role=self.role,
            model=choice.model,
            query_prompt=choice.query_prompt,
            passage_prompt=choice.passage_prompt,
            cache_dir=str(choice.cache_dir),
            token_dims=choice.token_dims,
            allow_download=choice.allow_download,
            threads=self._threads(),
            cross_encoder=choice.cross_encoder if self.role == "live" else "none",
        )

    def _threads(self) -> int:
        return self._choice.live_threads if self.role == "live" else self._choice.bulk_threads

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

    def _link_now(self, *, with_model: bool) -> Link:
        if self._link is None or (with_model and not self.ready):
            why = f": {self.state.detail}" if self.state.detail else ""
            raise EncoderUnavailable(f"{self.role} worker {self.state.phase}{why}")
        return self._link

    async def _link_soon(self, *, with_model: bool) -> Link:
        """Waits while the worker starts, loads or restarts. Raises EncoderUnavailable when its model failed."""
        while self._link is None or (with_model and self.state.phase not in ("ready", "failed")):
            if self.state.phase == "stopped":
                break
            await self._changed.wait()
        return self._link_now(with_model=with_model)


class LiveWorker(WorkerProcess):
    """Encodes queries and scores passages, in milliseconds or not at all. A `QueryEncoder`, a `cross.AsyncScorer`."""

    role: Role = "live"

    async def encode_query(self, text: str) -> QueryEncoding:
        """vector (d,) and tokens (Tq, t), float32, unit rows.

        Raises EncoderUnavailable at once when the worker is not ready, dies, or cannot encode this text. May be
        cancelled at any time, and called any number of times at once: requests are answered in order.
        """
        link = self._link_now(with_model=True)
        request = EncodeQuery(id=link.new_id(), text=_encodable(text))
        try:
            reply = await _only_reply(link, request, QueryEncoded)
        except RequestFailed as error:
            raise EncoderUnavailable(str(error)) from None
        assert self.state.loaded is not None
        tokens = np.frombuffer(reply.tokens, np.float32).reshape(-1, self.state.loaded.token_dims)
        return QueryEncoding(vector=np.frombuffer(reply.vector, np.float32), tokens=tokens)

    @property
    def has_cross_encoder(self) -> bool:
        """Whether `rerank` can be asked: one was configured, and it could be loaded."""
        return self.state.loaded is not None and bool(self.state.loaded.cross_encoder)

    async def rerank(self, query: str, texts: Sequence[str], budget_seconds: float) -> Float32:
        """(n,) the cross-encoder's scores of the texts, best ranked first; nan for those the time did not reach.

        Raises EncoderUnavailable at once when the worker is not ready or dies, and when it has no cross-encoder. May
        be cancelled at any time; queries that are asked for meanwhile are encoded first.
        """
        link = self._link_now(with_model=True)
        cleaned = [_encodable(text) for text in texts]
        request = Rerank(id=link.new_id(), query=_encodable(query), texts=cleaned, budget_ms=1000.0 * budget_seconds)
        try:
            reply = await _only_reply(link, request, Reranked)
        except RequestFailed as error:
            raise EncoderUnavailable(f"cross-encoder: {error}") from None
        return np.frombuffer(reply.scores, np.float32)


class BulkWorker(WorkerProcess):
    """Parses files and encodes passages, at low priority. Its calls wait while the worker starts or loads."""

    role: Role = "bulk"

    async def encode_passages(self, texts: Sequence[str]) -> PassagesEncoded:
        """One entry per text, in order; see PassagesEncoded for shapes.

        Waits for the model. Raises EncoderUnavailable when it cannot be loaded or the worker dies meanwhile,
        RequestFailed when these texts cannot be encoded, FrameTooLarge.
        """
        link = await self._link_soon(with_model=True)
        request = EncodePassages(id=link.new_id(), texts=[_encodable(text) for text in texts])
        return await _only_reply(link, request, PassagesEncoded)

    @asynccontextmanager
    async def parse(self, path: str | Path, kind: str, cursor: int = 0) -> AsyncIterator[ParsedStream]:
        """A stream of `Parsed`, the last with done=True; needs no model.

        `async with bulk.parse(path, kind, cursor) as stream: async for parsed in stream: ...`. The parser stays one
        frame ahead of its reader, never more; leaving the block early stops it. Other requests may be made inside
        the block. Raises EncoderUnavailable when the worker dies, RequestFailed when the file cannot be parsed.
        """
        link = await self._link_soon(with_model=False)
        request = ParseFile(id=link.new_id(), path=os.fspath(path), source_kind=kind, cursor=cursor)
        stream = ParsedStream(link, request)
        try:
            yield stream
        finally:
            stream.close()


class ParsedStream:
    """An asynchronous iterator over one file's `Parsed`; see BulkWorker.parse."""

    def __init__(self, link: Link, request: ParseFile) -> None:
        self._link = link
        self._id = request.id
        self._replies = link.ask(request)
        self._over = False

    def __aiter__(self) -> ParsedStream:
        return self

    async def __anext__(self) -> Parsed:
        if self._over:
            raise StopAsyncIteration
        reply = await _next_reply(self._link, self._replies)
        if not isinstance(reply, Parsed):
            raise RequestFailed(f"the worker answered a parse with {type(reply).__name__}")
        self._over = reply.done
        self._link.ask_more(self._id)
        return reply

    def close(self) -> None:
        """Stop the parser if it is not done."""
        self._over = True
        self._link.stop(self._id)
        self._replies.close()


async def _only_reply(link: Link, request: Request, kind: type[OneReply]) -> OneReply:
    """The one reply to this request."""
    try:
        with link.ask(request) as replies:
            reply = await _next_reply(link, replies)
    finally:
        link.forget(request.id)
    if not isinstance(reply, kind):
        raise RequestFailed(f"the worker answered {type(request).__name__} with {type(reply).__name__}")
    return reply


async def _next_reply(link: Link, replies: trio.MemoryReceiveChannel[Reply]) -> Reply:
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


def _encodable(text: str) -> str:
    """The text, with lone surrogates (which no wire carries) replaced one by one, so that offsets stay."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
