"""The worker process: holds the models and parses files, one request after the other, for the daemon that started it.
Only a rerank, the longest that a recall asks for, gives way: before each of its batches what has come in is done first.

It owns nothing and decides nothing: requests come in on the pipe that was its stdin, answers leave on the pipe that
was its stdout, and stray prints of libraries go to stderr. It ignores Ctrl-C and SIGTERM and ends when the daemon's end
of the pipe closes, at once and in the middle of a computation: a thread waits for nothing else. The bulk worker runs at
the lowest priority, so that indexing yields to recalls by the scheduler's own means; the one that learns at a low one.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from recalld_daemon.worker_wire import (
    EncodePassages,
    EncodeQuery,
    Failed,
    FrameReader,
    FrameTooLarge,
    FromWorker,
    LearnOpen,
    LearnStep,
    Load,
    Loaded,
    Parsed,
    ParseFile,
    ParseMore,
    ParseStop,
    PassagesEncoded,
    Progress,
    QueryEncoded,
    Request,
    Rerank,
    Reranked,
    decode_request,
    pack_frame,
)

if TYPE_CHECKING:
    from recalld_daemon.models.encoder import Encoder
    from recalld_daemon.models.reranker import Reranker, Reranking
    from recalld_daemon.worker_learning import Lessons

BULK_NICE = 15  # 3 % of a processor that others want: indexing is never in a hurry
# A tenth of a processor that others want. Not idle scheduling: where a compiler takes all cores an idle process gets
# next to nothing, and what a user just said helped would be learned after the next question.
LEARN_NICE = 10
READ_BYTES = 1 << 16
REASON_CHARS = 2000  # of a failure's text

log = logging.getLogger("recalld.worker")


class Worker:
    """Requests in, replies out through `send`; knows no pipe. `step_back` is called before work that may be slow.

    While it is `busy` there is work that waits for `step`, which requests may overtake.
    """

    def __init__(self, send: Callable[[FromWorker], None], step_back: Callable[[], None] = lambda: None) -> None:
        self._send = send
        self._step_back = step_back
        self._encoder: Encoder | None = None
        self._reranker: Reranker | None = None
        self._reranks: deque[tuple[int, Reranking]] = deque()  # under way and waiting, by request's id
        self._parsers: dict[int, Iterator[Parsed]] = {}
        self._lessons: Lessons | None = None

    def handle(self, request: Request) -> None:
        """Do it and send what it answers; whatever goes wrong is sent as Failed, and logged: what may be expected to
        go wrong in one line, a defect with its traceback."""
        try:
            self._do(request)
        except Exception as error:  # noqa: BLE001  `_fail` logs it
            self._parsers.pop(request.id, None)
            self._fail(request.id, type(request).__name__, error)

    @property
    def busy(self) -> bool:
        """There is a rerank under way."""
        return bool(self._reranks)

    def step(self) -> None:
        """One batch of the oldest rerank; its answer, when that was the last."""
        number, reranking = self._reranks[0]
        try:
            if not reranking.step():
                self._reranks.popleft()
                self._send(Reranked(id=number, scores=reranking.scores.tobytes()))
        except Exception as error:  # noqa: BLE001  `_fail` logs it
            self._reranks = deque(each for each in self._reranks if each[0] != number)
            self._fail(number, "Rerank", error)

    def _fail(self, request_id: int, what: str, error: Exception) -> None:
        if _expected(error):
            log.error("%s failed: %s", what, " ".join(_reason(error).split()))
        else:
            log.exception("%s failed", what, exc_info=error)
        self._send(Failed(id=request_id, text=_reason(error)))

    def _do(self, request: Request) -> None:
        match request:
            case Load():
                self._load(request)
            case EncodeQuery():
                vector, tokens = self._loaded().encode_query(request.text)
                self._send(QueryEncoded(id=request.id, vector=vector.tobytes(), tokens=tokens.tobytes()))
            case Rerank():
                self._rerank(request)
            case EncodePassages():
                self._encode_passages(request)
            case ParseFile():
                self._step_back()
                from recalld_daemon.ingest.parse import parse_file

                parser = parse_file(request.path, request.source_kind, request.cursor)
                self._parsers[request.id] = iter(parser)
                self._parse_on(request.id)
            case ParseMore():
                self._parse_on(request.id)
            case ParseStop():
                self._parsers.pop(request.id, None)
            case LearnOpen():
                self._send(self._learning().open(request))
            case LearnStep():
                self._send(self._learning().step(request))

    def _load(self, request: Load) -> None:
        from recalld_daemon.models.encoder import EncoderSettings, load_encoder

        def progress(phase: str, done: int = 0, total: int = 0) -> None:
            self._send(Progress(id=request.id, phase=phase, done=done, total=total))

        self._encoder = self._reranker = None
        settings = EncoderSettings(
            model=request.model,
            query_prompt=request.query_prompt,
            passage_prompt=request.passage_prompt,
            cache_dir=Path(request.cache_dir),
            token_dims=request.token_dims,
            allow_download=request.allow_download,
            threads=request.threads,
        )
        # the preparation is what a user waits for at the first start: only what comes after it steps back
        self._encoder = encoder = load_encoder(settings, request.role, progress, when_prepared=self._step_back)
        problem = self._load_reranker(request, progress)
        gc.collect()
        gc.freeze()  # what is loaded stays: without this a full collection takes 0.26 s
        cross = self._reranker
        self._send(
            Loaded(
                id=request.id,
                fingerprint=encoder.fingerprint,
                model=encoder.model,
                runtime=encoder.runtime,
                dims=encoder.dims,
                token_dims=encoder.token_dims,
                cross_encoder=f"{cross.model} {cross.runtime}" if cross else "",
                cross_encoder_problem=problem,
            )
        )

    def _load_reranker(self, request: Load, progress: Callable[[str, int, int], None]) -> str:
        """Load the cross-encoder, where one is wanted; what keeps it from that, which costs nothing else."""
        if request.cross_encoder == "none" or request.role != "live":
            return ""
        from recalld_daemon.models.reranker import RerankerSettings, load_reranker

        wanted = RerankerSettings(
            Path(request.cache_dir), request.cross_encoder, request.allow_download, request.threads
        )
        try:
            self._reranker = load_reranker(wanted, progress)
        except Exception as error:
            log.error("no cross-encoder: %s", " ".join(_reason(error).split()), exc_info=not _expected(error))
            return _reason(error)
        return ""

    def _rerank(self, request: Rerank) -> None:
        if self._reranker is None:
            raise RuntimeError("no cross-encoder is loaded")
        under_way = self._reranker.begin(request.query, request.texts, request.budget_ms / 1000.0)
        self._reranks.append((request.id, under_way))

    def _loaded(self) -> Encoder:
        if self._encoder is None:
            raise RuntimeError("no model is loaded")
        return self._encoder

    def _learning(self) -> Lessons:
        if self._lessons is None:
            from recalld_daemon.worker_learning import Lessons

            self._lessons = Lessons()
        return self._lessons

    def _encode_passages(self, request: EncodePassages) -> None:
        encoded = self._loaded().encode_passages(request.texts)
        reply = PassagesEncoded(
            id=request.id,
            vectors=encoded.vectors.tobytes(),
            tokens=[tokens.tobytes() for tokens in encoded.tokens],
            starts=[starts.tobytes() for starts in encoded.starts],
            ends=[ends.tobytes() for ends in encoded.ends],
        )
        self._send(reply)

    def _parse_on(self, request_id: int) -> None:
        """Send the next frame of a parse, with the request's id."""
        parser = self._parsers.get(request_id)
        if parser is None:
            return
        parsed = next(parser, None) or Parsed(id=request_id, passages=[], done=True)
        if parsed.done:
            del self._parsers[request_id]
        self._send(msgspec.structs.replace(parsed, id=request_id))


