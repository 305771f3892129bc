"""Which places are read, and what of them: every host's own, moved by its own variable, left out by its own key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from ingest_fakes import open_house
from recalld_daemon.config import Config
from recalld_daemon.ingest.formats.kinds import KINDS
from recalld_daemon.sources import host_roots, roots_of
from transcripts import CLAUDE_CODE, CODEX, COPILOT, GEMINI, PROJECT, Format

HOME = {"HOME": "/home/ada"}
PLACES = {
    "claude_code": ["/home/ada/.claude/projects"],
    "codex": ["/home/ada/.codex/sessions", "/home/ada/.codex/archived_sessions"],
    "copilot": ["/home/ada/.copilot/session-state"],
    "gemini": ["/home/ada/.gemini/tmp"],
    "opencode": ["/home/ada/.local/share/opencode/opencode.db"],
}


def places(config: Config, environ: dict[str, str] | None = None) -> list[str]:
    return [str(root.path) for root in host_roots(config, environ or HOME)]


def test_every_host_has_its_place() -> None:
    assert places(Config()) == [place for host in PLACES.values() for place in host]
    assert all(root.transcripts for root in host_roots(Config(), HOME))


@pytest.mark.parametrize("host", PLACES)
def test_each_key_leaves_its_own_host_alone(host: str) -> None:
    left = places(Config(**{host: False}))  # type: ignore[arg-type]
    assert left == [place for other, some in PLACES.items() for place in some if other != host]


def test_transcripts_false_leaves_all_alone_and_not_what_is_watched() -> None:
    assert places(Config(transcripts=False)) == []
    assert [str(r.path) for r in roots_of(Config(transcripts=False, watch=("/n",)), HOME)] == ["/n"]


def test_places_move_with_the_hosts_own_variables() -> None:
    moved = HOME | {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "COPILOT_HOME": "/o", "GEMINI_CLI_HOME": "/g"}
    moved |= {"XDG_DATA_HOME": "/d"}
    assert places(Config(), moved) == [
        "/c/projects",
        "/x/sessions",
        "/x/archived_sessions",
        "/o/session-state",
        "/g/.gemini/tmp",
        "/d/opencode/opencode.db",
    ]


def test_the_page_on_what_is_read_has_a_row_for_every_kind_and_every_place() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    for kind in KINDS.values():
        label = "open-strix agent" if kind.name.startswith("open-strix") else kind.label  # three kinds of one home
        assert any(row.startswith(f"| {label} |") for row in rows), f"docs/sources.md: no row for {label}"
    for host in PLACES:
        assert f"(key `{host}`)" in page
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        assert f"${variable}" in page


def said(form: Format, directory: Path, word: str) -> Path:
    return form.write(directory, *form.lines(f"we talked about the {word} at length"))


def test_p014_of_a_hosts_place_only_its_own_files_are_read_and_belong_to_their_project(tmp_path: Path) -> None:
    """Places are dotted, in places that are; what lies beside the sessions is not what was said."""
    home = tmp_path / "home"
    claude, codex = home / ".claude" / "projects" / "-p", home / ".codex"
    copilot, gemini = home / ".copilot" / "session-state", home / ".gemini" / "tmp" / "tidewater" / "chats"
    files = {
        said(CLAUDE_CODE, claude, "avocet"): PROJECT,
        said(CODEX, codex / "sessions" / "2026" / "03" / "02", "bittern"): PROJECT,
        said(CODEX, codex / "archived_sessions", "curlew"): PROJECT,
        said(COPILOT, copilot, "dunlin"): PROJECT,
        said(GEMINI, gemini, "egret"): PROJECT,
    }
    (claude / "memory").mkdir()
    (claude / "memory" / "MEMORY.md").write_text("The fulmar is our mascot.\n")
    files[claude / "memory" / "MEMORY.md"] = PROJECT
    for beside in (
        claude / "0a1b" / "tool-results" / "b1.txt",
        claude / "notes.md",
        copilot / "0a1b" / "checkpoints" / "index.md",
        copilot / "0a1b" / "files" / "plan.md",
        gemini.parent / "tool-outputs" / "x.txt",
        gemini.parent / "logs.json",
        codex / "sessions" / "readme.md",
    ):
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text("The heron stands beside what was said.\n")
    (copilot / "0a1b" / "other.jsonl").write_text(json.dumps({"type": "user.message", "data": {"content": "heron"}}))
    said(CODEX, copilot / "0c", "heron")  # another host's, in the wrong place

    async def main() -> None:
        roots = host_roots(Config(opencode=False), {"HOME": str(home)})
        async with open_house(tmp_path / "db", *roots) as house:
            assert house.paths_with("heron") == []
            scopes = {id: key for key, id in house.reader.scopes().items()}
            assert {Path(s.path): scopes[s.scope] for s in house.reader.sources()} == files
            for word, path in zip(("avocet", "bittern", "curlew", "dunlin", "egret"), files, strict=False):
                assert house.paths_with(word) == [str(path)]
            late = said(CODEX, codex / "sessions" / "2026" / "03" / "03", "gannet")
            await house.until_found("gannet", late)

    trio.run(main)
