"""Which questions are run: at most two at once, one waiting, newer ones merging it, repeats joining or turned away."""

from __future__ import annotations

from playbook import Like, Playbook, ask, offer, play
from recalld_daemon.race import Race
from recalld_daemon.race_events import (
    AnswerReady,
    BoundaryReached,
    CancelRecall,
    Delivered,
    Dropped,
    RaceLimits,
    Rescore,
    Rescored,
    Send,
    Settle,
    Slipped,
    StartRecall,
    ToolEnded,
    ToolStarted,
    TurnBegan,
)
from recalld_daemon.recall.types import Query

A, B, C, D = ask("alpha"), ask("beta"), ask("gamma"), ask("delta")


def push(**bounds: int) -> Playbook:
    return play(Race("s", "r", "push", RaceLimits(**bounds)))


def busy(**bounds: int) -> Playbook:
    """A session whose only place is taken by r1."""
    talk = push(max_running=1, **bounds)
    assert talk >> ToolStarted("c1", A) << StartRecall("r1", A, 0, ("c1",))
    return talk


# ---------------------------------------------------------------- waiting and merging


def test_two_run_and_one_waits_for_a_place() -> None:
    assert (
        push()
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c2", B)
        << StartRecall("r2", B, 0, ("c2",))
        >> ToolStarted("c3", C)
        >> AnswerReady("r2", "full", (), final=True)
        << Settle("r2", ("c2",), 0, "silent", "full", "")
        << StartRecall("r3", C, 0, ("c3",))
    )


def test_one_that_has_not_begun_is_merged_into_a_newer_one_which_serves_both_calls() -> None:
    talk = busy()
    assert (
        talk
        >> ToolStarted("c2", B)
        >> ToolStarted("c3", C)
        << Settle("r2", (), 0, "merged", "none", "merged into r3")
        >> AnswerReady("r1", "full", (), final=True)
        << Settle("r1", ("c1",), 0, "silent", "full", "")
        << StartRecall("r3", C, 0, ("c2", "c3"))
        >> ToolEnded("c2")
        >> BoundaryReached(1, 0)
        << Slipped("r3", 1)
    )
    assert talk.race.counts["merged"] == 1


def test_a_call_that_ended_while_its_recall_waited_has_its_boundary_served_by_the_newer_one() -> None:
    assert (
        busy()
        >> ToolStarted("c2", B)
        >> ToolEnded("c2")
        >> ToolStarted("c3", C)
        << Settle("r2", (), 0, "merged", "none", "merged into r3")
        >> BoundaryReached(1, 0)
        << Slipped("r3", 1)
    )


def test_an_own_boundary_that_passed_while_it_waited_is_not_held_against_the_newer_one() -> None:
    assert (
        busy()
        >> ToolStarted("c2", B)
        >> ToolEnded("c2")
        >> BoundaryReached(1, 0)
        << Slipped("r2", 1)
        >> ToolStarted("c3", C)
        << Settle("r2", (), 0, "merged", "none", "merged into r3")
        >> BoundaryReached(4, 0)
        >> ToolEnded("c3")
        >> BoundaryReached(5, 0)
        << Slipped("r3", 5)
    )


def test_a_waiting_turn_is_served_by_the_tool_call_s_recall_that_merges_it() -> None:
    assert (
        busy()
        >> TurnBegan(1, B)
        >> ToolStarted("c3", C)
        << Settle("r2", (), 0, "merged", "none", "merged into r3")
        >> AnswerReady("r1", "full", (), final=True)
        << Settle("r1", ("c1",), 0, "silent", "full", "")
        << StartRecall("r3", C, 1, ("c3",))
        >> BoundaryReached(1, 1)
        << Slipped("r3", 1)
    )


def test_one_that_waited_too_long_is_settled_stale() -> None:
    assert (
        busy()
        >> ToolStarted("c2", B)
        >> ToolEnded("c2")
        >> BoundaryReached(1, 0)
        << Slipped("r2", 1)
        >> BoundaryReached(4, 0)
        << Settle("r2", ("c2",), 0, "stale", "none", Like("^stale: "))
    )


