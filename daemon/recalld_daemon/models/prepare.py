"""What is done once for an encoder on a machine: fit the token projection, export graphs, measure, choose runtimes.

It runs in a process of its own (`python -m recalld_daemon.models.prepare JOB`), so that a live worker never has torch
in its memory, not even at first start. It reports by lines of JSON on stdout, and ends when its stdin does.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from tokenizers import Tokenizer

from recalld_daemon.models import cache, projection, tuned
from recalld_daemon.models.files import ModelFiles, open_files
from recalld_daemon.models.forward import hidden_states
from recalld_daemon.models.home import Choice, Home, Job, Progress, Step, machine_key
from recalld_daemon.models.measure import (
    PASSAGES,
    Measured,
    Reference,
    agreement_texts,
    fastest,
    measure,
    reference,
)
from recalld_daemon.models.projection import Projection
from recalld_daemon.models.runtimes import GRAPHS, LIBRARY, ONNX_FP32, ONNX_INT8, TORCH_BF16, TORCH_FP32, Runtime
from recalld_daemon.models.sample import sample_texts
from recalld_daemon.models.tokens import PASSAGE_LIMIT, TextTokenizer, TokenizedText

if TYPE_CHECKING:
    from recalld_daemon.models.runtimes.torch_model import TorchModel

THREADS = 1  # for the same bits and comparable speeds, whoever prepares
STEPS = 5

log = logging.getLogger("recalld.models")


def prepare(job: Job, progress: Progress) -> Choice:
    """Fill the model's home in the cache. Raises ModelError, OSError."""
    progress("loading weights", 0, STEPS)
    files = open_files(job.model, Path(job.cache_dir), allow_download=False)
    home = Home.of(files, Path(job.cache_dir))
    if files.plain:
        return _prepare_plain(files, home, job.token_dims, progress)
    from recalld_daemon.models.runtimes.library import Library

    library = Library(files.folder, THREADS)
    progress("fitting the token projection", 1, STEPS)
    _fit(library, library.tokenizer, files, home, job.token_dims)
    choice = Choice(machine_key(), LIBRARY, LIBRARY, notes=["not a plain model: runs in sentence-transformers"])
    home.keep(choice)
    return choice


def _prepare_plain(files: ModelFiles, home: Home, dims: int, progress: Progress) -> Choice:
    from recalld_daemon.models.runtimes.torch_model import TorchModel

    model = TorchModel(TORCH_FP32, files.folder, THREADS)
    tokenizer = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
    progress("fitting the token projection", 1, STEPS)
    _fit(model, tokenizer, files, home, dims)
    notes: list[str] = []
    _export(model, home, notes, progress)
    progress("measuring runtimes", 4, STEPS)
    right = reference(model, _tokenized(tokenizer, files, agreement_texts()), files.pooling)
    measured = _measure_all(model, home, right, files.pooling, notes, progress)
    before = home.choice()
    choice = Choice(
        key=machine_key(),
        query=fastest(measured, before.query if before else "", of_queries=True),
        passages=fastest(measured, before.passages if before else "", of_queries=False),
        measured=measured,
        notes=notes,
    )
    for note in notes:
        log.warning("%s: %s", files.name, note)
    home.keep(choice)
    return choice


def _fit(runtime: Runtime, tokenizer: Tokenizer, files: ModelFiles, home: Home, dims: int) -> None:
    """Fit the projection on the sample unless an intact one is there: vectors may exist that rest on it.

    A tuned model has one that was learned with it, for the number of dims that it was learned for.
    """
    if home.projection(dims) is not None:
        return
    learned = tuned.projection_of(files.folder)
    if learned is not None and learned.shape[1] == dims:
        cache.make(home.projection_file(dims), lambda path: projection.save(Projection(learned), path))
        return
    texts = _tokenized(tokenizer, files, sample_texts())
    states = hidden_states(runtime, texts, files.pooling)
    rows = np.concatenate([tokens[text.kept] for text, (_, tokens) in zip(texts, states, strict=True)])
    fitted = projection.fit(rows, dims)
    cache.make(home.projection_file(dims), lambda path: projection.save(fitted, path))


def _export(model: TorchModel, home: Home, notes: list[str], progress: Progress) -> None:
    """Both graphs; what cannot be exported is noted, and left to torch."""
    progress("exporting", 2, STEPS)
    try:
        from recalld_daemon.models.runtimes import export

        cache.make(home.graph(ONNX_FP32), lambda path: export.export_fp32(model.module, path))
        progress("quantising", 3, STEPS)
        _quantise(home, careful=False)
    except Exception as error:  # exporters raise what they like at a model they cannot take
        log.warning("no ONNX graph of this model", exc_info=True)
        notes.append(f"no ONNX graph, torch is used instead: {type(error).__name__}: {str(error)[:200]}")


def _quantise(home: Home, *, careful: bool) -> None:
    from recalld_daemon.models.runtimes import export

    def write(path: Path) -> None:
        export.quantise(home.graph(ONNX_FP32), path, careful=careful)

    cache.make(home.graph(ONNX_INT8), write)


def _measure_all(
    model: TorchModel, home: Home, right: Reference, pooling: str, notes: list[str], progress: Progress
) -> dict[str, Measured]:
    """Each runtime that can be had; those that do not agree with fp32 are noted."""
    measured: dict[str, Measured] = {}
    best = math.inf
    for name in (TORCH_FP32, ONNX_INT8, ONNX_FP32, TORCH_BF16):
        progress(f"measuring {name}", 4, STEPS)
        if name in GRAPHS and not cache.intact(home.graph(name)):
            continue
        try:
            result = measure(_opened(name, model, home), right, pooling, best)
            if name == ONNX_INT8 and not result.agrees:
                progress("quantising again, with more care", 4, STEPS)
                _quantise(home, careful=True)
                result = measure(_opened(name, model, home), right, pooling, best)
            measured[name] = result
        except RuntimeError as error:
            notes.append(f"{name} cannot run here: {str(error)[:200]}")
            continue
        best = min(best, PASSAGES / result.passages_per_second)
        if not result.agrees:
            notes.append(f"{name} does not agree with fp32: {result.pooled} of a text, {result.tokens} of tokens")
    return measured


def _opened(name: str, model: TorchModel, home: Home) -> Runtime:
    if name in GRAPHS:
        from recalld_daemon.models.runtimes.onnx_session import OnnxSession

        return OnnxSession(name, home.graph(name), THREADS)
    return model.to_bf16() if name == TORCH_BF16 else model  # the last use of the fp32 weights


def _tokenized(tokenizer: Tokenizer, files: ModelFiles, texts: list[str]) -> list[TokenizedText]:
    return TextTokenizer(tokenizer, "", PASSAGE_LIMIT, files.max_tokens)(texts)


def main() -> None:
    """Do the job in argv[1] for the process at stdin's other end; on failure an error line, and exit status 1."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no line of ours

    def tell(step: Step) -> None:
        lines.write(msgspec.json.encode(step).decode() + "\n")
        lines.flush()

    job = msgspec.json.decode(sys.argv[1], type=Job)
    try:
        prepare(job, lambda phase, done, total: tell(Step(phase, done, total)))
    except Exception as error:
        log.exception("preparing model %r failed", job.model)
        tell(Step("failed", error=str(error) or type(error).__name__))
        sys.exit(1)


def _end_with_stdin() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
