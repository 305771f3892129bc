"""Where hooks are answered: host, event and payload in, the bytes to print out.

A hook is a process that lives for milliseconds, so all that a client would keep is kept here, keyed by the host's
session: the session is opened when something of it is first told (also after a restart), turns are counted, and a
call's start is told once. At a boundary the answer waits until the recalls of its own turn and calls have settled,
`wait_seconds` at most; what comes later stays in the outbox for the next. Where the hook has gone meanwhile nothing is
taken: its boundary passes, and what was found slips.

Invariant: taking from the outbox and returning what was taken happen with nothing awaited in between, so two hooks of
one session never get the same snippet, and the listener writes before anybody else runs. What remains: a hook that dies
after the bytes were written and before it printed them; that snippet counts as shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import trio
from msgspec.structs import replace

from recalld_client.hosts import HOSTS, Heard, Host, PayloadError
from recalld_client.injection import from_snippet
from recalld_daemon.book import LiveSession, SessionBook
from recalld_daemon.desk import Desk
from recalld_daemon.hooks.figures import Figures
from recalld_daemon.hooks.request import Refused, Request
from recalld_daemon.hooks.told import Told
from recalld_protocol import messages as wire
from recalld_protocol.messages import PROTOCOL_VERSIONS

CLIENT = "hook"  # in `Hello.client`
CWD_LIMIT = 4096  # of `Hello.cwd`
MAX_TOLD = 512  # sessions whose memory is kept; beyond it, that of closed ones goes
THREAD_BYTES = 1024 * 1024  # a payload from here on is read in a thread: a megabyte of JSON is milliseconds


class HookDesk:
    """`ready`: whether a recall could be answered now; while it can't, nobody waits for one."""

    def __init__(
        self, desk: Desk, book: SessionBook, figures: Figures, wait_seconds: float, ready: Callable[[], bool]
    ) -> None:
        self._desk, self._book, self._figures = desk, book, figures
        self._wait_seconds, self._ready = wait_seconds, ready
        self._told: dict[str, Told] = {}

    async def answer(self, request: Request, payload: bytes, gone: Callable[[], bool]) -> bytes:
        """What this hook prints. gone: whether nobody waits for it any more. Raises Refused."""
        arrived = trio.current_time()
        self._figures.asked(request.host)
        host = HOSTS.get(request.host)
        if host is None:
            raise Refused("unknown_host", f"no host {request.host!r}; known are {', '.join(HOSTS)}")
        heard = await _read(host, request.event, payload)
        if not heard.session or self._desk.draining:
            return b""
        live = self._session(host, heard)
        if live is None:
            return b""
        turn, calls = self._tell(host, live, heard)
        if not heard.boundary or not self._ready():
            return b""
        await _settled(live, turn, calls, arrived + self._wait_seconds)
        return host.write(heard.event, self._take(live, gone))

    # ------------------------------------------------------------ the session

    def _session(self, host: Host, heard: Heard) -> LiveSession | None:
        """The open session that this is about. None: there is nothing to tell or take, or it speaks for itself.

        Raises Refused: one more can't be opened.
        """
        live, cwd = self._book.get(heard.session), heard.cwd if len(heard.cwd) <= CWD_LIMIT else ""
        if live is None:
            if all(isinstance(event, wire.Bye) for event in heard.events) and not heard.boundary:
                return None
            self._hello(heard.session, host.name, cwd, 0, 0)
            return self._book.get(heard.session)
        if live.push:
            return None  # a client in the agent's own process tells and takes all of this
        if cwd and cwd != live.hello.cwd:
            self._hello(live.id, live.hello.host, cwd, live.race.boundary, live.race.turn)
        return live

    def _hello(self, session: str, host: str, cwd: str, boundary: int, turn: int) -> None:
        answers: list[wire.FromDaemon] = []
        hello = wire.Hello(
            session=session, versions=list(PROTOCOL_VERSIONS), client=CLIENT, host=host, cwd=cwd, delivery="pull",
            boundary=boundary, turn=turn,
        )  # fmt: skip
        self._desk.hear(hello, answers.append, trio.current_time())
        for answer in answers:
            if isinstance(answer, wire.Problem):
                raise Refused(answer.code, answer.text, host)

    def _tell(self, host: Host, live: LiveSession, heard: Heard) -> tuple[int, set[str]]:
        """Tell the desk what is news; the turn (0: none) and the calls that this hook is about."""
        told, turn, calls = self._memory_of(live), 0, set[str]()
        for event in heard.events:
            match event:
                case wire.Turn():
                    if told.turn(host.name, event.text, heard.turn_id):
                        self._hear(live, replace(event, turn=live.race.turn + 1))
                    turn = live.race.turn
                case wire.ToolStarted():
                    if told.started(event.call):
                        self._hear(live, event)
                case wire.ToolEnded():
                    calls.add(event.call)
                    if told.ended(event.call):
                        self._hear(live, event)
                case _:
                    self._hear(live, event)
        return turn, calls

    def _memory_of(self, live: LiveSession) -> Told:
        told = self._told.get(live.id)
        if told is None or told.life != live.number:
            told = self._told[live.id] = Told(live.number)
            if len(self._told) > MAX_TOLD:
                self._told = {key: kept for key, kept in self._told.items() if self._book.get(key)}
        return told

    def _hear(self, live: LiveSession, message: wire.FromAgent) -> list[wire.FromDaemon]:
        answers: list[wire.FromDaemon] = []
        self._desk.hear(replace(message, session=live.id), answers.append, trio.current_time())
        return answers

    # ------------------------------------------------------------ the boundary

    def _take(self, live: LiveSession, gone: Callable[[], bool]) -> list[str]:
        """The outbox, a line each; [] also where the session has ended meanwhile, or nobody waits."""
        if self._book.get(live.id) is not live:
            return []
        if gone():
            self._figures.abandoned += 1
            self._hear(live, wire.Boundary(number=live.race.boundary + 1, turn=live.race.turn))
            return []
        answers = self._hear(live, wire.Outbox())
        snippets = [snippet for answer in answers if isinstance(answer, wire.Injections) for snippet in answer.snippets]
        self._figures.snippets += len(snippets)
        self._figures.answered += bool(snippets)
        return [from_snippet(snippet).render() for snippet in snippets]


async def _read(host: Host, event: str, payload: bytes) -> Heard:
    try:
        if len(payload) < THREAD_BYTES:
            return host.read(event, payload)
        return await trio.to_thread.run_sync(host.read, event, payload)
    except PayloadError as error:
        raise Refused("malformed", str(error), host.name) from None


async def _settled(live: LiveSession, turn: int, calls: Collection[str], deadline: float) -> None:
    """Until nothing more will come of the recalls that serve this turn or these calls; `deadline` in loop seconds."""
    with trio.move_on_at(deadline):
        while live.race.recalls.unsettled(turn, calls):
            await live.settled.park()
