"""What kinds of files there are besides plain documents: how each is told, whose it is, and how it is read.

One row per kind, and the parsers know nothing of each other. A kind is told by a file's name and its first bytes, so
it does not matter where a file lies. To add one: a module with a parser, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from recalld_daemon.ingest.formats import (
    chatgpt,
    claude_ai,
    claude_code,
    codex_rollout,
    copilot_events,
    gemini_chats,
    letta,
    open_strix,
    rewound,
    whatsapp,
)
from recalld_daemon.ingest.formats.records import Progress, Withdrawn
from recalld_daemon.store import opencode
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

Parser = Callable[[BinaryIO, Progress], Iterator[ParsedPassage | FileProblem]]
DOCUMENTS = ("markdown", "text", "obsidian")


@dataclass(frozen=True, slots=True)
class Kind:
    """suffixes: lower case, with their dot. tells: whether a file of such a suffix is of this kind, by its head
    (HEAD_BYTES at most, whitespace in front stripped).

    label: what people call such a file. grows: it is only ever appended to, so reading goes on at `Progress.cursor`;
    else it is read anew when it changed.
    names_project: each file tells the directory it was held in (`Progress.project`), and belongs to that project;
    else it belongs to everybody, unless its root says otherwise.
    withdrawn: of one that grows, what its user took back from a byte on; if that reaches to before it, it is read anew.
    """

    name: str
    suffixes: tuple[str, ...]
    tells: Callable[[bytes], bool]
    parse: Parser
    label: str = ""
    grows: bool = False
    names_project: bool = False
    withdrawn: Callable[[BinaryIO, int], Withdrawn] | None = None


def _no_file(file: BinaryIO, progress: Progress) -> Iterator[ParsedPassage | FileProblem]:
    raise ValueError("a session of a database is no file: see formats.opencode_sessions")


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "claude-code", (".jsonl",), claude_code.is_claude_code, claude_code.parse_transcript,
            "Claude Code session", grows=True, names_project=True, withdrawn=rewound.rewound,
        ),
        Kind(
            "codex", (".jsonl",), codex_rollout.is_codex, codex_rollout.parse_rollout,
            "Codex session", grows=True, names_project=True, withdrawn=codex_rollout.rolled_back,
        ),
        Kind(
            "copilot", (".jsonl",), copilot_events.is_copilot, copilot_events.parse_events,
            "Copilot CLI session", grows=True, names_project=True,
        ),
        Kind(
            "gemini", (".jsonl", ".json"), gemini_chats.is_gemini, gemini_chats.parse_chat,
            "Gemini CLI chat", names_project=True,
        ),
        Kind(opencode.KIND, (), lambda head: False, _no_file, "OpenCode session", names_project=True),
        Kind("chatgpt", (".json",), chatgpt.is_chatgpt, chatgpt.parse_chatgpt, "ChatGPT export"),
        Kind("claude-ai", (".json",), claude_ai.is_claude_ai, claude_ai.parse_claude_ai, "Claude.ai export"),
        Kind("letta", (".af",), letta.is_letta, letta.parse_letta, "Letta agent file"),
        Kind(
            "open-strix-chat", (".jsonl",), open_strix.is_chat, open_strix.parse_chat,
            "open-strix chat history", grows=True,
        ),
        Kind(
            "open-strix-journal", (".jsonl",), open_strix.is_journal, open_strix.parse_journal,
            "open-strix journal", grows=True,
        ),
        Kind("open-strix-block", (".yaml", ".yml"), open_strix.is_block, open_strix.parse_block, "memory block"),
        Kind("whatsapp", (".txt",), whatsapp.is_whatsapp, whatsapp.parse_whatsapp, "WhatsApp chat"),
    )
}  # fmt: skip
SUFFIXES = frozenset(suffix for kind in KINDS.values() for suffix in kind.suffixes)


def told_by_head(suffix: str, head: bytes) -> str | None:
    """The kind of a file with this suffix and these first bytes; None: none of these."""
    return next((k.name for k in KINDS.values() if suffix in k.suffixes and k.tells(head)), None)


def grows(name: str) -> bool:
    return name in KINDS and KINDS[name].grows


def names_project(name: str) -> bool:
    return name in KINDS and KINDS[name].names_project
