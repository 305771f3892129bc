"""A new turn, a lost turn, a resumed session: what is pending is scored anew before it is sent again."""

from __future__ import annotations

from playbook import Like, Playbook, ask, offer, play
from recalld_daemon.race import Race
from recalld_daemon.race_events import (
    AnswerReady,
    BoundaryReached,
    Deliver,
    Delivered,
    Dropped,
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
    ToolEnded,
    ToolStarted,
    TurnBegan,
)

A, B, C = ask("alpha"), ask("beta"), ask("gamma")


def pending(talk: Playbook) -> Playbook:
    """In turn 1, r1 has found passages 7 and 8 and has sent them."""
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("a7"), offer("a8")), final=True)
        << Send("r1", "full", 1, 0, (offer("a7"), offer("a8")))
        << Settle("r1", (), 1, "ready", "full", "")
    )
    return talk


def push(**bounds: int) -> Playbook:
    return play(Race("s", "r", "push", RaceLimits(**bounds)))


# ---------------------------------------------------------------- P006: the previous turn's answers


def test_p006_what_is_pending_at_a_new_turn_is_sent_again_only_if_it_still_scores() -> None:
    assert (
        pending(push())
        >> TurnBegan(2, B)
        << Rescore("r1", ("a7", "a8"), 2)
        << StartRecall("r2", B, 2, ())
        >> Rescored("r1", 2, ("a8",))
        << Send("r1", "full", 2, 0, (offer("a8"),))
        >> BoundaryReached(1, 2, ("a8",))
        << Delivered("r1", ("a8",), "won", 1, "full")
        << Slipped("r2", 1)
    )


def test_p006_what_no_longer_scores_is_dropped() -> None:
    talk = pending(push())
    assert (
        talk
        >> TurnBegan(2, B)
        << Rescore("r1", ("a7", "a8"), 2)
        << StartRecall("r2", B, 2, ())
        >> Rescored("r1", 2, ())
        << Dropped("r1", Like("^stale: a new turn came"))
    )
    assert talk.race.counts["stale"] == 1


def test_p006_an_answer_of_a_recall_begun_in_the_old_turn_is_rescored_before_it_is_sent() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> TurnBegan(2, B)
        << StartRecall("r2", B, 2, ())
        >> AnswerReady("r1", "fused", (offer("a7"),), final=False)
        << Rescore("r1", ("a7",), 2)
        >> AnswerReady("r1", "full", (offer("a7"), offer("a9")), final=True)
        << Settle("r1", (), 1, "ready", "full", "")
        >> Rescored("r1", 2, ("a7",))
        << Rescore("r1", ("a7", "a9"), 2)
        >> Rescored("r1", 2, ("a7", "a9"))
        << Send("r1", "full", 2, 0, (offer("a7"), offer("a9")))
    )


def test_p006_what_was_never_rescored_is_dropped_when_it_is_stale() -> None:
    assert (
        pending(push())
        >> TurnBegan(2, B)
        << Rescore("r1", ("a7", "a8"), 2)
        << StartRecall("r2", B, 2, ())
        >> RecallFailed("r2", "slow")
        << Settle("r2", (), 2, "failed", "none", "slow")
        >> BoundaryReached(1, 2)
        << Slipped("r1", 1)
        >> BoundaryReached(3, 2)
        >> BoundaryReached(4, 2)
        << Dropped("r1", Like("^stale: "))
        >> Rescored("r1", 2, ("a7",))
    )


def test_a_rescoring_against_a_turn_that_is_past_is_asked_for_again_and_its_late_answer_ignored() -> None:
    assert (
        pending(push())
        >> TurnBegan(2, B)
        << Rescore("r1", ("a7", "a8"), 2)
        << StartRecall("r2", B, 2, ())
        >> TurnBegan(3, C)
        << Rescore("r1", ("a7", "a8"), 3)
        << StartRecall("r3", C, 3, ())
        >> Rescored("r1", 2, ("a7", "a8"))
        >> Rescored("r1", 3, ("a7",))
        << Send("r1", "full", 3, 0, (offer("a7"),))
        >> Rescored("r1", 3, ())
        >> Rescored("r9", 3, ())
    )


