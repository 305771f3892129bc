"""The sessions of one adapter: one per conversation of the framework, opened when it is first heard of, bounded.

A framework's conversation (a thread, a run) has a key of the framework's own. Its session gets an id that was never
used before, since what it was shown lives in this process only: after a restart nothing of it stands in the context,
and may be shown again. (A host that keeps what we insert in its own transcript names the id.) Runs end without telling
(they raise, they are cancelled, they are never resumed), so sessions are also closed when they were idle for long, or
when there are too many: least recently used first.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TypedDict, TypeVar, Unpack

from recalld_client.aio import AsyncSession
from recalld_client.frameworks.placed import Placed
from recalld_client.injection import Injection
from recalld_client.quiet import quiet
from recalld_client.session import Call, Session
from recalld_protocol.endpoints import Endpoints

WAIT_SECONDS = 0.03  # of a model request of some seconds, for a recall that is nearly there
MAX_CONVERSATIONS = 128  # at a time; each holds a socket and its two descriptors, of usually 1,024
IDLE_SECONDS = 1_800.0  # a person's pause; a conversation that goes on after it opens a new session
MAX_CALLS = 256  # under way in one conversation, where start and end are told apart
T = TypeVar("T")
_all: weakref.WeakSet[Conversations] = weakref.WeakSet()


class Place(TypedDict, total=False):
    """Where an agent works, as `Session` takes it: whose memory it sees, and where the daemon is."""

    cwd: str | os.PathLike[str]
    project: str | os.PathLike[str] | None
    all_scopes: bool
    endpoints: Endpoints | None


class Own(TypedDict, total=False):
    """What a conversation has of its own: where the framework knows the host's id, or the directory."""

    session_id: str
    cwd: str


class Conversation:
    """One conversation: its session, what was placed in it, and the calls under way. Threads may share it."""

    def __init__(self, session: AsyncSession, wait_seconds: float) -> None:
        self.session = session
        self.used_at = 0.0  # by the clock of `Conversations`
        self.run: Hashable = None  # the run that has it to itself
        self._wait_seconds = wait_seconds
        self._placed = Placed()
        self._lock = threading.Lock()
        self._turn: Hashable = None
        self._calls: dict[str, Call] = {}

    @property
    def plain(self) -> Session:
        return self.session._session

    def turn(self, mark: Hashable, text: str) -> None:
        """The user said `text`; `mark` tells this message from the one before, so that it is told once."""
        if mark != self._turn and text.strip():
            self._turn = mark
            self.session.turn(text)

    def started(self, id: str, name: str, args: object) -> None:
        """A call began whose end is told elsewhere, by the framework's `id`, which need not be unique for ever.

        While it is under way it is told once.
        """
        if id in self._calls:
            return
        call = self.session.tool_started(name, args)
        with self._lock:
            self._calls[id] = call
            if len(self._calls) > MAX_CALLS:
                del self._calls[next(iter(self._calls))]

    def ended(self, id: str, result: object, ok: bool = True) -> None:
        with self._lock:
            call = self._calls.pop(id, None)
        if call is not None:
            self.session.tool_ended(call, result, ok)

    def boundary(self) -> list[Injection]:
        """What came to mind by now, or will within `wait_seconds`."""
        return self.plain.boundary(self._wait_seconds)

    async def aboundary(self) -> list[Injection]:
        return await self.session.boundary(self._wait_seconds)

    def woven(
        self,
        items: Sequence[T],
        key: Callable[[T], Hashable],
        new: Sequence[Injection],
        made: Callable[[Sequence[str]], T],
        whole: bool = True,
    ) -> list[T] | None:
        """The input with all that was shown in its places, see `Placed.woven`; None: nothing is to be added.

        `whole`: `items` are all that the model will see, so that lines whose messages are gone are gone as well.
        """
        with self._lock:
            if not new and not len(self._placed):
                return None
            if whole and self._placed.all_gone([key(item) for item in items]):
                self.session.compacted()
            return self._placed.woven(items, key, [one.render() for one in new], made)


class Conversations:
    """Conversations by key. `host` names the framework to the daemon; `place` is the same for all of them.

    `most`: open at a time; `clock`: monotonic, in seconds.
    """

    def __init__(
        self,
        host: str,
        place: Place,
        wait_seconds: float = WAIT_SECONDS,
        most: int = MAX_CONVERSATIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._place = place
        self._wait_seconds = wait_seconds
        self._most = most
        self._clock = clock
        self._open: OrderedDict[Hashable, Conversation] = OrderedDict()
        self._lock = threading.RLock()
        _all.add(self)
        weakref.finalize(self, _close, self._open)  # also at the process's end: else the daemon waits an hour for more

    def __len__(self) -> int:
        return len(self._open)

    def of(self, key: Hashable, **own: Unpack[Own]) -> Conversation:
        """The conversation of this key; opens one for up to 40 ms, once. `place` wins over what it has of its `own`."""
        with self._lock:
            known = self._open.get(key)
            if known is None:
                self._make_room()
                place: Place = {"cwd": own["cwd"], **self._place} if own.get("cwd") else self._place
                session = AsyncSession(self._host, session_id=own.get("session_id"), **place)
                known = self._open[key] = Conversation(session, self._wait_seconds)
            self._open.move_to_end(key)
            known.used_at = self._clock()
            return known

    def claim(self, key: Hashable, run: Hashable) -> Hashable:
        """The key under which this run goes on: `key`, unless another run had it to itself as this one began."""
        with self._lock:
            alone = (key, run)
            if alone in self._open:
                return alone
            conversation = self.of(key)
            if conversation.run not in (None, run):
                self.of(alone)
                return alone
            conversation.run = run
            return key

    def release(self, key: Hashable, run: Hashable) -> None:
        """The run is over. What it had for itself alone is closed."""
        with self._lock:
            if (known := self._open.get(key)) is not None and known.run == run:
                known.run = None
            self.forget((key, run))

    @quiet(lambda: None)
    def forget(self, key: Hashable) -> None:
        """It is over: close its session, if there is one."""
        with self._lock:
            known = self._open.pop(key, None)
        if known is not None:
            known.session.close()

    def close(self) -> None:
        """Close all sessions. A conversation that goes on opens a new one."""
        for key in list(self._open):
            self.forget(key)

    def _make_room(self) -> None:
        while self._open:
            oldest = next(iter(self._open.values()))
            if len(self._open) < self._most and self._clock() - oldest.used_at < IDLE_SECONDS:
                return
            self._open.popitem(last=False)
            oldest.session.close()


@quiet(lambda: None)
def _close(conversations: OrderedDict[Hashable, Conversation]) -> None:
    while conversations:
        conversations.popitem()[1].session.close()


def _after_fork() -> None:
    for conversations in list(_all):
        conversations._lock = threading.RLock()
        for conversation in conversations._open.values():
            conversation._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
