"""The encoder against sentence-transformers itself: the packaged model, and small ones of other make."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from recalld_daemon.models.encoder import Encoder, EncoderSettings, Role, load_encoder
from recalld_daemon.models.home import Choice, Home, Job, machine_key
from recalld_daemon.models.measure import agreement_texts
from recalld_daemon.models.prepare import prepare
from recalld_daemon.models.runtimes import LIBRARY, ONNX_FP32, ONNX_INT8, TORCH_BF16, TORCH_FP32, Runtime
from recalld_daemon.recall.types import TOKEN_SCALE

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # the libraries' own

TEXTS = [
    *agreement_texts(),
    "When does the certificate of staging.example.org expire?",
    "bash: git push --force-with-lease origin main",
    "Ich habe den Schlüssel gestern verloren, und niemand hat ihn gefunden.",
    "def handle(event: Event) -> list[Instruction]: ...",
]


def quiet(phase: str, done: int = 0, total: int = 0) -> None:
    """Nobody wants to know."""


def loaded(cache_dir: Path, role: Role, **settings: object) -> Encoder:
    return load_encoder(EncoderSettings(cache_dir, **settings), role, quiet)  # type: ignore[arg-type]


def lowest_cosine(mine: np.ndarray, right: np.ndarray) -> float:
    return float(np.einsum("nd,nd->n", mine.astype(np.float32), right).min())


@pytest.fixture(scope="module")
def right(model_cache: Path) -> np.ndarray:
    """What sentence-transformers says of TEXTS, in fp32."""
    import small_models
    from recalld_daemon.models.files import open_files

    folder = open_files("default", model_cache, allow_download=False).folder
    return small_models.encode(folder, TEXTS, as_query=False)


def test_fp32_is_what_sentence_transformers_says(model_cache: Path, tmp_path: Path, right: np.ndarray) -> None:
    encoder = as_runtime(model_cache, tmp_path, TORCH_FP32, "bulk")
    assert lowest_cosine(encoder.encode_passages(TEXTS).vectors, right) >= 0.999


def test_queries_and_passages_agree_with_fp32_in_the_runtimes_chosen_here(model_cache: Path, right: np.ndarray) -> None:
    """The stated bound: cosine >= 0.99."""
    live, bulk = loaded(model_cache, "live"), loaded(model_cache, "bulk")
    queries = np.array([live.encode_query(text)[0] for text in TEXTS])
    short = np.array([len(live._tokenizer([text])[0].ids) < 64 for text in TEXTS])  # longer ones are cut as queries
    assert lowest_cosine(queries[short], right[short]) >= 0.99
    assert lowest_cosine(bulk.encode_passages(TEXTS).vectors, right) >= 0.99
    assert live.fingerprint == bulk.fingerprint


def as_runtime(model_cache: Path, tmp_path: Path, runtime: str, role: Role) -> Encoder:
    """The packaged encoder in a runtime of the test's choice, in a cache of its own."""
    from recalld_daemon.models.files import open_files

    files = open_files("default", model_cache, allow_download=False)
    ours, theirs = Home.of(files, tmp_path), Home.of(files, model_cache)
    ours.folder.mkdir(parents=True)
    for path in theirs.folder.glob("*-64.npy*"):
        (ours.folder / path.name).write_bytes(path.read_bytes())
    if runtime == ONNX_INT8:
        for path in theirs.folder.glob("int8.onnx*"):
            (ours.folder / path.name).write_bytes(path.read_bytes())
    ours.keep(Choice(machine_key(), runtime, runtime))
    return loaded(tmp_path, role)


def test_int8_queries_agree_with_fp32(model_cache: Path, tmp_path: Path, right: np.ndarray) -> None:
    if not list(model_cache.glob("encoders/*/int8.onnx")):
        pytest.skip("this machine chose no int8 runtime")
    encoder = as_runtime(model_cache, tmp_path, ONNX_INT8, "bulk")
    assert lowest_cosine(encoder.encode_passages(TEXTS).vectors, right) >= 0.99


