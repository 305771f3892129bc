"""Each bench of learning's cost and of moving interests runs end to end, small, and writes the keys it promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import focus
import online_step
import pytest
import sleep


def run(bench: ModuleType, work: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """The JSON that a bench writes."""
    file = work / "out.json"
    monkeypatch.setattr(sys, "argv", [bench.__name__, *arguments, "--json", str(file)])
    bench.main()
    return json.loads(file.read_text())


def test_online_step_tells_what_a_step_costs_with_replay_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(online_step, tmp_path, monkeypatch, "--steps", "10")["online_step_ms"]
    for times in (found, found["without_replay"], found["state"], found["limit"]):
        assert 0.0 < times["p50"] <= times["p95"]
    assert found["steps"] == 10


def test_sleep_tells_its_share_of_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(sleep, tmp_path, monkeypatch, "--vectors", "600", "--parts", "pass")
    assert set(found["pass"]) == {"float32", "bfloat16"}
    assert found["share_of_limit"] == found["pass"][found["precision"]]["share_of_limit"] > 0.0


@pytest.mark.models
def test_sleep_tells_peak_memory_and_how_recall_fares_meanwhile(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleep, "IDLE_ASKED", 10)
    models = ("--model-cache", str(model_cache))
    found = run(sleep, tmp_path, monkeypatch, "--vectors", "300", "--parts", "store,latency", *models)
    assert found["end_to_end"]["peak_mb"] >= found["end_to_end"]["peak_mb_before_it"] > 0
    assert found["latency_ratio"] > 0.0
    assert 0.0 < found["during_ms"]["p50"] <= found["during_ms"]["p95"]
    assert {"train", "judge"} <= found["by_phase"].keys()


def test_focus_compares_every_arm_in_one_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus, "OTHERS", range(100, 101))
    found = run(focus, tmp_path, monkeypatch, "--seeds", "1", "--queries", "420", "--only", "switch")
    for source in ("others", "own"):
        rows = found[f"switch, {source}"]
        assert rows.keys() == focus.ARMS.keys()
        assert all({"mrr before", "mrr after", "recovery", "never", "gain"} <= row.keys() for row in rows.values())
        assert rows["none"]["gain"] == 0.0
