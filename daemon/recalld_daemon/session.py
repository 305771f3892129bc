"""What one conversation is about now, and whether its client is still there: sans-IO, bounded, time as an argument.

A focus is made of the newest words only: the tool call at hand, what the user last asked, what the assistant last
said. Tool results are never part of it: a raw transcript as query is known to lose a quarter of recall. Secrets are
masked as they come in, so that no query, log or event holds one. Calls of our own tools are recognised here, so that
recall never feeds on itself.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

from recalld_daemon.ingest.redact import redact
from recalld_daemon.recall.types import Focus

USER_CHARS = 4096  # of the last message: about 1000 tokens, four times what the encoder reads
ASSISTANT_CHARS = 2048  # of what was said since the last turn, its end: what it is about to do
ARGS_CHARS = 4096  # of a call's arguments; what is written to a file can be long, and begins with what matters
TOOL_HEAD_CHARS = 1024  # of a call, or of a snippet, as kept among the latest texts
RECENT_TOOLS = 8  # calls whose heads are kept
RECENT_SHOWN = 24  # snippets kept: those of the last eight full boundaries at least
NAME_CHARS = 256  # the wire's limit of a name

Liveness = Literal["alive", "suspect", "dead"]
MISSED_BEATS = 3  # the ZeroMQ guide's liveness: so many heartbeats without any traffic make a client suspect
DEAD_AFTER_SECONDS = 3600.0  # a client without a thread of its own is silent while its user thinks, or its tool runs

# Where a command may begin in a shell's arguments, raw or as JSON: at the start, after a quote, a separator, an opening
# bracket or a newline (also an escaped one). Then what may stand before a command's name; then ours. The counts bound
# the work on hostile text.
_OWN_COMMAND = re.compile(
    r"""(?: ^ | ["'`;&|(\[{\n] | \\n ) \s{0,20}
        (?: (?: \w{1,64}=\S{0,200} | sudo | env | exec | time | nohup | command | uvx | uv\ run | pipx\ run
              | timeout\ \S{1,20} ) \s{1,20} ){0,5}
        (?: python[\d.]{0,8} \s{1,20} -m \s{1,20} recalld_(?:client|daemon) (?:\.[\w.]{0,64})?
          | (?: [\w.~@+/-]{0,200} / )? recall(?:d|ctl) )
        (?= $ | [\s"'`;&|)\]}\\<>] )""",
    re.VERBOSE,
)
_SHELL_NAME = re.compile(r"bash|shell|terminal|exec|command|powershell|\bcmd\b|\bsh\b|\brun\b", re.IGNORECASE)
_NAME_PARTS = re.compile(r"[^a-z0-9]+")


class Conversation:
    """The newest texts of one conversation, and its counts. All texts are cut to the bounds above."""

    def __init__(self) -> None:
        self.turn_number = 0
        self.turns = 0
        self.calls = 0
        self.last_seen_at = 0.0  # by the clock of whoever calls `seen`
        self._user = ""
        self._assistant = ""
        self._answers_turn = False  # `_assistant` was said in this turn
        self._tools: deque[str] = deque(maxlen=RECENT_TOOLS)
        self._shown: deque[str] = deque(maxlen=RECENT_SHOWN)

    def seen(self, at: float) -> None:
        """Any message of this conversation came at `at`."""
        self.last_seen_at = max(self.last_seen_at, at)

    def turn(self, n: int, text: str) -> None:
        """The user said `text`: it replaces what was said before. What the assistant said last still counts."""
        self.turn_number = n
        self.turns += 1
        self._user = redact(both_ends(text, USER_CHARS))
        self._answers_turn = False

    def said(self, text: str) -> None:
        """The assistant said `text`; within one turn the pieces are joined, and the newest words kept."""
        new = redact(text[-ASSISTANT_CHARS:])
        joined = f"{self._assistant}\n{new}" if self._answers_turn else new
        self._assistant = joined[-ASSISTANT_CHARS:].strip()
        self._answers_turn = True

    def tool_started(self, name: str, args: str) -> None:
        """A tool call began: its head is what the conversation has seen."""
        self.calls += 1
        self._tools.append(f"{name[:NAME_CHARS]} {redact(args[:TOOL_HEAD_CHARS])}")

    def shown(self, texts: Iterable[str]) -> None:
        """These snippets were put before the agent."""
        self._shown.extend(text[:TOOL_HEAD_CHARS] for text in texts)

    def compacted(self) -> None:
        """The agent has lost what it was shown and what it did; what the user wants of it stands in its summary."""
        self._shown.clear()
        self._tools.clear()

    def mask(self, masked: Callable[[str], str]) -> None:
        """Something was forgotten: what these texts quote of it is not said again by us."""
        self._user, self._assistant = masked(self._user), masked(self._assistant)
        self._tools = deque(map(masked, self._tools), maxlen=RECENT_TOOLS)
        self._shown = deque(map(masked, self._shown), maxlen=RECENT_SHOWN)

    def texts(self) -> tuple[str, ...]:
        """What the agent has before it, newest of each kind: what need not be recalled. About 20 KB at most."""
        return tuple(text for text in (self._user, self._assistant, *self._tools, *self._shown) if text)

    def focus_for_turn(self) -> Focus:
        """What the user's message asks, in the light of what the assistant said before it."""
        return Focus(user_text=self._user, assistant_text=self._assistant)

    def focus_for_tool(self, name: str, args: str) -> Focus:
        """What this tool call is about: its own words first."""
        return Focus(name[:NAME_CHARS], redact(args[:ARGS_CHARS]), self._user, self._assistant)

    @staticmethod
    def is_own_tool(name: str, args: str) -> bool:
        """Whether this call is one of ours (`is_own_tool` below): no recall for it."""
        return is_own_tool(name, args)


def both_ends(text: str, limit: int) -> str:
    """`text` cut to at most `limit` characters: beginning and end, where people put what they ask; the middle goes."""
    text = text.strip()
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}\n{text[-half:]}"


def is_own_tool(name: str, args: str) -> bool:
    """Whether a tool call is one of ours: an MCP tool of a server called recalld, or a shell that runs our commands.

    Such calls never trigger a recall. A file's path or text that merely mentions recalld does not count.
    """
    parts = _NAME_PARTS.split(name[:NAME_CHARS].lower())
    if "recalld" in parts or "recallctl" in parts:
        return True
    return bool(_SHELL_NAME.search(name[:NAME_CHARS])) and bool(_OWN_COMMAND.search(args[:ARGS_CHARS]))


class Lease:
    """Whether a client is still there, from when it was last heard of. Any traffic counts as a heartbeat.

    heartbeat_seconds: how often the client beats while it can; dead_after_seconds: the silence after which its state
    may be freed (it can say hello again). Times are seconds of one monotonic clock; `at` is when it was made.
    """

    def __init__(
        self, heartbeat_seconds: float, at: float = 0.0, dead_after_seconds: float = DEAD_AFTER_SECONDS
    ) -> None:
        self.heartbeat_seconds = heartbeat_seconds
        self.dead_after_seconds = max(dead_after_seconds, MISSED_BEATS * heartbeat_seconds)
        self.last_seen_at = at

    def seen(self, at: float) -> None:
        self.last_seen_at = max(self.last_seen_at, at)

    def state(self, at: float) -> Liveness:
        """ "suspect": it missed its heartbeats, so what is sent to it may be lost; "dead": free its state."""
        silent = at - self.last_seen_at
        if silent >= self.dead_after_seconds:
            return "dead"
        return "suspect" if silent >= MISSED_BEATS * self.heartbeat_seconds else "alive"
