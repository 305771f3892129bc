"""What became of the hooks' requests: counts for `recallctl status`, and each cause of trouble told once."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from recalld_client.hosts import HOSTS
from recalld_daemon.events import EventFeed
from recalld_daemon.hooks.request import Refused
from recalld_protocol.wire import clip

REASON_CHARS = 256

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Figures:
    """Since the start. answered: with something to print; abandoned: the hook had gone when its answer was ready."""

    feed: EventFeed
    requests: int = 0
    answered: int = 0
    snippets: int = 0
    abandoned: int = 0
    refused: int = 0
    last_problem: str = ""
    hosts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HOSTS, 0))
    _told: set[tuple[str, str]] = field(default_factory=set)  # host and code

    def asked(self, host: str) -> None:
        self.requests += 1
        if host in self.hosts:
            self.hosts[host] += 1

    def refuse(self, problem: Refused) -> None:
        """Count it; the first of its kind goes into the log and the feed."""
        self.refused += 1
        host = problem.host if problem.host in self.hosts else ""
        self.last_problem = clip(f"{host}: {problem}" if host else str(problem), REASON_CHARS)
        if (host, problem.code) in self._told:
            log.debug("hook refused: %s", self.last_problem)
            return
        self._told.add((host, problem.code))
        log.warning("hook refused (%s; told once): %s", problem.code, self.last_problem)
        self.feed.emit("hook.refused", host=host, code=problem.code, reason=self.last_problem)

    def topic(self) -> dict[str, str | int | float | bool | None]:
        return {
            "requests": self.requests, "answered": self.answered, "snippets": self.snippets,
            "abandoned": self.abandoned, "refused": self.refused, "last_problem": self.last_problem, **self.hosts,
        }  # fmt: skip
