"""What a person is asked by `recallctl train`: a query, what a recall finds for it now, and which of it helped.

Where the person names no query, a past one is taken: of those that nobody has judged, the one about which the gate was
least certain, since an answer to it tells most. The cascade runs over that session's scope, ungated, and its best come
in random order without their probabilities, so that neither place nor praise sways who answers. They are logged as
`asked`, under a recall of their own: nothing of it counts as shown, and feedback binds to it as to any other.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec
import trio

from recalld_daemon.book import Pending, Trace
from recalld_daemon.journal import Journal
from recalld_daemon.race_events import Offer
from recalld_daemon.recall import gate
from recalld_daemon.recall.cascade import Recaller
from recalld_daemon.recall.in_prompt import is_own_transcript, session_of
from recalld_daemon.recall.offer import snippet_of
from recalld_daemon.recall.query import query_from
from recalld_daemon.recall.types import GLOBAL_SCOPE, Answer, Candidate, Passage, Query, View
from recalld_daemon.records import explained, impression_of
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import RecallRecord, SessionRecord
from recalld_daemon.store.training_reads import Unjudged
from recalld_daemon.store.writer import Writer
from recalld_protocol import messages as wire

LOOKED_AT = 400  # of the newest recalls, among which the least certain is chosen: 2 MB of log, some 10 ms
TRIES = 8  # queries that are tried until one finds anything
SPARE = 5  # candidates beyond those wanted, for what is no longer in its file
BY_HAND = "asked by a person"
_ODDS = re.compile(r"(?:passed|stopped): (\d\.\d+) (?:>=|<) (\d\.\d+)")  # `gate`: probability, and its cut


@dataclass(frozen=True, slots=True)
class _Asking:
    """A query that is asked about. own: the session it comes from, "" for none; scope: what is searched beside all."""

    query: Query
    cause: str
    own: str
    view: View
    scope: int


@dataclass(slots=True)
class TrainingDesk:
    reader: Reader
    journal: Journal
    recaller: Callable[[], Recaller]
    random: Random = field(default_factory=Random)

    async def ask(self, wish: wire.TrainAsk, typed: Query | None, view: View) -> wire.Training:
        """Raises StoreError. typed: the query that the person named; view: what they may see."""
        if typed is not None:
            scope = view.scopes[0] if view.scopes else GLOBAL_SCOPE
            return await self._asked(_Asking(typed, BY_HAND, "", view, scope), wish.limit) or wire.Training()
        unjudged = await trio.to_thread.run_sync(self.reader.unjudged, view.scopes, wish.skip, LOOKED_AT)
        for past in (await trio.to_thread.run_sync(least_certain, unjudged))[:TRIES]:
            own = View(tuple(dict.fromkeys((past.scope, GLOBAL_SCOPE))))
            asking = _Asking(query_from(past.query), past.cause, past.session, own, past.scope)
            if training := await self._asked(asking, wish.limit):
                return training
        return wire.Training()

    async def _asked(self, asking: _Asking, limit: int) -> wire.Training | None:
        """None: nothing is found that could be shown."""
        recall, began = f"asked.{self.random.getrandbits(48):012x}", time.monotonic()
        answers: list[Answer] = []
        await self.recaller().run(asking.query, asking.view, frozenset(), answers.append)
        if not answers:
            return None
        trace = Trace(recall, 0, (), asking.query.text, began, time.time(), answer=answers[-1])
        offers = await trio.to_thread.run_sync(self._offers, trace, asking, answers[-1], limit)
        if not offers:
            return None
        trace.stage_ms[answers[-1].stage] = (time.monotonic() - began) * 1000.0
        await self.journal.promised(partial(_keep, asking, trace, answers[-1], offers))
        snippets = [msgspec.structs.replace(pending.snippet, probability=0.0) for pending in offers]
        self.random.shuffle(snippets)
        query, cause = asking.query.text[:32_768], asking.cause[:1024]
        return wire.Training(recall=recall, query=query, cause=cause, candidates=snippets)

    def _offers(self, trace: Trace, asking: _Asking, answer: Answer, limit: int) -> list[Pending]:
        """The best that still stand in their files, ranked; never of the session's own transcript."""
        depth = limit + SPARE
        trace.passages = self.reader.passages(gate.depth_of(answer, depth))
        known = {passage.id: passage for passage in trace.passages if not _is_of(passage, asking.own)}
        gate.decide(answer, list(known.values()), gate.Context(asking.query), depth=depth)
        offers: list[Pending] = []
        for candidate in answer.candidates[:depth]:
            if len(offers) < limit and candidate.passage in known:
                offers += _offer(trace.recall, candidate, known[candidate.passage], asking.query, len(offers) + 1)
        return offers


def least_certain(unjudged: Sequence[Unjudged]) -> list[Unjudged]:
    """Those where anything was found, the least certain first, then the newest."""
    doubts = [(doubt_of(past.explain), past) for past in unjudged]
    return [past for doubt, past in sorted(doubts, key=lambda pair: pair[0]) if doubt < math.inf]


def doubt_of(explain: bytes) -> float:
    """How far, in log-odds, the candidate nearest to the gate's cut was from it; inf: nothing was judged, or the query
    asks for file names and ordinary words only."""
    candidates = msgspec.msgpack.decode(explain, type=wire.Why).candidates if explain else []
    asked = (c.gates for c in candidates if not c.gates.get("query", "").startswith("stopped"))
    odds = (_ODDS.match(gates.get("probability", "")) for gates in asked)
    return min((abs(_logit(found[1]) - _logit(found[2])) for found in odds if found), default=math.inf)


def _logit(text: str) -> float:
    p = min(max(float(text), 1e-4), 1.0 - 1e-4)
    return math.log(p / (1.0 - p))


def _is_of(passage: Passage, session: str) -> bool:
    """A session's own transcript holds the query word for word."""
    return is_own_transcript(passage.path, session) or session_of(passage.path).startswith(f"{session}/")


def _offer(recall: str, candidate: Candidate, passage: Passage, query: Query, rank: int) -> list[Pending]:
    snippet = snippet_of(candidate, passage, query)
    if snippet is None:
        return []
    id = f"{recall}-{candidate.passage}"
    snippet = msgspec.structs.replace(snippet, id=id)
    offer = Offer(id, candidate.passage, snippet.probability)
    return [Pending(offer, snippet, recall, rank, candidate.fused)]


def _keep(asking: _Asking, trace: Trace, answer: Answer, offers: Sequence[Pending], writer: Writer) -> None:
    """In the log, under the session that asked, or one that stands for all that is asked by hand in this scope."""
    session = asking.own
    if not session:
        session = f"train-{asking.scope}"
        writer.touch_session(SessionRecord(
            id=session, scope=asking.scope, host="recallctl train", opened_at=trace.at, last_seen_at=trace.at,
            closed_at=trace.at,
        ))  # fmt: skip
    record = RecallRecord(
        id=trace.recall, session=session, cause=asking.cause, query=trace.query, at=trace.at, outcome="asked",
        reason="a person was asked which of it helps", stage=answer.stage, ms=trace.stage_ms[answer.stage],
    )  # fmt: skip
    writer.record_recall(explained(record, trace))
    writer.record_impressions([
        impression_of(pending, trace.recall, session, answer.stage, "asked", boundary=0) for pending in offers
    ])  # fmt: skip