def test_calls_beyond_what_one_recall_can_serve_are_told_that_it_is_over() -> None:
    assert (
        busy(max_calls_per_recall=2)
        >> ToolStarted("c2", B)
        >> ToolStarted("c3", C)
        << Settle("r2", (), 0, "merged", "none", "merged into r3")
        >> ToolStarted("c4", D)
        << Settle("r3", (), 0, "merged", "none", "merged into r4")
        << Settle("r5", ("c2",), 0, "silent", "none", Like("more calls at once than r4"))
        >> ToolStarted("c5", D)
        << Settle("r6", ("c5",), 0, "repeat", "none", Like("r4, which serves many"))
    )


def test_when_too_many_wait_for_a_boundary_a_call_gets_silence() -> None:
    assert (
        push(max_live=1)
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 0, 0, (offer("o7"),))
        << Settle("r1", ("c1",), 0, "ready", "full", "")
        >> ToolStarted("c2", B)
        << Settle("r2", ("c2",), 0, "silent", "none", "1 recalls wait for a boundary already")
        >> BoundaryReached(1, 0, ("o7",))
        << Delivered("r1", ("o7",), "won", 1, "full")
        >> ToolStarted("c3", B)
        << StartRecall("r3", B, 0, ("c3",))
    )


# ---------------------------------------------------------------- repeats


def test_a_question_equal_to_the_last_joins_the_recall_that_runs() -> None:
    talk = push()
    assert (
        talk
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c2", A)
        >> ToolEnded("c2")
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 0, 0, (offer("o7"),))
        << Settle("r1", ("c1", "c2"), 0, "ready", "full", "")
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
    )


def test_a_question_equal_to_the_waiting_one_joins_it() -> None:
    assert (
        busy()
        >> ToolStarted("c2", B)
        >> ToolStarted("c3", B)
        >> AnswerReady("r1", "full", (), final=True)
        << Settle("r1", ("c1",), 0, "silent", "full", "")
        << StartRecall("r2", B, 0, ("c2", "c3"))
    )


def test_a_question_whose_answer_is_still_undelivered_joins_it_and_makes_it_fresh_again() -> None:
    """Who waits for the new call is told at once; the old answer goes out again and is not stale two boundaries on."""
    assert (
        push()
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolEnded("c1")
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 0, 0, (offer("o7"),))
        << Settle("r1", ("c1",), 0, "ready", "full", "")
        >> BoundaryReached(3, 0)
        >> ToolStarted("c2", A)
        << Send("r1", "full", 0, 3, (offer("o7"),))
        << Settle("r2", ("c2",), 0, "repeat", "none", Like("r1, whose answer"))
        >> ToolEnded("c2")
        >> BoundaryReached(4, 0)
        >> BoundaryReached(5, 0, ("o7",))
        << Delivered("r1", ("o7",), "slipped", 5, "full")
    )


def test_a_recall_that_slipped_and_is_joined_by_a_call_still_open_waits_for_that_call() -> None:
    assert (
        push()
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolEnded("c1")
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
        >> ToolStarted("c2", A)
        >> BoundaryReached(2, 0)
        >> BoundaryReached(6, 0)
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 0, 6, (offer("o7"),))
        << Settle("r1", ("c1", "c2"), 0, "ready", "full", "")
    )


def test_a_question_asked_again_needs_no_rescoring_and_the_one_under_way_is_void() -> None:
    assert (
        push()
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> AnswerReady("r1", "late", (offer("o7"),), final=False)
        << Send("r1", "late", 0, 0, (offer("o7"),))
        >> BoundaryReached(1, 1)
        << Rescore("r1", ("o7",), 1)
        >> ToolStarted("c2", A)
        << Send("r1", "late", 1, 1, (offer("o7"),))
        >> Rescored("r1", 1, ())
    )


def test_a_question_that_was_answered_or_met_silence_is_not_run_again() -> None:
    talk = push()
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (), final=True, reason="nothing")
        << Settle("r1", (), 1, "silent", "full", "nothing")
        >> ToolStarted("c1", A)
        << Settle("r2", ("c1",), 0, "repeat", "none", "the same question as r1")
        >> TurnBegan(2, A)
        << Settle("r3", (), 2, "repeat", "none", "the same question as r1")
        >> ToolStarted("c2", B)
        << StartRecall("r4", B, 0, ("c2",))
        >> ToolStarted("c3", A)
        << StartRecall("r5", A, 0, ("c3",))
    )
    assert talk.race.counts["repeat"] == 2


