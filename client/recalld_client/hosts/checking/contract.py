"""What a host takes from a hook as context for its agent, read as strictly as the strictest of them reads it.

An answer that is nearly right is worse than none: Codex drops it without a word, Claude Code shows an error at every
event. Empty output is always in order: nothing came to mind.
"""

from __future__ import annotations

import json
from typing import Any

LIMIT_CHARS = {"claude-code": 10_000, "codex": 8_000, "copilot": 10_000, "gemini": 10_000, "opencode": 64_000}
# Claude Code and Copilot make a stub of more; Codex cuts at 2,500 tokens, of some 3.5 characters each


class Breach(ValueError):
    """The host would not take this answer; says what is wrong with it."""


def context_of(host: str, event: str, answer: bytes) -> str:
    """The text that the agent would read; "" for none. Raises Breach.

    >>> context_of("copilot", "postToolUse", b'{"additionalContext": "x"}')
    'x'
    """
    if not answer:
        return ""
    try:
        text = answer.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Breach(f"the answer is not UTF-8 at byte {error.start}") from None
    context = text if host == "opencode" else _context(_object(text), host, event)
    if len(context) > LIMIT_CHARS[host]:
        raise Breach(f"{len(context)} characters, {LIMIT_CHARS[host]} are taken")
    if any(not char.isprintable() for char in context.replace("\n", "")):
        raise Breach("there are control characters in it")
    return context


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        before, brace, _ = text.partition("{")
        if brace and (before := before.strip()):
            raise Breach(
                f"something else printed {before[:60]!r} first, such as a line in the shell's profile"
            ) from None
        raise Breach(f"the answer is no JSON: {text[:60]!r}") from None
    if not isinstance(value, dict):
        raise Breach("the answer is no JSON object")
    return value


def _context(value: dict[str, Any], host: str, event: str) -> str:
    if host != "copilot":
        _exactly(value, {"hookSpecificOutput"})
        value = value["hookSpecificOutput"]
        if not isinstance(value, dict):
            raise Breach("hookSpecificOutput is no object")
        _exactly(value, {"hookEventName", "additionalContext"})
        if value["hookEventName"] != event:
            raise Breach(f"it answers {value['hookEventName']!r}, not {event!r}")
    else:
        _exactly(value, {"additionalContext"})
    context = value["additionalContext"]
    if not isinstance(context, str) or not context:
        raise Breach("additionalContext is no text")
    return context


def _exactly(value: dict[str, Any], keys: set[str]) -> None:
    if value.keys() != keys:
        raise Breach(f"its keys are {sorted(value)}, exactly {sorted(keys)} are taken")