def test_token_vectors_are_unit_rows_of_both_sides_and_match_each_other(model_cache: Path) -> None:
    live, bulk = loaded(model_cache, "live"), loaded(model_cache, "bulk")
    text = "The staging key lies in the vault."
    _, query = live.encode_query(text)
    passages = bulk.encode_passages([text])
    stored = passages.tokens[0].astype(np.float32) / TOKEN_SCALE
    assert query.shape == stored.shape == (4, 64)  # staging, key, lies, vault
    np.testing.assert_allclose(np.linalg.norm(query, axis=1), 1.0, atol=1e-5)
    assert float(np.einsum("td,td->t", query, stored).min()) > 0.95
    spans = zip(passages.starts[0], passages.ends[0], strict=True)
    assert [text[start:end] for start, end in spans] == ["staging", "key", "lies", "vault"]


def test_the_order_of_passages_is_kept(model_cache: Path) -> None:
    bulk = loaded(model_cache, "bulk")
    together = bulk.encode_passages(TEXTS)
    for at in (0, 5, len(TEXTS) - 1):
        alone = bulk.encode_passages([TEXTS[at]])
        assert float(alone.vectors[0].astype(np.float32) @ together.vectors[at].astype(np.float32)) > 0.995
        assert alone.ends[0].tolist() == together.ends[at].tolist()
    nothing = bulk.encode_passages([])
    assert (nothing.vectors.shape, nothing.tokens) == ((0, 384), [])


def test_an_encoder_serves_one_side_only(model_cache: Path) -> None:
    with pytest.raises(ValueError, match="another space"):
        loaded(model_cache, "live").encode_passages(["x"])
    with pytest.raises(ValueError, match="another space"):
        loaded(model_cache, "bulk").encode_query("x")


def test_the_fingerprint_changes_with_each_setting(model_cache: Path, tmp_path: Path) -> None:
    default = loaded(model_cache, "live").fingerprint
    prints = {
        default,
        loaded(model_cache, "live", query_prompt="query: ").fingerprint,
        loaded(model_cache, "live", passage_prompt="query: ").fingerprint,
        as_runtime(model_cache, tmp_path, TORCH_BF16, "live").fingerprint,
    }
    assert len(prints) == 4
    assert default == loaded(model_cache, "live", query_prompt="").fingerprint  # the model has none of its own
    for part in ("all-MiniLM-L6-v2", "mean", "q:", "p:", "tokens:64:"):
        assert part in default


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_model_of_other_make_with_prompts(tmp_path: Path, pooling: str) -> None:
    import small_models

    prompts = {"query": "search : ", "document": "passage : "}
    folder = small_models.build(tmp_path, pooling=pooling, prompts=prompts)
    choice = prepare(Job(str(folder), str(tmp_path / "cache"), 16), quiet)
    assert {TORCH_FP32, ONNX_FP32} <= {name for name, found in choice.measured.items() if found.agrees}
    texts = ["what is the staging key ?", "deploy needs the index", "port moved"]
    live, bulk = (loaded(tmp_path / "cache", role, model=str(folder), token_dims=16) for role in ("live", "bulk"))
    queries = np.array([live.encode_query(text)[0] for text in texts])
    assert lowest_cosine(queries, small_models.encode(folder, texts, as_query=True)) >= 0.99
    passages = bulk.encode_passages(texts)
    assert lowest_cosine(passages.vectors, small_models.encode(folder, texts, as_query=False)) >= 0.99
    assert (live.dims, live.token_dims, live.fingerprint) == (32, 16, bulk.fingerprint)
    assert [texts[1][start:end] for start, end in zip(passages.starts[1], passages.ends[1], strict=True)] == [
        "deploy",
        "needs",
        "index",
    ]


