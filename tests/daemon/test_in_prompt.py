"""What the agent has in its prompt anyway does not come to mind in its session, and does in every other."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalld_daemon.recall.gate import Context, decide
from recalld_daemon.recall.in_prompt import MEMORY_LINES, InPrompt, is_own_transcript, loaded_by
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.types import Answer, Candidate, Focus, Passage

HOME = {"HOME": "/home/ada"}


def passage(path: str | Path, start: int = 0) -> Passage:
    text = "The harbour pump needs two keys, which the lockkeeper holds."
    return Passage(id=1, path=str(path), shown_path="x.md", start=start, end=start + 60, text=text, codec="utf-8")


def held(host: str, path: str, cwd: str = "/srv/tide/sub") -> bool:
    return loaded_by(host, cwd, HOME).holds(passage(path))


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("claude-code", "/srv/tide/CLAUDE.md"),
        ("claude-code", "/srv/tide/sub/CLAUDE.local.md"),
        ("claude-code", "/srv/tide/.claude/CLAUDE.md"),
        ("claude-code", "/home/ada/.claude/CLAUDE.md"),
        ("codex", "/srv/tide/AGENTS.md"),
        ("codex", "/home/ada/.codex/AGENTS.md"),
        ("copilot", "/srv/tide/.github/copilot-instructions.md"),
        ("gemini", "/srv/tide/sub/GEMINI.md"),
        ("gemini", "/home/ada/.gemini/GEMINI.md"),
        ("opencode", "/home/ada/.config/opencode/AGENTS.md"),
        ("open-strix", "/srv/tide/blocks/persona.yaml"),
    ],
)
def test_what_a_host_loads(host: str, path: str) -> None:
    assert held(host, path)
    assert not held("test", path)  # another client has nothing loaded
    assert not held(host, path, cwd="/elsewhere") or path.startswith("/home/ada")


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("claude-code", "/srv/tide/other/CLAUDE.md"),  # of a directory beside
        ("claude-code", "/srv/tide/sub/deeper/CLAUDE.md"),  # loaded later, if at all
        ("claude-code", "/srv/tide/README.md"),
        ("codex", "/srv/tide/CLAUDE.md"),
        ("gemini", "/srv/tide/AGENTS.md"),
        ("claude-code", "/srv/tide/blocks/persona.yaml"),
        ("open-strix", "/srv/tide/state/notes.md"),
        ("claude-code", "memory:17"),
    ],
)
def test_what_a_host_does_not_load(host: str, path: str) -> None:
    assert not held(host, path)


def test_a_moved_home_and_a_session_without_a_directory() -> None:
    moved = loaded_by("claude-code", "/p", HOME | {"CLAUDE_CONFIG_DIR": "/c"})
    assert "/c/CLAUDE.md" in moved.paths
    assert "/home/ada/.claude/CLAUDE.md" not in moved.paths
    assert loaded_by("claude-code", "", HOME) == InPrompt()
    assert loaded_by("claude-code", "relative/place", HOME) == InPrompt()


def test_a_directory_reached_through_a_link_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    loaded = loaded_by("codex", str(tmp_path / "linked"), HOME)
    assert loaded.holds(passage(tmp_path / "linked" / "AGENTS.md"))
    assert loaded.holds(passage(tmp_path.resolve() / "real" / "AGENTS.md"))


def test_of_an_agents_memory_the_head_is_loaded(tmp_path: Path) -> None:
    memory = tmp_path / "projects" / "-srv-tide--x" / "memory" / "MEMORY.md"
    memory.parent.mkdir(parents=True)
    lines = [f"line {n}\n" for n in range(300)]
    memory.write_text("".join(lines))
    loaded = loaded_by("claude-code", "/srv/tide/.x", HOME)

    def at(line: int) -> bool:
        return loaded.holds(passage(memory, start=len("".join(lines[:line]))))

    assert [at(0), at(MEMORY_LINES - 1), at(MEMORY_LINES), at(299)] == [True, True, False, False]
    assert not loaded.holds(passage(memory.parent / "pump.md"))  # a topic's file is not
    assert not loaded_by("claude-code", "/srv/other", HOME).holds(passage(memory))
    assert not loaded_by("codex", "/srv/tide/.x", HOME).holds(passage(memory))
    memory.unlink()
    assert not at(1)


def test_the_gate_stops_it_and_says_why() -> None:
    here = passage("/srv/tide/CLAUDE.md")
    query = query_of(Focus(user_text="who holds the keys of the harbour pump"))

    def gates(context: Context) -> str:
        candidate = Candidate(1, lanes={"lexical": (1, 9.0)}, fused=1.0)
        decide(Answer("fused", [candidate], 1.0), [here], context)
        return candidate.gates["known"]

    assert gates(Context(query)).startswith("passed")
    assert gates(Context(query, loaded=frozenset([1]))) == "stopped: CLAUDE.md stands in the agent's prompt anyway"


@pytest.mark.parametrize(
    ("path", "session", "own"),
    [
        ("/h/.claude/projects/p/0a1b2c3d-e.jsonl", "0a1b2c3d-e", True),
        ("/h/.claude/projects/p/0a1b2c3d-e/subagents/agent-a7.jsonl", "0a1b2c3d-e/a7", True),
        ("/h/.claude/projects/p/0a1b2c3d-e/subagents/agent-a7.jsonl", "0a1b2c3d-e", False),
        ("/h/.claude/projects/p/0a1b2c3d-e.jsonl", "0a1b2c3d-e/a7", False),
        ("/h/.codex/sessions/2026/03/02/rollout-2026-03-02T10-00-00-0a1b2c3d-e.jsonl", "0a1b2c3d-e", True),
        ("/h/.codex/sessions/2026/03/02/rollout-2026-03-02T10-00-00-0a1b2c3d-f.jsonl", "0a1b2c3d-e", False),
        ("/h/.copilot/session-state/0a1b2c3d-e/events.jsonl", "0a1b2c3d-e", True),
        ("/h/.copilot/session-state/0a1b2c3d-f/events.jsonl", "0a1b2c3d-e", False),
        ("/h/.gemini/tmp/p/chats/session-2026-03-02T10-00-0a1b2c3d.jsonl", "0a1b2c3d-e", True),
        ("/h/.local/share/opencode/opencode.db/ses_0a1b2c3d", "ses_0a1b2c3d", True),
        ("/h/.local/share/opencode/opencode.db/ses_0a1b2c3e", "ses_0a1b2c3d", False),
        ("/h/notes/0a1b2c3d-e.md", "0a1b2c3d-e", False),
        ("memory:17", "", False),
    ],
)
def test_a_sessions_own_transcript(path: str, session: str, own: bool) -> None:
    assert is_own_transcript(path, session) is own
