"""A real worker process with a scripted encoder: the text it is asked to encode says how it is to behave.

Run as `python scripted_worker.py live|bulk`. Its model is "missing" or anything else, its vectors tell the length of
the text, and "wait:FIFO" blocks until somebody opens that FIFO for writing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from recalld_daemon.models import encoder, files
from recalld_daemon.worker import main


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
    main()
