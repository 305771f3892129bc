"""ONNX Runtime on the processor, int8 or fp32: the quickest way to encode one short query (1.5 ms in int8)."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from recalld_daemon.models.runtimes import Hidden
from recalld_daemon.recall.types import Int64

ERRORS_ONLY = 3  # ONNX Runtime's severity


class OnnxSession:
    """A graph made by `export`. Raises RuntimeError when the file cannot be loaded by this version."""

    def __init__(self, name: str, graph: Path, threads: int) -> None:
        self.name = name
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = ERRORS_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning starves the neighbours
        try:
            self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise RuntimeError(f"{graph.name}: {error}") from error

    def run(self, ids: Int64, mask: Int64, *, is_query: bool, prompt_tokens: int) -> Hidden:
        """See Runtime."""
        (tokens,) = self._session.run(None, {"input_ids": ids, "attention_mask": mask})
        return Hidden(tokens)
