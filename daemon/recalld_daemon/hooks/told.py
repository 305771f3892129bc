"""What the hooks of one session have told already, so that each thing is heard once: sans-IO, bounded.

A call's start is told twice by design (before it runs, and again with its end, since the first may have been lost), and
one session may be seen by two hosts at once (Copilot also runs the hooks of a repository's Claude Code settings).
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_CALLS = 512  # known ids per session: more than the race itself remembers


@dataclass(slots=True)
class Told:
    """`life` is the number of the session it is about: one that was closed and opened again begins anew."""

    life: int
    turn_text: int = 0  # the hash of it
    turn_id: str = ""  # the host's own id of it
    turn_hosts: set[str] = field(default_factory=set)  # that told of this turn
    calls: dict[str, bool] = field(default_factory=dict)  # oldest first -> whether its end was told

    def turn(self, host: str, text: str, id: str = "") -> bool:
        """Whether this is a turn not heard of: who says the same again means it, another host means the same.

        id: the host's own. The same one comes twice where a host has our hooks in two places.
        """
        if id and id == self.turn_id:
            return False
        if hash(text) == self.turn_text and self.turn_hosts and host not in self.turn_hosts:
            self.turn_hosts.add(host)
            return False
        self.turn_text, self.turn_hosts, self.turn_id = hash(text), {host}, id
        return True

    def started(self, call: str) -> bool:
        """Whether this call's start is news."""
        if call in self.calls:
            return False
        self._keep(call, ended=False)
        return True

    def ended(self, call: str) -> bool:
        """Whether this call's end is news."""
        if self.calls.get(call):
            return False
        self._keep(call, ended=True)
        return True

    def _keep(self, call: str, *, ended: bool) -> None:
        self.calls[call] = ended
        while len(self.calls) > MAX_CALLS:
            del self.calls[next(iter(self.calls))]
