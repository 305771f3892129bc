"""Two sessions, their clients, a slow service and bad links, played at random; what must hold whatever happens.

The model client follows the client's rules of docs/architecture.md. Its messages reach the daemon in order, but late;
what the daemon sends reaches it in order too, but late, or never. The truth about what an agent was shown is the
model's: the race only hears of it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from playbook import ask
from recalld_daemon.race import Race
from recalld_daemon.race_events import (
    MAX_OFFERS,
    AnswerReady,
    BoundaryReached,
    CancelRecall,
    Closed,
    Compacted,
    Continue,
    Deliver,
    Delivered,
    Delivery,
    Dropped,
    Event,
    Forgotten,
    Instruction,
    Offer,
    OutboxAsked,
    RaceLimits,
    RecallFailed,
    Rescore,
    Rescored,
    Resumed,
    Send,
    Settle,
    Slipped,
    StartRecall,
    Tick,
    ToolEnded,
    ToolStarted,
    TurnBegan,
)
from recalld_daemon.recall.types import Stage

# Small, so that every bound is met within a run.
LIMITS = RaceLimits(
    boundary_tokens=25, session_tokens=200,
    max_live=5, max_rescored=2, max_ids=5, max_calls_per_recall=3, max_open_calls=3, max_ended_calls=3, max_log=8,
    call_ttl_seconds=20, recall_ttl_seconds=10,
)  # fmt: skip
TOKENS = 10
Found = list[tuple[int, float]]  # passage, probability
STAGES: list[Stage] = ["none", "fused", "late", "full"]
BOTH: tuple[Delivery, ...] = ("push", "pull")
SESSIONS = st.sampled_from(BOTH)
CALLS = st.sampled_from(["c1", "c2", "c3", "c4", "c5", "c6"])
WORDS = st.sampled_from(["alpha", "beta", "gamma", "delta"])
USUALLY = st.sampled_from([True, True, True, False])
PASSAGES = st.lists(st.tuples(st.integers(1, 12), st.sampled_from([0.3, 0.6, 0.9])), min_size=1, max_size=5)


@dataclass
class Client:
    """An agent's client, as the architecture has it. `up` and `down` are its link; `life` changes when it restarts."""

    turn: int = 0
    boundary: int = 0
    life: int = 0
    held: dict[str, Send] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    shown: list[Offer] = field(default_factory=list)
    epoch: int = 0  # in `shown`: where the agent's context was compacted last
    up: deque[tuple[int, Event]] = field(default_factory=deque)
    down: deque[Send] = field(default_factory=deque)

    def arrive(self) -> None:
        send = self.down.popleft()
        if send.turn == self.turn and send.recall not in self.closed:
            self.held.pop(send.recall, None)
            if send.offers:
                self.held[send.recall] = send

    def forget(self) -> None:
        self.held.clear()
        self.down.clear()

    def next_turn(self) -> None:
        self.turn += 1
        self.held.clear()

    def take(self, most: int) -> tuple[str, ...]:
        self.boundary += 1
        fresh = [s for s in self.held.values() if self.boundary - 1 - s.boundary <= LIMITS.stale_after]
        self.held = {send.recall: send for send in fresh}
        best = sorted(((o, s.recall) for s in fresh for o in s.offers), key=lambda pair: -pair[0].probability)[:most]
        for offer, recall in best:
            self.shown.append(offer)
            self.closed.add(recall)
            self.held.pop(recall, None)
        return tuple(offer.id for offer, _ in best)


