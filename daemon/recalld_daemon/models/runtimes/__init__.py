"""The ways to run one encoder's forward pass. Each is a file; all give the same vectors, to within what is tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from recalld_daemon.recall.types import Float32, Int64

ONNX_INT8, ONNX_FP32 = "onnx-int8", "onnx-fp32"
TORCH_FP32, TORCH_BF16 = "torch-fp32", "torch-bf16"
LIBRARY = "sentence-transformers"
GRAPHS = {ONNX_INT8: "int8.onnx", ONNX_FP32: "fp32.onnx"}  # runtime -> its file in the model's cache


@dataclass(frozen=True, slots=True)
class Hidden:
    """tokens: (b, t, h), the last hidden state; pooled: (b, d) by the model's own modules, None: to be pooled."""

    tokens: Float32
    pooled: Float32 | None = None


class Runtime(Protocol):
    """A forward pass. ids, mask: (b, t) int64. `is_query` and `prompt_tokens` matter to models that are not plain."""

    name: str

    def run(self, ids: Int64, mask: Int64, *, is_query: bool, prompt_tokens: int) -> Hidden: ...
