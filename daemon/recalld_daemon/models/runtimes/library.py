"""sentence-transformers itself, for models that are more than Transformer, Pooling, Normalize: slow, always right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from recalld_daemon.models.files import ModelError
from recalld_daemon.models.runtimes import LIBRARY, Hidden
from recalld_daemon.recall.types import Int64


class Library:
    """All modules of the model, in their own order. Raises ModelError when it has no fast tokenizer."""

    name = LIBRARY

    def __init__(self, folder: Path, threads: int) -> None:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self._model = SentenceTransformer(str(folder), device="cpu", local_files_only=True).eval()
        self.tokenizer = _fast_tokenizer(self._model, folder)

    def run(self, ids: Int64, mask: Int64, *, is_query: bool, prompt_tokens: int) -> Hidden:
        """See Runtime."""
        features: dict[str, Any] = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if prompt_tokens:
            features["prompt_length"] = prompt_tokens + 1  # the leading special token counts, as in the library
        with torch.inference_mode():
            output = self._model.forward(features, task="query" if is_query else "document")
            return Hidden(output["token_embeddings"].float().numpy(), output["sentence_embedding"].float().numpy())


def _fast_tokenizer(model: Any, folder: Path) -> Tokenizer:
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ModelError(f"model {folder}: it has no fast tokenizer, so its tokens cannot be placed in their text")
    return Tokenizer.from_str(backend.to_str())