@dataclass
class Table:
    """What the daemon knows of one session, and what it was told to do."""

    race: Race
    life: int = 0  # of the client's process it answers to
    began: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)  # neither final, failed nor cancelled
    settled: Counter[str] = field(default_factory=Counter)
    slipped: Counter[str] = field(default_factory=Counter)
    over: Counter[str] = field(default_factory=Counter)  # Delivered or Dropped
    delivered: list[str] = field(default_factory=list)  # offer ids
    rescores: list[Rescore] = field(default_factory=list)
    asked: int = 0
    replies: int = 0
    question: dict[str, str] = field(default_factory=dict)  # recall -> its query's key
    asked_in: dict[str, int] = field(default_factory=dict)  # a query's key -> the turn in which it was asked last
    kept: set[tuple[int, str]] = field(default_factory=set)  # a turn, and an offer that was said to fit it

    def renumber(self, turn: int) -> None:
        """The client lost its counter: the turn it is in has another number now."""
        now = self.race.turn
        self.asked_in = {key: turn if asked == now else -1 for key, asked in self.asked_in.items()}
        self.kept = {(turn, id) for kept, id in self.kept if kept == now}

    def fits(self, offer: Offer) -> bool:
        """P006: what the agent may see was asked for in this turn, or has been rescored against it."""
        recall = offer.id.partition(":")[0]
        return self.asked_in[self.question[recall]] == self.race.turn or (self.race.turn, offer.id) in self.kept


