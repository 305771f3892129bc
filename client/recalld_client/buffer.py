"""What has arrived from the daemon and what may be taken now: sans-IO, without a socket, a lock or a clock.

A recall's answers come one after the other, each deeper than the last; the buffer keeps the newest one per recall
until a boundary takes from it, and closes the recall then. It forgets on a new turn, drops what has grown stale, never
gives the same impression twice, and remembers only bounded numbers of anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from recalld_client.injection import Injection, from_snippet
from recalld_protocol.messages import Inject, Settled, Snippet
from recalld_protocol.tokens import snippet_tokens

MAX_PER_BOUNDARY = 3  # the wire's own limit of snippets per answer; more would be noise in the agent's context
MAX_WAITING = 32  # recalls with something to take; a conversation has one or two at a time
MAX_CLOSED = 1_024  # recalls taken from: their later answers come within a second
MAX_SHOWN = 8_192  # impressions given: 2,700 full boundaries, longer than any session of the recorded ones
MAX_AWAITED = 64  # tool calls between two boundaries; the wire lists at most as many in one `settled`
MAX_SETTLED = 512  # tool calls whose recall is over, kept until they end
DEPTH = {"none": 0, "fused": 1, "late": 2, "full": 3}
STALE_AFTER = 2  # boundaries, until `welcome` tells the daemon's own number


class Recent:
    """A set that forgets its oldest member when it is full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._members: dict[str, None] = {}

    def __contains__(self, member: str) -> bool:
        return member in self._members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def add(self, member: str) -> None:
        self._members.pop(member, None)
        self._members[member] = None
        if len(self._members) > self._limit:
            del self._members[next(iter(self._members))]

    def discard(self, member: str) -> None:
        self._members.pop(member, None)

    def clear(self) -> None:
        self._members.clear()


@dataclass(frozen=True, slots=True)
class Taken:
    """One boundary: its number, its turn, and what the agent gets."""

    number: int
    turn: int
    injections: list[Injection]


class Buffer:
    """The client's side of the race. Give it what happens, in order; ask `take` at each boundary."""

    def __init__(self) -> None:
        self.turn = 0
        self.boundary = 0
        self.stale_after = STALE_AFTER
        self.max_snippets = MAX_PER_BOUNDARY
        self.boundary_tokens = 0  # 0: no bound
        self._waiting: dict[str, Inject] = {}  # recall -> its newest answer, also an empty one
        self._closed = Recent(MAX_CLOSED)
        self._shown = Recent(MAX_SHOWN)
        self._awaited = Recent(MAX_AWAITED)  # ended calls whose recall may still answer
        self._awaits_turn = False
        self._settled = Recent(MAX_SETTLED)

    # ------------------------------------------------------------ what happens

    def new_turn(self) -> int:
        """The user spoke: what was not taken is forgotten (the daemon sends again what still fits)."""
        self.turn += 1
        self._waiting.clear()
        self._awaited.clear()
        self._awaits_turn = True
        return self.turn

    def call_ended(self, call: str) -> None:
        """A tool call ended: the next boundary is its own, and may wait for its recall."""
        if call in self._settled:
            self._settled.discard(call)
        else:
            self._awaited.add(call)

    def inject(self, message: Inject) -> None:
        """An answer arrived. A deeper one replaces a shallower one; an empty one withdraws it."""
        if message.turn != self.turn or message.recall in self._closed:
            return
        held = self._waiting.get(message.recall)
        if held is not None and DEPTH[message.stage] < DEPTH[held.stage]:
            return  # an older answer, sent again
        self._waiting.pop(message.recall, None)
        self._waiting[message.recall] = message
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def settle(self, message: Settled) -> None:
        """A recall is over. One that was merged goes on within another, which names its calls again when it is over."""
        if message.outcome == "merged":
            return
        if message.turn and message.turn == self.turn:
            self._awaits_turn = False
        for call in message.calls:
            if call in self._awaited:
                self._awaited.discard(call)
            else:
                self._settled.add(call)

    def daemon_changed(self) -> None:
        """Another daemon answers now: it numbers its recalls anew, and knows nothing of what is awaited.

        Impressions are numbered in the store, so what was shown stays known.
        """
        self._waiting.clear()
        self._closed.clear()
        self._awaited.clear()
        self._awaits_turn = False
        self._settled.clear()

    # ------------------------------------------------------------ what may be taken

    @property
    def ready(self) -> bool:
        """Whether a `take` would give something now."""
        return bool(self._waiting) and bool(self._choose(self.boundary + 1))

    @property
    def awaiting(self) -> bool:
        """Whether a recall that belongs to this boundary may still answer."""
        return self._awaits_turn or bool(self._awaited)

    def take(self) -> Taken:
        """The next boundary: at most three injections, the most probable first. Their recalls are closed."""
        self.boundary += 1
        self._awaits_turn = False
        self._awaited.clear()
        if not self._waiting:
            return Taken(self.boundary, self.turn, [])
        chosen = self._choose(self.boundary)
        for injection in chosen:
            self._shown.add(injection.id)
            self._closed.add(injection.recall)
            self._waiting.pop(injection.recall, None)
        return Taken(self.boundary, self.turn, chosen)

    def give(self, snippets: Iterable[Snippet]) -> list[Injection]:
        """What an outbox brought, without what was shown before."""
        chosen: list[Injection] = []
        for snippet in snippets:
            if snippet.id not in self._shown and not _overlaps(snippet, chosen):
                chosen.append(from_snippet(snippet))
                self._shown.add(snippet.id)
        return chosen[:MAX_PER_BOUNDARY]

    def _choose(self, number: int) -> list[Injection]:
        """The best of what waits at boundary `number`, after dropping what is stale by then."""
        for recall in [r for r, held in self._waiting.items() if self._stale(held, number)]:
            del self._waiting[recall]
        candidates = [
            (from_snippet(snippet, held), snippet_tokens(snippet))
            for held in self._waiting.values()
            for snippet in held.snippets
            if snippet.id not in self._shown
        ]
        candidates.sort(key=lambda pair: -pair[0].probability)  # stable: of equals, the one that came first
        chosen: list[Injection] = []
        left = self.boundary_tokens or sum(tokens for _, tokens in candidates)
        for one, tokens in candidates:
            if len(chosen) < self.max_snippets and tokens <= left and not _overlaps(one, chosen):
                chosen.append(one)
                left -= tokens
        return chosen

    def _stale(self, held: Inject, number: int) -> bool:
        """Boundaries passed between the last one the daemon knew of and this one, both excluded."""
        return number - 1 - held.boundary > self.stale_after


def _overlaps(one: Injection | Snippet, chosen: Iterable[Injection]) -> bool:
    """Whether it quotes words that are quoted already, or is the same impression."""
    return any(
        one.id == other.id or (one.path == other.path and one.start < other.end and other.start < one.end)
        for other in chosen
    )
