"""What is told of a snippet that was shown: a conversation of events and verdicts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.observer import (
    MAX_WATCHED,
    BoundaryPassed,
    Closed,
    Event,
    Heard,
    Impression,
    Missed,
    Observer,
    Said,
    Shown,
    ToolStarted,
    Verdict,
)

INDEX = Impression("i1", "never index berth_booking, the lock stopped the staging ferry", ("/w/notes/lock.md",))
ASKED = ("create an index on the bookings table",)
LOCK = Shown((INDEX,), 1, ASKED)
WORK = ToolStarted("Bash", '{"command": "make all"}')
ACTED, USED, IGNORED, UNKNOWN = (
    Verdict("i1", "acted"),
    Verdict("i1", "used"),
    Verdict("i1", "ignored"),
    Verdict("i1", "unknown"),
)


@dataclass
class Play:
    """`>>` something happens, `<<` the observer says; played when it is asserted."""

    observer: Observer = field(default_factory=lambda: Observer(observed_boundaries=2))
    script: list[tuple[Event, list[Verdict]]] = field(default_factory=list)

    def __rshift__(self, event: Event) -> Play:
        self.script.append((event, []))
        return self

    def __lshift__(self, verdict: Verdict) -> Play:
        self.script[-1][1].append(verdict)
        return self

    def __bool__(self) -> bool:
        for number, (event, expected) in enumerate(self.script):
            assert self.observer.handle(event) == expected, f"at {number}: {event}"
        self.script.clear()
        return True


def read(path: str, cwd: str = "") -> ToolStarted:
    return ToolStarted("Read", f'{{"file_path": "{path}"}}', cwd)


def test_opening_its_file_is_acting_on_it() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> read("/w/notes/lock.md") << ACTED >> read("/w/notes/lock.md")


def test_a_shell_that_names_its_file_acts_on_it() -> None:
    assert (
        Play() >> LOCK >> BoundaryPassed(1) >> ToolStarted("Bash", '{"command": "sed -n 1,9p notes/lock.md"}') << ACTED
    )


def test_a_relative_name_is_read_from_where_the_agent_works() -> None:
    readme = Impression("i1", "the ferry", ("/w/notes/README.md",))
    shown = Shown((readme,), 1)
    assert Play() >> shown >> BoundaryPassed(1) >> read("README.md", "/w/other")
    assert Play() >> shown >> BoundaryPassed(1) >> read("README.md", "/w/notes") << ACTED


def test_another_file_of_the_same_end_is_another_file() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> read("/w/notes/padlock.md") >> read("/else/notes/lock.md")


def test_saying_its_name_is_using_it() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> Said("I look at berth_booking first") << USED


def test_arguments_that_say_it_use_it() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> ToolStarted("Edit", '{"new_string": "on berth_booking"}') << USED


def test_two_telling_words_near_each_other_are_use_and_one_is_chance() -> None:
    far = " ".join(["word"] * 40)
    assert Play() >> LOCK >> BoundaryPassed(1) >> Said("the lock") >> Said(f"lock {far} ferry")
    assert Play() >> LOCK >> BoundaryPassed(1) >> Said("a lock would stop the ferry on staging") << USED


def test_what_the_context_said_before_is_not_its_own() -> None:
    context = (*ASKED, "is berth_booking under a lock? the ferry on staging stopped")
    assert Play() >> Shown((INDEX,), 1, context) >> BoundaryPassed(1) >> Said("berth_booking: lock, ferry, staging")


def test_what_the_user_or_a_tool_says_meanwhile_is_not_its_own() -> None:
    heard = Heard("CREATE TABLE berth_booking; the lock of the ferry on staging")
    assert Play() >> LOCK >> BoundaryPassed(1) >> heard >> Said("berth_booking holds a lock on staging's ferry")


def test_used_and_acted_may_both_come_each_once() -> None:
    play = Play() >> LOCK >> BoundaryPassed(1) >> Said("berth_booking") << USED
    play = play >> read("/w/notes/lock.md") << ACTED >> Said("berth_booking") >> read("/w/notes/lock.md")
    assert play >> BoundaryPassed(2) >> BoundaryPassed(3) >> Closed()


def test_an_agent_seen_at_work_to_the_last_boundary_ignored_it() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> WORK >> BoundaryPassed(2) >> BoundaryPassed(3) << IGNORED >> Closed()


def test_an_agent_not_seen_at_work_is_unknown() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> BoundaryPassed(2) >> BoundaryPassed(3) << UNKNOWN


def test_a_session_that_ends_early_is_unknown() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> WORK >> Closed() << UNKNOWN >> Closed()


def test_boundaries_or_context_that_were_missed_make_it_unknown() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> WORK >> BoundaryPassed(3) << UNKNOWN
    assert Play() >> LOCK >> BoundaryPassed(1) >> WORK >> Missed() >> BoundaryPassed(2) >> BoundaryPassed(3) << UNKNOWN


def test_what_was_missed_hides_no_use() -> None:
    assert Play() >> LOCK >> BoundaryPassed(1) >> Missed() >> Said("berth_booking") << USED >> Closed()


def test_a_file_that_was_open_before_tells_nothing_when_it_is_opened_again() -> None:
    shown = Shown((INDEX,), 1, ("Read /w/notes/lock.md",))
    play = Play() >> shown >> BoundaryPassed(1) >> read("/w/notes/lock.md") >> BoundaryPassed(2)
    assert play >> BoundaryPassed(3) << UNKNOWN


def test_boundaries_that_are_counted_anew_keep_what_is_left() -> None:
    play = Play() >> Shown((INDEX,), 7, ASKED) >> BoundaryPassed(7) >> WORK
    assert play >> BoundaryPassed(2) >> BoundaryPassed(3) >> BoundaryPassed(4) << IGNORED


def test_what_was_withheld_is_watched_from_the_boundary_at_which_it_would_have_come() -> None:
    held = Shown((INDEX,), 1, ASKED, withheld=True)
    assert (
        Play()
        >> held
        >> read("/w/notes/lock.md")
        >> BoundaryPassed(1)
        >> WORK
        >> BoundaryPassed(2)
        >> Closed()
        << UNKNOWN
    )
    assert Play() >> held >> Said("berth_booking") >> BoundaryPassed(1) >> Said("berth_booking")
    assert Play() >> held >> BoundaryPassed(1) >> Said("berth_booking") << USED
    assert Play() >> held >> BoundaryPassed(1) >> WORK >> BoundaryPassed(2) >> BoundaryPassed(3) << IGNORED


def test_another_snippet_that_says_what_was_withheld_makes_it_no_evidence() -> None:
    other = Shown((Impression("i2", "berth_booking has a lock", ()),), 1)
    assert (
        Play()
        >> Shown((INDEX,), 1, ASKED, withheld=True)
        >> other
        >> BoundaryPassed(1)
        >> Said("berth_booking")
        << (Verdict("i2", "used"))
    )


def test_a_memory_has_no_file_to_open() -> None:
    memory = Shown((Impression("i1", "the ferry", ("memory:17",)),), 1)
    assert Play() >> memory >> BoundaryPassed(1) >> ToolStarted("Bash", "cat memory:17")


def test_more_than_can_be_watched_ends_the_oldest_unknown() -> None:
    many = Shown(tuple(Impression(f"i{n}", "x") for n in range(MAX_WATCHED + 2)), 1)
    assert Play() >> many << Verdict("i0", "unknown") << Verdict("i1", "unknown")


NAMES = ("berth_booking", "tidefeed_cache")
TEXTS = st.sampled_from(["", *NAMES, "lock ferry staging", "the user said this"])
EVENTS = st.one_of(
    st.builds(
        Shown,
        st.lists(
            st.builds(
                Impression, st.sampled_from([f"i{n}" for n in range(6)]), TEXTS, st.sampled_from([(), ("/w/a.md",)])
            ),
            max_size=3,
        ).map(tuple),
        st.integers(0, 12),
        st.lists(TEXTS, max_size=2).map(tuple),
        st.booleans(),
    ),
    st.builds(ToolStarted, st.just("Read"), st.sampled_from(["/w/a.md", "/w/b.md", "berth_booking"])),
    st.builds(Said, TEXTS),
    st.builds(Heard, TEXTS),
    st.builds(BoundaryPassed, st.integers(0, 12)),
    st.just(Missed()),
    st.just(Closed()),
)


@given(st.lists(EVENTS, max_size=40), st.integers(1, 5))
def test_each_verdict_comes_once_and_of_what_is_watched(events: list[Event], observed: int) -> None:
    """Between two showings of the same id, that is; and an end comes alone."""
    observer = Observer(observed)
    open_, told = set[str](), Counter[Verdict]()
    for event in events:
        if isinstance(event, Shown):
            for impression in event.impressions:
                if impression.id not in open_:
                    open_.add(impression.id)
                    told = Counter({verdict: n for verdict, n in told.items() if verdict.impression != impression.id})
        for verdict in observer.handle(event):
            assert verdict.impression in open_
            told[verdict] += 1
            assert told[verdict] == 1
            if verdict.verdict in ("ignored", "unknown"):
                assert not {Verdict(verdict.impression, "acted"), Verdict(verdict.impression, "used")} & told.keys()
        open_ = {id for id in open_ if id in observer._watches}
    observer.handle(Closed())
    assert len(observer) == 0


@given(st.lists(EVENTS.filter(lambda event: not isinstance(event, ToolStarted | Said)), max_size=30))
def test_an_agent_that_did_nothing_is_never_labelled(events: list[Event]) -> None:
    observer = Observer(2)
    told = [verdict.verdict for event in [*events, Closed()] for verdict in observer.handle(event)]
    assert set(told) <= {"unknown"}
