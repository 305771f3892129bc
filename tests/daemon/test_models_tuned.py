"""The default encoder's tuning: merged exactly, once, and never where it does not belong."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from recalld_daemon.models import cache, tuned
from recalld_daemon.models.files import ModelError, find_folder, open_files
from recalld_daemon.models.tuned import TOKENS, WEIGHTS, Tuning, TuningError, merge, merged_folder

NAME = "encoder.layer.0.attention.self.query.weight"
RANDOM = np.random.default_rng(5)


def packaged(folder: Path) -> Path:
    """A folder like the packaged model's, with one matrix and a vector of small numbers."""
    folder.mkdir()
    weights = {
        NAME: RANDOM.standard_normal((6, 4)).astype(np.float32),
        "bias": RANDOM.standard_normal(6).astype(np.float32),
    }
    safetensors.numpy.save_file(weights, str(folder / WEIGHTS))
    (folder / "config.json").write_text('{"max_position_embeddings": 512}')
    (folder / "README.md").write_text("words")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return folder


def some_tuning(base: Path, scale: float = 1.0) -> Tuning:
    up, down = ((scale * RANDOM.standard_normal(shape)).astype(np.float16) for shape in ((6, 2), (2, 4)))
    projection = RANDOM.standard_normal((4, 3)).astype(np.float16).astype(np.float32)
    return Tuning({NAME: (up, down)}, projection, cache.digest(base / WEIGHTS))


def shipped(tmp_path: Path, scale: float = 1.0) -> tuple[Path, Path, Tuning]:
    """A packaged folder, an artefact for it, and what that says."""
    base = packaged(tmp_path / "packaged")
    tuning = some_tuning(base, scale)
    tuned.save(tuning, tmp_path / "made" / "tuning.safetensors")
    return base, tmp_path / "made" / "tuning.safetensors", tuning


def test_merged_weights_are_base_and_correction_to_the_bit(tmp_path: Path) -> None:
    base, artefact, tuning = shipped(tmp_path)
    merged = safetensors.numpy.load_file(str(merged_folder(base, artefact, tmp_path / "cache") / WEIGHTS))
    before = safetensors.numpy.load_file(str(base / WEIGHTS))
    up, down = (part.astype(np.float32) for part in tuning.deltas[NAME])
    np.testing.assert_array_equal(merged[NAME], before[NAME] + up @ down)
    np.testing.assert_array_equal(merged["bias"], before["bias"])
    assert merged.keys() == before.keys()


def test_a_tuning_of_nothing_is_the_packaged_model(tmp_path: Path) -> None:
    base, artefact, _ = shipped(tmp_path, scale=0.0)
    merged = safetensors.numpy.load_file(str(merged_folder(base, artefact, tmp_path / "cache") / WEIGHTS))
    for name, weights in safetensors.numpy.load_file(str(base / WEIGHTS)).items():
        np.testing.assert_array_equal(merged[name], weights)


def test_the_learned_projection_lies_beside_and_decides_the_weights_hash(tmp_path: Path) -> None:
    base, artefact, tuning = shipped(tmp_path)
    folder = merged_folder(base, artefact, tmp_path / "cache")
    found = tuned.projection_of(folder)
    assert found is not None
    np.testing.assert_array_equal(found, tuning.projection)
    assert tuned.projection_of(base) is None
    (folder / "modules.json").write_text("[]")
    first = open_files(str(folder), tmp_path / "a", allow_download=False).weights
    safetensors.numpy.save_file({tuned.PROJECTION: tuning.projection + 1}, str(folder / TOKENS))
    assert open_files(str(folder), tmp_path / "b", allow_download=False).weights != first


