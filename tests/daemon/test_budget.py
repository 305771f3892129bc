"""What a recall may cost: costs and lengths are learned with caution, bounded, and decide what is afforded."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.recall.budget import (
    JUDGE,
    KEPT_CALLS,
    KEPT_TOOLS,
    STAGE_MS,
    TOOL_MS,
    TURN,
    UNKNOWN_TOOL_MS,
    Budget,
    Costs,
    Lengths,
)  # fmt: skip

MS = st.floats(0.0, 1e7)
ANY = st.floats(allow_nan=True, allow_infinity=True)


def test_a_short_read_gets_the_fused_answer_and_a_long_command_all() -> None:
    read, bash = Budget(Lengths().expected("Read")), Budget(Lengths().expected("Bash"))
    elapsed = STAGE_MS["fused"]
    assert (read.affords("late", elapsed), read.affords("cross", elapsed)) == (True, False)
    assert bash.affords("cross", elapsed)


def test_what_is_not_afforded_may_slip_unless_it_is_very_slow() -> None:
    budget = Budget(0.0)
    assert not budget.affords("cross", 0.0)
    assert budget.may_slip("cross")
    for _ in range(20):
        budget.spent("cross", 2_000.0)
    assert not budget.may_slip("cross")


@given(st.lists(MS, min_size=1, max_size=60))
def test_an_expected_cost_lies_between_nothing_and_little_beyond_the_worst(seen: list[float]) -> None:
    costs = Costs()
    for ms in seen:
        costs.observe("late", ms)
    assert 0.0 <= costs.expected("late") <= 3.0 * max(seen) + 1e-6


@given(ANY)
def test_a_length_that_is_none_teaches_nothing(ms: float) -> None:
    costs, lengths = Costs(), Lengths()
    costs.observe("late", ms)
    lengths.observe("Read", ms)
    assert math.isfinite(costs.expected("late"))
    assert math.isfinite(lengths.expected("Read"))


def test_steady_costs_are_learned_closely() -> None:
    costs = Costs()
    for _ in range(100):
        costs.observe("late", 5.0)
    assert 5.0 <= costs.expected("late") < 5.1
    assert costs.table() == {"late": round(costs.expected("late"), 2)}
    assert costs.expected(JUDGE) == STAGE_MS[JUDGE]


def test_four_of_five_calls_are_longer_than_expected() -> None:
    lengths = Lengths()
    for ms in range(100, 100 + KEPT_CALLS):
        lengths.observe("slow", float(ms))
    assert 80.0 < lengths.expected("slow") < 110.0


def test_a_session_leans_on_all_and_all_on_what_is_known() -> None:
    every = Lengths()
    other, mine = Lengths(every), Lengths(every)
    assert mine.expected("bash") == TOOL_MS["bash"]
    assert mine.expected("unheard of") == UNKNOWN_TOOL_MS
    assert mine.expected(TURN) == TOOL_MS[TURN]
    for _ in range(KEPT_CALLS):
        other.observe("Bash", 50.0)
    assert 50.0 < mine.expected("bash") < 100.0
    for _ in range(KEPT_CALLS):
        mine.observe("bash", 5_000.0)
    assert mine.expected("Bash") > 2_000.0


@given(st.lists(st.tuples(st.text(max_size=8), MS), max_size=300))
def test_tables_are_bounded_whatever_tools_are_called(calls: list[tuple[str, float]]) -> None:
    lengths = Lengths()
    for name, ms in [*calls, *((f"tool{number}", 1.0) for number in range(2 * KEPT_TOOLS))]:
        lengths.observe(name, ms)
    assert len(lengths._latest) <= KEPT_TOOLS
    assert all(len(kept) <= KEPT_CALLS for kept in lengths._latest.values())
