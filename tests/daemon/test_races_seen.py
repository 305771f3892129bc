"""The agent's view of its races, as demo and replay print it."""

from __future__ import annotations

from recalld_client import Injection
from recalld_daemon.demo.races import Races
from recalld_daemon.replay.report import report_of
from recalld_daemon.replay.runner import decide
from recalld_protocol.messages import Outcome, Settled


def injection(recall: str, *calls: str, turn: int = 0) -> Injection:
    return Injection(id=f"{recall}-1", text="w", path="p", start=0, end=1, recall=recall, stage="late", calls=calls,
                     asked_turn=turn, ms=7.0)  # fmt: skip


def settled(recall: str, outcome: Outcome, *calls: str, turn: int = 0, **stage_ms: float) -> Settled:
    return Settled(
        recall=recall, outcome=outcome, calls=list(calls), turn=turn, stage_ms=stage_ms, ms=9.0, reason="why"
    )


def test_taken_at_its_own_boundary_is_won() -> None:
    races = Races()
    race = races.call("c1", "Bash make")
    assert races.boundary([race], [injection("r1", "c1")]) == [race]
    assert (race.verdict, race.ms, race.stage, race.ready_any) == ("won", 7.0, "late", True)


def test_taken_before_its_call_has_ended_is_won_too() -> None:
    races = Races()
    slow, quick = races.call("c1", "slow"), races.call("c2", "quick")
    races.boundary([quick], [injection("r1", "c1")])
    assert (slow.verdict, quick.verdict) == ("won", "late")


def test_late_then_taken_at_a_later_boundary_is_slipped() -> None:
    races = Races()
    first = races.call("c1", "quick")
    assert races.boundary([first], []) == []
    assert first.verdict == "late"
    second = races.call("c2", "next")
    assert races.boundary([second], [injection("r1", "c1")]) == [first]
    assert (first.verdict, second.verdict) == ("slipped", "late")


def test_a_late_race_may_fall_silent_or_stale() -> None:
    races = Races()
    quiet, stale, merged = races.call("c1", "a"), races.call("c2", "b"), races.call("c3", "c")
    races.boundary([quiet, stale, merged], [])
    ended = races.settled([settled("r1", "silent", "c1"), settled("r2", "stale", "c2"), settled("r3", "merged")])
    assert ended == [quiet, stale]
    assert [race.verdict for race in races.seen] == ["silent", "stale", "late"]
    assert quiet.reason == "why"


def test_a_turn_is_a_race_of_its_own() -> None:
    races = Races()
    turn = races.turn(3, "turn 3")
    races.boundary([turn], [])
    races.boundary([], [injection("r1", turn=3)])
    assert turn.verdict == "slipped"
    assert races.counts() == {"slipped": 1}


def test_what_answers_nothing_that_is_known_is_left_out() -> None:
    races = Races()
    assert races.boundary([], [injection("r1", "unknown")]) == []


def test_back_to_back_a_race_is_decided_by_the_recorded_length() -> None:
    races = Races()
    short, long = races.call("c1", "short"), races.call("c2", "long")
    short.length, long.length = 0.005, 0.5
    for race in (short, long):
        races.settled([settled("r", "ready", race.call, fused=6.0, late=9.0)])
        races.boundary([race], [injection("r", race.call)])
        decide(race)
    assert (short.verdict, short.ready_any, short.ready_full) == ("slipped", False, False)
    assert (long.verdict, long.ready_any, long.ready_full, long.stage) == ("won", True, True, "late")
    summary = report_of(races)["summary"]
    assert (summary["tool_calls"], summary["ready_any"], summary["snippets"]) == (2, 0.5, 2)


def test_between_the_stages_the_shallower_answer_wins_the_race() -> None:
    races = Races()
    race = races.call("c1", "x")
    race.length = 0.008
    races.settled([settled("r", "ready", "c1", fused=6.0, late=9.0)])
    races.boundary([race], [injection("r", "c1")])
    decide(race)
    assert (race.verdict, race.stage, race.ready_any, race.ready_full) == ("won", "fused", True, False)


def test_a_repeated_question_costs_nothing_and_is_always_ready() -> None:
    races = Races()
    race = races.call("c1", "x")
    races.settled([settled("", "repeat", "c1")])
    races.boundary([race], [])
    decide(race)
    assert (race.verdict, race.ready_any, race.ready_full) == ("repeat", True, True)
