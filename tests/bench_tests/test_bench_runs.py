"""Each bench of recall quality runs end to end on small made-up files, and writes what it promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import ambient
import locomo
import pytest
import silence

import bench_samples

pytestmark = pytest.mark.models

FIGURES = {"r1", "r5", "r10", "r20", "hit1", "hit5", "hit10", "strict10", "mrr"}


def run(bench: ModuleType, work: Path, models: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """The JSON that a bench writes."""
    file = work / "out.json"
    fixed = ["--work", str(work / "work"), "--models", str(models), "--json", str(file)]
    monkeypatch.setattr(sys, "argv", [bench.__name__, *arguments, *fixed])
    bench.main()
    return json.loads(file.read_text())


def test_locomo_reports_both_settings(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bench_samples.write_locomo(tmp_path / "data", ["talk-1", "talk-2"])
    arguments = ("--data", str(data), "--cross-validate", "--tune-seconds", "2")
    result = run(locomo, tmp_path, model_cache, monkeypatch, *arguments)
    assert result["n"] == 10
    for setting in ("shipped", "adapted", "adapted_ranker_only"):
        assert result[setting].keys() >= FIGURES
        assert all(0.0 <= result[setting][name] <= 1.0 for name in FIGURES)
        assert result["by_category"][setting].keys() == {"multi-hop", "temporal", "open-domain", "single-hop"}
    for setting in ("shipped", "adapted"):
        assert {"dense", "lexical", "late"} <= result["ablation"][setting].keys()
    assert len(result["tuning_seconds"]) == 2
    assert "have seen the judged questions" in result["adapted_is"]
    assert result["tuned_against_ranker_only"].keys() == FIGURES
    assert result["shipped"]["r20"] == 1.0  # eight turns are all within the first twenty
    assert result["adversarial"]["shipped"]["n"] == 2
    assert 0.0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p95"]
    assert "without" in capsys.readouterr().out


def test_locomo_fits_on_other_conversations_only(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench_samples.write_locomo(tmp_path / "one", ["talk-1"])
    every = bench_samples.write_locomo(tmp_path / "every")
    arguments = ("--data", str(one), "--quick", "--tune-seconds", "2", "--train-on")
    result = run(locomo, tmp_path, model_cache, monkeypatch, *arguments, str(every))
    assert result["adapted"]["n"] == result["adapted_ranker_only"]["n"] == 5
    assert len(result["tuning_seconds"]) == 3  # of each half, and of both
    with pytest.raises(SystemExit, match="nothing to fit on"):
        run(locomo, tmp_path, model_cache, monkeypatch, *arguments, str(one))


def test_locomo_says_when_it_tunes_no_encoder(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = bench_samples.write_locomo(tmp_path / "one", ["talk-1"])
    two = bench_samples.write_locomo(tmp_path / "two", ["talk-1", "talk-2"])
    alone = run(locomo, tmp_path, model_cache, monkeypatch, "--data", str(one), "--quick")
    assert alone["adapted"] is None
    assert "name others to fit on" in capsys.readouterr().err
    halved = run(locomo, tmp_path, model_cache, monkeypatch, "--data", str(one), "--quick", "--train-on", str(two))
    assert "can't be halved" in capsys.readouterr().err
    asked = run(locomo, tmp_path, model_cache, monkeypatch, "--data", str(two), "--quick", "--ranker-only")
    for result in (halved, asked):
        assert result["adapted_is"].startswith("adapted: the ranker alone")
        assert "adapted_ranker_only" not in result
        assert result["tuning_seconds"] == []


def test_ambient_measures_each_set_beside_its_floor(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    bench_samples.write_notes(data / "notes")
    bench_samples.write_sessions(data / "sessions")
    bench_samples.write_beam(data / "beam")
    bench_samples.write_cues(data / "plus")
    result = run(ambient, tmp_path, model_cache, monkeypatch, "--data", str(data))
    assert {"til_commit", "til_commit_unlike", "til_crosslink", "til_title"} <= result.keys()
    assert {"entire_commit", "entire_commit_unlike", "entire_prompt"} <= result.keys()
    assert {"beam", "beam_instruction_following", "locomo_plus"} <= result.keys()
    for row in result.values():
        assert row.keys() >= {"hit1", "hit5", "hit10", "mrr", "n", "bm25_hit1"}
        assert row["target_hit1"] >= row["bm25_hit1"]
    assert result["til_commit"]["hit1"] == 1.0
    assert result["entire_prompt"]["hit1"] == 1.0
    assert "target" in capsys.readouterr().out


def test_silence_tells_false_fire_and_what_is_served(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    bench_samples.write_locomo(data / "talk", ["talk-1", "talk-2"])
    bench_samples.write_notes(data / "notes")
    bench_samples.write_sessions(data / "sessions")
    result = run(silence, tmp_path, model_cache, monkeypatch, "--data", str(data), "--most", "3")
    assert result["false_fire"].keys() == {"cross", "adversarial", "unrelated", "smalltalk"}
    assert result["n"]["unrelated"] == 3
    assert result["n"]["smalltalk"] > 100
    assert result["false_fire"]["smalltalk"] <= 0.05
    assert 0.0 <= result["reliability_ece"] <= 1.0
    assert "served when known" in capsys.readouterr().out


def test_curves_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from silence_plots import draw

    written = draw([(0.1, 0.9, 0.5, 0.2), (0.5, 0.4, 0.8, 0.0)], [(0.2, 0.1, 30), (0.8, 0.9, 4)], tmp_path / "new")
    assert {path.name for path in written} == {
        "precision_coverage.svg", "precision_coverage.png", "reliability.svg", "reliability.png",
    }  # fmt: skip
    assert all(path.stat().st_size > 1000 for path in written)
