"""The ways to run a cross-encoder: its graph in ONNX Runtime, torch, or sentence-transformers itself.

All take pairs and give the labels' logits, before any activation. Only the ONNX one needs no torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from tokenizers import Tokenizer

from recalld_daemon.models.reranker_files import RerankerFiles
from recalld_daemon.models.reranker_home import RerankerHome
from recalld_daemon.models.runtimes import GRAPHS, LIBRARY
from recalld_daemon.models.tokens import padded
from recalld_daemon.recall.types import Float32, Int64

PAIR_LIMIT = 128  # tokens of query and passage together, special ones too; the longer of the two is cut first
TOKEN_CHARACTERS = 12  # a text is cut to so many characters per token before it is tokenised: no token is that long
LIBRARY_CHARACTERS = 4  # the library tokenises by itself: what a token is taken to be, where only the length counts


@dataclass(frozen=True, slots=True)
class Pair:
    """A query with a text. ids, types: (t,), special tokens too."""

    query: str
    text: str
    ids: Int64
    types: Int64

    def __len__(self) -> int:
        return len(self.ids)


class PairModel(Protocol):
    """A cross-encoder that runs. logits: (b, labels) float32."""

    name: str

    def pairs(self, query: str, texts: Sequence[str]) -> list[Pair]: ...

    def logits(self, batch: Sequence[Pair]) -> Float32: ...


def open_pair_model(runtime: str, files: RerankerFiles, cache_dir: Path, threads: int) -> PairModel:
    """Imports torch only where the runtime is torch's. Raises RuntimeError when this version cannot load it."""
    if runtime in GRAPHS:
        return OnnxPairs(runtime, RerankerHome.of(files, cache_dir).graph(runtime), files, threads)
    if runtime == LIBRARY:
        return LibraryPairs(files, threads)
    from recalld_daemon.models.reranker_torch import TorchPairs, load_module

    return TorchPairs(runtime, load_module(files), files, threads)


class PairTokenizer:
    """A model's own tokenizer for pairs, from its tokenizer.json."""

    def __init__(self, files: RerankerFiles) -> None:
        self._tokenizer = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
        self._limit = min(PAIR_LIMIT, files.max_tokens)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._limit, strategy="longest_first")

    def __call__(self, query: str, texts: Sequence[str]) -> list[Pair]:
        """In the order given. Lone surrogates become "?"."""
        query = self._clean(query)
        cleaned = [self._clean(text) for text in texts]
        found = self._tokenizer.encode_batch([(query, text) for text in cleaned])
        return [
            Pair(query, text, np.array(one.ids, np.int64), np.array(one.type_ids, np.int64))
            for text, one in zip(cleaned, found, strict=True)
        ]

    def _clean(self, text: str) -> str:
        return text[: TOKEN_CHARACTERS * self._limit].encode(errors="replace").decode()


class OnnxPairs:
    """A graph made by `reranker_torch.export`."""

    def __init__(self, name: str, graph: Path, files: RerankerFiles, threads: int) -> None:
        import onnxruntime

        self.name = name
        self.pairs = PairTokenizer(files)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning starves the neighbours
        try:
            self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise RuntimeError(f"{graph.name}: {error}") from error
        self._inputs = {each.name for each in self._session.get_inputs()}

    def logits(self, batch: Sequence[Pair]) -> Float32:
        """See PairModel."""
        feed = {name: array for name, array in arrays(batch).items() if name in self._inputs}
        return cast(Float32, self._session.run(None, feed)[0])


class LibraryPairs:
    """sentence-transformers' CrossEncoder: slow, always right."""

    name = LIBRARY

    def __init__(self, files: RerankerFiles, threads: int) -> None:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        import torch
        from sentence_transformers import CrossEncoder
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.set_num_threads(threads)
        bound = min(PAIR_LIMIT, files.max_tokens)
        self._model: Any = CrossEncoder(str(files.folder), device="cpu", local_files_only=True, max_length=bound)
        self._bound, self._as_is = bound, torch.nn.Identity()

    def pairs(self, query: str, texts: Sequence[str]) -> list[Pair]:
        """Ids are only as many as there may be tokens."""
        counts = [min(self._bound, (len(query) + len(text)) // LIBRARY_CHARACTERS + 1) for text in texts]
        blanks = [np.zeros(count, np.int64) for count in counts]
        return [Pair(query, text, blank, blank) for text, blank in zip(texts, blanks, strict=True)]

    def logits(self, batch: Sequence[Pair]) -> Float32:
        """See PairModel."""
        rows = self._model.predict(
            [(pair.query, pair.text) for pair in batch], activation_fn=self._as_is, show_progress_bar=False
        )
        return np.asarray(rows, np.float32).reshape(len(batch), -1)


def arrays(batch: Sequence[Pair]) -> dict[str, Int64]:
    """input_ids, attention_mask and token_type_ids, each (b, t), padded at the end."""
    ids, mask = padded([pair.ids for pair in batch])
    types, _ = padded([pair.types for pair in batch])
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
