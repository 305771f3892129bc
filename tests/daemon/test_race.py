"""One recall against its boundary: won, slipped, silent, stale; deeper answers, parallel and nested calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Like, Playbook, Wait, ask, offer, play
from recalld_daemon.race import Race, RaceError
from recalld_daemon.race_events import (
    AnswerReady,
    BoundaryReached,
    CancelRecall,
    Closed,
    Compacted,
    Continue,
    Deliver,
    Delivered,
    Dropped,
    OutboxAsked,
    RaceLimits,
    RecallFailed,
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
from recalld_daemon.race_recall import TRANSITIONS, Phase, Recall, Step
from recalld_daemon.recall.budget import TOOL_MS, TURN, Lengths

A, B, C = ask("alpha"), ask("beta"), ask("gamma")


def push(**bounds: float) -> Playbook:
    return play(Race("s", "r", "push", RaceLimits(**bounds)))  # type: ignore[arg-type]


def pull(**bounds: float) -> Playbook:
    return play(Race("s", "r", "pull", RaceLimits(**bounds)))  # type: ignore[arg-type]


# ---------------------------------------------------------------- won, slipped, silent, stale


def test_a_recall_that_is_taken_at_its_own_boundary_has_won() -> None:
    talk = push()
    assert (
        talk
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 0, 0, (offer("o7"),))
        << Settle("r1", ("c1",), 0, "ready", "full", "")
        >> ToolEnded("c1")
        >> BoundaryReached(1, 0, ("o7",))
        << Delivered("r1", ("o7",), "won", 1, "full")
    )
    assert talk.race.counts == {
        "won": 1, "slipped": 0, "silent": 0, "stale": 0, "failed": 0, "repeat": 0, "merged": 0,
    }  # fmt: skip


def test_taken_before_its_own_boundary_it_has_won_too() -> None:
    assert (
        push()
        >> ToolStarted("long", A)
        << StartRecall("r1", A, 0, ("long",))
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 0, 0, (offer("o7"),))
        << Settle("r1", ("long",), 0, "ready", "full", "")
        >> BoundaryReached(1, 0)
        >> BoundaryReached(2, 0, ("o7",))
        << Delivered("r1", ("o7",), "won", 2, "full")
    )


def test_p002_a_late_answer_slips_to_the_next_boundary() -> None:
    talk = push()
    assert (
        talk
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolEnded("c1")
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
        >> AnswerReady("r1", "fused", (offer("o7"),), final=True)
        << Send("r1", "fused", 0, 0, (offer("o7"),))
        << Settle("r1", ("c1",), 0, "ready", "fused", "")
        >> BoundaryReached(2, 0, ("o7",))
        << Delivered("r1", ("o7",), "slipped", 2, "fused")
    )
    assert talk.race.counts["slipped"] == 1


def test_more_than_stale_after_boundaries_past_its_own_it_is_dropped() -> None:
    talk = push()
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> BoundaryReached(1, 1)
        << Slipped("r1", 1)
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> BoundaryReached(2, 1)
        >> BoundaryReached(3, 1)
        >> BoundaryReached(4, 1)
        << Dropped("r1", Like("^stale: "))
        >> BoundaryReached(5, 1, ("o7",))
    )
    assert talk.race.ignored_taken == 1
    assert talk.race.counts["stale"] == 1


def test_a_recall_still_running_when_it_is_stale_is_cancelled() -> None:
    assert (
        push(stale_after=1)
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (), final=False)
        >> BoundaryReached(1, 1)
        << Slipped("r1", 1)
        >> BoundaryReached(3, 1)
        << CancelRecall("r1")
        << Settle("r1", (), 1, "stale", "fused", Like("^stale: "))
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
    )


def test_silence_is_settled_with_its_reason_and_does_not_slip() -> None:
    talk = push()
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (), final=False, reason="nothing yet")
        >> AnswerReady("r1", "full", (), final=True, reason="0.2 is under 0.5")
        << Settle("r1", (), 1, "silent", "full", "0.2 is under 0.5")
        >> BoundaryReached(1, 1)
    )
    assert talk.race.counts["silent"] == 1


def test_a_failure_is_settled_and_the_same_question_may_be_asked_again() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> RecallFailed("r1", "the encoder died")
        << Settle("r1", (), 1, "failed", "none", "the encoder died")
        >> ToolStarted("c1", A)
        << StartRecall("r2", A, 0, ("c1",))
    )


def test_what_was_found_before_a_failure_stands() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("o7"),), final=False)
        << Send("r1", "fused", 1, 0, (offer("o7"),))
        >> RecallFailed("r1", "the encoder died")
        << Settle("r1", (), 1, "ready", "fused", Like("the encoder died; .*'fused' found stands"))
        >> BoundaryReached(1, 1, ("o7",))
        << Delivered("r1", ("o7",), "won", 1, "fused")
    )


def test_a_recall_that_never_answers_gives_its_place_back() -> None:
    assert (
        push(recall_ttl_seconds=30)
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> Wait(29)
        >> Tick()
        >> Wait(1)
        >> Tick()
        << CancelRecall("r1")
        << Settle("r1", (), 1, "failed", "none", "no answer within 30 s")
    )


# ---------------------------------------------------------------- deeper answers


def test_a_deeper_answer_replaces_a_shallower_one_and_an_empty_one_withdraws_it() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("a1"), offer("a2")), final=False)
        << Send("r1", "fused", 1, 0, (offer("a1"), offer("a2")))
        >> AnswerReady("r1", "late", (offer("b2"), offer("b3")), final=False)
        << Send("r1", "late", 1, 0, (offer("b2"), offer("b3")))
        >> AnswerReady("r1", "full", (), final=True, reason="the gate closed")
        << Send("r1", "full", 1, 0, ())
        << Settle("r1", (), 1, "silent", "full", "the gate closed")
    )


def test_a_shallower_answer_that_comes_late_is_ignored_but_ends_the_recall_if_it_is_final() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "late", (offer("b2"),), final=False)
        << Send("r1", "late", 1, 0, (offer("b2"),))
        >> AnswerReady("r1", "fused", (offer("a1"),), final=False)
        >> AnswerReady("r1", "fused", (offer("a1"),), final=True)
        << Settle("r1", (), 1, "ready", "late", "")
    )


def test_after_its_final_answer_a_recall_is_not_heard_any_more() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "late", (offer("a1"),), final=True)
        << Send("r1", "late", 1, 0, (offer("a1"),))
        << Settle("r1", (), 1, "ready", "late", "")
        >> AnswerReady("r1", "full", (offer("b2"),), final=True)
        >> RecallFailed("r1", "late news")
    )


def test_once_something_of_it_was_taken_the_rest_is_void_and_its_heir_goes_on() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("a1"), offer("a2")), final=False)
        << Send("r1", "fused", 1, 0, (offer("a1"), offer("a2")))
        >> BoundaryReached(1, 1, ("a1",))
        << Delivered("r1", ("a1",), "won", 1, "fused")
        << Continue("r1", "r2")
        << Settle("r1", (), 1, "ready", "fused", Like("shown"))
        >> AnswerReady("r1", "full", (offer("a2"),), final=True)
    )


def test_a_deeper_answer_that_holds_something_else_may_slip() -> None:
    assert (
        push()
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> AnswerReady("r1", "fused", (offer("a1"),), final=False)
        << Send("r1", "fused", 0, 0, (offer("a1"),))
        >> ToolEnded("c1")
        >> BoundaryReached(1, 0, ("a1",))
        << Delivered("r1", ("a1",), "won", 1, "fused")
        << Continue("r1", "r2")
        << Settle("r1", ("c1",), 0, "ready", "fused", Like("shown"))
        >> AnswerReady("r2", "full", (offer("b1"), offer("b2")), final=True)
        << Send("r2", "full", 0, 0, (offer("b2"),))
        << Settle("r2", (), 0, "ready", "full", "")
        >> BoundaryReached(2, 0, ("b2",))
        << Delivered("r2", ("b2",), "slipped", 2, "full")
    )


def test_a_deeper_answer_that_holds_nothing_else_ends_in_silence() -> None:
    talk = push()
    assert (
        talk
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> AnswerReady("r1", "fused", (offer("a1"),), final=False)
        << Send("r1", "fused", 0, 0, (offer("a1"),))
        >> ToolEnded("c1")
        >> BoundaryReached(1, 0, ("a1",))
        << Delivered("r1", ("a1",), "won", 1, "fused")
        << Continue("r1", "r2")
        << Settle("r1", ("c1",), 0, "ready", "fused", Like("shown"))
        >> AnswerReady("r2", "full", (offer("b1"),), final=True)
        << Settle("r2", (), 0, "silent", "full", Like("shown"))
    )
    assert (talk.race.counts["won"], talk.race.counts["silent"]) == (1, 1)


def test_what_slipped_so_grows_stale_as_its_parent_would() -> None:
    assert (
        push(stale_after=1)
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> AnswerReady("r1", "fused", (offer("a1"),), final=False)
        << Send("r1", "fused", 0, 0, (offer("a1"),))
        >> ToolEnded("c1")
        >> BoundaryReached(1, 0, ("a1",))
        << Delivered("r1", ("a1",), "won", 1, "fused")
        << Continue("r1", "r2")
        << Settle("r1", ("c1",), 0, "ready", "fused", Like("shown"))
        >> AnswerReady("r2", "full", (offer("b2"),), final=True)
        << Send("r2", "full", 0, 0, (offer("b2"),))
        << Settle("r2", (), 0, "ready", "full", "")
        >> BoundaryReached(2, 0)
        >> BoundaryReached(3, 0)
        << Dropped("r2", Like("stale"))
    )


def test_p009_after_a_compaction_a_passage_may_come_once_more() -> None:
    talk = push()
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> BoundaryReached(1, 1, ("o7",))
        << Delivered("r1", ("o7",), "won", 1, "full")
        >> Compacted()
        >> ToolStarted("c2", A)
        << StartRecall("r2", A, 0, ("c2",))
        >> AnswerReady("r2", "full", (offer("p7"),), final=True)
        << Send("r2", "full", 1, 1, (offer("p7"),))
        << Settle("r2", ("c2",), 0, "ready", "full", "")
        >> BoundaryReached(2, 1, ("p7",))
        << Delivered("r2", ("p7",), "won", 2, "full")
        >> ToolStarted("c3", B)
        << StartRecall("r3", B, 0, ("c3",))
        >> AnswerReady("r3", "full", (offer("q7"),), final=True)
        << Settle("r3", ("c3",), 0, "silent", "full", Like("shown"))
    )


# ---------------------------------------------------------------- tokens


def test_p009_a_sessions_tokens_are_bounded_and_what_is_out_with_others_counts() -> None:
    a1, a2, b3, b4 = (replace(offer(id), tokens=40) for id in ("a1", "a2", "b3", "b4"))
    talk = push(session_tokens=100, boundary_tokens=200)
    assert (
        talk
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> AnswerReady("r1", "full", (a1,), final=True)
        << Send("r1", "full", 0, 0, (a1,))
        << Settle("r1", ("c1",), 0, "ready", "full", "")
        >> ToolStarted("c2", B)
        << StartRecall("r2", B, 0, ("c2",))
        >> AnswerReady("r2", "full", (b3, b4), final=True)
        << Send("r2", "full", 0, 0, (b3,))
        << Settle("r2", ("c2",), 0, "ready", "full", "")
        >> BoundaryReached(1, 0, ("a1", "b3"))
        << Delivered("r1", ("a1",), "won", 1, "full")
        << Delivered("r2", ("b3",), "won", 1, "full")
        >> ToolStarted("c3", C)
        << StartRecall("r3", C, 0, ("c3",))
        >> AnswerReady("r3", "full", (a2,), final=True)
        << Settle("r3", ("c3",), 0, "silent", "full", Like("tokens"))
    )
    assert talk.race.recalls.tokens == 80


def test_one_boundary_of_two_recalls_gives_no_more_than_max_snippets() -> None:
    a1, b2 = offer("a1", probability=0.6), offer("b2", probability=0.9)
    assert (
        pull(max_snippets=1)
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c2", B)
        << StartRecall("r2", B, 0, ("c2",))
        >> AnswerReady("r1", "full", (a1,), final=True)
        << Settle("r1", ("c1",), 0, "ready", "full", "")
        >> AnswerReady("r2", "full", (b2,), final=True)
        << Settle("r2", ("c2",), 0, "ready", "full", "")
        >> OutboxAsked()
        << Deliver((b2,), 1)
        << Delivered("r2", ("b2",), "won", 1, "full")
    )


# ---------------------------------------------------------------- how much time there is


def budget_of(talk: Playbook, event: object) -> float:
    (start,) = (i for i in talk.race.handle(event, talk.now) if isinstance(i, StartRecall))  # type: ignore[arg-type]
    return start.budget_ms


def test_a_read_has_little_time_and_a_shell_much() -> None:
    assert budget_of(push(), ToolStarted("c1", A, name="Read")) == TOOL_MS["read"]
    assert budget_of(push(), ToolStarted("c1", A, name="Bash")) == TOOL_MS["bash"]
    assert budget_of(push(), TurnBegan(1, A)) == TOOL_MS[TURN]


def test_what_a_tool_took_here_is_what_it_is_expected_to_take() -> None:
    talk = push()
    for number in range(40):
        talk.race.handle(ToolStarted(f"c{number}", ask(f"word{number}"), name="Read"), talk.now)
        talk.now += 2.0
        talk.race.handle(ToolEnded(f"c{number}"), talk.now)
    talk.race.handle(Resumed(0, 0), talk.now)
    fresh = Race("t", "t", "push", lengths=Lengths(talk.race.pace.lengths))
    (start,) = fresh.handle(ToolStarted("c1", A, name="Read"), talk.now)
    assert isinstance(start, StartRecall)
    assert 1000.0 < start.budget_ms <= 2000.0


def test_a_call_that_has_ended_leaves_no_time() -> None:
    talk = push()
    assert talk >> ToolEnded("c1")
    assert budget_of(talk, ToolStarted("c1", A, name="Bash")) == 0.0


def test_what_was_taken_while_its_replacement_was_on_the_way_counts_as_what_it_was() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("a1"),), final=False)
        << Send("r1", "fused", 1, 0, (offer("a1"),))
        >> AnswerReady("r1", "late", (offer("b2"),), final=False)
        << Send("r1", "late", 1, 0, (offer("b2"),))
        >> BoundaryReached(1, 1, ("a1",))
        << Delivered("r1", ("a1",), "won", 1, "fused")
        << Continue("r1", "r2")
        << Settle("r1", (), 1, "ready", "late", Like("shown"))
    )


def test_what_was_taken_while_its_withdrawal_was_on_the_way_is_delivered_nonetheless() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("a1"),), final=False)
        << Send("r1", "fused", 1, 0, (offer("a1"),))
        >> AnswerReady("r1", "full", (), final=True)
        << Send("r1", "full", 1, 0, ())
        << Settle("r1", (), 1, "silent", "full", "")
        >> BoundaryReached(1, 1, ("a1",))
        << Delivered("r1", ("a1",), "won", 1, "fused")
    )


# ---------------------------------------------------------------- the same passage, the same id


def test_p009_a_passage_is_shown_once_per_session() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> BoundaryReached(1, 1, ("o7",))
        << Delivered("r1", ("o7",), "won", 1, "full")
        >> TurnBegan(2, B)
        << StartRecall("r2", B, 2, ())
        >> AnswerReady("r2", "full", (offer("p7"),), final=True)
        << Settle("r2", (), 2, "silent", "full", Like("was shown, is on offer"))
    )


def test_a_passage_that_is_out_with_one_recall_is_not_offered_by_another_even_when_withdrawn() -> None:
    """A boundary that took it may be on its way: only when the client can show it no more is it free again."""
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("a7"),), final=False)
        << Send("r1", "fused", 1, 0, (offer("a7"),))
        >> AnswerReady("r1", "full", (), final=True)
        << Send("r1", "full", 1, 0, ())
        << Settle("r1", (), 1, "silent", "full", "")
        >> ToolStarted("c2", B)
        << StartRecall("r2", B, 0, ("c2",))
        >> AnswerReady("r2", "fused", (offer("b7"), offer("b8")), final=False)
        << Send("r2", "fused", 1, 0, (offer("b8"),))
        >> BoundaryReached(4, 1)
        >> AnswerReady("r2", "full", (offer("b7"), offer("b8")), final=True)
        << Send("r2", "full", 1, 4, (offer("b7"), offer("b8")))
        << Settle("r2", ("c2",), 0, "ready", "full", "")
    )


def test_ids_that_are_unknown_or_taken_twice_are_ignored_and_counted() -> None:
    talk = push()
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> BoundaryReached(1, 1, ("another session's", "o7", "o7"))
        << Delivered("r1", ("o7",), "won", 1, "full")
        >> BoundaryReached(2, 1, ("o7",))
    )
    assert talk.race.ignored_taken == 3


def test_at_most_three_offers_each_passage_once() -> None:
    found = (offer("a1"), offer("b1", passage=1), offer("a2"), offer("a3"), offer("a4"))
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", found, final=True)
        << Send("r1", "full", 1, 0, (offer("a1"), offer("a2"), offer("a3")))
        << Settle("r1", (), 1, "ready", "full", "")
    )


def test_a_recall_that_mints_ids_without_end_is_not_sent_again() -> None:
    assert (
        push(max_ids=2)
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("a1"), offer("a2")), final=False)
        << Send("r1", "fused", 1, 0, (offer("a1"), offer("a2")))
        >> AnswerReady("r1", "late", (offer("b3"),), final=False)
        >> AnswerReady("r1", "full", (offer("a2"),), final=True)
        << Send("r1", "full", 1, 0, (offer("a2"),))
        << Settle("r1", (), 1, "ready", "full", "")
    )


def test_of_the_passages_shown_only_the_last_are_remembered() -> None:
    race = Race("s", "r", "push", RaceLimits(max_delivered=3), delivered=[1, 2, 3, 1, 4])
    assert list(race.delivered) == [3, 1, 4]


def test_passages_shown_before_a_restart_stay_shown() -> None:
    race = Race("s", "r", "push", boundary=5, turn=2, delivered=[7])
    assert race.excluded("r1") == {7}
    assert (
        play(race)
        >> TurnBegan(3, A)
        << StartRecall("r1", A, 3, ())
        >> AnswerReady("r1", "full", (offer("o7"), offer("o8")), final=True)
        << Send("r1", "full", 3, 5, (offer("o8"),))
        << Settle("r1", (), 3, "ready", "full", "")
    )
    assert race.excluded("r2") == {7, 8}
    assert race.excluded("r1") == {7}


# ---------------------------------------------------------------- calls: parallel, nested, out of order, endless


def test_parallel_calls_each_have_their_own_boundary() -> None:
    assert (
        push()
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c2", B)
        << StartRecall("r2", B, 0, ("c2",))
        >> ToolEnded("c2")
        >> BoundaryReached(1, 0)
        << Slipped("r2", 1)
        >> ToolEnded("c1")
        >> BoundaryReached(2, 0)
        << Slipped("r1", 2)
    )


def test_a_call_that_ends_takes_the_calls_within_it_along() -> None:
    assert (
        push()
        >> ToolStarted("agent", A)
        << StartRecall("r1", A, 0, ("agent",))
        >> ToolStarted("inner", B, parent="agent")
        << StartRecall("r2", B, 0, ("inner",))
        >> ToolEnded("agent")
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
        << Slipped("r2", 1)
        >> ToolEnded("inner")
        >> BoundaryReached(2, 0)
    )


def test_calls_within_keep_the_enclosing_call_alive() -> None:
    talk = push(call_ttl_seconds=100, recall_ttl_seconds=1e9)
    assert (
        talk
        >> ToolStarted("agent", A)
        << StartRecall("r1", A, 0, ("agent",))
        >> Wait(60)
        >> ToolStarted("inner", B, parent="agent")
        << StartRecall("r2", B, 0, ("inner",))
        >> Wait(60)
        >> Tick()
    )
    assert list(talk.race.calls.open) == ["agent", "inner"]
    assert (
        talk
        >> ToolEnded("inner")
        >> Wait(100)
        >> Tick()
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
        << Slipped("r2", 1)
    )


def test_calls_that_name_each_other_as_parent_end_together() -> None:
    talk = push()
    assert (
        talk
        >> ToolStarted("c1", A, parent="c2")
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c2", B, parent="c1")
        << StartRecall("r2", B, 0, ("c2",))
        >> ToolEnded("c1")
    )
    assert not talk.race.calls.open


def test_an_end_that_overtook_its_start_makes_the_next_boundary_its_own() -> None:
    assert (
        push()
        >> ToolEnded("c1")
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
        >> ToolEnded("c1")
        >> ToolStarted("c1", B)
    )


def test_duplicate_starts_and_ends_and_ends_without_a_start_change_nothing() -> None:
    assert (
        push()
        >> ToolEnded("never started")
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c1", B)
        >> ToolEnded("c1")
        >> ToolEnded("c1")
        >> ToolStarted("c1", C)
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
        >> ToolEnded("c1")
        >> BoundaryReached(2, 0)
    )


def test_a_call_that_never_ends_counts_as_ended_after_a_while() -> None:
    assert (
        push(call_ttl_seconds=3600, recall_ttl_seconds=1e9)
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> Wait(3599)
        >> Tick()
        >> BoundaryReached(1, 0)
        >> Wait(1)
        >> Tick()
        >> BoundaryReached(2, 0)
        << Slipped("r1", 2)
    )


def test_beyond_so_many_open_calls_the_oldest_counts_as_ended() -> None:
    assert (
        push(max_open_calls=1)
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c2", B)
        << StartRecall("r2", B, 0, ("c2",))
        >> BoundaryReached(1, 0)
        << Slipped("r1", 1)
    )


def test_of_the_calls_that_ended_only_the_last_are_remembered() -> None:
    talk = push(max_ended_calls=2)
    assert talk >> ToolEnded("c1") >> ToolEnded("c2") >> ToolEnded("c3") >> ToolEnded("c3")
    assert list(talk.race.calls.ended) == ["c2", "c3"]


# ---------------------------------------------------------------- boundaries


def test_boundary_numbers_that_repeat_or_go_back_make_nothing_older() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> BoundaryReached(5, 1)
        << Slipped("r1", 5)
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 4, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> BoundaryReached(5, 1)
        >> BoundaryReached(5, 1)
        >> BoundaryReached(2, 1)
        >> BoundaryReached(7, 1, ("o7",))
        << Delivered("r1", ("o7",), "slipped", 7, "full")
    )


def test_what_a_second_report_of_its_own_boundary_took_has_won() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> BoundaryReached(1, 1)
        << Slipped("r1", 1)
        >> BoundaryReached(1, 1, ("o7",))
        << Delivered("r1", ("o7",), "won", 1, "full")
    )


def test_a_jump_of_the_number_counts_the_boundaries_we_did_not_hear_of() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> BoundaryReached(1, 1)
        << Slipped("r1", 1)
        >> BoundaryReached(9, 1)
        << Dropped("r1", Like("^stale: "))
    )


def test_what_was_sent_during_a_long_call_and_not_taken_goes_stale_like_in_the_client() -> None:
    assert (
        push()
        >> ToolStarted("long", A)
        << StartRecall("r1", A, 0, ("long",))
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 0, 0, (offer("o7"),))
        << Settle("r1", ("long",), 0, "ready", "full", "")
        >> BoundaryReached(1, 0)
        >> BoundaryReached(3, 0)
        >> BoundaryReached(4, 0)
        << Dropped("r1", Like("^stale: "))
    )


# ---------------------------------------------------------------- pull


def test_an_outbox_is_the_delivery_at_most_three_and_the_best_first() -> None:
    weak, strong, middle = offer("a1", probability=0.2), offer("b2", probability=0.9), offer("b3", probability=0.5)
    last = offer("a4", probability=0.1)
    assert (
        pull()
        >> OutboxAsked()
        << Deliver((), 1)
        >> ToolStarted("c1", A)
        << StartRecall("r1", A, 0, ("c1",))
        >> ToolStarted("c2", B)
        << StartRecall("r2", B, 0, ("c2",))
        >> AnswerReady("r1", "fused", (weak, last), final=True)
        << Settle("r1", ("c1",), 0, "ready", "fused", "")
        >> AnswerReady("r2", "late", (strong, middle), final=False)
        >> ToolEnded("c1")
        >> OutboxAsked()
        << Deliver((strong, middle, weak), 2)
        << Delivered("r2", ("b2", "b3"), "won", 2, "late")
        << Continue("r2", "r3")
        << Settle("r2", ("c2",), 0, "ready", "late", Like("shown"))
        << Delivered("r1", ("a1",), "won", 2, "fused")
        >> OutboxAsked()
        << Deliver((), 3)
    )


def test_in_pull_a_late_answer_slips_and_grows_stale_too() -> None:
    assert (
        pull(stale_after=1)
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> OutboxAsked(4)
        << Deliver((), 4)
        << Slipped("r1", 4)
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Settle("r1", (), 1, "ready", "full", "")
        >> OutboxAsked(5)
        << Deliver((offer("o7"),), 5)
        << Delivered("r1", ("o7",), "slipped", 5, "full")
        >> ToolStarted("c1", B)
        << StartRecall("r2", B, 0, ("c1",))
        >> ToolEnded("c1")
        >> OutboxAsked()
        << Deliver((), 6)
        << Slipped("r2", 6)
        >> OutboxAsked(6)
        << Deliver((), 6)
        >> OutboxAsked(8)
        << Deliver((), 8)
        << CancelRecall("r2")
        << Settle("r2", ("c1",), 0, "stale", "none", Like("^stale: "))
    )


def test_in_pull_the_best_so_far_is_kept_not_sent_and_reports_of_taking_are_ignored() -> None:
    talk = pull()
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "fused", (offer("a1"),), final=False)
        >> AnswerReady("r1", "late", (offer("b2"),), final=False)
        >> BoundaryReached(1, 1, ("b2",))
        << Slipped("r1", 1)
        >> OutboxAsked()
        << Deliver((offer("b2"),), 2)
        << Delivered("r1", ("b2",), "slipped", 2, "late")
        << Continue("r1", "r2")
        << Settle("r1", (), 1, "ready", "late", Like("shown"))
    )
    assert talk.race.ignored_taken == 1


def test_a_push_session_that_asks_for_its_outbox_gets_nothing_twice() -> None:
    assert (
        push()
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> OutboxAsked(1)
        << Deliver((), 1)
        >> BoundaryReached(1, 1, ("o7",))
        << Delivered("r1", ("o7",), "won", 1, "full")
    )


# ---------------------------------------------------------------- the end of a session


def test_p047_a_session_that_dies_cancels_what_runs_and_frees_everything() -> None:
    talk = push(max_running=1)
    assert (
        talk
        >> TurnBegan(1, A)
        << StartRecall("r1", A, 1, ())
        >> AnswerReady("r1", "full", (offer("o7"),), final=True)
        << Send("r1", "full", 1, 0, (offer("o7"),))
        << Settle("r1", (), 1, "ready", "full", "")
        >> ToolStarted("c1", B)
        << StartRecall("r2", B, 0, ("c1",))
        >> ToolStarted("c2", C)
        >> ToolEnded("c9")
        >> Closed()
        << Dropped("r1", "closed: the session ended")
        << CancelRecall("r2")
        << Settle("r2", ("c1",), 0, "stale", "none", "closed: the session ended")
        << Settle("r3", ("c2",), 0, "stale", "none", "closed: the session ended")
        >> AnswerReady("r2", "full", (offer("p8"),), final=True)
        >> TurnBegan(2, C)
        >> OutboxAsked(3)
        << Deliver((), 3)
        >> Closed()
    )
    assert not talk.race.delivered
    assert sum(talk.race.counts.values()) == 3


# ---------------------------------------------------------------- the table and the log


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("step", list(Step))
def test_only_the_table_s_steps_can_be_taken(phase: Phase, step: Step) -> None:
    recall = Recall("r1", A, 0, (), 0, due=False, phase=phase)
    if (phase, step) in TRANSITIONS:
        recall.move(step)
        assert recall.phase is TRANSITIONS[phase, step]
    else:
        with pytest.raises(RaceError, match="no step"):
            recall.move(step)
        assert recall.phase is phase


def test_the_log_keeps_the_last_stimuli_for_post_mortem() -> None:
    talk = push(max_log=2)
    assert talk >> TurnBegan(1, A) << StartRecall("r1", A, 1, ()) >> Wait(3) >> Tick() >> ToolEnded("c1")
    assert [(line.at, line.event, line.instructions) for line in talk.race.log] == [
        (3.0, Tick(), ()),
        (3.0, ToolEnded("c1"), ()),
    ]


def test_validate_names_the_rule_that_is_broken() -> None:
    race = Race("s", "r", "push")
    race.counts["won"] += 1
    with pytest.raises(RaceError, match="session s: broken: each recall is counted once"):
        race.validate()


def test_a_playbook_shows_where_the_race_went_another_way() -> None:
    with pytest.raises(
        AssertionError, match=r"(?s)>> TurnBegan.*-< StartRecall\(recall='r9'.*\+< StartRecall\(recall='r1'"
    ):
        bool(push() >> TurnBegan(1, A) << StartRecall("r9", A, 1, ()))
    with pytest.raises(AssertionError, match=r"\+< StartRecall"):
        bool(push() >> TurnBegan(1, A))
    with pytest.raises(AssertionError, match="-< Slipped"):
        bool(push() >> Tick() << Slipped("r1", 1))