def test_a_question_whose_answer_went_stale_unseen_is_run_again() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> BoundaryReached(1, 1)
        << Slipped("r1", 1)
        >> BoundaryReached(4, 1)
        << Dropped("r1", Like("^stale: "))
        >> ToolStarted("c1", A)
        << StartRecall("r2", A, 0, ("c1",))
    )


def test_a_new_turn_that_repeats_the_question_takes_the_recall_over_without_rescoring() -> None:
    assert (
        push()
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> AnswerReady("r1", "late", (offer("o7"),), final=False)
        << Send("r1", "late", 0, 0, (offer("o7"),))
        >> TurnBegan(1, A)
        << Send("r1", "late", 1, 0, (offer("o7"),))
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", ("c1",), 1, "ready", "full", "")
        >> BoundaryReached(1, 1)
        << Slipped("r1", 1)
    )


def test_an_answer_that_another_recall_offers_by_now_is_dropped_when_it_is_joined() -> None:
    """An unheard-of turn leaves r2's answer to be rescored; r1 offers its passage; r2's question comes again."""
    assert (
        push()
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c2", B)
        << StartRecall("r2", B, 0, ("c2",))
        >> AnswerReady("r2", "full", (offer("b7"),), final=True)
        << Send("r2", "full", 0, 0, (offer("b7"),))
        << Settle("r2", ("c2",), 0, "ready", "full", "")
        >> BoundaryReached(1, 1)
        << Rescore("r2", ("b7",), 1)
        >> AnswerReady("r1", "full", (offer("a7"),), final=True)
        << Rescore("r1", ("a7",), 1)
        << Settle("r1", ("c1",), 0, "ready", "full", "")
        >> Rescored("r1", 1, ("a7",))
        << Send("r1", "full", 1, 1, (offer("a7"),))
        >> ToolStarted("c3", B)
        << Settle("r3", ("c3",), 0, "repeat", "none", Like("r2, whose answer"))
        << Dropped("r2", Like("^stale: "))
    )


def test_queries_without_a_key_never_repeat_each_other() -> None:
    empty = Query("", (), "")
    assert (
        push(max_running=1)
        >> ToolStarted("c1", empty)
        << StartRecall("r1", empty, 0, ("c1",))
        >> ToolStarted("c2", empty)
        >> ToolStarted("c3", empty)
        << Settle("r2", (), 0, "merged", "none", "merged into r3")
    )


def test_p009_a_hundred_calls_about_one_subject_show_its_passage_once() -> None:
    race = Race("s", "r", "push")
    shown = 0
    for number in range(1, 101):
        said = race.handle(ToolStarted(f"c{number}", ask(f"deploy {number}")), number)
        recall = next(i.recall for i in said if isinstance(i, StartRecall))
        said = race.handle(AnswerReady(recall, "full", (offer(f"o{number}", passage=7),), True), number)
        taken = tuple(o.id for i in said if isinstance(i, Send) for o in i.offers)
        race.handle(ToolEnded(f"c{number}"), number)
        said = race.handle(BoundaryReached(number, 0, taken), number)
        shown += sum(isinstance(i, Delivered) for i in said)
        race.validate()
    assert shown == 1
    assert (race.counts["won"], race.counts["silent"]) == (1, 99)


def test_a_place_that_a_cancelled_recall_held_is_free_at_once() -> None:
    assert (
        busy()
        >> ToolStarted("c2", B)
        >> AnswerReady("r1", "fused", (offer("o7"),), final=False)
        << Send("r1", "fused", 0, 0, (offer("o7"),))
        >> BoundaryReached(1, 0, ("o7",))
        << Delivered("r1", ("o7",), "won", 1, "fused")
        << CancelRecall("r1")
        << Settle("r1", ("c1",), 0, "ready", "fused", Like("shown"))
        << StartRecall("r2", B, 0, ("c2",))
    )
