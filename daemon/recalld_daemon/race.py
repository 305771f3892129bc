"""The race of recalls against an agent's boundaries: one session, sans-IO.

Theory of operation. `handle(event, at)` takes what happened and returns what to do; there is no socket, task, clock or
chance in here, and all that decides a race lies in this file and in `race_recall` (the phases of one recall).

- A turn or a tool call *asks*. A question equal to the last is not run again: it joins the recall that still has
  something to give, or is turned away as a repeat if that ended shown or silent. Otherwise a recall is made, and begins
  when fewer than `max_running` run. One waits, no more: a newer one merges it and serves its calls too.
- An answer is the best so far. It is sent at once (push), or kept until the outbox is asked (pull).
- A boundary first tells what was taken (push), then passes: a recall whose own boundary it was slips; one that is
  `stale_after` boundaries past its own is dropped.
- Once anything of a recall was shown, the rest is void, here and in the client. If it still runs, another id goes on
  with it, its *heir*: a deeper answer that holds something else may slip.
- After a compaction all may come once more: the agent has lost what it was shown.
- A new turn changes the context. The client forgets what it has not shown; what is pending here, and what recalls
  begun before may still answer, is rescored against the new turn before it is sent again.

Why no passage is shown twice although messages cross: an offer that was sent holds its passage until the client can
no longer show it, that is, until a newer turn or a boundary past its staleness has been reported; reports come in
order, so by then all that was taken is known. Till then no other recall may offer it, even if it was replaced or
withdrawn meanwhile. Of the passages that were shown the last `max_delivered` are remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import assert_never

from recalld_daemon import race_events as ev
from recalld_daemon.race_calls import Calls
from recalld_daemon.race_pace import Pace
from recalld_daemon.race_recall import DEPTH, VERDICTS, Phase, RaceError, Recall, Recalls, Step, within
from recalld_daemon.race_rules import broken_rules
from recalld_daemon.recall.budget import Lengths
from recalld_daemon.recall.types import Query
from recalld_protocol.messages import Outcome

__all__ = ["VERDICTS", "Race", "RaceError"]


class Race:
    """The race of one session. Counters are the client's; `delivered` are passages shown before a restart."""

    def __init__(
        self,
        session: str,
        prefix: str,
        delivery: ev.Delivery,
        limits: ev.RaceLimits = ev.RaceLimits(),  # noqa: B008  frozen
        boundary: int = 0,
        turn: int = 0,
        delivered: Iterable[int] = (),
        lengths: Lengths | None = None,
    ) -> None:
        self.session = session
        self.delivery = delivery
        self.limits = limits
        self.boundary = boundary  # the last one known to have passed
        self.turn = turn
        self.closed = False
        self.ignored_taken = 0  # ids reported as taken that were not on offer
        self.log: deque[ev.Stimulus] = deque(maxlen=limits.max_log)
        self.context = 0  # changes of turn
        self.recalls = Recalls(prefix, limits)
        self.recalls.remember(delivered)
        self.calls = Calls(limits)
        self.pace = Pace(lengths or Lengths(), self.calls)
        self._instructions: list[ev.Instruction] = []

    @property
    def counts(self) -> dict[str, int]:
        """How many recalls ended how (VERDICTS): each recall id counts once, when it is over."""
        return self.recalls.counts

    @property
    def delivered(self) -> Collection[int]:
        """The passages that were shown in this session, longest ago first."""
        return self.recalls.shown.keys()

    def handle(self, event: ev.Event, at: float) -> list[ev.Instruction]:
        """What to do now that `event` happened at `at` (seconds, monotonic), in the order to do it in."""
        self._instructions = []
        if not self.closed:
            self._dispatch(event, at)
            self._begin_waiting(at)
        elif isinstance(event, ev.OutboxAsked):
            self._do(ev.Deliver((), event.number))
        self.log.append(ev.Stimulus(at, event, tuple(self._instructions)))
        return self._instructions

    def excluded(self, recall: str) -> frozenset[int]:
        """The passages this recall must not offer: shown before, or out with another. The gate may choose others."""
        return frozenset(self.recalls.withheld(self.recalls.get(recall)))

    def validate(self) -> None:
        """Check what must always hold between events (`race_rules`). Raises RaceError naming what does not."""
        if broken := broken_rules(self):
            raise RaceError(f"session {self.session}: broken: {'; '.join(broken)}")

    # ------------------------------------------------------------ events

    def _dispatch(self, event: ev.Event, at: float) -> None:
        match event:
            case ev.TurnBegan(turn, query):
                self.pace.turn_began(at)
                self._turn_began(turn, query)
            case ev.ToolStarted():
                self._tool_started(event, at)
            case ev.ToolEnded(call):
                self.pace.call_ends(call, at)
                self._make_due(self.calls.end(call, at))
            case ev.BoundaryReached(number, turn, taken):
                self.pace.boundary_passed(at)
                self._boundary_reached(number, turn, taken)
            case ev.OutboxAsked(number):
                self.pace.boundary_passed(at)
                self._outbox_asked(number)
            case ev.AnswerReady():
                self._answer_ready(event)
            case ev.RecallFailed(recall, reason):
                self._recall_failed(recall, reason)
            case ev.Rescored(recall, turn, keep):
                self._rescored(recall, turn, keep)
            case ev.Resumed(boundary, turn):
                self._resumed(boundary, turn)
            case ev.Compacted():
                self.recalls.new_epoch()
            case ev.Forgotten(passages):
                self._forget(passages)
            case ev.Closed():
                self._close()
            case ev.Tick():
                self._expire(at)
            case _:
                assert_never(event)

    def _turn_began(self, turn: int, query: Query) -> None:
        if turn != self.turn:
            self._change_turn(turn, same=self.recalls.same_question(query))
        self._ask(query, turn=turn, due=True)

    def _tool_started(self, event: ev.ToolStarted, at: float) -> None:
        start = self.calls.start(event.call, event.parent, at, event.name)
        if start != "duplicate":
            self._ask(event.query, call=event.call, due=start == "overtaken")
            self._make_due(self.calls.expire(at))

    def _make_due(self, ended: list[str]) -> None:
        """These calls have ended: the next boundary is the own one of the recalls that serve them."""
        for recall in self.recalls:
            recall.due = recall.due or any(call in recall.calls for call in ended)

    def _boundary_reached(self, number: int, turn: int, taken: tuple[str, ...]) -> None:
        """First what was taken, then a turn of which we had not heard, then the boundary itself passes."""
        on_offer = [id for id in dict.fromkeys(taken) if self.delivery == "push" and self.recalls.holder(id)]
        self.ignored_taken += len(taken) - len(on_offer)
        for recall in self.recalls:
            if ids := tuple(id for id in on_offer if id in recall.out):
                self._show(recall, ids, number)
        if turn > self.turn:
            self._change_turn(turn)
        self._pass_boundary(number)

    def _outbox_asked(self, number: int) -> None:
        """In push, all that could be delivered has been sent: delivering it here too could show it twice."""
        number = number or self.boundary + 1
        on_offer = [(o, r) for r in self.recalls for o, _ in r.out.values() if self.delivery == "pull"]
        on_offer.sort(key=lambda pair: -pair[0].probability)
        chosen = within((o for o, _ in on_offer), self.limits.max_snippets, self.limits.boundary_tokens)
        self._do(ev.Deliver(chosen, number))
        for recall in {r.id: r for offer, r in on_offer if offer in chosen}.values():
            self._show(recall, tuple(offer.id for offer in chosen if offer.id in recall.out), number)
        if self.delivery == "pull":
            self._pass_boundary(number)

    def _answer_ready(self, event: ev.AnswerReady) -> None:
        """A shallower answer than the last brings nothing but, perhaps, the end."""
        recall = self.recalls.get(event.recall)
        if recall is None or recall.phase is not Phase.RUNNING:
            return
        if DEPTH[event.stage] >= DEPTH[recall.stage]:
            recall.stage = event.stage
            self._take_in(recall, event.offers)
        if event.final:
            known = "all of it was shown, is on offer, or goes beyond the session's tokens"
            self._finish(recall, "silent", known if event.offers and not recall.best else event.reason)

    def _recall_failed(self, recall_id: str, reason: str) -> None:
        recall = self.recalls.get(recall_id)
        if recall is not None and recall.phase is Phase.RUNNING:
            stands = f"; what stage {recall.stage!r} found stands" if recall.best else ""
            self._finish(recall, "failed", reason + stands)

    def _rescored(self, recall_id: str, turn: int, keep: tuple[str, ...]) -> None:
        """What came in since we asked is not judged by this, and is asked about next."""
        recall = self.recalls.get(recall_id)
        if recall is None or recall.rescoring is None or turn != self.turn:
            return
        asked, recall.rescoring = recall.rescoring, None
        more = any(o.id not in asked for o in recall.best)
        recall.best = tuple(o for o in recall.best if o.id in keep or o.id not in asked)
        if more:
            self._rescore(recall)
        else:
            self._offer(recall, recall.best)
        self._drop_if_emptied(recall)

    def _resumed(self, boundary: int, turn: int) -> None:
        """A counter that went back was lost with the client's process: renumber. One ahead: we missed something."""
        if boundary < self.boundary:
            self.recalls.renumber(boundary - self.boundary)
            self.boundary = boundary
        self._pass_boundary(boundary)
        if turn > self.turn:
            self._change_turn(turn)
            return
        lost, self.turn = turn < self.turn, turn
        for recall in self.recalls:
            if recall.out and recall.rescoring is None:
                self._offer(recall, recall.best)
            elif lost and recall.rescoring is not None:
                recall.rescoring = None
                self._rescore(recall)

    def _forget(self, passages: frozenset[int]) -> None:
        """What the client holds of them is withdrawn; what it shows just now it shows."""
        for recall in self.recalls:
            if recall.lose(passages) and recall.rescoring is None:
                self._offer(recall, recall.best)
            self._drop_if_emptied(recall, "what it found was forgotten")

    def _close(self) -> None:
        for recall in self.recalls:
            self._lapse(recall, "closed: the session ended")
        self.closed = True
        self.calls.clear()
        self.recalls.shown.clear()

    def _expire(self, at: float) -> None:
        self._make_due(self.calls.expire(at))
        for recall in self.recalls:
            if recall.phase is Phase.RUNNING and at - recall.begun_at >= self.limits.recall_ttl_seconds:
                self._do(ev.CancelRecall(recall.id))
                self._recall_failed(recall.id, f"no answer within {self.limits.recall_ttl_seconds:g} s")

    # ------------------------------------------------------------ asking

    def _ask(self, query: Query, *, turn: int = 0, call: str = "", due: bool = False) -> None:
        """A turn or a call asks. `due`: its own boundary is the next."""
        calls = (call,) if call else ()
        if same := self.recalls.same_question(query):
            self._join(same, turn, calls, due)
        elif self.recalls.answered(query):
            self._turn_away(turn, calls, "repeat", f"the same question as {self.recalls.last_id}")
        elif (waiting := self.recalls.waiting()) is None and len(self.recalls) >= self.limits.max_live:
            self._turn_away(turn, calls, "silent", f"{len(self.recalls)} recalls wait for a boundary already")
        else:
            recall = Recall(self.recalls.new_id(), query, turn, calls, self.context, due)
            if waiting is not None:
                self._merge(waiting, recall)
            self.recalls.add(recall)

    def _join(self, recall: Recall, turn: int, calls: tuple[str, ...], due: bool) -> None:
        """Its `Settle` will tell who waits for it; where that has gone out already, they are told now."""
        if len(recall.calls + calls) > self.limits.max_calls_per_recall:
            self._turn_away(turn, calls, "repeat", f"the same question as {recall.id}, which serves many already")
            return
        recall.join(turn, calls, self.context, due)
        if recall.best:
            self._offer(recall, recall.best)
        if recall.outcome is not None:
            self._turn_away(turn, calls, "repeat", f"the same question as {recall.id}, whose answer serves it")
        self._drop_if_emptied(recall)

    def _merge(self, older: Recall, newer: Recall) -> None:
        """The newer one serves what the older one did, as far as one can; calls beyond that are told it is over."""
        overflow = newer.inherit(older, self.limits.max_calls_per_recall)
        older.outcome = "merged"
        self._do(ev.Settle(older.id, (), 0, "merged", "none", f"merged into {newer.id}"))
        if overflow:
            self._turn_away(0, overflow, "silent", f"more calls at once than {newer.id} can serve")
        self.recalls.end(older, Step.MERGE, "merged")

    def _turn_away(self, turn: int, calls: tuple[str, ...], outcome: Outcome, reason: str) -> None:
        self._do(ev.Settle(self.recalls.new_id(), calls, turn, outcome, "none", reason))
        self.recalls.counts[outcome] += 1

    def _begin_waiting(self, at: float) -> None:
        waiting = self.recalls.waiting()
        if waiting is not None and self.recalls.running() < self.limits.max_running:
            self.recalls.begin(waiting, at)
            budget_ms = self.pace.budget_ms(waiting, at)
            self._do(ev.StartRecall(waiting.id, waiting.query, waiting.turn, waiting.calls, budget_ms))

    # ------------------------------------------------------------ offering

    def _take_in(self, recall: Recall, offers: tuple[ev.Offer, ...]) -> None:
        if len({*recall.out, *(o.id for o in offers[: ev.MAX_OFFERS])}) > self.limits.max_ids:
            return
        if recall.context == self.context or not offers:
            self._offer(recall, offers)
        else:
            recall.best = offers[: ev.MAX_OFFERS]
            self._rescore(recall)

    def _offer(self, recall: Recall, offers: tuple[ev.Offer, ...]) -> None:
        """These fit the conversation as it is now: they are its best, and go out."""
        recall.best = self.recalls.offerable(recall, offers)
        if self.delivery == "pull":
            recall.out.clear()
        recall.out.update((o.id, (o, recall.stage)) for o in recall.best)
        if self.delivery == "push" and (recall.best or recall.held):
            recall.held = bool(recall.best)
            recall.sent_at = self.boundary if recall.own is None else recall.own - 1
            self._do(ev.Send(recall.id, recall.stage, self.turn, recall.sent_at, recall.best))

    def _rescore(self, recall: Recall) -> None:
        if recall.best and recall.rescoring is None:
            ids = tuple(o.id for o in recall.best)
            recall.rescoring = frozenset(ids)
            self._do(ev.Rescore(recall.id, ids, self.turn))

    def _change_turn(self, turn: int, same: Recall | None = None) -> None:
        """All that is not shown waits to be rescored, but for `same`, which asks what the new turn asks."""
        self.turn = turn
        self.context += 1
        pending = [r for r in self.recalls if r.phase is Phase.PENDING and r is not same]
        crowd = pending[: max(0, len(pending) - self.limits.max_rescored)]
        for recall in self.recalls:
            recall.forget_out()
            if recall.phase is Phase.WITHDRAWN or recall in crowd:
                self._lapse(recall, "stale: a new turn came, and newer ones were kept")
            elif recall is not same:
                self._rescore(recall)

    # ------------------------------------------------------------ boundaries and ends

    def _show(self, recall: Recall, ids: tuple[str, ...], number: int) -> None:
        """These were shown at boundary `number`; the rest of it is void. What runs has an heir, if none waits."""
        timing, shown = recall.timing_at(number), [recall.out[id] for id in ids]
        running, alone = recall.phase is Phase.RUNNING, self.recalls.waiting() is None  # nobody waits for its place
        heir = recall.heir(self.recalls.new_id(), max(number, self.boundary)) if running and alone else None
        self.recalls.remember(offer.passage for offer, _ in shown)
        self.recalls.tokens += sum(offer.tokens for offer, _ in shown)
        self._do(ev.Delivered(recall.id, ids, timing, number, shown[0][1]))
        if running:
            self._do(ev.Continue(recall.id, heir.id) if heir else ev.CancelRecall(recall.id))
            self._settle(recall, "ready", "shown; what a deeper answer has beyond it may follow")
        self.recalls.end(recall, Step.TAKE, timing)
        if heir:
            self.recalls.add(heir)

    def _pass_boundary(self, number: int) -> None:
        """A number that repeats or goes back is an old report: it makes nothing older."""
        if number <= self.boundary:
            return
        self.boundary = number
        for recall in self.recalls:
            if recall.slips_at(number):
                self._do(ev.Slipped(recall.id, number))
            if recall.is_stale(number, self.limits.stale_after):
                self._lapse(recall, f"stale: {self.limits.stale_after} boundaries passed without it")

    def _finish(self, recall: Recall, empty: Outcome, reason: str) -> None:
        """Nothing deeper will come: what it has stands, or it ends as `empty`."""
        self._settle(recall, "ready" if recall.best else empty, reason)
        if recall.best:
            recall.move(Step.READY)
        elif recall.out:
            recall.move(Step.RETRACT)
        else:
            self.recalls.end(recall, Step.SILENT if empty == "silent" else Step.FAIL, empty)

    def _settle(self, recall: Recall, outcome: Outcome, reason: str) -> None:
        if recall.outcome is not None:
            raise RaceError(f"recall {recall.id} is settled twice: {recall.outcome!r}, then {outcome!r}")
        recall.outcome = outcome
        self._do(ev.Settle(recall.id, recall.calls, recall.turn, outcome, recall.stage, reason))

    def _lapse(self, recall: Recall, reason: str) -> None:
        """Given up. A withdrawn one has been told already: it only leaves."""
        if recall.phase is Phase.WITHDRAWN:
            self.recalls.end(recall, Step.SILENT, recall.outcome or "silent")
            return
        if recall.phase is Phase.RUNNING:
            self._do(ev.CancelRecall(recall.id))
        if recall.outcome is None:
            self._settle(recall, "stale", reason)
        if recall.best:
            self._do(ev.Dropped(recall.id, reason))
        self.recalls.end(recall, Step.LAPSE, "stale")

    def _drop_if_emptied(self, recall: Recall, why: str = "a new turn came, and none of it is of use there") -> None:
        if recall.phase is Phase.PENDING and not recall.best:
            self._do(ev.Dropped(recall.id, f"stale: {why}"))
            self.recalls.end(recall, Step.LAPSE, "stale")

    def _do(self, instruction: ev.Instruction) -> None:
        self._instructions.append(instruction)