def test_a_deeper_answer_that_no_longer_scores_withdraws_what_had_been_kept() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> TurnBegan(2, B)
        << StartRecall("r2", B, 2, ())
        >> AnswerReady("r1", "fused", (offer("a7"),), final=False)
        << Rescore("r1", ("a7",), 2)
        >> Rescored("r1", 2, ("a7",))
        << Send("r1", "fused", 2, 0, (offer("a7"),))
        >> AnswerReady("r1", "late", (offer("a9"),), final=False)
        << Rescore("r1", ("a9",), 2)
        >> Resumed(0, 2)
        >> Rescored("r1", 2, ())
        << Send("r1", "late", 2, 0, ())
        >> AnswerReady("r1", "full", (), final=True)
        << Settle("r1", (), 1, "silent", "full", "")
        >> BoundaryReached(1, 2, ("a7",))
        << Delivered("r1", ("a7",), "won", 1, "fused")
        << Slipped("r2", 1)
    )


def test_an_old_recall_s_deeper_silence_withdraws_what_had_been_kept_at_once() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> TurnBegan(2, B)
        << StartRecall("r2", B, 2, ())
        >> AnswerReady("r1", "fused", (offer("a7"),), final=False)
        << Rescore("r1", ("a7",), 2)
        >> Rescored("r1", 2, ("a7",))
        << Send("r1", "fused", 2, 0, (offer("a7"),))
        >> AnswerReady("r1", "full", (), final=True)
        << Send("r1", "full", 2, 0, ())
        << Settle("r1", (), 1, "silent", "full", "")
    )


def test_the_new_turn_s_own_recall_may_offer_what_waits_to_be_rescored() -> None:
    assert (
        pending(push())
        >> TurnBegan(2, B)
        << Rescore("r1", ("a7", "a8"), 2)
        << StartRecall("r2", B, 2, ())
        >> AnswerReady("r2", "full", (offer("b7"),), final=True)
        << Send("r2", "full", 2, 0, (offer("b7"),))
        << Settle("r2", (), 2, "ready", "full", "")
        >> Rescored("r1", 2, ("a7", "a8"))
        << Send("r1", "full", 2, 0, (offer("a8"),))
    )


def test_only_the_newest_are_rescored_the_others_are_dropped() -> None:
    assert (
        pending(push(max_rescored=1))
        >> ToolStarted("c1", B)
        << StartRecall("r2", B, 0, ("c1",))
        >> AnswerReady("r2", "full", (offer("b9"),), final=True)
        << Send("r2", "full", 1, 0, (offer("b9"),))
        << Settle("r2", ("c1",), 0, "ready", "full", "")
        >> TurnBegan(2, C)
        << Dropped("r1", Like("^stale: a new turn came"))
        << Rescore("r2", ("b9",), 2)
        << StartRecall("r3", C, 2, ())
    )


def test_a_withdrawn_recall_is_forgotten_with_its_turn() -> None:
    talk = push()
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("a7"),), final=False)
        << Send("r1", "fused", 1, 0, (offer("a7"),))
        >> AnswerReady("r1", "full", (), final=True)
        << Send("r1", "full", 1, 0, ())
        << Settle("r1", (), 1, "silent", "full", "")
        >> TurnBegan(2, B)
        << StartRecall("r2", B, 2, ())
        >> AnswerReady("r2", "full", (offer("b7"),), final=True)
        << Send("r2", "full", 2, 0, (offer("b7"),))
        << Settle("r2", (), 2, "ready", "full", "")
    )
    assert talk.race.counts["silent"] == 1


def test_in_pull_what_waits_to_be_rescored_is_not_delivered() -> None:
    assert (
        play(Race("s", "r", "pull"))
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("a7"), offer("a8")), final=True)
        << Settle("r1", (), 1, "ready", "full", "")
        >> TurnBegan(2, B)
        << Rescore("r1", ("a7", "a8"), 2)
        << StartRecall("r2", B, 2, ())
        >> OutboxAsked()
        << Deliver((), 1)
        << Slipped("r1", 1)
        << Slipped("r2", 1)
        >> Rescored("r1", 2, ("a7",))
        >> OutboxAsked()
        << Deliver((offer("a7"),), 2)
        << Delivered("r1", ("a7",), "slipped", 2, "full")
    )


