"""PyTorch on the processor: fp32 is the reference, bf16 the quickest for long batches where there are AMX tiles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from recalld_daemon.models.runtimes import TORCH_BF16, TORCH_FP32, Hidden
from recalld_daemon.recall.types import Int64

DTYPES = {TORCH_FP32: torch.float32, TORCH_BF16: torch.bfloat16}


class TorchModel:
    """The transformer of a plain model."""

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        self.name = name
        torch.set_num_threads(threads)
        self.module = _load(folder).to(DTYPES[name])

    def run(self, ids: Int64, mask: Int64, *, is_query: bool, prompt_tokens: int) -> Hidden:
        """See Runtime."""
        with torch.inference_mode():
            output = self.module(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
            return Hidden(output.last_hidden_state.float().numpy())

    def to_bf16(self) -> TorchModel:
        """This very model, its weights turned to bf16."""
        self.name = TORCH_BF16
        self.module.to(torch.bfloat16)
        return self


def _load(folder: Path) -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModel.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False).eval()
