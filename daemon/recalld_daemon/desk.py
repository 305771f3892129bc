"""Where messages come in and what follows from them: each is handled at once and in order, without waiting.

What a session says becomes an event of its race, and the race's instructions are carried out here: recalls started,
injections sent, the log noted. What a question needs longer for (a search, a memory to keep) becomes a task of its own
(`questions`). Invariant: nothing on the way from a message to its recall waits for a disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import trio

from recalld_daemon import __version__
from recalld_daemon import observer as ob
from recalld_daemon import race_events as ev
from recalld_daemon.book import LiveSession, Pending, SessionBook
from recalld_daemon.events import EventFeed
from recalld_daemon.journal import Journal
from recalld_daemon.race import VERDICTS
from recalld_daemon.recall.gate import words_shown
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.withholding import WITHHELD
from recalld_daemon.recalls import Recalls, new_trace
from recalld_daemon.records import explained, impression_of, keep_compaction, keep_session, recall_of
from recalld_daemon.sockets import Received, RouterServer
from recalld_daemon.watching import Watching
from recalld_protocol import messages as wire
from recalld_protocol.errors import VersionMismatch, WireError
from recalld_protocol.wire import clip, decode_from_agent, encode, negotiate, problem_for

MAX_TRACES = 64  # per session, of recalls that may still be delivered or dropped

log = logging.getLogger(__name__)
Question = (
    wire.Remember | wire.Forget | wire.Follow | wire.Search | wire.Pack | wire.StatusAsk | wire.SessionsAsk
    | wire.WhyAsk | wire.Feedback | wire.TrainAsk | wire.VersionsAsk | wire.Activate
)  # fmt: skip
Reply = Callable[[wire.FromDaemon], None]


class Desk:
    """`ask` takes a question that needs time, with the way to answer it; `nursery` runs the recalls."""

    def __init__(
        self,
        router: RouterServer,
        book: SessionBook,
        journal: Journal,
        feed: EventFeed,
        welcome: wire.Welcome,
        ask: Callable[[Question, Reply], None],
        nursery: trio.Nursery,
    ) -> None:
        self._router, self._book, self._journal, self._feed = router, book, journal, feed
        self._welcome, self._ask, self._nursery = welcome, ask, nursery
        self.recalls: Recalls  # set by who made both: it reports to `answered` and `withheld`
        self.watching = Watching(journal, feed, lambda: self.recalls.until_idle())
        self._past = dict.fromkeys(VERDICTS, 0)  # of sessions that are closed
        self._past_tokens = 0
        self.draining = False

    async def serve(self) -> None:
        self._nursery.start_soon(self.watching.serve)
        while True:
            received = await self._router.receive()
            self.handle(received, trio.current_time())

    def handle(self, received: Received, now: float) -> None:
        """One frame. Whatever it holds, the answer is a message, never an exception."""
        try:
            message = decode_from_agent(received.frame)
        except WireError as error:
            log.info("refused a message: %s", error)
            self._send(received.identity, problem_for(error))
            return

        def reply(answer: wire.FromDaemon) -> None:
            self._send(received.identity, msgspec.structs.replace(answer, session=message.session, re=message.id))

        try:
            self._handle(message, received.identity, reply, now)
        except Exception as error:  # the outermost loop of a message: its fault must not end everybody's sessions
            log.exception("%s could not be handled", kind_of(message))
            text = f"a fault in recalld: {type(error).__name__}: {error}"
            reply(wire.Problem(code="failed", text=clip(text, 1024), of=kind_of(message)))

    def hear(self, message: wire.FromAgent, reply: Reply, now: float) -> None:
        """A message that came by no socket of ours, and whose session so has no route: a hook's."""
        self._handle(message, None, reply, now)

    def _handle(self, message: wire.FromAgent, identity: bytes | None, reply: Reply, now: float) -> None:
        match message:
            case wire.Ping():
                w = self._welcome
                self._seen(message.session, identity)
                reply(wire.Pong(epoch=w.epoch, daemon=__version__, pid=w.pid))
            case wire.Hello():
                self._hello(message, identity, reply, now)
            case (
                wire.Remember() | wire.Forget() | wire.Follow() | wire.Search() | wire.Pack() | wire.StatusAsk()
                | wire.SessionsAsk() | wire.WhyAsk() | wire.Feedback() | wire.TrainAsk() | wire.VersionsAsk()
                | wire.Activate()
            ):  # fmt: skip
                self._seen(message.session, identity)
                self._ask(message, reply)
            case _:
                live = self._seen(message.session, identity)
                if live is None:
                    text = f"session {message.session!r} is not open here (recalld may have restarted): say hello first"
                    reply(wire.Problem(code="unknown_session", text=text[:1024], of=kind_of(message)))
                else:
                    self._session_event(live, message, reply, now)

    # ------------------------------------------------------------ sessions

    def _seen(self, session: str, identity: bytes | None) -> LiveSession | None:
        live = self._book.get(session) if session else None
        if live is not None:
            live.route, live.last_seen_at = identity or live.route, time.time()
            live.lease.seen(trio.current_time())
        return live

    def _hello(self, hello: wire.Hello, identity: bytes | None, reply: Reply, now: float) -> None:
        try:
            version = negotiate(hello.versions)
        except VersionMismatch as error:
            reply(wire.Problem(code="version", text=str(error)[:1024], of="hello"))
            return
        if not hello.session:
            reply(wire.Problem(code="malformed", text="hello names no session: give it an id", of="hello"))
            return
        known = self._book.get(hello.session)
        if known is None and (self._book.full or self.draining):
            why = (
                "is stopping" if self.draining else f"serves {len(self._book)} sessions already ([daemon] max_sessions)"
            )
            reply(wire.Problem(code="busy", text=f"this daemon {why}: try again later", of="hello"))
            return
        if known is not None and known.hello.delivery != hello.delivery:
            shown = tuple(known.race.delivered)  # a closed race forgets it
            self.tell(known, ev.Closed(), now)
            self._book.race_anew(known, hello, shown)
        live = self._book.open(hello, now)
        if hello.turn < live.standing[0]:
            live.standing = (0, frozenset())  # a client that counts anew: its turns are others
        self._seen(live.id, identity)
        reply(msgspec.structs.replace(self._welcome, version=version))
        if known is None:
            self._feed.emit("session.opened", live.id, host=hello.host, scope=live.scope_key, delivery=hello.delivery)
            self._journal.note(partial(keep_session, live.record()))
        self.tell(live, ev.Resumed(hello.boundary, hello.turn), now)
        self.watching.happened(live, ob.BoundaryPassed(live.race.boundary))

    def _session_event(self, live: LiveSession, message: wire.FromAgent, reply: Reply, now: float) -> None:
        talk = live.conversation
        match message:
            case wire.Turn():
                live.as_of = message.as_of
                talk.turn(message.turn, message.text)
                self.watching.happened(live, ob.Heard(message.text))
                self._feed.emit("turn", live.id, turn=message.turn)
                self.tell(live, ev.TurnBegan(message.turn, query_of(talk.focus_for_turn())), now)
            case wire.Said():
                talk.said(message.text)
                self.watching.happened(live, ob.Said(message.text))
            case wire.ToolStarted():
                self._tool_started(live, message, now)
            case wire.ToolEnded():
                self.watching.happened(live, ob.Heard(message.result))
                self.tell(live, ev.ToolEnded(message.call), now)
            case wire.Boundary():
                self.tell(live, ev.BoundaryReached(message.number, message.turn, tuple(message.taken)), now)
                self.watching.happened(live, ob.BoundaryPassed(live.race.boundary))
            case wire.Outbox():
                self.tell(live, ev.OutboxAsked(message.number), now, reply)
                self.watching.happened(live, ob.BoundaryPassed(live.race.boundary))
            case wire.Compacted():
                talk.compacted()
                live.seen = ()
                self.watching.happened(live, ob.Missed())
                self._feed.emit("session.compacted", live.id)
                self._journal.note(partial(keep_compaction, live.id, time.time()))
                self.tell(live, ev.Compacted(), now)
            case wire.Bye():
                self.close(live, "bye", now)
            case _:
                log.debug("nothing to do for %s", kind_of(message))

    def _tool_started(self, live: LiveSession, message: wire.ToolStarted, now: float) -> None:
        live.calls += 1
        if message.as_of is not None:
            live.as_of = message.as_of
        live.conversation.tool_started(message.name, message.args)
        self._feed.emit("tool.started", live.id, call=message.call, name=message.name)
        if live.conversation.is_own_tool(message.name, message.args):
            self._not_for_us(live, message.call)
            return
        focus = live.conversation.focus_for_tool(message.name, message.args)
        self.tell(live, ev.ToolStarted(message.call, query_of(focus), message.parent, message.name), now)
        self.watching.happened(live, ob.ToolStarted(message.name, message.args, live.hello.cwd))

    def _not_for_us(self, live: LiveSession, call: str) -> None:
        """A call of recalld's own tools starts no recall; whoever waits for one is told."""
        if live.push and live.route is not None:
            reason = "one of recalld's own tools"
            self._send(
                live.route, wire.Settled(session=live.id, recall="", calls=[call], outcome="silent", reason=reason)
            )

    def counts(self) -> dict[str, int]:
        """How the races of all sessions ended since the start."""
        return {
            verdict: past + sum(live.race.counts[verdict] for live in self._book)
            for verdict, past in self._past.items()
        }

    @property
    def tokens_shown(self) -> int:
        """To all sessions since the start."""
        return self._past_tokens + sum(live.race.recalls.tokens for live in self._book)

    def close(self, live: LiveSession, reason: str, now: float) -> None:
        """End a session: its recalls are cancelled, its record kept."""
        self.tell(live, ev.Closed(), now)
        self.watching.happened(live, ob.Closed())
        self._book.close(live.id)
        self._past_tokens += live.race.recalls.tokens
        self._past = {verdict: past + live.race.counts[verdict] for verdict, past in self._past.items()}
        self._feed.emit("session.closed", live.id, reason=reason)
        self._journal.note(partial(keep_session, live.record(time.time())))

    async def tick(self, every_seconds: float) -> None:
        """Expire what never ends: calls, recalls, sessions without a sign of life."""
        while True:
            await trio.sleep(every_seconds)
            now = trio.current_time()
            for live in self._book:
                if live.lease.state(now) == "dead":
                    self.close(live, "idle", now)
                else:
                    self.tell(live, ev.Tick(), now)

    # ------------------------------------------------------------ the race's instructions

    def tell(self, live: LiveSession, event: ev.Event, now: float, reply: Reply | None = None) -> None:
        """Let the race handle an event and carry out what it says."""
        for instruction in live.race.handle(event, now):
            self._carry_out(live, instruction, now, reply)

    def answered(self, live: LiveSession, event: ev.AnswerReady | ev.RecallFailed) -> None:
        """What `recalls` has to say. A turn's first answer also says what still fits of the turn before."""
        now = trio.current_time()
        self.tell(live, event, now)
        turn, passing = live.standing
        if turn == live.race.turn and turn in live.rescores:
            self._answer_rescores(live, turn, passing, now)

    def _carry_out(self, live: LiveSession, instruction: ev.Instruction, now: float, reply: Reply | None) -> None:
        match instruction:
            case ev.StartRecall():
                self._start(live, instruction, now)
            case ev.CancelRecall(recall):
                if recall in live.running:
                    live.running[recall].cancel()
            case ev.Continue(recall, heir):
                live.go_on_as(recall, heir)
                self._feed.emit("recall.continued", live.id, recall=heir, parent=recall)
            case ev.Send():
                self._inject(live, instruction)
            case ev.Deliver(offers):
                snippets = [live.pending[offer.id].snippet for offer in offers if offer.id in live.pending]
                if reply is not None:
                    reply(wire.Injections(snippets=snippets))
            case ev.Delivered():
                self._delivered(live, instruction)
            case ev.Slipped(recall, boundary):
                self._feed.emit("race.slipped", live.id, recall=recall, boundary=boundary)
            case ev.Settle():
                self._settle(live, instruction, now)
            case ev.Rescore(recall, offers, turn):
                live.rescores = {turn: [*live.rescores.get(turn, []), (recall, offers)]}
                if live.standing[0] == turn:
                    self._answer_rescores(live, turn, live.standing[1], now)
            case ev.Dropped(recall, reason):
                self._feed.emit("race.dropped", live.id, recall=recall, reason=reason)
                self._log_recall(live, recall, "stale", reason)
                live.forget_recall(recall)

    def _start(self, live: LiveSession, start: ev.StartRecall, now: float) -> None:
        live.traces[start.recall] = trace = new_trace(start, now)
        while len(live.traces) > MAX_TRACES:
            del live.traces[next(iter(live.traces))]
        self._feed.emit("recall.started", live.id, recall=start.recall, cause=trace.cause)
        self._nursery.start_soon(self.recalls.run, live, start, now)

    def _inject(self, live: LiveSession, send: ev.Send) -> None:
        snippets = [live.pending[offer.id].snippet for offer in send.offers if offer.id in live.pending]
        trace = live.traces.get(send.recall)
        message = wire.Inject(
            session=live.id, recall=send.recall, stage=send.stage, turn=send.turn, boundary=send.boundary,
            snippets=snippets, calls=list(trace.calls[:64]) if trace else [], asked_turn=trace.turn if trace else 0,
            ms=round(trace.stage_ms.get(send.stage, 0.0), 3) if trace else 0.0,
        )  # fmt: skip
        if live.route is not None:
            self._send(live.route, message)

    def _settle(self, live: LiveSession, settle: ev.Settle, now: float) -> None:
        trace = live.traces.get(settle.recall)
        ms = (now - trace.began) * 1000 if trace else 0.0
        stage_ms = {stage: round(value, 3) for stage, value in trace.stage_ms.items()} if trace else {}
        message = wire.Settled(
            session=live.id, recall=settle.recall, calls=list(settle.calls), turn=settle.turn, outcome=settle.outcome,
            stage=settle.stage, reason=settle.reason[:1024], ms=round(ms, 3), stage_ms=stage_ms,
        )  # fmt: skip
        if live.push and live.route is not None:
            self._send(live.route, message)
        self._feed.emit(
            "recall.settled", live.id, recall=settle.recall, outcome=settle.outcome, stage=settle.stage,
            reason=settle.reason[:256], ms=round(ms, 3),
        )  # fmt: skip
        self._log_recall(live, settle.recall, settle.outcome, settle.reason, settle.stage, ms)
        live.settled.unpark_all()
        if settle.turn and settle.turn in live.rescores:
            unasked = settle.outcome == "repeat" or not (trace and trace.query)
            known = live.standing[1] if live.standing[0] == settle.turn else frozenset[int]()
            self._answer_rescores(live, settle.turn, None if unasked else known, now)

    def _delivered(self, live: LiveSession, shown: ev.Delivered) -> None:
        self._log_recall(live, shown.recall, shown.outcome, f"shown at boundary {shown.boundary}", shown.stage)
        known = [live.pending[key] for key in shown.offers if key in live.pending]
        records = [
            impression_of(pending, shown.recall, live.id, shown.stage, shown.outcome, shown.boundary)
            for pending in known
        ]
        trace = live.traces.get(shown.recall)
        self.watching.shown(live, trace, records)
        live.conversation.shown(record.text for record in records)
        shown_passages = {record.passage for record in records}
        live.see(words_shown(passage) for passage in (trace.passages if trace else ()) if passage.id in shown_passages)
        live.forget_recall(shown.recall)

    def withheld(self, live: LiveSession, recall: str, held: Sequence[Pending]) -> None:
        """These would be offers, had they not drawn the lot: in the log once, watched, and never on their way.

        They count as withheld from the next boundary; what is offered may slip beyond it, or be dropped.
        """
        trace, new = live.traces.get(recall), [p for p in held if p.offer.passage not in live.withheld]
        if trace is None or trace.answer is None or not new:
            return
        stage, boundary = trace.answer.stage, live.race.boundary + 1
        if all(pending.recall != recall for pending in live.pending.values()):
            self._log_recall(live, recall, "withheld", WITHHELD, stage)
        records = [impression_of(pending, recall, live.id, stage, "withheld", boundary) for pending in new]
        live.withheld |= {record.passage for record in records}
        self.watching.shown(live, trace, records)

    def _answer_rescores(self, live: LiveSession, turn: int, passing: frozenset[int] | None, now: float) -> None:
        """Tell what still fits the new turn. passing None: it asked nothing new, so all of it does."""
        for recall, offers in live.rescores.pop(turn, []):
            held = [live.pending[offer] for offer in offers if offer in live.pending]
            keep = tuple(p.offer.id for p in held if passing is None or p.offer.passage in passing)
            self.tell(live, ev.Rescored(recall, turn, keep), now)

    # ------------------------------------------------------------ the log

    def _log_recall(
        self, live: LiveSession, recall: str, outcome: str, reason: str, stage: str = "", ms: float = 0.0
    ) -> None:
        trace = live.traces.get(recall)
        if trace is None:
            return
        record = recall_of(live.id, trace, outcome, reason, stage, ms)
        self._journal.note(lambda writer: writer.record_recall(explained(record, trace)))

    def _send(self, identity: bytes, message: wire.FromDaemon) -> None:
        try:
            frame = encode(message)
        except WireError as error:
            log.error("%s could not be sent: %s", kind_of(message), error)
            return
        if not self._router.send_nowait(identity, frame):
            log.debug("%s: its client is gone or does not read", kind_of(message))
            for live in self._book:
                if live.route == identity:
                    live.route = None  # learned again from its next message, if there is one


def kind_of(message: wire.Message) -> str:
    return str(message.__struct_config__.tag)
