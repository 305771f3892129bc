"""An encoder as it was just trained, for judging it: the daemon's encoder in all but the runtime.

Queries and passages go through the model in bf16, as trained, with the daemon's own bounds of tokens; no graph is
exported and nothing is measured, so that a fold of a bench need not wait for that. What ships is judged by the daemon's
own `load_encoder` besides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from recalld_daemon.models.encoder import EncodedPassages
from recalld_daemon.models.projection import pack_units
from recalld_daemon.models.tokens import PASSAGE_LIMIT, QUERY_LIMIT, TextTokenizer, TokenizedText, batches
from recalld_daemon.recall.types import Float32
from training.encoder_lora import TunedModel, one_thread


class TrainedEncoder:
    """Stands in for both of the daemon's encoders, live and bulk. Not thread-safe."""

    model, runtime = "trained", "torch-bf16"  # as the store is told

    def __init__(self, model: TunedModel, folder: Path, max_tokens: int = 256) -> None:
        self._model = model
        self._queries, self._passages = (
            TextTokenizer(Tokenizer.from_file(str(folder / "tokenizer.json")), "", limit, max_tokens)
            for limit in (QUERY_LIMIT, PASSAGE_LIMIT)
        )
        self.dims, self.token_dims = model.projection.shape
        total = hashlib.sha256(model.projection.detach().numpy().tobytes())
        for parameter in model.learned():
            total.update(parameter.detach().numpy().tobytes())
        self.fingerprint = f"trained {total.hexdigest()[:16]}"

    def encode_query(self, text: str) -> tuple[Float32, Float32]:
        """vector (d,) and tokens (Tq, t), float32, unit rows."""
        ((vector, tokens),) = self._encoded(self._queries([text]))
        return vector, tokens

    def encode_passages(self, texts: Sequence[str]) -> EncodedPassages:
        """In the order given, as the daemon's bulk encoder has it."""
        tokenized = self._passages(texts)
        states = self._encoded(tokenized)
        return EncodedPassages(
            vectors=np.array([vector for vector, _ in states], dtype=np.float16).reshape(len(texts), self.dims),
            tokens=[pack_units(tokens) for _, tokens in states],
            starts=[text.starts for text in tokenized],
            ends=[text.ends for text in tokenized],
        )

    def queries(self, texts: Sequence[str]) -> tuple[Float32, list[Float32]]:
        """See `encoder_judge.Encodes`."""
        states = self._encoded(self._queries(texts))
        return np.array([vector for vector, _ in states]), [tokens for _, tokens in states]

    def passages(self, texts: Sequence[str]) -> tuple[Float32, list[NDArray[np.int8]]]:
        """See `encoder_judge.Encodes`."""
        encoded = self.encode_passages(texts)
        return encoded.vectors.astype(np.float32), encoded.tokens

    def _encoded(self, texts: Sequence[TokenizedText]) -> list[tuple[Float32, Float32]]:
        found: dict[int, tuple[Float32, Float32]] = {}
        with one_thread(), torch.inference_mode():
            for positions, ids, mask in batches(texts):
                pooled, tokens = self._model(torch.from_numpy(ids), torch.from_numpy(mask))
                for row, position in enumerate(positions):
                    found[position] = pooled[row].numpy(), tokens[row].numpy()[texts[position].kept]
        return [found[position] for position in range(len(texts))]