def test_what_is_merged_is_not_merged_again_unless_it_was_touched(tmp_path: Path) -> None:
    base, artefact, _ = shipped(tmp_path)
    folder = merged_folder(base, artefact, tmp_path / "cache")
    first = (folder / WEIGHTS).stat().st_ino
    assert merged_folder(base, artefact, tmp_path / "cache") == folder
    assert (folder / WEIGHTS).stat().st_ino == first
    right = cache.digest(folder / WEIGHTS)
    os.truncate(folder / WEIGHTS, 40)
    assert cache.digest(merged_folder(base, artefact, tmp_path / "cache") / WEIGHTS) == right
    (folder / TOKENS).unlink()
    assert (merged_folder(base, artefact, tmp_path / "cache") / TOKENS).is_file()
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, ".lock"}  # nothing half made is left


def test_another_artefact_gets_another_folder(tmp_path: Path) -> None:
    base, artefact, tuning = shipped(tmp_path)
    first = merged_folder(base, artefact, tmp_path / "cache")
    tuned.save(replace(tuning, projection=tuning.projection + 1), artefact)
    assert merged_folder(base, artefact, tmp_path / "cache") != first


def test_words_for_readers_are_not_copied(tmp_path: Path) -> None:
    base, artefact, _ = shipped(tmp_path)
    folder = merged_folder(base, artefact, tmp_path / "cache")
    assert (folder / "1_Pooling" / "config.json").is_file()
    assert not (folder / "README.md").exists()


@pytest.mark.parametrize("damage", ["cut", "gone", "noise", "format"])
def test_a_damaged_artefact_is_a_clear_error(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, artefact, _ = shipped(tmp_path)
    if damage == "cut":
        os.truncate(artefact, 100)
    elif damage == "gone":
        artefact.unlink()
    elif damage == "noise":
        artefact.write_bytes(b"\xff" * 500)
    else:
        safetensors.numpy.save_file({"a": np.zeros(1)}, str(artefact), {"format": "999"})
    monkeypatch.setattr(tuned, "ARTEFACT", artefact)
    with pytest.raises(ModelError, match=r"^model 'default': tuning\.safetensors is damaged: .*install recalld again"):
        open_files("default", tmp_path / "cache", allow_download=False)


def test_weights_that_were_not_tuned_are_refused(tmp_path: Path) -> None:
    base, artefact, tuning = shipped(tmp_path)
    tuned.save(replace(tuning, base="0" * 64), artefact)
    with pytest.raises(TuningError, match="other weights than those that were tuned"):
        merged_folder(base, artefact, tmp_path / "cache")


def test_a_matrix_that_is_not_there_or_of_another_shape_is_named() -> None:
    up, down = np.zeros((6, 2), np.float16), np.zeros((2, 4), np.float16)
    tuning = Tuning({NAME: (up, down)}, np.zeros((4, 3), np.float32), "")
    for weights in ({}, {NAME: np.zeros((4, 6), np.float32)}):
        with pytest.raises(TuningError, match=NAME):
            merge(weights, tuning)


def test_the_packaged_model_can_be_had_as_it_is(tmp_path: Path) -> None:
    files = open_files("minilm", tmp_path, allow_download=False)
    assert (files.name, files.folder) == ("all-MiniLM-L6-v2", find_folder("default", allow_download=False))


def test_what_ships_is_small_and_says_what_it_was_made_of() -> None:
    assert 500_000 < tuned.ARTEFACT.stat().st_size < 4_000_000
    about = json.loads(tuned.ARTEFACT.with_suffix(".json").read_text("utf-8"))
    assert about["command"].startswith("python -m training.encoder --data")
    assert set(about["held_out"]) <= set(about["data"])
    assert set(about["questions"]) <= set(about["data"])
    for licence in about["data"].values():
        assert any(kind in licence for kind in ("MIT", "CC BY-SA", "CC BY "))
        assert not any(kind in licence for kind in ("NC", "unknown"))
    assert about["artefact_sha256"] == cache.digest(tuned.ARTEFACT)


def test_what_ships_fits_the_packaged_weights() -> None:
    tuning = tuned.load(tuned.ARTEFACT)
    folder = find_folder("default", allow_download=False)
    assert tuning.base == cache.digest(folder / WEIGHTS)
    assert tuning.projection.shape == (384, 64)
    merge(safetensors.numpy.load_file(str(folder / WEIGHTS)), tuning)
