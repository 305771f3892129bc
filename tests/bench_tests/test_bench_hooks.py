"""The bench of the hooks runs end to end and writes the figures it promises; what they are is the machine's matter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hooks
import pytest

pytestmark = pytest.mark.models

PROMISED = {"command_ratio", "http_added_ms_p95", "absent_ms_p95", "stopped_ms_p95"}


def test_what_hooks_cost_is_measured(tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.json"
    arguments = ["--repetitions", "3", "--model-cache", str(model_cache), "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["hooks", *arguments])
    hooks.main()
    result = json.loads(file.read_text())
    assert result.keys() >= PROMISED
    assert all(result[name] > 0.0 for name in PROMISED)
    assert {f"command_ratio {host}" for host in hooks.BOUNDARY} <= result.keys()
    assert result["command_ratio"] == result["command_ratio claude-code"]
    assert result["http_added_ms_p95"] == max(result["http_ms_p95 kept alive"], result["http_ms_p95 fresh"])
    assert 1.0 < result["front_mb"] < 100.0


def test_a_command_that_ends_badly_is_no_figure(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"{}")
    with pytest.raises(RuntimeError, match="ended with 3"):
        hooks.run_ms([sys.executable, "-I", "-S", "-c", "raise SystemExit(3)"], tmp_path / "payload", {})
