"""The hosts that agents live in, each a pure translation in a file of its own.

`HOSTS` is the one place that knows them all by name. Invariant: nothing in here opens a socket or reads a file but
`hook.py`, which the hosts run as a process, `installing/`, which writes their settings, and `checking/`, which tries
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from recalld_client.hosts.claude_code import ClaudeCode
from recalld_client.hosts.codex import Codex
from recalld_client.hosts.copilot import Copilot
from recalld_client.hosts.gemini import Gemini
from recalld_client.hosts.heard import Heard, Host, PayloadError
from recalld_client.hosts.opencode import OpenCode

__all__ = ["HOSTS", "Heard", "Host", "PayloadError"]

HOSTS: Mapping[str, Host] = MappingProxyType(
    {host.name: host for host in (ClaudeCode(), Codex(), Copilot(), Gemini(), OpenCode())}
)
