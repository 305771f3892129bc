"""What is done once for a cross-encoder on a machine: export its graph, quantise it, measure, choose a runtime.

It runs in a process of its own (`python -m recalld_daemon.models.reranker_prepare JOB`), as `prepare` does for
encoders: the live worker never has torch in its memory for a model whose graph can be exported. A runtime is taken if
its scores of some forty pairs correlate with those of fp32, and of those the quickest, on batches as a rerank has them.
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from recalld_daemon.models import cache
from recalld_daemon.models.home import Progress, Step
from recalld_daemon.models.reranker import BATCH, scores_of
from recalld_daemon.models.reranker_files import RerankerFiles, open_reranker_files
from recalld_daemon.models.reranker_home import (
    PairsMeasured,
    RerankerChoice,
    RerankerHome,
    RerankerJob,
    reranker_key,
)
from recalld_daemon.models.reranker_runtimes import OnnxPairs, PairModel
from recalld_daemon.models.runtimes import GRAPHS, LIBRARY, ONNX_FP32, ONNX_INT8, TORCH_BF16, TORCH_FP32
from recalld_daemon.models.sample import sample_texts
from recalld_daemon.recall.types import Float32

THREADS = 1  # for comparable speeds, whoever prepares
STEPS = 4
AGREE = 0.98  # correlation with fp32 over the sample's pairs
QUERIES, TEXTS, RUNS = 5, 8, 7

log = logging.getLogger("recalld.models")


def prepare_reranker(job: RerankerJob, progress: Progress) -> RerankerChoice:
    """Fill the cross-encoder's home in the cache. Raises ModelError, OSError, and what loading it raises."""
    progress("loading the cross-encoder's weights", 0, STEPS)
    files = open_reranker_files(job.model, Path(job.cache_dir), allow_download=False)
    home = RerankerHome.of(files, Path(job.cache_dir))
    if not files.plain:
        notes = ["not a plain transformer: runs in sentence-transformers"]
        choice = RerankerChoice(reranker_key(), LIBRARY, notes=notes)
        home.keep(choice)
        return choice
    from recalld_daemon.models.reranker_torch import load_module

    module, notes = load_module(files), []
    _export(module, home, notes, progress)
    measured = _measure_all(module, files, home, notes, progress)
    fit = {name: found.pair_ms for name, found in measured.items() if found.agrees >= AGREE}
    choice = RerankerChoice(reranker_key(), min(fit, key=lambda name: fit[name]), measured, notes)
    for note in notes:
        log.warning("%s: %s", files.name, note)
    home.keep(choice)
    return choice


def _export(module: Any, home: RerankerHome, notes: list[str], progress: Progress) -> None:
    """Both graphs; what cannot be exported is noted, and left to torch."""
    progress("exporting the cross-encoder", 1, STEPS)
    try:
        from recalld_daemon.models.reranker_torch import export_pairs, quantise_pairs

        cache.make(home.graph(ONNX_FP32), lambda path: export_pairs(module, path))
        progress("quantising the cross-encoder", 2, STEPS)
        cache.make(home.graph(ONNX_INT8), lambda path: quantise_pairs(home.graph(ONNX_FP32), path))
    except Exception as error:  # exporters raise what they like at a model they cannot take
        log.warning("no ONNX graph of this model", exc_info=True)
        notes.append(f"no ONNX graph, torch is used instead: {type(error).__name__}: {str(error)[:200]}")


def _measure_all(
    module: Any, files: RerankerFiles, home: RerankerHome, notes: list[str], progress: Progress
) -> dict[str, PairsMeasured]:
    """Each runtime that can be had; fp32 in torch is right by definition."""
    from recalld_daemon.models.reranker_torch import TorchPairs

    reference = TorchPairs(TORCH_FP32, module, files, THREADS)
    right = sample_scores(reference, files.positive)
    measured = {TORCH_FP32: PairsMeasured(_pair_ms(reference), 1.0)}
    for name in (ONNX_INT8, ONNX_FP32, TORCH_BF16):
        progress(f"measuring {name}", 3, STEPS)
        if name in GRAPHS and not cache.intact(home.graph(name)):
            continue
        try:
            runs: PairModel = (
                OnnxPairs(name, home.graph(name), files, THREADS)
                if name in GRAPHS
                else TorchPairs(name, module, files, THREADS)  # the last use of the fp32 weights
            )
            alike = agreement(sample_scores(runs, files.positive), right)
            measured[name] = PairsMeasured(_pair_ms(runs), round(alike, 4))
        except RuntimeError as error:
            notes.append(f"{name} cannot run here: {str(error)[:200]}")
            continue
        if alike < AGREE:
            notes.append(f"{name} does not agree with fp32: correlation {alike:.3f}")
    return measured


def sample_scores(model: PairModel, positive: int) -> Float32:
    """(QUERIES * TEXTS,) scores of the sample's texts against some of them."""
    texts = sample_texts(rounds=1)
    asked = texts[:: len(texts) // QUERIES][:QUERIES]
    rows = []
    for number, query in enumerate(asked):
        pairs = model.pairs(query, texts[number : number + TEXTS])
        rows += [scores_of(model.logits(pairs[at : at + BATCH]), positive) for at in range(0, len(pairs), BATCH)]
    return np.concatenate(rows)


def agreement(scores: Float32, right: Float32) -> float:
    """Their correlation; that of a model that says the same of all pairs is 1 where the other does so, too."""
    if right.std() < 1e-6:
        return 1.0 if scores.std() < 1e-3 else 0.0
    return float(np.corrcoef(scores, right)[0, 1])


def _pair_ms(model: PairModel) -> float:
    """Median milliseconds of a pair, in batches as a rerank makes them."""
    text = " ".join(sample_texts(rounds=1)[:4])[:350]
    batch = model.pairs("where does the key of staging lie, and who moved it?", [text] * BATCH)
    model.logits(batch)
    seconds = []
    for _ in range(RUNS):
        began = time.perf_counter()
        model.logits(batch)
        seconds.append(time.perf_counter() - began)
    return round(1000 * statistics.median(seconds) / BATCH, 3)


def main() -> None:
    """Do the job in argv[1] for the process at stdin's other end; on failure an error line, and exit status 1."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no line of ours

    def tell(step: Step) -> None:
        lines.write(msgspec.json.encode(step).decode() + "\n")
        lines.flush()

    job = msgspec.json.decode(sys.argv[1], type=RerankerJob)
    try:
        prepare_reranker(job, lambda phase, done, total: tell(Step(phase, done, total)))
    except Exception as error:
        log.exception("preparing cross-encoder %r failed", job.model)
        tell(Step("failed", error=str(error) or type(error).__name__))
        sys.exit(1)


def _end_with_stdin() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
