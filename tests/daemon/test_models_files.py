"""Finding a model, and reading what its files say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recalld_daemon.models.files import ModelError, ModelFiles, find_folder, open_files, weights_hash


def model_at(folder: Path, *, kinds: str = "Transformer Pooling Normalize", **files: dict[str, Any]) -> Path:
    """A folder that looks like a sentence-transformers model; no weights that could be loaded."""
    paths = ["", "1_Pooling", "2", "3"]
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": path}
        for kind, path in zip(kinds.split(), paths, strict=False)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    contents: dict[str, dict[str, Any]] = {
        "tokenizer": {},
        "config": {"max_position_embeddings": 512},
        "sentence_bert_config": {"max_seq_length": 128},
        "1_Pooling/config": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
    }
    for name, content in (contents | files).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def opened(folder: Path, cache: Path) -> ModelFiles:
    return open_files(str(folder), cache, allow_download=False)


def test_the_packaged_model(tmp_path: Path) -> None:
    files = open_files("default", tmp_path, allow_download=False)
    assert (files.name, files.plain, files.pooling, files.max_tokens) == ("all-MiniLM-L6-v2+late", True, "mean", 256)
    assert (files.query_prompt(), files.passage_prompt()) == ("", "")
    assert len(files.weights) == 16


@pytest.mark.parametrize(
    ("kinds", "files", "plain"),
    [
        ("Transformer", {}, True),
        ("Transformer Pooling", {}, True),
        ("Transformer Pooling Normalize", {"1_Pooling/config": {"pooling_mode": "cls"}}, True),
        ("Transformer Pooling Normalize", {"1_Pooling/config": {"pooling_mode": "max"}}, False),
        ("Transformer Pooling", {"1_Pooling/config": {"pooling_mode": "mean", "include_prompt": False}}, False),
        ("Transformer Pooling", {"1_Pooling/config": {"pooling_mode": ["mean", "max"]}}, False),
        ("Transformer Pooling", {"sentence_bert_config": {"do_lower_case": True}}, False),
        ("Transformer Pooling Dense Normalize", {}, False),
        ("StaticEmbedding", {}, False),
    ],
)
def test_which_models_are_plain(tmp_path: Path, kinds: str, files: dict[str, Any], plain: bool) -> None:
    found = opened(model_at(tmp_path / "model", kinds=kinds, **files), tmp_path)
    assert found.plain is plain
    assert found.pooling in ("mean", "cls") if plain else found.pooling == "modules"


def test_prompts_are_those_of_encode_query_and_encode_document(tmp_path: Path) -> None:
    def prompts(**config: Any) -> tuple[str, str]:
        found = opened(model_at(tmp_path / "model", config_sentence_transformers=config), tmp_path)
        return found.query_prompt(), found.passage_prompt()

    assert prompts(prompts={"query": "query: ", "passage": "passage: "}) == ("query: ", "passage: ")
    assert prompts(prompts={"query": "q", "document": "d", "passage": "p"}) == ("q", "d")
    assert prompts(prompts={"task": "t: "}, default_prompt_name="task") == ("t: ", "t: ")
    assert prompts(prompts={"query": "", "document": ""}) == ("", "")
    assert prompts() == ("", "")


def test_the_smallest_bound_of_tokens_counts(tmp_path: Path) -> None:
    assert opened(model_at(tmp_path / "a"), tmp_path).max_tokens == 128
    unbounded = model_at(tmp_path / "b", sentence_bert_config={}, tokenizer_config={"model_max_length": 1e30})
    assert opened(unbounded, tmp_path).max_tokens == 512


def test_the_hash_follows_what_decides_a_vector(tmp_path: Path) -> None:
    folder = model_at(tmp_path / "model")
    first = weights_hash(folder, tmp_path / "cache")
    assert weights_hash(folder, tmp_path / "cache") == weights_hash(folder, tmp_path / "other cache") == first
    (folder / "README.md").write_text("words")
    assert weights_hash(folder, tmp_path / "cache") == first
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert weights_hash(folder, tmp_path / "cache") != first


NOT_HERE = r"is not on this machine: give a path, or set \[models\] allow_download = true$"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/nowhere/model", "no such directory"),
        ("./nowhere", "no such directory"),
        ("no-such-model-here", f"^model 'sentence-transformers/no-such-model-here' {NOT_HERE}"),
        ("nobody/no-such-model-here", f"^model 'nobody/no-such-model-here' {NOT_HERE}"),
        ("no such name", "^model 'sentence-transformers/no such name' cannot be looked up: "),
    ],
)
def test_p041_what_is_not_here_is_an_error_with_a_remedy_not_a_network_call(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        find_folder(name, allow_download=False)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("{broken")
    with pytest.raises(ModelError, match=f"{tmp_path} does not hold a readable encoder"):
        opened(tmp_path, tmp_path / "cache")


def test_reading_files_imports_no_torch() -> None:
    script = (
        "import sys, tempfile, pathlib; from recalld_daemon.models import encoder, files\n"
        "files.open_files('default', pathlib.Path(tempfile.mkdtemp()), allow_download=False)\n"
        "print([name for name in ('torch', 'transformers', 'sentence_transformers', 'onnx') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
