"""Asking the daemon one thing: send, wait a bounded time, and say in one line what is wrong when no answer comes.

Questions carry no session and need no hello. A daemon that is absent, frozen, or of another version looks much the
same from a socket, so what failed is looked at again, by other means, only once it has failed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from recalld_client.link import Link, Subscription
from recalld_protocol.endpoints import Endpoints, endpoints, endpoints_in, socket_path
from recalld_protocol.messages import FromAgent, Message, Problem

from .command import Fault, NoDaemon, NotFound, UsageFault

Answer = TypeVar("Answer", bound=Message)
PROBE_SECONDS = 0.2  # a connection to a Unix socket is made at once, unless its backlog is full
START = "start it with `recalld run` or, where it is installed as a service, `systemctl --user start recalld`"
RESTART = "restart it with `systemctl --user restart recalld`, or end it and start `recalld run`"


class Daemon:
    """The daemon behind `endpoints`, asked one question after the other; each may take `timeout_seconds`."""

    def __init__(self, endpoints: Endpoints, timeout_seconds: float) -> None:
        self.endpoints = endpoints
        self.timeout_seconds = timeout_seconds
        self.path = socket_path(endpoints.request)
        self._link = Link(endpoints)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *exception: object) -> None:
        self._link.close()

    def ask(self, message: FromAgent, answer: type[Answer], seconds: float = 0.0) -> Answer:
        """The answer, which is of type `answer`; waited for at least `seconds`, where this question takes longer.

        Raises NoDaemon, NotFound, UsageFault, Fault.
        """
        if not self._link.open():
            raise NoDaemon(self._unopened())
        garbled = self._link.garbled
        seconds = max(seconds, self.timeout_seconds)
        reply = self._link.request(message, seconds)
        if isinstance(reply, answer):
            return reply
        if isinstance(reply, Problem):
            raise self._refusal(reply)
        if reply is not None or self._link.garbled > garbled:
            raise NoDaemon(f"the daemon at {self.path} speaks another version than this recallctl: {RESTART}")
        raise NoDaemon(self._absence(seconds))

    def events(self) -> Subscription:
        """All of the daemon's events, from now on."""
        return Subscription(self.endpoints)

    def _refusal(self, problem: Problem) -> Fault:
        if problem.code in ("not_found", "unknown_session"):
            return NotFound(problem.text)
        if problem.code in ("version", "unknown_kind"):
            return NoDaemon(f"the daemon at {self.path} is of another version ({problem.text}): {RESTART}")
        if problem.code == "limit":
            return UsageFault(problem.text)
        return Fault(f"the daemon at {self.path}: {problem.text}")

    def _unopened(self) -> str:
        """Why no socket could be made: the directory is missing, or not to be trusted."""
        known = self.path.parent.exists() or self.endpoints.keys is not None
        return self._link.problem if known else f"no daemon at {self.path}: {START}"

    def _absence(self, seconds: float) -> str:
        if self.endpoints.keys is not None:
            return f"no daemon answers at {self.endpoints.request}: is it there, and does it list this client's key?"
        match _listener(self.path):
            case "answers":
                return f"the daemon at {self.path} did not answer within {seconds:g} s: {RESTART}"
            case "refused":
                return f"no daemon listens at {self.path} any more: {START}"
            case reason:
                return f"no daemon at {self.path}{reason}: {START}"


def find_endpoints(runtime_dir: str | None, env: Mapping[str, str]) -> Endpoints:
    """Where the daemon is to be found: in `runtime_dir`, else where `env` says. Raises EndpointError."""
    return endpoints_in(Path(os.path.abspath(runtime_dir))) if runtime_dir else endpoints(env)


def _listener(path: Path) -> str:
    """What a bare connection finds: "answers", "refused" (a file left behind), "" (nothing), or " (what else)"."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except FileNotFoundError:
            return ""
        except ConnectionRefusedError:
            return "refused"
        except (TimeoutError, BlockingIOError):  # its backlog is full
            return "answers"
        except OSError as error:
            return f" ({error.strerror})"
    return "answers"