def test_configured_prompts_win_over_the_models_own(tmp_path: Path) -> None:
    import small_models

    folder = small_models.build(tmp_path, prompts={"query": "search : "})
    prepare(Job(str(folder), str(tmp_path / "cache"), 16), quiet)
    live = loaded(tmp_path / "cache", "live", model=str(folder), token_dims=16, query_prompt="what : ")
    right = small_models.encode(folder, ["staging key"], as_query=True, prompt="what : ")
    assert lowest_cosine(live.encode_query("staging key")[0][None], right) >= 0.99


def test_a_model_with_more_modules_runs_in_the_library(tmp_path: Path) -> None:
    import small_models

    folder = small_models.build(tmp_path, dense=True, prompts={"query": "search : "})
    choice = prepare(Job(str(folder), str(tmp_path / "cache"), 16), quiet)
    assert (choice.query, choice.passages) == (LIBRARY, LIBRARY)
    texts = ["what is the staging key ?", "port moved to the index"]
    live, bulk = (loaded(tmp_path / "cache", role, model=str(folder), token_dims=16) for role in ("live", "bulk"))
    assert live.dims == 24
    queries = np.array([live.encode_query(text)[0] for text in texts])
    assert lowest_cosine(queries, small_models.encode(folder, texts, as_query=True)) >= 0.999
    passages = bulk.encode_passages(texts)
    assert lowest_cosine(passages.vectors, small_models.encode(folder, texts, as_query=False)) >= 0.999
    assert passages.tokens[0].shape == (2, 16)


def test_without_onnx_torch_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import small_models

    folder = small_models.build(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization", None)
    monkeypatch.setattr("recalld_daemon.models.runtimes.export.export_fp32", _cannot)
    choice = prepare(Job(str(folder), str(tmp_path / "cache"), 16), quiet)
    assert choice.query.startswith("torch")
    assert "no ONNX graph, torch is used instead: RuntimeError: unsupported operator" in choice.notes
    assert loaded(tmp_path / "cache", "live", model=str(folder), token_dims=16).runtime == choice.query


def test_int8_that_does_not_agree_is_made_again_with_more_care(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import small_models
    from recalld_daemon.models import measure
    from recalld_daemon.models import prepare as preparing
    from recalld_daemon.models.runtimes import export

    folder = small_models.build(tmp_path)
    sizes: list[int] = []

    def doubting(runtime: Runtime, *rest: Any) -> measure.Measured:
        found = measure.measure(runtime, *rest)
        if runtime.name == ONNX_INT8:
            sizes.append(next(tmp_path.glob("cache/encoders/*/int8.onnx")).stat().st_size)
            return msgspec.structs.replace(found, pooled=0.98 if len(sizes) == 1 else 1.0, tokens=1.0)
        return found

    monkeypatch.setattr(preparing, "measure", doubting)
    choice = prepare(Job(str(folder), str(tmp_path / "cache"), 16), quiet)
    assert len(sizes) == 2
    assert sizes[1] > sizes[0]  # more of it is fp32
    assert choice.measured[ONNX_INT8].agrees
    assert len(export._ways_down(_exported(folder, tmp_path))) == 2  # one of each layer


def _exported(folder: Path, tmp_path: Path) -> Path:
    from recalld_daemon.models.runtimes import export
    from recalld_daemon.models.runtimes.torch_model import TorchModel

    export.export_fp32(TorchModel(TORCH_FP32, folder, 1).module, tmp_path / "fp32.onnx")
    return tmp_path / "fp32.onnx"


def _cannot(module: object, path: Path) -> None:
    raise RuntimeError("unsupported operator")


def test_nothing_is_reported_to_the_maker_of_a_runtime(tmp_path: Path) -> None:
    """ONNX Runtime would leave a session's identifier in the temporary directory, and send it."""
    code = "import recalld_daemon.models.runtimes.onnx_session"
    subprocess.run([sys.executable, "-c", code], env=dict(os.environ, TMPDIR=str(tmp_path)), check=True)
    assert list(tmp_path.iterdir()) == []
