"""What an agent has in its prompt anyway: worth nothing to be reminded of, in that session.

A host loads certain files before the first word is said: instructions in the directories from the session's own up to
the root, the user's own instructions, the head of the memory that Claude Code keeps per project, open-strix' blocks.
Which these are follows from host and directory by names alone, so a session's set is made once, when it is opened, and
a recall looks passages up in it. What a host loads later or elsewhere (imports, files of a subdirectory) is not known.
Sessions of other clients have nothing loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from recalld_daemon.recall.types import Passage

INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {  # in each directory from the session's up
    "claude-code": ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md"),
    "codex": ("AGENTS.md", "AGENTS.override.md"),
    "copilot": ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md"),
    "gemini": ("GEMINI.md",),
    "opencode": ("AGENTS.md", "CLAUDE.md"),
}
OWN: Mapping[str, tuple[tuple[str, str, str], ...]] = {  # of the user: variable, place below the home else, file
    "claude-code": (("CLAUDE_CONFIG_DIR", ".claude", "CLAUDE.md"),),
    "codex": (("CODEX_HOME", ".codex", "AGENTS.md"), ("CODEX_HOME", ".codex", "AGENTS.override.md")),
    "copilot": (("COPILOT_HOME", ".copilot", "copilot-instructions.md"),),
    "gemini": (("", ".gemini", "GEMINI.md"),),
    "opencode": (("", ".config/opencode", "AGENTS.md"), ("CLAUDE_CONFIG_DIR", ".claude", "CLAUDE.md")),
}
MEMORY_LINES = 200  # of MEMORY.md that Claude Code loads
MEMORY_BYTES = 25_000  # and no more bytes than these
SHORT_ID = 8  # letters of a session's id in the name of Gemini's file
_NAMED = re.compile(
    r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(?P<rollout>.+)|session-\d{4}-\d\d-\d\dT\d\d-\d\d-(?P<chat>.+)"
)
_NO_LETTER = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class InPrompt:
    """paths: files loaded whole. memories: how paths end of which the head is. blocks: directories of blocks."""

    paths: frozenset[str] = frozenset()
    memories: tuple[str, ...] = ()
    blocks: frozenset[str] = frozenset()

    def holds(self, passage: Passage) -> bool:
        """Whether it is loaded. Reads at most MEMORY_BYTES of a file, and of none but a memory's index."""
        if passage.path in self.paths:
            return True
        if self.memories and passage.path.endswith(self.memories):
            return _in_head(passage)
        return bool(self.blocks) and os.path.dirname(passage.path) in self.blocks


NOTHING = InPrompt()


def loaded_by(host: str, cwd: str, environ: Mapping[str, str] = os.environ) -> InPrompt:
    """What a host loads for a session in `cwd`. Looks at no file, but resolves links on the way to it; never raises."""
    if not os.path.isabs(cwd) or "\0" in cwd:
        return NOTHING
    ways = dict.fromkeys((os.path.normpath(cwd), os.path.realpath(cwd)))
    above = [str(place) for way in ways for place in (PurePath(way), *PurePath(way).parents)]
    if host == "open-strix":
        return InPrompt(blocks=frozenset(os.path.join(place, "blocks") for place in above))
    paths = [os.path.join(place, name) for place in above for name in INSTRUCTIONS.get(host, ())]
    user = environ.get("HOME") or os.path.expanduser("~")
    for variable, usual, name in OWN.get(host, ()):
        paths.append(os.path.join(environ.get(variable) or os.path.join(user, usual), name))
    memories = (f"/{_NO_LETTER.sub('-', place)}/memory/MEMORY.md" for place in above if place != os.sep)
    return InPrompt(frozenset(paths), tuple(memories) if host == "claude-code" else ())


def _in_head(passage: Passage) -> bool:
    if passage.start >= MEMORY_BYTES:
        return False
    try:
        with open(passage.path, "rb") as file:
            return file.read(passage.start).count(b"\n") < MEMORY_LINES
    except OSError:
        return False


def is_own_transcript(path: str, session: str) -> bool:
    """Whether a file is the transcript that the host keeps of this very session: it has that in its context.

    >>> is_own_transcript("/h/.codex/sessions/2026/03/02/rollout-2026-03-02T10-00-00-0a1b.jsonl", "0a1b")
    True
    >>> is_own_transcript("/h/.claude/projects/p/0a1b.jsonl", "0a1b/a7"), is_own_transcript("/n/deploy.md", "")
    (False, False)
    """
    told = session_of(path)
    return bool(told) and told in (session, session[:SHORT_ID])


def session_of(path: str) -> str:
    """The session that a transcript's path tells, as hooks name it: of Gemini's its first SHORT_ID letters; "": none.

    >>> session_of("/h/.claude/projects/p/0a1b/subagents/agent-a7.jsonl"), session_of("/h/x/0a1b/events.jsonl")
    ('0a1b/a7', '0a1b')
    """
    file = PurePath(path)
    if file.parent.suffix == ".db":  # a session of OpenCode's database
        return file.name
    if file.suffix not in (".jsonl", ".json"):
        return ""
    if file.stem == "events":
        return file.parent.name
    if file.parent.name == "subagents" and file.stem.startswith("agent-"):
        return f"{file.parent.parent.name}/{file.stem.removeprefix('agent-')}"
    if named := _NAMED.fullmatch(file.stem):
        return named["rollout"] or named["chat"]
    return file.stem
