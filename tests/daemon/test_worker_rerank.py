"""Reranks by the live worker: what is asked and answered, and that a query's encoding goes first."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing

import scripted_worker
from recalld_daemon.recall.types import EncoderUnavailable
from recalld_daemon.worker import Worker
from recalld_daemon.worker_wire import EncodeQuery, Failed, FromWorker, QueryEncoded, Rerank, Reranked
from recalld_daemon.workers import BulkWorker, LiveWorker, ModelChoice

COMMAND = [sys.executable, "-P", scripted_worker.__file__]
EVER = 1000.0  # seconds: enough for all texts of the scripted cross-encoder


def check(
    conversation: Callable[[LiveWorker], Awaitable[None]], cross: str = "scripted", cache: Path | None = None
) -> None:
    """A conversation with a live worker that is ready; it is scripted, unless a cache for real models is given."""
    if cache is None:
        choice = ModelChoice(Path("/nonexistent"), "scripted", cross_encoder=cross)
        worker = LiveWorker(choice, command=[*COMMAND, "live"], first_backoff_seconds=0.01)
    else:
        worker = LiveWorker(ModelChoice(cache, cross_encoder=cross))

    async def run() -> None:
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                await nursery.start(worker.run)
                await worker.wait_ready()
                await conversation(worker)
                nursery.cancel_scope.cancel()

    trio.run(run)


def test_scores_come_in_the_order_of_the_texts() -> None:
    async def conversation(worker: LiveWorker) -> None:
        assert worker.has_cross_encoder
        assert worker.state.row()["cross_encoder"] == "scripted cross script"
        assert (await worker.rerank("q", ["abc", "a", "ab\ud83d"], EVER)).tolist() == [4.0, 2.0, 4.0]
        assert (await worker.rerank("q", [], EVER)).tolist() == []

    check(conversation)


def test_what_time_does_not_reach_is_nan() -> None:
    async def conversation(worker: LiveWorker) -> None:
        scores = await worker.rerank("q", ["abc", "a", "ab", "b"], 2.0)
        assert scores[:2].tolist() == [4.0, 2.0]
        assert np.isnan(scores[2:]).all()

    check(conversation)


def test_an_encoding_overtakes_a_rerank(tmp_path: Path) -> None:
    first, last = tmp_path / "first", tmp_path / "last"
    for fifo in (first, last):
        os.mkfifo(fifo)

    async def conversation(worker: LiveWorker) -> None:
        order: list[str] = []

        async def rerank() -> None:
            await worker.rerank("q", [f"wait:{first}", "a", "b", f"wait:{last}"], EVER)
            order.append("reranked")

        async def encode() -> None:
            await worker.encode_query("x")
            order.append("encoded")
            await trio.to_thread.run_sync(last.write_bytes, b"")  # without which no rerank can end

        with trio.fail_after(60):  # where nothing overtakes, both wait for ever
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rerank)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(encode)  # while the worker is in the first of four batches
                await trio.testing.wait_all_tasks_blocked()
                await trio.to_thread.run_sync(first.write_bytes, b"")
        assert order == ["encoded", "reranked"]

    check(conversation)


def test_a_worker_that_dies_of_a_rerank_is_unavailable_and_comes_back() -> None:
    async def conversation(worker: LiveWorker) -> None:
        with pytest.raises(EncoderUnavailable, match="the worker ended"):
            await worker.rerank("q", ["a", "die"], EVER)
        with pytest.raises(EncoderUnavailable, match="live worker"):
            await worker.rerank("q", ["a"], EVER)
        await worker.wait_ready()
        assert (await worker.rerank("q", ["a"], EVER)).tolist() == [2.0]
        assert worker.state.restarts == 1

    check(conversation)


def test_a_rerank_that_fails_fails_alone() -> None:
    async def conversation(worker: LiveWorker) -> None:
        with pytest.raises(EncoderUnavailable, match="no such text"):
            await worker.rerank("q", ["a", "raise:no such text"], EVER)
        assert (await worker.rerank("q", ["a"], EVER)).tolist() == [2.0]
        assert worker.state.restarts == 0

    check(conversation)


def test_without_a_cross_encoder_there_is_none() -> None:
    async def conversation(worker: LiveWorker) -> None:
        assert not worker.has_cross_encoder
        with pytest.raises(EncoderUnavailable, match="no cross-encoder is loaded"):
            await worker.rerank("q", ["a"], EVER)

    check(conversation, "none")


def test_one_that_cannot_be_had_costs_itself_only() -> None:
    async def conversation(worker: LiveWorker) -> None:
        assert not worker.has_cross_encoder
        assert worker.state.row()["cross_encoder"] == "cross-encoder 'missing': there is none"
        assert len((await worker.encode_query("abc")).tokens) == 3

    check(conversation, "missing")


def test_the_bulk_worker_loads_none() -> None:
    choice = ModelChoice(Path("/nonexistent"), "scripted", cross_encoder="scripted")
    assert BulkWorker(choice)._load_request(1).cross_encoder == "none"
    assert LiveWorker(choice)._load_request(1).cross_encoder == "scripted"


class Scripted:
    """The worker's own handling, without a pipe."""

    def __init__(self) -> None:
        self.sent: list[FromWorker] = []
        self.worker = Worker(self.sent.append)
        self.worker._encoder = scripted_worker.ScriptedEncoder()  # type: ignore[assignment]
        self.worker._reranker = scripted_worker.ScriptedReranker()  # type: ignore[assignment]

    def kinds(self) -> list[tuple[type, int]]:
        return [(type(message), message.id) for message in self.sent]


