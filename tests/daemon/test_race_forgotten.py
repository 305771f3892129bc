"""P018 in a race: what is forgotten is withdrawn, dropped or passed over; the rest of a recall goes on."""

from __future__ import annotations

from playbook import Like, Playbook, ask, offer, play
from recalld_daemon.observer import BoundaryPassed, Impression, Observer, Said, Shown
from recalld_daemon.observer import Forgotten as Unwatched
from recalld_daemon.race import Race
from recalld_daemon.race_events import (
    AnswerReady,
    BoundaryReached,
    Deliver,
    Delivered,
    Dropped,
    Forgotten,
    OutboxAsked,
    RaceLimits,
    Rescore,
    Rescored,
    Send,
    Settle,
    StartRecall,
    TurnBegan,
)

A, B = ask("alpha"), ask("beta")
SEVEN, BOTH = frozenset({7}), frozenset({7, 8})
A7, A8, A9 = offer("a7"), offer("a8"), offer("a9")


def found(delivery: str = "push", final: bool = True) -> Playbook:
    """In turn 1, r1 has found passages 7 and 8."""
    talk = play(Race("s", "r", delivery, RaceLimits()))  # type: ignore[arg-type]
    talk >> TurnBegan(1, A) << StartRecall("r1", A, 1, ()) >> AnswerReady("r1", "late", (A7, A8), final=final)
    talk = talk << Send("r1", "late", 1, 0, (A7, A8)) if delivery == "push" else talk
    talk = talk << Settle("r1", (), 1, "ready", "late", "") if final else talk
    assert talk
    return talk


def test_one_of_two_is_withdrawn_and_the_other_can_be_taken() -> None:
    assert (
        found()
        >> Forgotten(SEVEN)
        << Send("r1", "late", 1, 0, (A8,))
        >> BoundaryReached(1, 1, ("a7", "a8"))  # the client had shown both: the first is nobody's any more
        << Delivered("r1", ("a8",), "won", 1, "late")
    )


def test_a_recall_that_has_nothing_left_is_dropped() -> None:
    assert (
        found()
        >> Forgotten(BOTH)
        << Send("r1", "late", 1, 0, ())
        << Dropped("r1", Like("^stale: what it found was forgotten"))
        >> BoundaryReached(1, 1, ("a7",))
        >> Forgotten(BOTH)
    )


def test_one_that_still_runs_goes_on() -> None:
    assert (
        found(final=False)
        >> Forgotten(BOTH)
        << Send("r1", "late", 1, 0, ())
        >> AnswerReady("r1", "full", (A9,), final=True)
        << Send("r1", "full", 1, 0, (A9,))
        << Settle("r1", (), 1, "ready", "full", "")
    )


def test_the_outbox_has_what_is_left() -> None:
    assert (
        found("pull")
        >> Forgotten(SEVEN)
        >> OutboxAsked(1)
        << Deliver((A8,), 1)
        << Delivered("r1", ("a8",), "won", 1, "late")
        >> Forgotten(frozenset({8}))
    )


def test_what_waits_to_be_rescored_is_not_sent_before_it_is() -> None:
    assert (
        found()
        >> TurnBegan(2, B)
        << Rescore("r1", ("a7", "a8"), 2)
        << StartRecall("r2", B, 2, ())
        >> Forgotten(SEVEN)
        >> Rescored("r1", 2, ("a7", "a8"))
        << Send("r1", "late", 2, 0, (A8,))
    )


def test_what_concerns_nobody_says_nothing() -> None:
    assert found() >> Forgotten(frozenset({1, 2, 3}))


def test_a_forgotten_snippet_is_watched_no_more() -> None:
    observer = Observer(observed_boundaries=1)
    lock = Impression("i1", "never index berth_booking, the lock stopped the staging ferry")
    other = Impression("i2", "the pump of the harbour office leaks at high tide")
    observer.handle(Shown((lock, other), 1))
    assert observer.handle(Unwatched(frozenset({"i1", "i3"}))) == []
    assert len(observer) == 1
    observer.handle(BoundaryPassed(1))
    observer.handle(Said("never index berth_booking, the lock stopped the staging ferry"))
    assert [verdict.impression for verdict in observer.handle(BoundaryPassed(2))] == ["i2"]
