"""Where a cross-encoder's files lie and what they say of it, read without importing torch or sentence-transformers.

It is a directory, a name on the hub, or what `training/cross_encoder.py` learned: a .safetensors file of differences to
the packaged encoder's lowest layers ("default": the one that ships, where one does). A model that is a transformer for
sequence classification with a fast tokenizer is *plain*: its graph can be exported. Any other (a language model that is
asked for "yes", several modules) runs inside sentence-transformers itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recalld_daemon.models.cache import digest
from recalld_daemon.models.files import ModelError, find_folder, weights_hash

ARTEFACT = Path(__file__).parent / "artefacts" / "cross-1.safetensors"
RELEVANT = ("entailment", "relevant", "yes", "true", "positive")  # what the wanted label of several may be called


@dataclass(frozen=True, slots=True)
class RerankerFiles:
    """What the files of a cross-encoder say. `positive`: which of its labels means "relevant"."""

    name: str  # as shown to users
    folder: Path  # of the tokenizer, and, unless `artefact` is set, of the weights
    weights: str  # 16 hex digits that name all that decides a score
    plain: bool
    labels: int
    positive: int
    max_tokens: int
    artefact: Path | None = None


def open_reranker_files(model: str, cache_dir: Path, *, allow_download: bool) -> RerankerFiles:
    """Find the cross-encoder and read its configuration. Raises ModelError."""
    if model == "default" or model.endswith(".safetensors"):
        return _learned(model, cache_dir)
    bare = "/" not in model and not model.startswith((".", "~")) and not Path(model).is_dir()
    name = f"cross-encoder/{model}" if bare else model
    folder = find_folder(name, allow_download=allow_download)
    try:
        return _read(name, folder, cache_dir)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"model {name!r}: {folder} does not hold a readable cross-encoder: {error}") from error


def positive_label(names: dict[str, Any], labels: int) -> int:
    """The label called "entailment", "relevant" or the like; else the last, as models for passage ranking have it.

    >>> positive_label({"0": "contradiction", "1": "entailment", "2": "neutral"}, 3)
    1
    >>> positive_label({"0": "LABEL_0", "1": "LABEL_1"}, 2)
    1
    """
    for number, name in names.items():
        if str(name).lower() in RELEVANT and int(number) < labels:
            return int(number)
    return labels - 1


def _learned(model: str, cache_dir: Path) -> RerankerFiles:
    path = ARTEFACT if model == "default" else Path(model).expanduser().resolve()
    if not path.is_file():
        what = "this build ships none" if model == "default" else "there is no such file"
        raise ModelError(f'cross-encoder {model!r}: {what}: name a CrossEncoder, or set "none"')
    folder = find_folder("default", allow_download=False)
    weights = f"{digest(path)[:8]}{weights_hash(folder, cache_dir)[:8]}"
    return RerankerFiles(path.stem, folder, weights, True, 1, 0, 512, path)


def _read(name: str, folder: Path, cache_dir: Path) -> RerankerFiles:
    config = _json(folder / "config.json")
    sentence = _json(folder / "sentence_bert_config.json")
    library = _json(folder / "config_sentence_transformers.json")
    labels = _labels(config)
    return RerankerFiles(
        name=name,
        folder=folder,
        weights=weights_hash(folder, cache_dir),
        plain=_plain(folder, config, library),
        labels=labels,
        positive=positive_label(config.get("id2label") or {}, labels),
        max_tokens=_bound(sentence, config, _json(folder / "tokenizer_config.json")),
    )


def _labels(config: dict[str, Any]) -> int:
    """As transformers and the library have it: a classifier that does not name its labels has two, a bare body one."""
    if named := config.get("id2label"):
        return len(named)
    return int(config.get("num_labels", 2 if _classifies(config) else 1))


def _classifies(config: dict[str, Any]) -> bool:
    return str((config.get("architectures") or [""])[0]).endswith("ForSequenceClassification")


def _plain(folder: Path, config: dict[str, Any], library: dict[str, Any]) -> bool:
    modules = _json(folder / "modules.json") or []
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    return (
        kinds in ([], ["Transformer"])
        and _classifies(config)
        and not any((library.get("prompts") or {}).values())
        and (folder / "tokenizer.json").is_file()
    )


def _bound(*configs: dict[str, Any]) -> int:
    """The smallest number of tokens that any of the files allows; tokenizers that know none say 1e30."""
    keys = ("max_seq_length", "max_length", "max_position_embeddings", "model_max_length")
    bounds = [config[key] for config in configs for key in keys if isinstance(config.get(key), int | float)]
    return int(min([bound for bound in bounds if 2 < bound < 1e6], default=512))


def _json(path: Path) -> Any:
    """{} where there is no such file. Raises ValueError."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
