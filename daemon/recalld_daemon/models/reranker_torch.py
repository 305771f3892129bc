"""Cross-encoders in torch: the reference in fp32, bf16 for batches on AMX tiles, and the export to ONNX.

Only the first token's last hidden state reaches the head of a BERT. So the graph of one computes its last layer for
that token alone: keys and values for all, the rest (five sixths of the layer) for one. Of three layers that
saves a quarter of the products, of six an eighth, and the logits are the same.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch

from recalld_daemon.models.reranker_files import RerankerFiles
from recalld_daemon.models.reranker_runtimes import Pair, PairTokenizer, arrays
from recalld_daemon.models.runtimes import TORCH_BF16, TORCH_FP32
from recalld_daemon.recall.types import Float32

OPSET = 17  # the first with LayerNormalization as one node
AXES = {0: "batch", 1: "tokens"}
DTYPES = {TORCH_FP32: torch.float32, TORCH_BF16: torch.bfloat16}
FAR = -1e4  # added to what a masked token's key scores: e^-1e4 is 0 in every format


class TorchPairs:
    """The model as transformers runs it."""

    def __init__(self, name: str, module: Any, files: RerankerFiles, threads: int) -> None:
        torch.set_num_threads(threads)
        self.name = name
        self.pairs = PairTokenizer(files)
        self.module = module.to(DTYPES[name])
        self._typed = takes_types(module)

    def logits(self, batch: Sequence[Pair]) -> Float32:
        """See PairModel."""
        inputs = {name: torch.from_numpy(array) for name, array in arrays(batch).items()}
        if not self._typed:
            del inputs["token_type_ids"]
        with torch.inference_mode():
            return cast(Float32, self.module(**inputs).logits.float().numpy())


def load_module(files: RerankerFiles) -> Any:
    """The module in fp32, for use. Raises what transformers does."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    if files.artefact is not None:
        from recalld_daemon.models.reranker_default import default_module

        return default_module(files.folder, files.artefact)
    options: dict[str, Any] = {} if files.labels != 1 else {"num_labels": 1}
    return AutoModelForSequenceClassification.from_pretrained(
        str(files.folder), local_files_only=True, trust_remote_code=False, **options
    ).eval()


def takes_types(module: Any) -> bool:
    """Whether query and passage are told apart by token types."""
    return int(getattr(module.config, "type_vocab_size", 0) or 0) > 1


def export_pairs(module: Any, target: Path) -> None:
    """Writes the graph (input_ids, attention_mask[, token_type_ids]) -> logits. Raises whatever the exporter does."""
    typed = takes_types(module)
    ids = torch.arange(1, 33).reshape(2, 16)
    inputs = (ids, torch.ones_like(ids), torch.zeros_like(ids)) if typed else (ids, torch.ones_like(ids))
    names = ["input_ids", "attention_mask", "token_type_ids"][: len(inputs)]
    before = module.config._attn_implementation
    module.set_attn_implementation("eager")
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # the exporter's notes on tracing and its own deprecation
            torch.onnx.export(
                (FirstToken(module) if is_bert(module) else _Logits(module)).eval(),
                inputs,
                str(target),
                input_names=names,
                output_names=["logits"],
                dynamic_axes={**dict.fromkeys(names, AXES), "logits": {0: "batch"}},
                opset_version=OPSET,
                dynamo=False,
            )
    finally:
        module.set_attn_implementation(before)


def quantise_pairs(fp32: Path, target: Path) -> None:
    """Writes the int8 graph of an fp32 one. Raises whatever the quantiser does.

    All products and the table of words: of a trained model of three layers the scores correlate .997 with those of
    fp32. (Encoders keep some parts in fp32 for the sake of their vectors; here that is .999, 18 % slower.)
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # it advises on pre-processing, for vision models
    try:
        quantize_dynamic(
            str(fp32),
            str(target),
            per_channel=True,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gather"],
        )
    finally:
        logging.root.setLevel(level)


def is_bert(module: Any) -> bool:
    """A BertForSequenceClassification of the plain kind, whose last layer can be computed for one token."""
    config = module.config
    return (
        type(module).__name__ == "BertForSequenceClassification"
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and not config.is_decoder
        and takes_types(module)
    )


class _Logits(torch.nn.Module):
    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return cast(torch.Tensor, self.module(input_ids=input_ids, attention_mask=attention_mask, **types).logits)


class FirstToken(torch.nn.Module):
    """A BERT classifier that computes no more of its last layer than its head reads. Shares the module's weights."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module
        self.heads: int = module.config.num_attention_heads

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        """ids, mask, types: (b, t) -> logits (b, labels)."""
        bert = self.module.bert
        hidden = bert.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)  # (b, t, d)
        far = (1.0 - attention_mask[:, None, None, :].to(hidden.dtype)) * FAR  # (b, 1, 1, t)
        layers = list(bert.encoder.layer)
        for layer in layers[:-1]:
            hidden = self._layer(layer, hidden, hidden, far)
        first = self._layer(layers[-1], hidden[:, :1], hidden, far)  # (b, 1, d)
        return cast(torch.Tensor, self.module.classifier(bert.pooler(first)))

    def _layer(self, layer: Any, asking: torch.Tensor, hidden: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        """One layer for the tokens `asking` (b, q, d), which look at all of `hidden` (b, t, d)."""
        own, out = layer.attention.self, layer.attention.output
        query, key, value = (self._split(part(of)) for part, of in
                             ((own.query, asking), (own.key, hidden), (own.value, hidden)))  # fmt: skip
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 + far).softmax(-1)  # (b, heads, q, t)
        seen = (weights @ value).transpose(1, 2).flatten(2)  # (b, q, d)
        asking = out.LayerNorm(out.dropout(out.dense(seen)) + asking)
        wide = layer.intermediate(asking)
        return cast(torch.Tensor, layer.output.LayerNorm(layer.output.dropout(layer.output.dense(wide)) + asking))

    def _split(self, rows: torch.Tensor) -> torch.Tensor:
        """(b, t, d) -> (b, heads, t, d / heads)"""
        return rows.view(*rows.shape[:2], self.heads, -1).transpose(1, 2)
