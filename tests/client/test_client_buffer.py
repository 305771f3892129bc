"""What may be taken at which boundary: the client's side of the race, as conversations of events and takes."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recalld_client import buffer as limits
from recalld_client.buffer import Buffer, Recent
from recalld_protocol.messages import Inject, Outcome, Settled, Snippet, Stage
from recalld_protocol.tokens import snippet_tokens
from scripted_daemon import snippet


def inject(recall: str, *snippets: Snippet | str, stage: Stage = "fused", turn: int = 1, boundary: int = 0) -> Inject:
    made = [snippet(one) if isinstance(one, str) else one for one in snippets]
    return Inject(recall=recall, stage=stage, turn=turn, boundary=boundary, snippets=made)


def settled(recall: str, *calls: str, turn: int = 0, outcome: Outcome = "ready") -> Settled:
    return Settled(recall=recall, calls=list(calls), turn=turn, outcome=outcome)


def test_a_boundary_gives_no_more_than_the_daemon_allows() -> None:
    talk = Playbook()
    talk.buffer.max_snippets = 1
    talk.hears(inject("r1", snippet("i1", 0.5)), inject("r2", snippet("i2", 0.9))).takes("i2")


def test_a_boundary_keeps_within_its_tokens_and_passes_over_what_is_too_long() -> None:
    long = msgspec.structs.replace(snippet("i1", 0.9), text="word " * 60)
    talk = Playbook()
    talk.buffer.boundary_tokens = snippet_tokens(snippet("i2", 0.5)) + 5
    talk.hears(inject("r1", long), inject("r2", snippet("i2", 0.5))).takes("i2")


class Playbook:
    """`Playbook().hears(inject(...)).takes("i1").takes()`: a buffer in its first turn, and what each boundary gives."""

    def __init__(self) -> None:
        self.buffer = Buffer()
        self.buffer.new_turn()

    def hears(self, *messages: Inject | Settled) -> Playbook:
        for message in messages:
            self.buffer.inject(message) if isinstance(message, Inject) else self.buffer.settle(message)
        return self

    def turns(self) -> Playbook:
        self.buffer.new_turn()
        return self

    def ends(self, *calls: str) -> Playbook:
        for call in calls:
            self.buffer.call_ended(call)
        return self

    def takes(self, *ids: str) -> Playbook:
        assert self.buffer.ready == bool(ids)
        assert [one.id for one in self.buffer.take().injections] == list(ids)
        return self

    def awaits(self, expected: bool) -> Playbook:
        assert self.buffer.awaiting == expected
        return self


def test_what_is_there_is_taken_once() -> None:
    Playbook().takes().hears(inject("r1", "i1")).takes("i1").takes()


def test_a_deeper_answer_replaces_a_shallower_one() -> None:
    Playbook().hears(inject("r1", "i1", "i2"), inject("r1", "i3", stage="late")).takes("i3").takes()


def test_a_shallower_answer_that_comes_late_changes_nothing() -> None:
    Playbook().hears(inject("r1", "i3", stage="late"), inject("r1", "i1")).takes("i3")


def test_an_empty_answer_withdraws() -> None:
    Playbook().hears(inject("r1", "i1"), inject("r1", stage="full")).takes()


def test_what_was_taken_from_is_closed() -> None:
    playbook = Playbook().hears(inject("r1", "i1")).takes("i1")
    playbook.hears(inject("r1", "i2", stage="late"), inject("r2", "i3")).takes("i3")


def test_three_at_most_the_most_probable_first_and_the_rest_of_their_recalls_is_dropped() -> None:
    first = inject("r1", snippet("a", 0.5), snippet("b", 0.9), snippet("c", 0.1))
    second = inject("r2", snippet("d", 0.7), snippet("e", 0.2))
    Playbook().hears(first, second).takes("b", "d", "a").takes()


def test_of_equals_the_earlier_comes_first_and_what_found_no_room_waits() -> None:
    waiting = [inject(f"r{number}", f"i{number}") for number in range(5)]
    Playbook().hears(*waiting).takes("i0", "i1", "i2").takes("i3", "i4")


def test_the_same_place_is_not_quoted_twice_at_one_boundary() -> None:
    first = inject("r1", snippet("i1", 0.9, "a.md", 0, 40), snippet("i2", 0.8, "a.md", 39, 80))
    second = inject("r2", snippet("i3", 0.7, "a.md", 40, 80), snippet("i4", 0.6, "b.md", 0, 40))
    Playbook().hears(first, second).takes("i1", "i3", "i4")


def test_the_same_impression_is_never_given_twice() -> None:
    playbook = Playbook().hears(inject("r1", "i1")).takes("i1").hears(inject("r2", "i1"), inject("r2", "i1", "i2"))
    playbook.takes("i2").buffer.daemon_changed()
    playbook.hears(inject("r1", "i1", boundary=2)).takes()
    assert [one.id for one in playbook.buffer.give([snippet("i2"), snippet("i5"), snippet("i5")])] == ["i5"]


def test_p006_another_turns_is_dropped() -> None:
    playbook = Playbook().hears(inject("r1", "i1")).turns().takes()
    playbook.hears(inject("r1", "i1", turn=1), inject("r2", "i2", turn=3)).takes()
    playbook.hears(inject("r1", "i1", turn=2, boundary=2)).takes("i1")  # scored anew by the daemon, and sent again


def test_what_slipped_too_far_is_stale() -> None:
    sent_at_its_start = inject("r1", "i1", boundary=0)  # its own boundary is 1 at the earliest
    Playbook().takes().takes().hears(sent_at_its_start).takes("i1")
    playbook = Playbook().takes().takes().takes().hears(sent_at_its_start).takes()
    assert len(playbook.buffer._waiting) == 0


def test_a_boundary_awaits_its_own_recalls_until_they_are_settled() -> None:
    playbook = Playbook().awaits(True).hears(settled("r1", turn=1)).awaits(False)
    playbook.ends("c1", "c2").awaits(True).hears(settled("r2", "c1")).awaits(True)
    playbook.hears(settled("r3", "c2", outcome="silent")).awaits(False)


def test_a_recall_settled_before_its_call_ends_is_not_awaited() -> None:
    Playbook().hears(settled("r1", turn=1), settled("r2", "c1")).ends("c1").awaits(False)


def test_a_merged_recall_is_awaited_where_it_went() -> None:
    playbook = Playbook().hears(settled("r1", turn=1)).ends("c1")
    playbook.hears(settled("r2", "c1", outcome="merged")).awaits(True).hears(settled("r3", "c1", "c2")).awaits(False)


def test_a_boundary_passed_is_awaited_no_longer() -> None:
    Playbook().ends("c1").takes().awaits(False)


def test_a_set_of_recent_members_forgets_the_oldest() -> None:
    recent = Recent(2)
    for member in ("a", "b", "a", "c"):
        recent.add(member)
    assert list(recent) == ["a", "c"]


class Race(RuleBasedStateMachine):
    """Whatever arrives in whatever order: at most once, never another turn's, never after a withdrawal, bounded."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer()
        self.given: set[str] = set()
        self.taken_from: set[str] = set()
        self.newest: dict[str, Inject] = {}

    numbers = st.integers(0, 40)

    @rule(
        recall=numbers.map("r{}".format),
        ids=st.lists(numbers.map("i{}".format), max_size=3, unique=True),
        stage=st.sampled_from(["fused", "late", "full"]),
        behind=st.integers(-1, 2),
        ago=st.integers(0, 5),
    )
    def arrives(self, recall: str, ids: list[str], stage: Stage, behind: int, ago: int) -> None:
        turn, boundary = max(0, self.buffer.turn - behind), max(0, self.buffer.boundary - ago)
        message = inject(recall, *ids, stage=stage, turn=turn, boundary=boundary)
        held = self.newest.get(recall) if recall in self.buffer._waiting else None
        fits = turn == self.buffer.turn and recall not in self.taken_from
        if fits and (held is None or limits.DEPTH[stage] >= limits.DEPTH[held.stage]):
            self.newest[recall] = message
        self.buffer.inject(message)

    @rule(calls=st.lists(numbers.map("c{}".format), max_size=4), turn=st.integers(0, 3))
    def settles(self, calls: list[str], turn: int) -> None:
        self.buffer.settle(settled("r", *calls, turn=turn))

    @rule(call=st.integers(0, 10_000).map("c{}".format))
    def ends(self, call: str) -> None:
        self.buffer.call_ended(call)

    @rule()
    def turns(self) -> None:
        self.buffer.new_turn()
        self.newest.clear()

    @rule()
    def restarts(self) -> None:
        self.buffer.daemon_changed()
        self.taken_from.clear()
        self.newest.clear()

    @rule()
    def takes(self) -> None:
        taken = self.buffer.take()
        assert len(taken.injections) <= limits.MAX_PER_BOUNDARY
        for one in taken.injections:
            assert one.id not in self.given
            self.given.add(one.id)
            assert one.recall not in self.taken_from
        for one in taken.injections:
            self.taken_from.add(one.recall)
            source = self.newest[one.recall]
            assert one.id in [candidate.id for candidate in source.snippets]
            assert source.turn == taken.turn
            assert taken.number - source.boundary <= self.buffer.stale_after + 1

    @invariant()
    def nothing_grows_without_bound(self) -> None:
        assert len(self.buffer._waiting) <= limits.MAX_WAITING
        assert len(self.buffer._closed) <= limits.MAX_CLOSED
        assert len(self.buffer._shown) <= limits.MAX_SHOWN
        assert len(self.buffer._awaited) <= limits.MAX_AWAITED
        assert len(self.buffer._settled) <= limits.MAX_SETTLED


TestRace = Race.TestCase
TestRace.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_a_flood_is_bounded() -> None:
    buffer = Buffer()
    for number in range(20_000):
        buffer.inject(inject(f"r{number}", f"i{number}", turn=0, boundary=number))
        buffer.settle(settled(f"r{number}", f"c{number}"))
        buffer.call_ended(f"d{number}")
        buffer.take()
    sizes = [len(held) for held in (buffer._waiting, buffer._closed, buffer._shown, buffer._awaited, buffer._settled)]
    limit = [limits.MAX_WAITING, limits.MAX_CLOSED, limits.MAX_SHOWN, limits.MAX_AWAITED, limits.MAX_SETTLED]
    assert all(size <= most for size, most in zip(sizes, limit, strict=True))