def main() -> None:
    """Serve the daemon until its end of the pipe closes. `argv[1]` is the role: live, bulk or learn."""
    role = sys.argv[1] if len(sys.argv) > 1 else "live"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format=f"{role} worker: %(levelname)s %(name)s: %(message)s")
    inbox, outbox = _take_pipes()
    threading.Thread(target=_end_with_the_daemon, args=(inbox,), daemon=True).start()
    if role == "learn":
        os.nice(LEARN_NICE)
    step_back = yield_to_others if role == "bulk" else lambda: None
    worker = Worker(lambda message: _write_or_end(outbox, pack_frame(message)), step_back)
    reader = FrameReader()
    while True:
        while worker.busy and not _has_come(inbox):
            worker.step()
        if not (data := os.read(inbox, READ_BYTES)):
            return
        for body in reader.feed(data):
            worker.handle(decode_request(body))


def yield_to_others() -> None:
    """Lower this process's priority: nice, idle scheduling, idle disk class, each where the system has it.

    Idle, not batch: a batch process keeps its core for its slice (3 ms) when a recall wakes up, an idle one gives way.
    """
    if os.getpriority(os.PRIO_PROCESS, 0) >= BULK_NICE:
        return
    os.setpriority(os.PRIO_PROCESS, 0, BULK_NICE)
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with suppress(psutil.Error, OSError):
            psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def _has_come(inbox: int) -> bool:
    """Whether a read would not wait."""
    return bool(select.select([inbox], [], [], 0)[0])


def _take_pipes() -> tuple[int, int]:
    """Move stdin and stdout out of the way of libraries: what they print goes to stderr, what they read is empty."""
    inbox, outbox = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return inbox, outbox


def _end_with_the_daemon(inbox: int) -> None:
    """End this process, whatever it does, as soon as nobody can write to `inbox` any more."""
    poll = select.poll()
    poll.register(inbox, 0)  # POLLHUP alone, which needs no asking for
    poll.poll()
    os._exit(0)


def _write_or_end(outbox: int, data: bytes) -> None:
    """Write all of it; where nobody reads any more the daemon has gone, and this process ends as well."""
    try:
        _write_all(outbox, data)
    except BrokenPipeError:
        os._exit(0)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _expected(error: Exception) -> bool:
    """A fault of what was asked for (a model or file that is not there, an answer too large), not of this code."""
    from recalld_daemon.models.files import ModelError

    return isinstance(error, ModelError | OSError | FrameTooLarge)


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.encode(errors="replace").decode()[:REASON_CHARS]


if __name__ == "__main__":
    main()