class Races(RuleBasedStateMachine):
    """The table named "pull" is a host whose hooks ask for the outbox; there the reply is what the agent is shown."""

    @initialize()
    def open(self) -> None:
        self.now = 0.0
        self.minted = 0
        self.troubles = 4  # restarts and broken links per run: more of them, and nothing else would ever come about
        self.forgotten: set[int] = set()  # passages that no store holds any more: no recall finds them again
        self.home: dict[str, str] = {}  # offer id -> the session it was minted for
        self.clients: dict[str, Client] = {name: Client() for name in BOTH}
        self.tables: dict[str, Table] = {name: Table(Race(name, f"{name}-", name, LIMITS)) for name in BOTH}

    # ------------------------------------------------------------ the agent

    @rule(session=SESSIONS, words=WORDS, heard=USUALLY, soon=USUALLY)
    def turn(self, session: str, words: str, heard: bool, soon: bool) -> None:
        client = self.clients[session]
        client.next_turn()
        if heard:
            self.say(session, TurnBegan(client.turn, ask(words)), soon)

    @rule(session=SESSIONS, call=CALLS, words=WORDS, parent=st.one_of(st.just(""), CALLS), soon=USUALLY)
    def tool_starts(self, session: str, call: str, words: str, parent: str, soon: bool) -> None:
        self.say(session, ToolStarted(call, ask(words), parent), soon)

    @rule(session=SESSIONS, call=CALLS, soon=USUALLY)
    def tool_ends(self, session: str, call: str, soon: bool) -> None:
        self.say(session, ToolEnded(call), soon)

    @rule(most=st.integers(0, MAX_OFFERS), stranger=st.booleans(), soon=USUALLY)
    def boundary(self, most: int, stranger: bool, soon: bool) -> None:
        client = self.clients["push"]
        taken = client.take(most)
        if stranger:
            taken += tuple(id for id, home in self.home.items() if home == "pull")[-1:]
        self.say("push", BoundaryReached(client.boundary, client.turn, taken), soon)

    @rule(several=st.integers(1, 3), heard=st.booleans())
    def boundaries_pass(self, several: int, heard: bool) -> None:
        """Nothing is taken: the host had no room."""
        for _ in range(several):
            if heard:
                self.boundary(most=0, stranger=False, soon=True)
            else:
                self.clients["push"].take(0)

    @rule(session=SESSIONS, counted=st.booleans(), soon=USUALLY)
    def outbox(self, session: str, counted: bool, soon: bool) -> None:
        client = self.clients[session]
        if session == "pull":
            client.boundary += 1
        self.say(session, OutboxAsked(client.boundary if counted else 0), soon)

    @rule(session=SESSIONS, soon=USUALLY)
    def compaction(self, session: str, soon: bool) -> None:
        while session == "pull" and self.clients[session].up:
            self.hear(session)  # a host waits for its hooks: what the outbox gave stands in what is compacted
        self.clients[session].epoch = len(self.clients[session].shown)
        self.say(session, Compacted(), soon)

    def say(self, session: str, event: Event, soon: bool) -> None:
        client = self.clients[session]
        client.up.append((client.life, event))
        while soon and client.up:
            self.hear(session)

    # ------------------------------------------------------------ the links

    @precondition(lambda self: any(client.up for client in self.clients.values()))
    @rule(data=st.data(), several=st.integers(1, 4))
    def daemon_hears(self, data: st.DataObject, several: int) -> None:
        session = data.draw(st.sampled_from([name for name, client in self.clients.items() if client.up]))
        for _ in range(several):
            self.hear(session)

    def hear(self, session: str) -> None:
        if self.clients[session].up:
            self.tables[session].life, event = self.clients[session].up.popleft()
            self.tell(session, event)

    @rule(several=st.integers(1, 4))
    def client_hears(self, several: int) -> None:
        for _ in range(min(several, len(self.clients["push"].down))):
            self.clients["push"].arrive()

    @precondition(lambda self: self.clients["push"].down)
    @rule()
    def a_message_is_lost(self) -> None:
        self.clients["push"].down.popleft()

    @precondition(lambda self: self.troubles > 0)
    @rule(session=SESSIONS, soon=USUALLY)
    def link_comes_back(self, session: str, soon: bool) -> None:
        self.troubles -= 1
        self.resume(session, soon)

    @precondition(lambda self: self.troubles > 0)
    @rule(session=SESSIONS, soon=USUALLY)
    def client_restarts(self, session: str, soon: bool) -> None:
        self.troubles -= 1
        client = self.clients[session]
        client.turn = client.boundary = 0
        client.life += 1
        client.closed.clear()
        client.forget()
        self.resume(session, soon)

    def resume(self, session: str, soon: bool) -> None:
        client = self.clients[session]
        self.say(session, Resumed(client.boundary, client.turn), soon)

    # ------------------------------------------------------------ the service

    @precondition(lambda self: any(table.running for table in self.tables.values()))
    @rule(
        data=st.data(), stage=st.sampled_from(STAGES[1:]), found=PASSAGES, silent=st.booleans(),
        final=st.booleans(), steady=st.booleans(), soon=USUALLY,
    )  # fmt: skip
    def answers(
        self, data: st.DataObject, stage: Stage, found: Found, silent: bool, final: bool, steady: bool, soon: bool
    ) -> None:
        """`steady`: an offer's id is the same at each stage; else each answer mints its own."""
        session, recall = self.draw_running(data)
        self.answer(session, recall, stage, [] if silent else found, final, steady)
        if soon:
            self.client_hears(several=100)

    def answer(self, session: str, recall: str, stage: Stage, found: Found, final: bool, steady: bool) -> None:
        known = [(passage, probability) for passage, probability in found if passage not in self.forgotten]
        offers = tuple(self.mint(session, recall, passage, probability, steady) for passage, probability in known)
        if final:
            self.tables[session].running.discard(recall)
        self.tell(session, AnswerReady(recall, stage, offers, final))

    @rule(
        session=SESSIONS, number=st.integers(1, 10**9), most=st.integers(1, MAX_OFFERS), soon=USUALLY,
        answers=st.lists(st.tuples(PASSAGES, st.booleans()), min_size=1, max_size=3), final=st.booleans(),
        slow=st.booleans(), passed_by=st.integers(0, 3),
    )  # fmt: skip
    def a_race(
        self, session: str, number: int, most: int, soon: bool, slow: bool, answers: list[tuple[Found, bool]],
        final: bool, passed_by: int,
    ) -> None:  # fmt: skip
        """What mostly happens: a call starts, what runs is answered ever deeper, the call ends, a boundary takes.

        `slow`: the call ends, and its own boundary passes, before the answers come; `passed_by`: boundaries that take
        nothing before the one that does.
        """
        call = f"quick{number}"
        self.say(session, ToolStarted(call, ask(call)), soon=True)
        if slow:
            self.say(session, ToolEnded(call), soon=True)
            self.boundaries_pass(several=1, heard=True)
        for depth, (found, heard) in enumerate(answers, 1):
            for recall in sorted(self.tables[session].running):
                self.answer(session, recall, STAGES[depth], found, final and depth == len(answers), steady=False)
            if heard:
                self.client_hears(several=100)
        self.say(session, ToolEnded(call), soon=True)
        self.boundaries_pass(several=passed_by, heard=True)
        if session == "push":
            self.boundary(most, stranger=False, soon=soon)
        else:
            self.outbox(session, counted=True, soon=soon)

    @precondition(lambda self: len(self.tables["push"].running) == 2)
    @rule(passage=st.integers(1, 12), instead=PASSAGES, final=st.booleans(), heard=st.booleans())
    def a_report_crosses_an_answer(self, passage: int, instead: Found, final: bool, heard: bool) -> None:
        """While the agent is shown what one recall found, that recall changes its mind, and another finds the same."""
        one, other = sorted(self.tables["push"].running)
        found = [(passage, 0.9)]
        self.answer("push", one, "full", found, final=False, steady=False)
        self.client_hears(several=100)
        self.boundary(most=1, stranger=False, soon=False)
        self.answer("push", one, "full", instead, final, steady=False)
        self.answer("push", other, "full", found, final, steady=False)
        if heard:
            self.client_hears(several=100)
        self.boundary(MAX_OFFERS, stranger=False, soon=True)

    @precondition(lambda self: any(table.running for table in self.tables.values()))
    @rule(data=st.data())
    def fails(self, data: st.DataObject) -> None:
        session, recall = self.draw_running(data)
        self.tables[session].running.discard(recall)
        self.tell(session, RecallFailed(recall, "broken"))

    @precondition(lambda self: any(table.rescores for table in self.tables.values()))
    @rule(data=st.data())
    def rescores(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from([name for name, table in self.tables.items() if table.rescores]))
        asked = data.draw(st.sampled_from(self.tables[session].rescores))
        self.tables[session].rescores.remove(asked)
        keep = data.draw(st.lists(st.sampled_from(asked.offers), unique=True))
        self.tables[session].kept |= {(asked.turn, id) for id in keep}
        self.tell(session, Rescored(asked.recall, asked.turn, tuple(keep)))

    @precondition(lambda self: len(self.forgotten) < 3)  # of twelve; with all gone nothing would ever be found
    @rule(passage=st.integers(1, 12))
    def forgets(self, passage: int) -> None:
        """P018: from here on no table has it on offer. What a client shows of it meanwhile need not be known."""
        self.forgotten.add(passage)
        for session, table in self.tables.items():
            self.tell(session, Forgotten(frozenset({passage})))
            for recall in table.race.recalls:
                held = [*recall.best, *(offer for offer, _ in recall.out.values())]
                assert passage not in [offer.passage for offer in held]

    @rule(seconds=st.sampled_from([1.0, 5.0, 15.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for session in self.tables:
            self.tell(session, Tick())

    @precondition(lambda self: self.troubles == 4)
    @rule(soon=USUALLY)
    def daemon_restarts(self, soon: bool) -> None:
        """All that was on its way is lost but what the client says next; what was shown is in the store."""
        self.troubles -= 1
        for session, client in self.clients.items():
            while client.up:
                self.hear(session)
            self.close(session)
            known = [offer.passage for offer in client.shown]
            counters = (client.boundary, client.turn)
            delivery, prefix = self.tables[session].race.delivery, f"{session}-again{self.minted}-"
            race = Race(session, prefix, delivery, LIMITS, *counters, delivered=known)
            self.tables[session] = Table(race, client.life)
            self.minted += 1
            client.forget()
            self.resume(session, soon)

    # ------------------------------------------------------------ carrying out instructions

    def draw_running(self, data: st.DataObject) -> tuple[str, str]:
        return data.draw(st.sampled_from([(s, r) for s, table in self.tables.items() for r in sorted(table.running)]))

    def mint(self, session: str, recall: str, passage: int, probability: float, steady: bool) -> Offer:
        self.minted += 1
        id = f"{recall}:{passage}" if steady else f"{recall}:{passage}:{self.minted}"
        self.home[id] = session
        return Offer(id, passage, probability, TOKENS)

    def tell(self, session: str, event: Event) -> None:
        table = self.tables[session]
        if isinstance(event, OutboxAsked):
            table.asked += 1
        if isinstance(event, ToolStarted | TurnBegan):
            table.asked_in[event.query.key] = event.turn if isinstance(event, TurnBegan) else table.race.turn
        if isinstance(event, Resumed) and event.turn < table.race.turn:
            table.renumber(event.turn)
        for instruction in table.race.handle(event, self.now):
            self.carry_out(session, table, instruction)
        table.race.validate()

    def carry_out(self, session: str, table: Table, instruction: Instruction) -> None:
        client = self.clients[session]
        match instruction:
            case StartRecall(recall, query, _, calls):
                assert recall not in table.began
                table.question[recall] = query.key
                assert len(calls) <= LIMITS.max_calls_per_recall
                table.began.add(recall)
                table.running.add(recall)
            case CancelRecall(recall):
                table.running.remove(recall)
            case Continue(recall, heir):
                assert heir not in table.began
                table.question[heir] = table.question[recall]
                table.began.add(heir)
                table.running.remove(recall)
                table.running.add(heir)
            case Send(recall, _, turn, boundary, offers):
                assert session == "push"
                assert recall in table.began
                assert turn == table.race.turn
                assert boundary >= 0
                assert all(table.fits(offer) for offer in offers)
                assert len(offers) <= MAX_OFFERS
                if table.life == client.life:  # else its way back is gone
                    client.down.append(instruction)
            case Deliver(offers, _):
                table.replies += 1
                assert all(table.fits(offer) for offer in offers)
                assert len(offers) <= MAX_OFFERS
                assert [o.probability for o in offers] == sorted((o.probability for o in offers), reverse=True)
                client.shown += offers
            case Delivered(recall, offers):
                assert recall in table.began
                table.over[recall] += 1
                table.delivered += offers
            case Dropped(recall):
                table.over[recall] += 1
            case Slipped(recall):
                table.slipped[recall] += 1
            case Settle(recall):
                table.settled[recall] += 1
            case Rescore():
                assert instruction.turn == table.race.turn
                table.rescores.append(instruction)

    def close(self, session: str) -> None:
        table = self.tables[session]
        self.tell(session, Closed())
        assert not table.running
        assert all(table.settled[recall] == 1 for recall in table.began), "each recall that began is settled once"
        assert not table.race.recalls

    # ------------------------------------------------------------ what must hold

    @invariant()
    def nothing_is_shown_twice_or_to_another_session(self) -> None:
        for session, client in self.clients.items():
            ids = [offer.id for offer in client.shown]
            passages = [offer.passage for offer in client.shown[client.epoch :]]
            assert len(ids) == len(set(ids)), "an injection was shown twice"
            assert len(passages) == len(set(passages)), "a passage was shown twice between two compactions"
            assert all(self.home[id] == session for id in ids), "shown to another session"

    @invariant()
    def each_recall_is_told_about_once(self) -> None:
        for table in self.tables.values():
            for told in (table.settled, table.slipped, table.over):
                assert all(count == 1 for count in told.values())
            assert table.replies == table.asked, "each question for the outbox has one answer"
            assert len(table.delivered) == len(set(table.delivered))
            assert table.race.recalls.running() == len(table.running)

    def teardown(self) -> None:
        """In the end the daemon has heard all, and knows exactly what was shown since it started."""
        for session, client in getattr(self, "clients", {}).items():
            table = self.tables[session]
            while client.up:
                self.hear(session)
            assert set(table.delivered) <= {offer.id for offer in client.shown}
            shown = {offer.passage for offer in client.shown[client.epoch :]}
            assert shown <= set(table.race.delivered) | self.forgotten
            self.close(session)


TestRaces = Races.TestCase
TestRaces.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,  # the suite gives the same answer each time; explore with --hypothesis-seed and more examples
    suppress_health_check=[HealthCheck.too_slow],
)
