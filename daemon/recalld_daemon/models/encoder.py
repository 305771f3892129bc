"""An encoder: text in, and out of one forward pass the text's vector and its tokens' vectors for late interaction.

A query is encoded as a query and a passage as a passage: each has its prompt (the model's own unless configured), its
bound of tokens, and its runtime, the one that was measured to be quickest at it on this machine. The fingerprint names
all that a vector depends on; vectors of two fingerprints are never compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from recalld_daemon.models.files import ModelFiles, open_files
from recalld_daemon.models.forward import hidden_states
from recalld_daemon.models.home import Choice, Home, Job, Progress, prepared
from recalld_daemon.models.projection import Projection
from recalld_daemon.models.runtimes import GRAPHS, LIBRARY, Runtime
from recalld_daemon.models.tokens import (
    PASSAGE_LIMIT,
    QUERY_LIMIT,
    STOP_WORDS,
    TextTokenizer,
    TokenizedText,
)
from recalld_daemon.recall.types import Float32

Role = Literal["live", "bulk"]


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """What the user configured. Prompts: None means the model's own, "" means none."""

    cache_dir: Path
    model: str = "default"  # "default", "minilm", a sentence-transformers name, or a path
    query_prompt: str | None = None
    passage_prompt: str | None = None
    token_dims: int = 64
    allow_download: bool = False
    threads: int = 1


@dataclass(frozen=True, slots=True)
class EncodedPassages:
    """vectors: (n, d) float16, unit rows; per passage: tokens (T, t) int8, starts and ends (T,) uint16 characters."""

    vectors: NDArray[np.float16]
    tokens: list[NDArray[np.int8]]
    starts: list[NDArray[np.uint16]]
    ends: list[NDArray[np.uint16]]


def load_encoder(
    settings: EncoderSettings, role: Role, progress: Progress, when_prepared: Callable[[], None] = lambda: None
) -> Encoder:
    """The encoder for one role: "live" encodes queries, "bulk" passages; prepared first where the cache lacks it.

    `when_prepared` is called between the preparation and the loading proper.
    Raises ModelError, which names the model and the remedy, and OSError (cache not writable, disk full).
    """
    progress("looking for the model", 0, 0)
    files = open_files(settings.model, settings.cache_dir, allow_download=settings.allow_download)
    job = Job(str(files.folder), str(settings.cache_dir), settings.token_dims)
    choice, projection = prepared(files, job, progress)
    when_prepared()
    progress("loading", 0, 0)
    return Encoder(settings, role, files, choice, projection)


class Encoder:
    """See load_encoder. Not thread-safe."""

    def __init__(
        self, settings: EncoderSettings, role: Role, files: ModelFiles, choice: Choice, projection: Projection
    ) -> None:
        live = role == "live"
        self.role = role
        self.model = files.name
        self.runtime = choice.query if live else choice.passages
        self.token_dims = projection.dims
        self._pooling = files.pooling
        self._projection = projection
        self._runtime, tokenizer = _open(self.runtime, files, settings)
        prompts = _prompts(settings, files)
        limit = QUERY_LIMIT if live else PASSAGE_LIMIT
        self._tokenizer = TextTokenizer(tokenizer, prompts[0 if live else 1], limit, files.max_tokens)
        self.fingerprint = fingerprint(files, choice, projection, prompts)
        self.dims = len(self._vectors_of(self._tokenizer(["ready"]))[0][0])  # warms up, too

    def encode_query(self, text: str) -> tuple[Float32, Float32]:
        """vector (d,) and tokens (Tq, t), float32, unit rows; cut at QUERY_LIMIT tokens. For the live role."""
        self._only("live")
        tokenized = self._tokenizer([text])
        ((vector, tokens),) = self._vectors_of(tokenized)
        return vector, self._projection.unit(tokens)

    def encode_passages(self, texts: Sequence[str]) -> EncodedPassages:
        """In the order given; each cut at PASSAGE_LIMIT tokens. For the bulk role."""
        self._only("bulk")
        tokenized = self._tokenizer(texts)
        states = self._vectors_of(tokenized)
        vectors = np.array([vector for vector, _ in states], dtype=np.float16).reshape(len(texts), self.dims)
        return EncodedPassages(
            vectors=vectors,
            tokens=[self._projection.packed(tokens) for _, tokens in states],
            starts=[text.starts for text in tokenized],
            ends=[text.ends for text in tokenized],
        )

    def _only(self, role: Role) -> None:
        if self.role != role:
            raise ValueError(f"this encoder is the {self.role} one: its runtime is another space")

    def _vectors_of(self, texts: Sequence[TokenizedText]) -> list[tuple[Float32, Float32]]:
        """For each text its vector (d,) and the kept tokens' vectors (T, h)."""
        states = hidden_states(
            self._runtime,
            texts,
            self._pooling,
            is_query=self.role == "live",
            prompt_tokens=self._tokenizer.prompt_tokens,
        )
        return [(vector, tokens[text.kept]) for text, (vector, tokens) in zip(texts, states, strict=True)]


def fingerprint(files: ModelFiles, choice: Choice, projection: Projection, prompts: tuple[str, str]) -> str:
    """Names the space of both kinds of vectors, e.g. "all-MiniLM-L6-v2 3f2a… mean prompts:- q:onnx-int8 …"."""
    written = _digest("\0".join(prompts)) if any(prompts) else "-"
    tokens = f"tokens:{projection.dims}:{projection.hash}:{_digest(' '.join(sorted(STOP_WORDS)))}"
    return (
        f"{files.name} {files.weights} {files.pooling} prompts:{written} cut:{QUERY_LIMIT}:{PASSAGE_LIMIT}"
        f" q:{choice.query} p:{choice.passages} {tokens}"
    )


def _prompts(settings: EncoderSettings, files: ModelFiles) -> tuple[str, str]:
    query, passage = settings.query_prompt, settings.passage_prompt
    return (
        files.query_prompt() if query is None else query,
        files.passage_prompt() if passage is None else passage,
    )


def _open(name: str, files: ModelFiles, settings: EncoderSettings) -> tuple[Runtime, Tokenizer]:
    """Imports torch only where the runtime is torch's."""
    if name == LIBRARY:
        from recalld_daemon.models.runtimes.library import Library

        library = Library(files.folder, settings.threads)
        return library, library.tokenizer
    tokenizer = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
    if name in GRAPHS:
        from recalld_daemon.models.runtimes.onnx_session import OnnxSession

        return OnnxSession(name, Home.of(files, settings.cache_dir).graph(name), settings.threads), tokenizer
    from recalld_daemon.models.runtimes.torch_model import TorchModel

    return TorchModel(name, files.folder, settings.threads), tokenizer


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
