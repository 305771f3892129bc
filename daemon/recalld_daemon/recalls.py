"""Running recalls: between the race, which knows no clock and no thread, and the cascade, which needs both.

A recall is a task. The cascade publishes an answer per stage; what is judged (passages read, gates, snippets cut from
the files as they are now) is told to the race as offers. The last answer is judged in the recall's own thread; one
before it only where the last is late, in a thread beside, so that the cascade never waits for it.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import trio
from msgspec.structs import replace

from recalld_daemon.book import LiveSession, Pending, Trace
from recalld_daemon.race_events import MAX_OFFERS, AnswerReady, Offer, RecallFailed, StartRecall
from recalld_daemon.recall import gate
from recalld_daemon.recall.budget import JUDGE, Budget, Costs
from recalld_daemon.recall.cascade import Recaller
from recalld_daemon.recall.gate_model import FALSE_RATE
from recalld_daemon.recall.habituation import NO_HABITS, Habits
from recalld_daemon.recall.in_prompt import is_own_transcript
from recalld_daemon.recall.offer import snippets_for
from recalld_daemon.recall.types import Answer, Candidate, Passage, PassageReader, Query
from recalld_daemon.recall.withholding import WITHHELD, is_withheld
from recalld_protocol.messages import Snippet
from recalld_protocol.tokens import snippet_tokens

JUDGING_THREADS = 4  # at once; each is mostly SQLite and file reads
GRACE_SECONDS = 0.006  # how long a fused answer waits for the late one: judging both costs more than that difference

log = logging.getLogger(__name__)
Tell = Callable[[LiveSession, AnswerReady | RecallFailed], None]
Withhold = Callable[[LiveSession, str, Sequence[Pending]], None]


@dataclass(frozen=True, slots=True)
class Settings:
    max_snippets: int = MAX_OFFERS
    threshold_shift: float = 0.0  # log-odds
    false_rate: float = FALSE_RATE
    inject: bool = True
    withheld_share: float = 0.0  # of what passes the gate


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer after the gate. `passing` are the passages that pass, shown or not: what a new turn is scored by.
    `withheld`: what would be among the offers, had it not drawn the lot."""

    answer: Answer
    passages: list[Passage]
    offers: list[Pending]
    passing: frozenset[int]
    reason: str
    withheld: list[Pending] = dataclasses.field(default_factory=list)

    def without(self, passages: Collection[int]) -> Judged:
        """What is left of it when these are forgotten."""
        return dataclasses.replace(
            self,
            passages=[passage for passage in self.passages if passage.id not in passages],
            offers=[pending for pending in self.offers if pending.offer.passage not in passages],
            withheld=[pending for pending in self.withheld if pending.offer.passage not in passages],
        )


class _Judging:
    """One recall's judgements. What is `closed` is judged in the recall's own thread, before the answer is out."""

    def __init__(self, judge: Callable[[Answer], Judged], budget: Budget) -> None:
        self.judge, self._budget = judge, budget
        self._ready: tuple[Judged, ...] = ()  # at most two: before a stage that comes too late, and the last

    def close(self, answer: Answer) -> None:
        began = time.monotonic()
        self._ready = (*self._ready, self.judge(answer))
        self._budget.spent(JUDGE, (time.monotonic() - began) * 1000.0)

    def ready(self, answer: Answer) -> Judged | None:
        return next((judged for judged in self._ready if judged.answer is answer), None)


