"""A real worker process with a scripted encoder: the text it is asked to encode says how it is to behave.

Run as `python scripted_worker.py live|bulk|learn`. Its model is "missing" or anything else, its vectors tell the
length of the text, and "wait:FIFO" blocks until somebody opens that FIFO for writing. Its cross-encoder takes one text
a step. What it learns is how many lessons there were, and a lesson's key says how it is to behave.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from recalld_daemon import worker_learning
from recalld_daemon.models import encoder, files, reranker
from recalld_daemon.worker import main
from recalld_daemon.worker_wire import LearnOpen, LearnOpened, LearnStep, LearnStepped


class ScriptedEncoder:
    fingerprint = "scripted 1"
    model = "scripted"
    runtime = "script"
    dims = 4
    token_dims = 2

    def encode_query(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        word, _, rest = text.partition(":")
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "hang":
            signal.pause()
        elif word == "wait":
            Path(rest).read_bytes()
        elif word == "raise":
            raise ValueError(rest)
        elif word == "print":
            print(rest, flush=True)
            os.write(1, rest.encode())
            os.system(f"echo {rest}")
        vector = np.array([len(text), 0, 0, 0], np.float32)
        return vector, np.ones((len(text), 2), np.float32)

    def encode_passages(self, texts: Sequence[str]) -> encoder.EncodedPassages:
        for text in texts:
            self.encode_query(text)
        return encoder.EncodedPassages(
            vectors=np.array([[len(text) % 1000, 0, 0, 0] for text in texts], np.float16),
            tokens=[np.ones((1, 2), np.int8) for _ in texts],
            starts=[np.zeros(1, np.uint16) for _ in texts],
            ends=[np.full(1, min(len(text), 65_535), np.uint16) for text in texts],
        )


class ScriptedReranking:
    """A text's score is its length; a budget of n seconds is enough for n texts."""

    def __init__(self, query: str, texts: Sequence[str], budget_seconds: float) -> None:
        self._query, self._texts, self._left = query, texts, round(budget_seconds)
        self._next = 0
        self.scores = np.full(len(texts), np.nan, np.float32)

    def step(self) -> bool:
        if self._next < min(self._left, len(self._texts)):
            text = self._texts[self._next]
            ScriptedEncoder().encode_query(text)
            self.scores[self._next] = len(self._query + text)
            self._next += 1
        return self._next < min(self._left, len(self._texts))


class ScriptedReranker:
    model = "scripted cross"
    runtime = "script"
    begin = ScriptedReranking


class ScriptedLessons:
    """Its state is the number of steps and whom it opened for; the adapter is the promoted one's bytes, unread."""

    def open(self, request: LearnOpen) -> LearnOpened:
        if request.state == b"refuse":
            raise ValueError("this state is none")
        self._promoted = request.promoted
        self._steps = int(request.state.partition(b" ")[0] or 0)
        self._key = request.key
        return LearnOpened(id=request.id)

    def step(self, request: LearnStep) -> LearnStepped:
        ScriptedEncoder().encode_query(request.key)
        self._steps += 1
        state = f"{self._steps} {self._key}".encode()
        return LearnStepped(
            id=request.id, adapter=self._promoted, state=state, loss=1.0, drift=0.0, ms=1.0, steps=self._steps,
            held=False, reverted="", held_mrr=0.0, promoted_mrr=0.0, held_pairs=0,
        )  # fmt: skip


def load_cross(settings: reranker.RerankerSettings, progress: Callable[[str, int, int], None]) -> ScriptedReranker:
    progress("reading the cross script", 0, 0)
    if settings.model == "missing":
        raise files.ModelError("cross-encoder 'missing': there is none")
    return ScriptedReranker()


def load(
    settings: encoder.EncoderSettings,
    role: str,
    progress: Callable[[str, int, int], None],
    when_prepared: Callable[[], None],
) -> ScriptedEncoder:
    progress("reading the script", 1, 2)
    if settings.model == "missing":
        raise files.ModelError("model 'missing': there is none")
    when_prepared()
    return ScriptedEncoder()


if __name__ == "__main__":
    encoder.load_encoder = load  # type: ignore[assignment]
    reranker.load_reranker = load_cross  # type: ignore[assignment]
    worker_learning.Lessons = ScriptedLessons  # type: ignore[assignment,misc]
    main()
