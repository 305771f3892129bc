"""The real worker with the packaged encoder, and the worker's own handling of requests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import trio

from recalld_daemon.recall.types import TOKEN_SCALE
from recalld_daemon.worker import Worker
from recalld_daemon.worker_wire import (
    FRAME_LIMIT,
    EncodeQuery,
    Failed,
    FrameReader,
    FrameTooLarge,
    FromWorker,
    Load,
    Parsed,
    ParseFile,
    ParseMore,
    ParseStop,
    Progress,
    decode_request,
    pack_frame,
)
from recalld_daemon.workers import BulkWorker, LiveWorker, ModelChoice, ModelWorker

Handle = TypeVar("Handle", bound=ModelWorker)


def with_worker(worker: Handle, conversation: Callable[[Handle], Awaitable[None]]) -> None:
    """Run a conversation with a worker that is ready."""

    async def run() -> None:
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                await nursery.start(worker.run)
                await worker.wait_ready()
                await conversation(worker)
                nursery.cancel_scope.cancel()

    trio.run(run)


@pytest.mark.models
def test_the_live_worker_never_loads_torch(model_cache: Path) -> None:
    async def conversation(worker: LiveWorker) -> None:
        encoding = await worker.encode_query("where does the staging key lie?")
        assert encoding.vector.shape == (384,)
        assert encoding.tokens.shape == (3, 64)  # staging, key, lie: the rest are stop words
        np.testing.assert_allclose(np.linalg.norm(encoding.vector), 1.0, atol=1e-5)
        assert worker.state.loaded is not None
        if worker.state.loaded.runtime.startswith("onnx"):
            maps = Path(f"/proc/{worker.state.pid}/maps").read_text()
            assert "libtorch" not in maps
            assert "onnxruntime" in maps

    with_worker(LiveWorker(ModelChoice(model_cache)), conversation)


@pytest.mark.models
def test_query_and_passage_meet_in_one_space(model_cache: Path) -> None:
    texts = ["The staging key lies in the vault.", "We had soup for lunch.", "a\ud83d\0b"]

    async def conversation(bulk: BulkWorker) -> None:
        encoded = await bulk.encode_passages(texts)
        vectors = np.frombuffer(encoded.vectors, np.float16).reshape(3, 384).astype(np.float32)
        assert os.getpriority(os.PRIO_PROCESS, bulk.state.pid) == 15
        live = LiveWorker(ModelChoice(model_cache))
        async with trio.open_nursery() as nursery:
            await nursery.start(live.run)
            await live.wait_ready()
            assert live.state.fingerprint == bulk.state.fingerprint
            query = await live.encode_query("where is the key of staging?")
            nursery.cancel_scope.cancel()
        assert np.argmax(vectors @ query.vector) == 0
        tokens = np.frombuffer(encoded.tokens[0], np.int8).reshape(-1, 64).astype(np.float32) / TOKEN_SCALE
        best = (query.tokens @ tokens.T).max(axis=1)
        assert best.min() > 0.4
        starts = np.frombuffer(encoded.starts[0], np.uint16)
        ends = np.frombuffer(encoded.ends[0], np.uint16)
        assert [texts[0][start:end] for start, end in zip(starts, ends, strict=True)][:2] == ["staging", "key"]

    with_worker(BulkWorker(ModelChoice(model_cache)), conversation)


def check(requests: list[object], replies: list[FromWorker]) -> None:
    """A worker without a model, asked one thing after the other."""
    sent: list[FromWorker] = []
    worker = Worker(sent.append)
    for request in requests:
        worker.handle(request)  # type: ignore[arg-type]
    assert sent == replies


def test_without_a_model_queries_fail_with_the_reason() -> None:
    check([EncodeQuery(id=3, text="x")], [Failed(id=3, text="no model is loaded")])


def load(model: str, cache: Path) -> Load:
    return Load(
        id=1, role="live", model=model, query_prompt=None, passage_prompt=None, cache_dir=str(cache), token_dims=64,
        allow_download=False, threads=1,
    )  # fmt: skip


def test_what_may_be_expected_to_fail_is_logged_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where = str(tmp_path / "nowhere")
    text = f"model {where!r}: there is no such directory"
    check([load(where, tmp_path)], [Progress(id=1, phase="looking for the model"), Failed(id=1, text=text)])
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info) == (f"Load failed: {text}", None)


def test_a_defect_is_logged_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def parse_file(path: str, kind: str, cursor: int) -> list[Parsed]:
        raise KeyError("oops")

    monkeypatch.setattr("recalld_daemon.ingest.parse.parse_file", parse_file)
    check([ParseFile(id=2, path="/x", source_kind="text", cursor=0)], [Failed(id=2, text="'oops'")])
    (record,) = caplog.records
    assert record.exc_info


def test_frames_of_a_parse_come_one_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [Parsed(id=0, passages=[]), Parsed(id=0, passages=[], cursor=7, done=True)]
    monkeypatch.setattr("recalld_daemon.ingest.parse.parse_file", lambda path, kind, cursor: iter(frames))
    ask = ParseFile(id=5, path="/x", source_kind="text", cursor=0)
    first, last = Parsed(id=5, passages=[]), Parsed(id=5, passages=[], cursor=7, done=True)
    check([ask], [first])
    check([ask, ParseMore(id=5)], [first, last])
    check([ask, ParseMore(id=5), ParseMore(id=5)], [first, last])
    check([ask, ParseStop(id=5), ParseMore(id=5)], [first])
    check([ParseMore(id=9), ParseStop(id=9)], [])


def test_a_parser_steps_back_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def parse_file(path: str, kind: str, cursor: int) -> list[Parsed]:
        order.append("parse")
        return [Parsed(id=0, passages=[], done=True)]

    monkeypatch.setattr("recalld_daemon.ingest.parse.parse_file", parse_file)
    worker = Worker(lambda message: order.append("sent"), lambda: order.append("stepped back"))
    worker.handle(ParseFile(id=1, path="/x", source_kind="text", cursor=0))
    assert order == ["stepped back", "parse", "sent"]


def test_an_answer_over_the_limit_is_a_failure_of_that_request_alone() -> None:
    sent: list[FromWorker] = []

    def send(message: FromWorker) -> None:
        pack_frame(message)
        sent.append(message)

    class Endless:
        def encode_query(self, text: str) -> tuple[np.ndarray, np.ndarray]:
            return np.zeros(4, np.float32), np.zeros(FRAME_LIMIT // 4, np.float32)

    worker = Worker(send)
    worker._encoder = Endless()  # type: ignore[assignment]
    worker.handle(EncodeQuery(id=1, text="x"))
    (reply,) = sent
    assert isinstance(reply, Failed)
    assert "over the frame limit" in reply.text


def test_frames_are_cut_from_any_pieces() -> None:
    requests = [EncodeQuery(id=number, text="x" * number * 100) for number in range(5)]
    stream = b"".join(pack_frame(request) for request in requests)
    for size in (1, 3, 64, len(stream)):
        reader = FrameReader()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [decode_request(body) for piece in pieces for body in reader.feed(piece)] == requests


def test_a_frame_over_the_limit_is_refused_by_its_header() -> None:
    with pytest.raises(FrameTooLarge, match=str(FRAME_LIMIT + 1)):
        FrameReader().feed((FRAME_LIMIT + 1).to_bytes(4, "little"))


def test_the_worker_ends_quietly_when_its_pipe_is_closed() -> None:
    command = [sys.executable, "-P", "-m", "recalld_daemon.worker", "bulk"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_the_worker_ends_quietly_when_nobody_reads_its_answers(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text("the quay is closed on Sundays")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-P", "-m", "recalld_daemon.worker", "live"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE) as worker:
        os.close(writing)
        assert worker.stdin is not None
        assert worker.stderr is not None
        worker.stdin.write(pack_frame(ParseFile(id=1, path=str(note), source_kind="text", cursor=0)))
        worker.stdin.flush()  # and stays open: it is the answer that finds nobody
        assert worker.wait(timeout=60) == 0
        assert worker.stderr.read() == b""