class Recalls:
    """`active` counts the recalls under way: bulk work waits while there are any. `ended` is told of each one's query
    when it is over."""

    def __init__(
        self,
        recaller: Callable[[], Recaller],
        reader: PassageReader,
        settings: Settings,
        tell: Tell,
        costs: Costs | None = None,
        habits: Callable[[], Habits] = lambda: NO_HABITS,
        withhold: Withhold = lambda live, recall, withheld: None,
        ended: Callable[[str], None] = lambda query: None,
    ) -> None:
        self._recaller, self._reader, self._settings, self._tell = recaller, reader, settings, tell
        self.costs, self._habits, self._withhold = costs or Costs(), habits, withhold
        self._ended = ended
        self._limiter = trio.CapacityLimiter(JUDGING_THREADS)
        self.active = 0
        self.forgotten: set[int] = set()  # passages that a recall under way may have found before they were forgotten
        self._forgettings = 0
        self._idle = trio.Event()
        self._idle.set()

    async def until_idle(self) -> None:
        """Returns at once when no recall is under way, else when the last has ended."""
        await self._idle.wait()

    async def run(self, live: LiveSession, start: StartRecall, began: float) -> None:
        """From StartRecall to the final AnswerReady or RecallFailed; cancelled through `live.running`."""
        self.active += 1
        if self.active == 1:
            self._idle = trio.Event()
        try:
            with trio.CancelScope() as scope:
                live.running[start.recall] = scope
                await self._recall(live, start, began)
        except Exception as error:
            log.exception("recall %s", start.recall)
            self._tell(live, RecallFailed(live.now_of(start.recall), f"{type(error).__name__}: {error}"[:200]))
        finally:
            live.running.pop(live.now_of(start.recall), None)
            live.heirs.pop(start.recall, None)
            self._ended(start.query.text)
            self.active -= 1
            if not self.active:
                self._idle.set()
            if not self.active and not self._forgettings:
                self.forgotten.clear()

    async def _recall(self, live: LiveSession, start: StartRecall, began: float) -> None:
        if not start.query.text:
            reason = start.query.silence or "nothing telling to recall by"
            self._tell(live, AnswerReady(start.recall, "none", (), True, reason))
            return
        shown = live.race.excluded(start.recall) | live.withheld  # withheld counts like shown: once in a session
        context = gate.Context(
            query=start.query,
            shown=shown,
            texts=live.conversation.texts(),
            opened=start.query.opened,
            shift=self._settings.threshold_shift,
            false_rate=self._settings.false_rate,
            habits=self._habits(),
        )
        budget = Budget(start.budget_ms, self.costs)
        judging = _Judging(partial(self._judge, live, start, context), budget)
        send, receive = trio.open_memory_channel[Answer](8)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._retrieve, live, start.query, shown, send, judging.close, budget)
            final = False
            async for answer in receive:
                judged = judging.ready(answer) or await self._judge_early(receive, answer, judging)
                final = judged.answer.final
                self._answer(live, start, judged, began, final)
        if not final:
            self._tell(live, RecallFailed(live.now_of(start.recall), "its last answer could not be judged"))

    async def _retrieve(
        self,
        live: LiveSession,
        query: Query,
        exclude: frozenset[int],
        send: trio.MemorySendChannel[Answer],
        close: Callable[[Answer], None],
        budget: Budget,
    ) -> None:
        with send:
            await self._recaller().run(query, live.view(), exclude, send.send_nowait, close, budget)

    async def _judge_early(
        self, receive: trio.MemoryReceiveChannel[Answer], answer: Answer, judging: _Judging
    ) -> Judged:
        """Judge an answer that is not the last, unless a deeper one comes within GRACE_SECONDS."""
        with trio.move_on_after(GRACE_SECONDS):
            async for deeper in receive:
                answer = deeper
                if judged := judging.ready(deeper):
                    return judged
        return await trio.to_thread.run_sync(judging.judge, answer, limiter=self._limiter)

    def _judge(self, live: LiveSession, start: StartRecall, context: gate.Context, answer: Answer) -> Judged:
        passages = self._reader.passages(gate.depth_of(answer))
        others = [passage for passage in passages if not is_own_transcript(passage.path, live.id)]
        loaded = frozenset(passage.id for passage in others if live.in_prompt.holds(passage))
        context = dataclasses.replace(context, seen=live.seen, loaded=loaded)  # seen: since the recall began too
        decision = gate.decide(answer, others, context)
        snippets = snippets_for(decision.passed, passages, start.query)[: self._settings.max_snippets]
        passing = frozenset(c.passage for c in answer.candidates if passes_but_for_known(c))
        if not self._settings.inject:
            return Judged(answer, passages, [], passing, "injection is switched off ([recall] inject)")
        share = self._settings.withheld_share
        offers, withheld = parted(live.id, offers_of(start.recall, snippets, 1.0 - share), share)
        for candidate in decision.passed if withheld else ():
            if any(pending.offer.passage == candidate.passage for pending in withheld):
                candidate.gates["lot"] = f"stopped: {WITHHELD}"
        reason = decision.reason if offers or not withheld else WITHHELD
        return Judged(answer, passages, offers, passing, reason, withheld)

    @contextmanager
    def forgetting(self, passages: Collection[int]) -> Iterator[None]:
        """From now on until the recalls are over that began before the end, nothing of these is offered or logged."""
        self.forgotten.update(passages)
        self._forgettings += 1
        try:
            yield
        finally:
            self._forgettings -= 1
            if not self.active and not self._forgettings:
                self.forgotten.clear()

    def _answer(self, live: LiveSession, start: StartRecall, judged: Judged, began: float, final: bool) -> None:
        judged = judged.without(self.forgotten) if self.forgotten else judged
        stage, recall = judged.answer.stage, live.now_of(start.recall)
        trace = live.traces.get(recall)
        if trace is not None:
            trace.stage_ms.setdefault(stage, (trio.current_time() - began) * 1000)
            trace.answer, trace.passages = judged.answer, judged.passages
        if start.turn and start.turn >= live.standing[0]:
            live.standing = (start.turn, judged.passing)
        for pending in judged.offers:
            live.keep(dataclasses.replace(pending, recall=recall))
        offers = tuple(pending.offer for pending in judged.offers)
        self._tell(live, AnswerReady(recall, stage, offers, final, "" if offers else judged.reason))
        if final and judged.withheld:
            self._withhold(live, recall, judged.withheld)


def offers_of(recall: str, snippets: Sequence[tuple[Candidate, Snippet]], propensity: float = 1.0) -> list[Pending]:
    """Offers with their content. An offer's id is its recall's and its passage's: the same at every stage."""
    result = []
    for rank, (candidate, snippet) in enumerate(snippets, 1):
        key = f"{recall}-{candidate.passage}"
        offer = Offer(key, candidate.passage, snippet.probability, snippet_tokens(snippet))
        result.append(Pending(offer, replace(snippet, id=key), recall, rank, candidate.fused, propensity))
    return result


def parted(session: str, offers: Sequence[Pending], share: float) -> tuple[list[Pending], list[Pending]]:
    """What is shown, and what is withheld at random; each keeps its rank."""
    shown, withheld = [], []
    for pending in offers:
        if is_withheld(session, pending.offer.passage, share):
            withheld.append(dataclasses.replace(pending, propensity=share))
        else:
            shown.append(pending)
    return shown, withheld


def passes_but_for_known(candidate: Candidate) -> bool:
    """Whether it scores against the query, whatever the conversation has seen of it."""
    return bool(candidate.gates) and gate.stopped_by(candidate) in ("", "known")


def new_trace(start: StartRecall, began: float) -> Trace:
    return Trace(start.recall, start.turn, start.calls, start.query.text, began=began, at=time.time())