def test_between_two_batches_what_comes_in_is_done() -> None:
    house = Scripted()
    house.worker.handle(Rerank(id=1, query="q", texts=["a", "b", "c"], budget_ms=1000.0 * EVER))
    house.worker.handle(Rerank(id=2, query="q", texts=["a"], budget_ms=1000.0 * EVER))
    assert (house.worker.busy, house.sent) == (True, [])
    house.worker.step()
    house.worker.handle(EncodeQuery(id=3, text="x"))
    while house.worker.busy:
        house.worker.step()
    assert house.kinds() == [(QueryEncoded, 3), (Reranked, 1), (Reranked, 2)]
    (scores,) = [message.scores for message in house.sent if isinstance(message, Reranked) and message.id == 1]
    assert np.frombuffer(scores, np.float32).tolist() == [2.0, 2.0, 2.0]


def test_a_failed_batch_ends_its_rerank_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    house = Scripted()
    house.worker.handle(Rerank(id=1, query="q", texts=["raise:torn"], budget_ms=1000.0 * EVER))
    house.worker.handle(Rerank(id=2, query="q", texts=["a"], budget_ms=1000.0 * EVER))
    while house.worker.busy:
        house.worker.step()
    assert house.sent[0] == Failed(id=1, text="torn")
    assert house.kinds()[1:] == [(Reranked, 2)]
    assert [record.getMessage() for record in caplog.records] == ["Rerank failed"]


@pytest.mark.models
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the libraries' own
def test_a_real_one_made_of_the_packaged_weights(tmp_path: Path, model_cache: Path) -> None:
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import AutoTokenizer

    from recalld_daemon.models.files import find_folder
    from recalld_daemon.models.reranker_default import bare_module

    torch.manual_seed(3)
    packaged = find_folder("default", allow_download=False)
    bare_module(packaged, 2).save_pretrained(str(tmp_path))
    AutoTokenizer.from_pretrained(str(packaged)).save_pretrained(str(tmp_path))
    query, texts = "where does the staging key lie?", ["The staging key lies in the vault.", "Soup.", "x " * 400]
    right = CrossEncoder(str(tmp_path), device="cpu", max_length=128).predict(
        [(query, text) for text in texts], activation_fn=torch.nn.Identity(), show_progress_bar=False
    )

    async def conversation(worker: LiveWorker) -> None:
        scores = await worker.rerank(query, texts, EVER)
        assert np.corrcoef(scores, right)[0, 1] > 0.95
        maps = Path(f"/proc/{worker.state.pid}/maps").read_text()
        assert worker.state.loaded is not None
        assert "onnx" not in worker.state.loaded.cross_encoder or "libtorch" not in maps

    check(conversation, str(tmp_path), model_cache)
