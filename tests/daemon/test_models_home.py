"""What was prepared for a model, when it still holds, and which runtime is chosen."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from recalld_daemon.models import cache, home, projection
from recalld_daemon.models.files import ModelError, ModelFiles
from recalld_daemon.models.home import Choice, Home, Job, machine_key
from recalld_daemon.models.measure import Measured, fastest
from recalld_daemon.models.runtimes import ONNX_FP32, ONNX_INT8, TORCH_BF16, TORCH_FP32

MEASURED = {
    TORCH_FP32: Measured(query_ms=6.0, passages_per_second=80.0, pooled=1.0, tokens=1.0),
    ONNX_INT8: Measured(query_ms=1.5, passages_per_second=180.0, pooled=0.991, tokens=0.989),
    TORCH_BF16: Measured(query_ms=5.0, passages_per_second=305.0, pooled=0.9999, tokens=0.9999),
}
FILES = ModelFiles("made", Path("/made"), "0123456789abcdef", plain=True, pooling="mean", max_tokens=256)


def filled(tmp_path: Path) -> Home:
    """A home as a preparation leaves it, with graphs that no runtime could load."""
    made = Home.of(FILES, tmp_path)
    fitted = projection.fit(np.random.default_rng(1).standard_normal((50, 8)).astype(np.float32), 4)
    cache.make(made.projection_file(4), lambda path: projection.save(fitted, path))
    for name in (ONNX_INT8, ONNX_FP32):
        cache.make_text(made.graph(name), name)
    made.keep(Choice(machine_key(), ONNX_INT8, TORCH_BF16, MEASURED))
    return made


def test_a_choice_is_kept_and_found_again(tmp_path: Path) -> None:
    made = filled(tmp_path)
    current = made.current(4)
    assert current is not None
    assert (current[0].query, current[0].passages, current[0].measured) == (ONNX_INT8, TORCH_BF16, MEASURED)
    assert not made.graph(ONNX_FP32).exists()  # 90 MB that nothing needs


def test_what_is_there_is_not_prepared_again(tmp_path: Path) -> None:
    filled(tmp_path)
    progress: list[str] = []
    choice, fitted = home.prepared(FILES, Job("/made", str(tmp_path), 4), lambda phase, *_: progress.append(phase))
    assert (choice.query, fitted.dims, progress) == (ONNX_INT8, 4, [])


@pytest.mark.parametrize("name", ["runtime.json", "int8.onnx", "tokens-4.npy"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_p032_a_torn_file_is_prepared_again(tmp_path: Path, name: str, damage: str) -> None:
    made = filled(tmp_path)
    if damage == "cut":
        os.truncate(made.folder / name, 3)
    else:
        (made.folder / name).unlink()
    assert made.current(4) is None


@pytest.mark.parametrize("what", ["format", "processor", "torch", "onnxruntime"])
def test_another_machine_or_version_measures_anew(tmp_path: Path, what: str) -> None:
    made = filled(tmp_path)
    made.keep(Choice(machine_key() | {what: "another"}, ONNX_INT8, TORCH_BF16, MEASURED))
    assert made.current(4) is None
    assert made.choice() is not None  # but what was chosen before is remembered


def test_other_dims_need_another_projection(tmp_path: Path) -> None:
    assert filled(tmp_path).current(8) is None


def test_a_choice_this_version_cannot_read_counts_as_none(tmp_path: Path) -> None:
    made = filled(tmp_path)
    cache.make_text(made.folder / "runtime.json", '{"query": 1}')
    assert made.choice() is None


def test_a_preparation_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such directory"):
        home.prepared(FILES, Job("/no/such/model", str(tmp_path), 4), lambda *_: None)


def test_the_quickest_runtime_that_agrees_is_chosen() -> None:
    assert fastest(MEASURED, "", of_queries=True) == ONNX_INT8
    assert fastest(MEASURED, "", of_queries=False) == TORCH_BF16


def test_a_runtime_that_does_not_agree_with_fp32_is_refused() -> None:
    wrong = msgspec.structs.replace(MEASURED[ONNX_INT8], pooled=0.98)
    assert fastest(MEASURED | {ONNX_INT8: wrong}, ONNX_INT8, of_queries=True) == TORCH_BF16
    wrong = msgspec.structs.replace(MEASURED[ONNX_INT8], tokens=0.9)
    assert fastest(MEASURED | {ONNX_INT8: wrong}, ONNX_INT8, of_queries=True) == TORCH_BF16


def test_a_little_faster_is_not_worth_new_vectors() -> None:
    rival = msgspec.structs.replace(MEASURED[TORCH_FP32], passages_per_second=350.0)
    assert fastest(MEASURED | {TORCH_FP32: rival}, TORCH_BF16, of_queries=False) == TORCH_BF16
    rival = msgspec.structs.replace(rival, passages_per_second=400.0)
    assert fastest(MEASURED | {TORCH_FP32: rival}, TORCH_BF16, of_queries=False) == TORCH_FP32
