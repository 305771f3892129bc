"""The plugin directory for Claude Code: self-contained, and the same hooks that `recallctl install` writes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from recalld_client.hosts import hook_command
from recalld_client.hosts.installing.entries import FORMS, SINCE_EXEC_FORM, Way

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "claude-code"
PLACE = "${CLAUDE_PLUGIN_ROOT}/hooks"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_its_hook_is_ours_byte_for_byte() -> None:
    ours = hook_command.HOOK_DIRECTORY / "hook.py"
    copied = (PLUGIN / "hooks" / "hook.py").read_bytes()
    assert copied == ours.read_bytes(), f"run: cp {ours.relative_to(ROOT)} plugins/claude-code/hooks/"


def test_its_hooks_are_those_that_are_installed() -> None:
    handlers = FORMS["claude-code"].handlers(Way(python="python3", version=SINCE_EXEC_FORM))
    expected = json.loads(
        json.dumps({event: [{"hooks": [handler]}] for event, handler in handlers.items()}).replace(
            str(hook_command.HOOK_DIRECTORY), PLACE
        )
    )
    assert read(PLUGIN / "hooks" / "hooks.json")["hooks"] == expected


def test_it_is_of_this_version_and_the_marketplace_names_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about, market = (
        read(PLUGIN / ".claude-plugin" / "plugin.json"),
        read(PLUGIN.parent / ".claude-plugin" / "marketplace.json"),
    )
    assert (about["name"], about["version"], about["license"]) == ("recalld", project["version"], project["license"])
    assert [(plugin["name"], plugin["source"]) for plugin in market["plugins"]] == [("recalld", "./claude-code")]
    assert (PLUGIN.parent / market["plugins"][0]["source"]).is_dir()


def test_p005_it_runs_wherever_it_is_unpacked(tmp_path: Path) -> None:
    """Under a path with spaces and quotes, without a daemon: nothing is printed, and the cause is in the hooks' log."""
    place = tmp_path / "a b" / "c'd" / "plugin"
    shutil.copytree(PLUGIN, place)
    handler = read(place / "hooks" / "hooks.json")["hooks"]["PostToolBatch"][0]["hooks"][0]
    args = [arg.replace("${CLAUDE_PLUGIN_ROOT}", str(place)) for arg in handler["args"]]
    runtime = tmp_path / "run"
    env = {"RECALLD_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)}
    ended = subprocess.run([sys.executable, *args], input=b"{}", env=env, capture_output=True, check=True)
    assert (ended.stdout, ended.stderr) == (b"", b"")
    assert "no daemon listens" in (runtime / "hook.log").read_text()
