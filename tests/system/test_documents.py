"""What README and docs say holds: blocks run, links resolve, tables are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recalld_daemon.config import Config, to_toml
from running import running

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "protocol" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```\n<!-- /{name} -->", README, re.DOTALL)
    assert found, f"README.md has no block {name!r}"
    return found[1]


def run_client_block(environ: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", block("client")], env=environ, cwd=cwd, capture_output=True, text=True)


def test_the_client_block_is_silent_without_a_daemon(tmp_path: Path) -> None:
    shown = run_client_block(dict(os.environ, RECALLD_RUNTIME_DIR=str(tmp_path)), tmp_path)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


@pytest.mark.models
def test_the_client_block_runs_against_a_daemon(tmp_path: Path, model_cache: Path) -> None:
    with running(tmp_path / "home", model_cache) as daemon:
        environ = dict(os.environ, RECALLD_RUNTIME_DIR=str(Path(daemon.link.address).parent))
        shown = run_client_block(environ, tmp_path)
        status = daemon.status()
    assert (shown.returncode, shown.stderr) == (0, "")
    assert status is not None
    races = status.topics["races"]
    assert sum(int(races[verdict] or 0) for verdict in races) >= 1


def test_the_client_fits_in_ten_lines() -> None:
    assert len([line for line in block("client").splitlines() if line.strip()]) <= 10


def test_both_commands_install_through_the_constraints() -> None:
    for name in ("demo", "tests"):
        lines = block(name).strip().splitlines()
        assert len(lines) == 1
        assert "-c constraints.txt" in lines[0]
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_resolve(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_configuration_key_is_documented_as_it_is() -> None:
    page = (ROOT / "docs" / "config.md").read_text()
    assert f"```toml\n{to_toml(Config())}```" in page


def test_every_event_that_is_sent_is_documented() -> None:
    page = (ROOT / "docs" / "events.md").read_text()
    sent = set()
    for path in (ROOT / "daemon").rglob("*.py"):
        sent |= set(re.findall(r"(?:emit|report)\(\s*f?\"([a-z]+\.[a-z_]+|turn|feedback)\"", path.read_text()))
    assert len(sent) > 10
    assert [what for what in sorted(sent) if f"`{what}`" not in page] == []


def test_every_name_in_the_code_map_exists() -> None:
    """docs/architecture.md is a map: a place that is gone must leave it."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    names = re.findall(r"`((?:protocol|client|daemon)/[\w./]+)`", page)
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
