"""The daemon's handles on the two worker processes that hold a model: load it, and ask.

A worker's death costs silence only: what was asked of it fails at once, and the next life loads the same model from the
cache. How a process is started, restarted and taken down is `worker_process`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import trio

from recalld_daemon.recall.types import EncoderUnavailable, Float32, QueryEncoding
from recalld_daemon.worker_link import Link, RequestFailed
from recalld_daemon.worker_process import Role, WorkerProcess, next_reply, only_reply
from recalld_daemon.worker_state import ModelChoice, WorkerState
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
    Rerank,
    Reranked,
)

__all__ = ["BulkWorker", "LiveWorker", "ModelChoice", "ModelWorker", "ParsedStream", "RequestFailed", "WorkerState"]

FIRST_RELOAD_SECONDS = 60.0  # after a model that could not be loaded; doubles
LONGEST_RELOAD_SECONDS = 3600.0

log = logging.getLogger(__name__)


class ModelWorker(WorkerProcess):
    """A worker whose life begins with loading the encoder."""

    role: Role

    @property
    def ready(self) -> bool:
        """A model is loaded and the process is there."""
        return self.state.phase == "ready" and self._link is not None and not self._link.lost

    async def wait_ready(self) -> Loaded:
        """Returns once the worker is ready, however long that takes (a model that fails is tried again later)."""
        while not (self.ready and self.state.loaded is not None):
            await self._changed.wait()
        return self.state.loaded

    async def _serve(self, link: Link) -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._load, link)
            await link.run()
            nursery.cancel_scope.cancel()
        return False

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
            role="live" if self.role == "live" else "bulk",
            model=choice.model,
            query_prompt=choice.query_prompt,
            passage_prompt=choice.passage_prompt,
            cache_dir=str(choice.cache_dir),
            token_dims=choice.token_dims,
            allow_download=choice.allow_download,
            threads=self._threads(),
            cross_encoder=choice.cross_encoder if self.role == "live" else "none",
        )

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


class LiveWorker(ModelWorker):
    """Encodes queries and scores passages, in milliseconds or not at all. A `QueryEncoder`, a `cross.AsyncScorer`."""

    role = "live"

    async def encode_query(self, text: str) -> QueryEncoding:
        """vector (d,) and tokens (Tq, t), float32, unit rows.

        Raises EncoderUnavailable at once when the worker is not ready, dies, or cannot encode this text. May be
        cancelled at any time, and called any number of times at once: requests are answered in order.
        """
        link = self._link_now(with_model=True)
        request = EncodeQuery(id=link.new_id(), text=_encodable(text))
        try:
            reply = await only_reply(link, request, QueryEncoded)
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
            reply = await only_reply(link, request, Reranked)
        except RequestFailed as error:
            raise EncoderUnavailable(f"cross-encoder: {error}") from None
        return np.frombuffer(reply.scores, np.float32)


class BulkWorker(ModelWorker):
    """Parses files and encodes passages, at low priority. Its calls wait while the worker starts or loads."""

    role = "bulk"

    async def encode_passages(self, texts: Sequence[str]) -> PassagesEncoded:
        """One entry per text, in order; see PassagesEncoded for shapes.

        Waits for the model. Raises EncoderUnavailable when it cannot be loaded or the worker dies meanwhile,
        RequestFailed when these texts cannot be encoded, FrameTooLarge.
        """
        link = await self._link_soon(with_model=True)
        request = EncodePassages(id=link.new_id(), texts=[_encodable(text) for text in texts])
        return await only_reply(link, request, PassagesEncoded)

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
        reply = await next_reply(self._link, self._replies)
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


def _encodable(text: str) -> str:
    """The text, with lone surrogates (which no wire carries) replaced one by one, so that offsets stay."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
