"""Questions that take longer than a message's handling: search, memories, feedback, and what `recallctl` looks at.

Each is a task of its own and answers once. A question that fails is answered with a `problem` that says why.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec
import trio

from recalld_daemon.book import SessionBook
from recalld_daemon.events import EventFeed
from recalld_daemon.followed_paths import FollowedPaths, Refused
from recalld_daemon.ingest.passages import Stretch, passages
from recalld_daemon.ingest.redact import redact
from recalld_daemon.journal import Journal
from recalld_daemon.recall import gate, packing
from recalld_daemon.recall.cascade import Recaller
from recalld_daemon.recall.locate import locate
from recalld_daemon.recall.offer import date_of, snippet_of
from recalld_daemon.recall.query import query_of, terms_of
from recalld_daemon.recall.types import GLOBAL_SCOPE, Answer, Candidate, Focus, Passage, Query, View, When
from recalld_daemon.scopes import project_of
from recalld_daemon.store.errors import NoSuchRow, StoreBusy, StoreError
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import SessionRecord
from recalld_daemon.training_desk import TrainingDesk
from recalld_daemon.versions import NoSuchVersion, NotLoaded, VersionRefused
from recalld_daemon.watching import OnVerdict, nobody_learns
from recalld_protocol import messages as wire

log = logging.getLogger(__name__)
Reply = Callable[[wire.FromDaemon], None]
ENDED_SHOWN = 50  # sessions of the log that `recallctl sessions` is told of, beside those that are open
Topics = dict[str, dict[str, str | int | float | bool | None]]


class Forgetting(Protocol):
    """Who forgets for good: `forgetting.Forgetting`."""

    async def forget(self, wish: wire.Forget) -> wire.FromDaemon:
        """Raises StoreError, OSError."""
        ...


class Versioned(Protocol):
    """What is searched, by versions: `memory.Memory`."""

    async def versions(self) -> wire.Versions: ...

    async def activate(self, version: int) -> float:
        """Returns the milliseconds it took. Raises NoSuchVersion, VersionRefused, StoreError, OSError."""
        ...


@dataclass(slots=True)
class Answers:
    """The parts a question may need. `learned(ids)` tells those who index and embed of new passages; `on_verdict` those
    who learn of a verdict that is new and on disk (`watching.nobody_learns`)."""

    book: SessionBook
    reader: Reader
    journal: Journal
    feed: EventFeed
    recaller: Callable[[], Recaller]
    scopes: dict[str, int]  # key -> id, of all scopes that hold anything; kept up to date by `memory`
    learned: Callable[[Sequence[int]], Awaitable[None]]
    topics: Callable[[], Topics] = dict
    on_verdict: OnVerdict = nobody_learns
    memory: Versioned | None = None  # set by who made both
    followed: FollowedPaths | None = None  # likewise
    forgetting: Forgetting | None = None  # likewise

    async def answer(self, question: wire.Message, reply: Reply) -> None:
        try:
            await self._answer(question, reply)
        except StoreBusy as error:
            log.info("%s: %s", type(question).__name__, error)
            reply(wire.Problem(code="busy", text=str(error)[:1024], of=str(question.__struct_config__.tag)))
        except Exception as error:  # noqa: BLE001 - the outermost loop of a question: its fault must not end the daemon
            (log.error if isinstance(error, StoreError) else log.exception)("%s: %s", type(question).__name__, error)
            text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            reply(wire.Problem(code="failed", text=text[:1024], of=str(question.__struct_config__.tag)))

    async def _answer(self, question: wire.Message, reply: Reply) -> None:
        match question:
            case wire.StatusAsk():
                reply(wire.Status(topics=await self._topics()))
            case wire.SessionsAsk():
                reply(await self._sessions())
            case wire.WhyAsk(target=target):
                answer = await trio.to_thread.run_sync(self._why, target)
                if isinstance(answer, wire.Problem):  # what was shown a moment ago may still wait to be written
                    await self.journal.flush()
                    answer = await trio.to_thread.run_sync(self._why, target)
                reply(answer)
            case wire.Search():
                reply(await self._search(question))
            case wire.Pack():
                reply(await self._pack(question))
            case wire.Remember():
                reply(await self._remember(question))
            case wire.Forget():
                reply(await self._forget(question))
            case wire.Feedback():
                reply(await self._feedback(question))
            case wire.TrainAsk():
                reply(await self._train(question))
            case wire.Follow():
                reply(await self._follow(question))
            case wire.VersionsAsk():
                reply(await self._versioned().versions())
            case wire.Activate(version=version):
                reply(await self._activate(version))
            case _:
                raise AssertionError(f"no question: {question!r}")

    # ------------------------------------------------------------ looking inside

    async def _topics(self) -> Topics:
        topics = self.topics()
        counts = await trio.to_thread.run_sync(self.reader.counts)
        topics["index"] |= {name: counts[name] for name in ("passages", "memories", "problems")}
        topics["index"] |= {"files": counts["sources"], "files_failed": counts["sources_failed"]}
        topics["log"] = {name: counts[name] for name in ("sessions", "recalls", "impressions", "feedback")}
        topics["paths"]["database_mb"] = round(counts["bytes"] / 1e6, 1)
        return topics

    def _versioned(self) -> Versioned:
        assert self.memory is not None, "the answers were given no memory with versions"
        return self.memory

    async def _activate(self, version: int) -> wire.FromDaemon:
        try:
            return wire.Activated(version=version, ms=await self._versioned().activate(version))
        except NoSuchVersion as error:
            return wire.Problem(code="not_found", text=str(error)[:1024], of="activate")
        except VersionRefused as error:
            log.error("not activated: %s", error)
            code: Literal["busy", "failed"] = "busy" if isinstance(error, NotLoaded) else "failed"
            return wire.Problem(code=code, text=str(error)[:1024], of="activate")

    async def _follow(self, wish: wire.Follow) -> wire.FromDaemon:
        assert self.followed is not None, "the answers were given nobody who follows"
        try:
            return await self.followed.follow(wish)
        except Refused as error:
            return wire.Problem(code=error.code, text=str(error)[:1024], of="follow")

    async def _sessions(self) -> wire.Sessions:
        """The open ones, and of those that ended the ones last seen."""
        records = await trio.to_thread.run_sync(self.reader.sessions, ENDED_SHOWN)
        rows = [live.row(live.route is not None) for live in self.book]  # after the wait: it may have closed some
        known = {row.session for row in rows}
        keys = {number: key for key, number in self.scopes.items()}
        rows += [ended_row(record, keys.get(record.scope, "")) for record in records if record.id not in known]
        return wire.Sessions(sessions=rows[:1000])

    def _why(self, target: str) -> wire.FromDaemon:
        impression = self.reader.impression(target)
        record = self.reader.recall(impression.recall if impression else target)
        if record is None:
            text = (
                f"no impression and no recall {target!r} is in the log: ids are in `recallctl tail` and in injections; "
                "an old one may have been pruned ([daemon] keep_recalls)"
            )
            return wire.Problem(code="not_found", text=text[:1024], of="why_ask")
        detail = msgspec.msgpack.decode(record.explain, type=wire.Why)
        shown = {(row.path, row.start): row for row in self.reader.impressions(record.id)}
        candidates = []
        for candidate in detail.candidates:
            hit = next(
                (
                    row
                    for (path, at), row in shown.items()
                    if path == candidate.path and candidate.start <= at < candidate.end
                ),
                None,
            )
            candidates.append(msgspec.structs.replace(candidate, impression=hit.id) if hit else candidate)
        return msgspec.structs.replace(
            detail, outcome=record.outcome, reason=record.reason[:1024], stage=record.stage, candidates=candidates
        )

    # ------------------------------------------------------------ searching and keeping

    def _view(self, session: str, cwd: str, all_scopes: bool, as_of: float | None) -> View:
        live = self.book.get(session)
        if all_scopes:
            return View(scopes=None, as_of=as_of)
        if live is not None and not cwd:
            return View(scopes=live.view().scopes, as_of=as_of)
        scope = self.scopes.get(project_of(cwd), GLOBAL_SCOPE)
        return View(scopes=tuple(dict.fromkeys((scope, GLOBAL_SCOPE))), as_of=as_of)

    async def _search(self, search: wire.Search) -> wire.FromDaemon:
        query = search_query(search.query)
        if not any(letter.isalnum() for letter in query.text):
            return wire.Hits()  # an encoder has an opinion on bare marks too, and it means nothing
        answers: list[Answer] = []
        view = self._view(search.session, search.cwd, search.all_scopes, search.as_of)
        await self.recaller().run(query, view, frozenset(), answers.append)
        if not answers:
            return wire.Hits()
        return await trio.to_thread.run_sync(self._hits, answers[-1], query, search.limit)

    def _hits(self, answer: Answer, query: Query, limit: int) -> wire.Hits:
        passages = self.reader.passages([candidate.passage for candidate in answer.candidates[:limit]])
        gate.decide(answer, passages, gate.Context(query))
        known = {passage.id: passage for passage in passages}
        keys = {number: key for key, number in self.scopes.items()}
        found = [candidate for candidate in answer.candidates[:limit] if candidate.passage in known]
        rows = [hit_of(c, known[c.passage], query, keys.get(known[c.passage].scope, "")) for c in found]
        hits = [row for row in rows if row is not None]
        return wire.Hits(hits=hits, stage=answer.stage, ms=round(answer.ms, 3))

    async def _pack(self, wish: wire.Pack) -> wire.FromDaemon:
        query = search_query(wish.query)
        if not any(letter.isalnum() for letter in query.text):
            return wire.Packed()
        answers: list[Answer] = []
        view = self._view(wish.session, wish.cwd, wish.all_scopes, wish.as_of)
        await self.recaller().run(query, view, frozenset(), answers.append)
        if not answers:
            return wire.Packed()
        block = await trio.to_thread.run_sync(self._packed, answers[-1], query, wish.token_budget)
        return wire.Packed(
            text=block.text, tokens=block.tokens, passages=len(block.quoted), left_out=block.left_out,
            stage=answers[-1].stage, ms=round(answers[-1].ms, 3),
        )  # fmt: skip

    def _packed(self, answer: Answer, query: Query, token_budget: int) -> packing.Block:
        """Reads what may be quoted, and whether it still stands in its files."""
        ids = gate.depth_of(answer, packing.PACK_DEPTH)
        known = {passage.id: passage for passage in self.reader.passages(ids)}
        gate.decide(answer, list(known.values()), gate.Context(query), depth=packing.PACK_DEPTH)
        chosen = packing.worth([c for c in answer.candidates[: packing.PACK_DEPTH] if c.passage in known], query)
        times = self.reader.whens_of([candidate.passage for candidate in chosen])
        columns = zip(times.passages.tolist(), times.starts.tolist(), times.ends.tolist(), times.grains, strict=True)
        whens = packing.whens_by_passage((passage, When(start, end, grain)) for passage, start, end, grain in columns)
        facts = [
            packing.Fact(passage, place, candidate.focus, whens.get(passage.id, ()))
            for candidate in chosen
            if (passage := known[candidate.passage]) and (place := locate(passage, 0, len(passage.text)))
        ]
        return packing.pack(facts, token_budget)

    async def _remember(self, wish: wire.Remember) -> wire.FromDaemon:
        if not wish.text.strip(" \t\r\n\0"):
            return wire.Problem(code="malformed", text="there is no text to remember", of="remember")
        live = self.book.get(wish.session)
        project = project_of(wish.cwd or (live.hello.cwd if live else "")) if wish.scope == "project" else ""
        at, text = time.time(), redact(wish.text)
        pieces = list(passages(Stretch(0, text.encode(), "utf-8", heading=wish.title, written_at=at)))

        def write(writer):  # type: ignore[no-untyped-def]
            scope = writer.scope_id(project) if project else GLOBAL_SCOPE
            return scope, writer.remember(text, at=at, scope=scope, title=wish.title, key=wish.key, passages=pieces)

        scope, (path, ids) = await self.journal.promised(write)
        if project and self.scopes.get(project) != scope:
            self.scopes[project] = scope
            self.book.rescoped()
        self.feed.emit("memory.kept", wish.session, path=path, passages=len(ids), scope=project)
        await self.learned(ids)
        return wire.Remembered(memory=path)

    async def _forget(self, wish: wire.Forget) -> wire.FromDaemon:
        assert self.forgetting is not None, "the answers were given nobody who forgets"
        return await self.forgetting.forget(wish)

    async def _feedback(self, verdict: wire.Feedback) -> wire.FromDaemon:
        at = time.time()
        try:
            new = await self.journal.promised(
                lambda writer: writer.record_feedback(verdict.impression, verdict.verdict, at=at, key=verdict.key)
            )
        except NoSuchRow:
            text = f"no impression {verdict.impression!r} was ever shown: ids are in `recallctl tail` and in injections"
            return wire.Problem(code="not_found", text=text[:1024], of="feedback")
        if new:
            self.on_verdict(verdict.impression, verdict.verdict)
            self.feed.emit("feedback", verdict.session, impression=verdict.impression, verdict=verdict.verdict)
        return wire.Acked()

    async def _train(self, wish: wire.TrainAsk) -> wire.FromDaemon:
        typed = search_query(redact(wish.query)) if wish.query.strip() else None  # unlike a search, it is logged
        if typed is not None and not any(letter.isalnum() for letter in typed.text):
            return wire.Training()
        view = self._view(wish.session, wish.cwd, wish.all_scopes, None)
        return await TrainingDesk(self.reader, self.journal, self.recaller).ask(wish, typed, view)


def search_query(text: str) -> Query:
    """What a person typed into a search: taken as it stands, also where a conversation's turn would ask nothing."""
    query = query_of(Focus(user_text=text))
    return query if query.text else Query(text=text.strip()[:2_000], terms=terms_of(text), key=text)


def ended_row(record: SessionRecord, scope: str) -> wire.SessionRow:
    """A session that is not open any more, as the log has it. `scope`: its scope's key."""
    return wire.SessionRow(
        session=record.id, host=record.host, client=record.client, cwd=record.cwd, scope=scope,
        opened_at=record.opened_at, last_seen_at=record.last_seen_at, turns=record.turn, calls=record.calls,
        won=record.won, slipped=record.slipped, silent=record.silent,
    )  # fmt: skip


def hit_of(candidate: Candidate, passage: Passage, query: Query, scope: str) -> wire.Hit | None:
    """None: its file does not hold it any more."""
    snippet = snippet_of(candidate, passage, query)
    if snippet is None:
        return None
    lanes = {lane: round(score, 4) for lane, (_, score) in candidate.lanes.items()}
    if candidate.late is not None:
        lanes["late"] = round(candidate.late, 4)
    return wire.Hit(
        path=passage.shown_path, start=passage.start, end=passage.end, text=passage.text,
        snippet=snippet.text, date=date_of(passage.written_at), score=round(candidate.fused, 5),
        probability=round(candidate.probability, 3), lanes=lanes, scope=scope,
    )  # fmt: skip