# ---------------------------------------------------------------- turns that were lost, or came twice


def test_a_boundary_of_a_turn_we_have_not_heard_of_is_a_new_turn() -> None:
    assert (
        pending(push())
        >> BoundaryReached(1, 2)
        << Rescore("r1", ("a7", "a8"), 2)
        << Slipped("r1", 1)
        >> BoundaryReached(2, 0)
        >> Rescored("r1", 2, ("a7",))
        << Send("r1", "full", 2, 0, (offer("a7"),))
    )


def test_a_turn_that_comes_twice_changes_nothing() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> TurnBegan(1, A)
        >> AnswerReady("r1", "full", (offer("a7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("a7"),))
        << Settle("r1", (), 1, "ready", "full", "")
    )


# ---------------------------------------------------------------- resuming


def test_a_client_that_resumes_is_sent_again_what_it_is_not_known_to_have_taken() -> None:
    assert (
        pending(push())
        >> ToolStarted("c1", B)
        << StartRecall("r2", B, 0, ("c1",))
        >> AnswerReady("r2", "late", (offer("b9"),), final=False)
        << Send("r2", "late", 1, 0, (offer("b9"),))
        >> BoundaryReached(1, 1, ("a7",))
        << Delivered("r1", ("a7",), "won", 1, "full")
        >> Resumed(1, 1)
        << Send("r2", "late", 1, 1, (offer("b9"),))
    )


def test_a_client_that_lost_its_counters_is_followed_and_nothing_grows_younger_or_older_by_it() -> None:
    assert (
        play(Race("s", "r", "push", boundary=10, turn=4))
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolEnded("c1")
        >> BoundaryReached(11, 4)
        << Slipped("r1", 11)
        >> AnswerReady("r1", "full", (offer("a7"),), final=True)
        << Send("r1", "full", 4, 10, (offer("a7"),))
        << Settle("r1", ("c1",), 0, "ready", "full", "")
        >> BoundaryReached(12, 4)
        >> Resumed(3, 1)
        << Send("r1", "full", 1, 1, (offer("a7"),))
        >> BoundaryReached(4, 1, ("a7",))
        << Delivered("r1", ("a7",), "slipped", 4, "full")
    )


def test_renumbering_never_leads_before_the_client_s_first_boundary() -> None:
    assert (
        play(Race("s", "r", "push", boundary=10))
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> BoundaryReached(11, 1)
        << Slipped("r1", 11)
        >> AnswerReady("r1", "full", (offer("a7"),), final=True)
        << Send("r1", "full", 1, 10, (offer("a7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> Resumed(0, 0)
        << Send("r1", "full", 0, 0, (offer("a7"),))
        >> BoundaryReached(3, 0)
        >> BoundaryReached(4, 0)
        << Dropped("r1", Like("^stale: "))
    )


def test_a_client_that_lost_its_turn_while_something_was_rescored_has_it_asked_anew() -> None:
    assert (
        pending(push())
        >> TurnBegan(5, B)
        << Rescore("r1", ("a7", "a8"), 5)
        << StartRecall("r2", B, 5, ())
        >> Resumed(0, 0)
        << Rescore("r1", ("a7", "a8"), 0)
        >> Rescored("r1", 5, ("a8",))
        >> Rescored("r1", 0, ("a7",))
        << Send("r1", "full", 0, 0, (offer("a7"),))
    )


def test_a_client_that_went_on_while_the_link_was_down_is_caught_up_with() -> None:
    assert (
        pending(push())
        >> Resumed(2, 2)
        << Slipped("r1", 2)
        << Rescore("r1", ("a7", "a8"), 2)
        >> Rescored("r1", 2, ("a7",))
        << Send("r1", "full", 2, 1, (offer("a7"),))
        >> Resumed(9, 2)
        << Dropped("r1", Like("^stale: "))
    )


def test_in_pull_resuming_sends_nothing() -> None:
    assert (
        play(Race("s", "r", "pull"))
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("a7"),), final=True)
        << Settle("r1", (), 1, "ready", "full", "")
        >> Resumed(0, 1)
        >> OutboxAsked()
        << Deliver((offer("a7"),), 1)
        << Delivered("r1", ("a7",), "won", 1, "full")
    )
