"""`Session`: what an agent calls. Nothing here raises, and nothing waits unless it is given a number of seconds.

    session = Session("my-agent", cwd=".")
    session.turn("deploy the new release")
    with session.tool("bash", "git push origin main") as call:
        call.result = run(...)
    for injection in session.boundary():
        context.append(str(injection))     # recalled: "… never tag before CI is green …" — notes/deploy.md:15-43

Without a daemon all of it does nothing, in microseconds; `connected` and `problem` tell, and the log says each cause
once. A session mends itself in passing: whatever is called next notices that the daemon is back.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Literal, TypeVar, get_args

from recalld_client import waits
from recalld_client.arguments import as_text, limit_of
from recalld_client.correspondence import Correspondence
from recalld_client.injection import Injection
from recalld_client.link import CONNECT_SECONDS, Link
from recalld_client.quiet import quiet
from recalld_protocol.endpoints import Endpoints
from recalld_protocol.messages import (
    PROTOCOL_VERSIONS,
    ArgsText,
    Compacted,
    Feedback,
    Hello,
    Hit,
    Pack,
    PathText,
    Remember,
    Said,
    Search,
    SessionId,
    Settled,
    ShortText,
    Text,
    ToolEnded,
    ToolStarted,
    Verdict,
)

TEXT, ARGS, SHORT, PATH, ID = map(limit_of, (Text, ArgsText, ShortText, PathText, SessionId))
RESULT = 2_048  # characters of a result's head that travel; see ToolEnded.result
OUTBOX_SECONDS = 0.15  # what a hook may cost its host
SEARCH_SECONDS = 1.0
PACK_TOKENS = 1_000
PACK_LEAST, PACK_MOST = 50, 1_500  # the wire's bounds
T = TypeVar("T")
logger = logging.getLogger("recalld.client")
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Call:
    """A tool call under way. Set `result` within `with session.tool(...)`, so that its head is told at the end."""

    __slots__ = ("id", "name", "result")

    def __init__(self, id: str = "", name: str = "") -> None:
        self.id = id
        self.name = name
        self.result: object = ""


class ToolSpan:
    """`with session.tool("bash", cmd) as call:` tells both ends; a body that raises is told as a failure."""

    def __init__(self, session: Session, start: Callable[[], Call]) -> None:
        self._session = session
        self._start = start
        self._call = Call()

    def __enter__(self) -> Call:
        self._call = self._start()
        return self._call

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session.tool_ended(self._call, self._call.result or error or "", ok=kind is None)


class Session:
    """One conversation. Threads may share it; a forked child goes on as a session of its own.

    `host` names the agent; `cwd` decides whose memory is seen, unless `project` names the scope; `session_id` resumes
    an earlier session; `delivery="pull"`: the daemon keeps what comes to mind until `outbox` (or `boundary`) asks;
    `all_scopes`: see every project's memory. Opening takes up to 40 ms, once, where a daemon's socket is there.
    """

    @quiet(lambda: None)
    def __init__(
        self,
        host: str = "",
        cwd: str | os.PathLike[str] = ".",
        session_id: str | None = None,
        project: str | os.PathLike[str] | None = None,
        delivery: Literal["push", "pull"] = "push",
        all_scopes: bool = False,
        endpoints: Endpoints | None = None,
    ) -> None:
        self._pull = delivery == "pull"
        self._calls = 0
        self._calls_lock = threading.Lock()
        self._hello = Hello(
            session=as_text(session_id or os.urandom(8).hex(), ID),
            versions=list(PROTOCOL_VERSIONS),
            client="python",
            host=as_text(host, SHORT),
            cwd=_absolute(cwd),
            project=_absolute(project) if project else "",
            delivery="pull" if self._pull else "push",
            all_scopes=bool(all_scopes),
        )
        self._correspondence = Correspondence(Link(endpoints), self._hello)
        _sessions.add(self)
        if self._correspondence.link.open() and self._correspondence.link.up:
            self._drive(waits.connecting(self._correspondence, CONNECT_SECONDS))
        else:
            self._correspondence.pulse()

    # ------------------------------------------------------------ what happens, told one way

    @quiet(lambda: None)
    def turn(self, text: str, as_of: float | None = None) -> None:
        """The user said `text`. `as_of` (epoch seconds): recall only what was written before."""
        with self._correspondence.lock:
            self._correspondence.say_turn(as_text(text, TEXT), as_of)

    @quiet(lambda: None)
    def said(self, text: str) -> None:
        """The assistant said `text`."""
        with self._correspondence.lock:
            self._correspondence.send(Said(session=self.id, text=as_text(text, TEXT)))

    @quiet(Call)
    def tool_started(
        self,
        name: str,
        args: object = "",
        *,
        call_id: str | None = None,
        parent: Call | str | None = None,
        as_of: float | None = None,
    ) -> Call:
        """A tool call begins: hand the result to `tool_ended`. `args`: a string, a mapping, or anything that prints.

        `call_id`: the host's own, unique within the session; `parent`: the enclosing call, for a subagent's.
        """
        call = Call(as_text(call_id, ID) if call_id else self._new_call(), as_text(name, SHORT))
        enclosing = parent.id if isinstance(parent, Call) else as_text(parent or "", SHORT)
        message = ToolStarted(
            session=self.id, call=call.id, name=call.name, args=as_text(args, ARGS), parent=enclosing, as_of=as_of
        )
        with self._correspondence.lock:
            self._correspondence.send(message)
        return call

    @quiet(lambda: None)
    def tool_ended(self, call: Call | str, result: object = "", ok: bool = True) -> None:
        """It ended. Only the head of `result` is sent; the next boundary is this call's own."""
        id = call.id if isinstance(call, Call) else as_text(call, ID)
        if not id:
            return
        size = len(result) if isinstance(result, (str, bytes)) else 0
        message = ToolEnded(session=self.id, call=id, ok=bool(ok), result=as_text(result, RESULT), result_bytes=size)
        with self._correspondence.lock:
            self._correspondence.buffer.call_ended(id)
            self._correspondence.send(message)

    def tool(self, name: str, args: object = "", *, parent: Call | str | None = None) -> ToolSpan:
        """Both ends of a tool call, around a `with` block."""
        return ToolSpan(self, lambda: self.tool_started(name, args, parent=parent))

    @quiet(lambda: None)
    def compacted(self) -> None:
        """The agent's context was compacted: what it was shown may come to mind once more."""
        with self._correspondence.lock:
            self._correspondence.send(Compacted(session=self.id, id=self._correspondence.next_id()))

    # ------------------------------------------------------------ what came to mind

    @quiet(list[Injection])
    def boundary(self, wait_seconds: float = 0.0) -> list[Injection]:
        """The agent's context may be added to now: at most three injections, the most probable first.

        With `wait_seconds` it returns as soon as something is there, or nothing more can come for the turn or the calls
        that ended, or the time is over; without a daemon at once.
        """
        if wait_seconds > 0 or self._pull:
            return self._drive(self._at_boundary(wait_seconds))
        with self._correspondence.lock:
            self._correspondence.pulse()
            return self._correspondence.take()

    @quiet(list[Injection])
    def outbox(self, wait_seconds: float = OUTBOX_SECONDS) -> list[Injection]:
        """The boundary of a host that pulls: one round trip. An answer that is late is given by the next outbox."""
        return self._drive(self._at_boundary(wait_seconds))

    # ------------------------------------------------------------ beside the race

    @quiet(lambda: None)
    def feedback(self, impression: Injection | str, verdict: Verdict) -> None:
        """A verdict on what was shown: "good", "bad", "acted", "used", "ignored". Sent until it is on disk."""
        id = impression.id if isinstance(impression, Injection) else as_text(impression, SHORT)
        if verdict not in get_args(Verdict):
            logger.warning("feedback %r is none of %s: not sent", verdict, ", ".join(get_args(Verdict)))
            return
        with self._correspondence.lock:
            number = self._correspondence.next_id()
            key = os.urandom(16).hex()
            message = Feedback(session=self.id, id=number, impression=id, verdict=verdict, key=key)
            self._correspondence.pledge(message)

    @quiet(str)
    def remember(
        self,
        text: str,
        scope: Literal["project", "global"] = "project",
        title: str = "",
        wait_seconds: float = 0.0,
    ) -> str:
        """Keep `text`: sent until the daemon has it on disk, in parts if it is long.

        Where its first part lies ("memory:17") if the daemon says so within `wait_seconds`, else "".
        """
        return self._drive(self._remembering(text, scope, title, wait_seconds))

    @quiet(list[Hit])
    def search(self, query: str, limit: int = 10, wait_seconds: float = SEARCH_SECONDS) -> list[Hit]:
        """Plain search, without a gate, best first; at most 100. Nothing if the daemon does not answer in time."""
        return self._drive(self._searching(query, limit, wait_seconds))

    @quiet(str)
    def recall(self, query: str, token_budget: int = PACK_TOKENS, wait_seconds: float = SEARCH_SECONDS) -> str:
        """All that is known about `query`, as one block of at most `token_budget` (50 to 1,500) tokens.

        Quoted facts with their sources and dates, oldest first, each event once. "" if nothing is known, or the daemon
        does not answer in time. Tokens are counted as in recalld_protocol.tokens.
        """
        return self._drive(self._packing(query, token_budget, wait_seconds))

    # ------------------------------------------------------------ the session itself

    @property
    def id(self) -> str:
        return self._correspondence.session

    @property
    def connected(self) -> bool:
        """Whether a daemon has welcomed this session and answers."""
        return self._look(lambda correspondence: correspondence.connected, lambda: False)

    @property
    def problem(self) -> str:
        """Why it is not connected, with the remedy; "" if it is."""
        return self._look(lambda correspondence: correspondence.problem, str)

    @quiet(bool)
    def connect(self, wait_seconds: float = 1.0) -> bool:
        """Wait for the daemon's welcome, at most so long. Not needed: everything else connects in passing."""
        return self._drive(waits.connecting(self._correspondence, wait_seconds))

    @quiet(list[Settled])
    def outcomes(self) -> list[Settled]:
        """What became of this session's recalls since the last call, in order: for replays, tests and the curious."""
        with self._correspondence.lock:
            return self._correspondence.take_outcomes()

    @quiet(bool)
    def wait(self, seconds: float) -> bool:
        """Wait until something arrives from the daemon, at most `seconds`; whether it did."""
        return self._correspondence.link.wait(seconds)

    @quiet(lambda: None)
    def close(self) -> None:
        """The conversation is over. Takes no time; what was sent last is written in the background."""
        with self._correspondence.lock:
            self._correspondence.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ------------------------------------------------------------ the waits, for the drivers here and in aio

    def _drive(self, steps: waits.Steps[T]) -> T:
        while True:
            try:
                left = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            self._correspondence.link.rest(left)

    def _at_boundary(self, wait_seconds: float) -> waits.Steps[list[Injection]]:
        return (waits.outbox if self._pull else waits.boundary)(self._correspondence, wait_seconds)

    def _searching(self, query: str, limit: int, wait_seconds: float) -> waits.Steps[list[Hit]]:
        with self._correspondence.lock:
            question = Search(
                session=self.id,
                id=self._correspondence.next_id(),
                query=as_text(query, TEXT),
                limit=max(1, min(int(limit), 100)),
                cwd=self._hello.cwd,
                all_scopes=self._hello.all_scopes,
            )
        return waits.search(self._correspondence, question, wait_seconds)

    def _packing(self, query: str, token_budget: int, wait_seconds: float) -> waits.Steps[str]:
        with self._correspondence.lock:
            question = Pack(
                session=self.id,
                id=self._correspondence.next_id(),
                query=as_text(query, TEXT),
                token_budget=max(PACK_LEAST, min(int(token_budget), PACK_MOST)),
                cwd=self._hello.cwd,
                all_scopes=self._hello.all_scopes,
            )
        return waits.packing(self._correspondence, question, wait_seconds)

    def _remembering(
        self, text: str, scope: Literal["project", "global"], title: str, wait_seconds: float
    ) -> waits.Steps[str]:
        parts = [part for part in _parts(text if isinstance(text, str) else as_text(text, TEXT)) if part.strip()]
        if not parts:
            logger.warning("remember: there is no text to keep")
        with self._correspondence.lock:
            memories = [
                Remember(
                    session=self.id,
                    id=self._correspondence.next_id(),
                    text=as_text(part, TEXT),
                    cwd=self._hello.cwd,
                    scope="global" if scope == "global" else "project",
                    title=as_text(title, SHORT) if len(parts) == 1 else _numbered(title, place, len(parts)),
                    key=os.urandom(16).hex(),
                )
                for place, part in enumerate(parts, start=1)
            ]
        return waits.remembering(self._correspondence, memories, wait_seconds)

    @quiet(str)
    def _new_call(self) -> str:
        with self._calls_lock:
            self._calls += 1
            return f"c{self._calls}"

    def _look(self, at: Callable[[Correspondence], T], fallback: Callable[[], T]) -> T:
        @quiet(fallback)
        def look() -> T:
            with self._correspondence.lock:
                return at(self._correspondence)

        return look()


def _absolute(path: str | os.PathLike[str]) -> str:
    try:
        return as_text(os.path.abspath(os.fspath(path)), PATH)
    except OSError:  # the working directory was deleted
        return ""


def _parts(text: str) -> Iterator[str]:
    """`text` in pieces that fit the wire, cut after a paragraph, a line or a word where there is one."""
    while len(text) > TEXT:
        head = text[:TEXT]
        cut = next((at + len(gap) for gap in ("\n\n", "\n", " ") if (at := head.rfind(gap)) > TEXT // 2), TEXT)
        yield text[:cut]
        text = text[cut:]
    yield text


def _numbered(title: str, place: int, of: int) -> str:
    mark = f" ({place}/{of})"
    return as_text(title, SHORT - len(mark)) + mark


def _after_fork() -> None:
    for session in list(_sessions):
        session._calls_lock = threading.Lock()
        session._correspondence.forked()


os.register_at_fork(after_in_child=_after_fork)
