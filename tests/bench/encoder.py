"""What each runtime costs on this machine: one query, batches of passages, agreement with fp32, and the pipe.

    python tests/bench/encoder.py [--model NAME] [--threads N] [--json FILE]

Passages are 128 tokens long, in batches of 32; queries some ten words. The pipe row is a query through the worker
process less the same query in the encoder itself, both p50.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from recalld_daemon.models.files import ModelFiles
    from recalld_daemon.models.runtimes import Runtime

Row = dict[str, float | str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default", help="default, a sentence-transformers name, or a path")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--queries", type=int, default=200, help="runs per runtime")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        rows = runtimes(options.model, Path(folder), options.threads, options.queries)
        prepare_s = rows[0].pop("prepare_s")
        through = pipe(options.model, Path(folder))
    show(rows)
    print(f"prepared in {prepare_s} s; worker: {through}")
    if options.json:
        result = {"runtimes": rows, "prepare_s": prepare_s, "pipe": through}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def runtimes(model: str, cache_dir: Path, threads: int, queries: int) -> list[Row]:
    """A row per runtime that can be had; the first also says how long the preparation took."""
    from recalld_daemon.models.files import open_files
    from recalld_daemon.models.home import Home, Job, prepared
    from recalld_daemon.models.runtimes import GRAPHS, ONNX_FP32, ONNX_INT8, TORCH_FP32, export
    from recalld_daemon.models.runtimes.onnx_session import OnnxSession
    from recalld_daemon.models.runtimes.torch_model import TorchModel

    files = open_files(model, cache_dir, allow_download=False)
    begin = time.perf_counter()
    choice, _ = prepared(files, Job(model, str(cache_dir), 64), lambda phase, done, total: print(f"  {phase}"))
    prepare_s = time.perf_counter() - begin
    print(f"chosen: {choice.query} for queries, {choice.passages} for passages ({Home.of(files, cache_dir).folder})")
    torch_model = TorchModel(TORCH_FP32, files.folder, threads)
    graphs = {name: cache_dir / GRAPHS[name] for name in (ONNX_FP32, ONNX_INT8)}
    export.export_fp32(torch_model.module, graphs[ONNX_FP32])
    export.quantise(graphs[ONNX_FP32], graphs[ONNX_INT8])
    trial = Trial(files, torch_model, queries)
    rows = [trial.row(torch_model)]
    rows += [trial.row(OnnxSession(name, graph, threads)) for name, graph in graphs.items()]
    rows += [trial.row(torch_model.to_bf16())]
    rows[0]["prepare_s"] = round(prepare_s, 1)
    return rows


class Trial:
    """The same work for each runtime; `right` is fp32."""

    def __init__(self, files: ModelFiles, right: Runtime, queries: int) -> None:
        from tokenizers import Tokenizer

        from recalld_daemon.models.measure import agreement_texts, reference
        from recalld_daemon.models.sample import sample_texts
        from recalld_daemon.models.tokens import TextTokenizer, padded

        tokenizer = TextTokenizer(Tokenizer.from_file(str(files.folder / "tokenizer.json")), "", 256, files.max_tokens)
        self._queries = queries
        self._pooling = files.pooling
        self._right = reference(right, tokenizer(agreement_texts()), files.pooling)
        self._query = padded([tokenizer(sample_texts(1)[:1])[0].ids])
        self._batch = padded([np.resize(self._right.texts[-1].ids, 128)] * 32)

    def row(self, runtime: Runtime) -> Row:
        from recalld_daemon.models.measure import measure

        found = measure(runtime, self._right, self._pooling, float("inf"))  # warms up, too
        times = [timed(lambda: runtime.run(*self._query, is_query=True, prompt_tokens=0)) for _ in range(self._queries)]
        batch_s = min(timed(lambda: runtime.run(*self._batch, is_query=False, prompt_tokens=0)) for _ in range(4))
        return {
            "runtime": runtime.name,
            "query_p50_ms": round(1000 * float(np.median(times)), 2),
            "query_p95_ms": round(1000 * float(np.quantile(times, 0.95)), 2),
            "passages_per_s": round(32 / batch_s, 1),
            "pooled_cosine": found.pooled,
            "token_cosine": found.tokens,
        }


def pipe(model: str, cache_dir: Path) -> Row:
    """A query through the worker process against the same one without it."""
    import trio

    from recalld_daemon.models.encoder import EncoderSettings, load_encoder
    from recalld_daemon.workers import LiveWorker, ModelChoice

    text = "$ git push --force-with-lease && kubectl rollout restart deployment/billing-api"
    encoder = load_encoder(EncoderSettings(cache_dir, model), "live", lambda phase, done, total: None)
    alone, through = [], []

    async def ask() -> None:
        worker = LiveWorker(ModelChoice(cache_dir, model))
        async with trio.open_nursery() as nursery:
            begin = time.perf_counter()
            await nursery.start(worker.run)
            await worker.wait_ready()
            row["start_s"] = round(time.perf_counter() - begin, 2)
            row["rss_mb"] = float(worker.state.row()["rss_mb"] or 0)
            for _ in range(300):
                alone.append(timed(lambda: encoder.encode_query(text)))
                begin = time.perf_counter()
                await worker.encode_query(text)
                through.append(time.perf_counter() - begin)
            nursery.cancel_scope.cancel()

    row: Row = {}
    trio.run(ask)
    row["encoder_p50_us"] = round(1e6 * float(np.median(alone)))
    row["worker_p50_us"] = round(1e6 * float(np.median(through)))
    row["worker_p95_us"] = round(1e6 * float(np.quantile(through, 0.95)))
    row["pipe_p50_us"] = round(1e6 * float(np.median(np.subtract(through, alone))))
    return row


def timed(call: Callable[[], object]) -> float:
    """Seconds."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def show(rows: list[Row]) -> None:
    """The table."""
    print("  ".join(f"{key:>14}" for key in rows[0]))
    for row in rows:
        print("  ".join(f"{value:>14}" for value in row.values()))


if __name__ == "__main__":
    main()
