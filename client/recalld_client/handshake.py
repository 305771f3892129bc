"""Whether the daemon knows this session and still answers: sans-IO, with the time as an argument.

    due ──hello sent──► asked ──welcome──► welcomed ──nothing heard, ping sent──► (silent)
     ▲                    │                   │
     └──── connection lost, epoch changed, unknown_session, or no answer for a while ────┘

A refusal (no common version) is kept as a reason, and the question repeated now and then: the user may have upgraded.
"""

from __future__ import annotations

import math

from recalld_protocol.errors import VersionMismatch
from recalld_protocol.messages import Pong, Welcome
from recalld_protocol.wire import negotiate

PATIENCE_SECONDS = 1.0  # an answering daemon takes some 0.1 ms; one that is starting to swap may take this
AGAIN_MAX_SECONDS = 8.0  # between hellos that nobody answers, doubling from PATIENCE_SECONDS
REFUSED_SECONDS = 30.0  # between hellos after a refusal: somebody must upgrade something
BUSY_SECONDS = 5.0  # between hellos to a daemon that has no room for us now
HEARTBEAT_BOUNDS = (0.5, 300.0)  # seconds; what is taken from a `welcome`


class Handshake:
    """One session's standing with the daemon."""

    def __init__(self) -> None:
        self.welcomed = False
        self.epoch = ""  # of the last daemon that welcomed us
        self.daemon = ""  # its package version
        self.pid = 0
        self.refusal = ""  # why it would not have us; "" otherwise
        self._heartbeat_seconds = 5.0
        self._asked_at = -math.inf  # the last hello
        self._asking_since = math.inf  # the first hello that nobody has answered
        self._again_seconds = 0.0
        self._refused_seconds = 0.0
        self._heard_at = -math.inf
        self._pinged_at = math.inf  # inf: no ping is open

    # ------------------------------------------------------------ what to do now

    def hello_due(self, now: float) -> bool:
        return not self.welcomed and now - self._asked_at >= self._again_seconds

    def ping_due(self, now: float) -> bool:
        quiet_since = self._heard_at if self._pinged_at == math.inf else self._pinged_at
        return self.welcomed and now - quiet_since >= self._heartbeat_seconds

    def silent(self, now: float) -> bool:
        """It was asked, and should have answered by now."""
        since = self._pinged_at if self.welcomed else self._asking_since
        return now - since > PATIENCE_SECONDS

    @property
    def idle(self) -> bool:
        """Nothing was said yet, or nothing since the connection was lost."""
        return not self.welcomed and self._asked_at == -math.inf

    @property
    def settled(self) -> bool:
        """Welcomed, and nothing is open: all is well."""
        return self.welcomed and self._pinged_at == math.inf

    # ------------------------------------------------------------ what happened

    def hello_sent(self, now: float) -> None:
        self._asked_at = now
        self._asking_since = min(self._asking_since, now)
        if self.refusal:
            self._again_seconds = self._refused_seconds
        else:
            self._again_seconds = min(max(PATIENCE_SECONDS, 2 * self._again_seconds), AGAIN_MAX_SECONDS)

    def pinged(self, now: float) -> None:
        self._pinged_at = now

    def heard(self, now: float) -> None:
        """Any message counts as a heartbeat."""
        self._heard_at = now
        self._pinged_at = math.inf

    def welcome(self, message: Welcome) -> bool:
        """We are known. Whether this is another daemon than before."""
        try:
            negotiate([message.version], here="client")
        except VersionMismatch as mismatch:
            self.refuse(str(mismatch))
            return False
        another = message.epoch != self.epoch
        self.welcomed = True
        self.refusal = ""
        self.epoch, self.daemon, self.pid = message.epoch, message.daemon, message.pid
        low, high = HEARTBEAT_BOUNDS
        self._heartbeat_seconds = min(max(message.heartbeat_seconds, low), high)
        self._answered()
        return another

    def pong(self, message: Pong) -> None:
        """A pong of another epoch: the daemon was restarted, and does not know us."""
        if self.welcomed and message.epoch and message.epoch != self.epoch:
            self.lost()

    def refuse(self, text: str, busy: bool = False) -> None:
        """The daemon speaks none of our versions, or is too `busy`; `text` says so, with the remedy."""
        self.welcomed = False
        self.refusal = text
        self._asking_since = math.inf
        self._again_seconds = self._refused_seconds = BUSY_SECONDS if busy else REFUSED_SECONDS

    def lost(self) -> None:
        """The connection is gone, or the daemon does not know us: hello is due as soon as it can be sent."""
        self.welcomed = False
        self.refusal = ""
        self._asked_at = -math.inf
        self._answered()

    def _answered(self) -> None:
        self._asking_since = math.inf
        self._pinged_at = math.inf
        self._again_seconds = 0.0
