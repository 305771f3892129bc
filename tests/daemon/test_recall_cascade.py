"""The cascade as a conversation: what each port does, and which answers come out, in which order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import trio
import trio.testing

from recall_made import MadeLane, MadeTokens, encoding, hits
from recalld_daemon.recall.budget import UNBOUNDED, Budget, Costs
from recalld_daemon.recall.cascade import Recaller
from recalld_daemon.recall.stages import Deepener, LateInteraction, Parts, recall_now
from recalld_daemon.recall.types import (
    Answer,
    Candidate,
    EncoderUnavailable,
    Hints,
    Lane,
    LaneHits,
    Query,
    QueryEncoding,
    Stage,
    View,
    When,
)

ASKED = Query(text="how is the ledger deployed", terms=("ledger", "deployed"), key="k")
EYE = np.eye(4, dtype=np.float32)


@dataclass
class MadeEncoder:
    """Encodes when told to, or raises."""

    error: Exception | None = None
    go: trio.Event = field(default_factory=trio.Event)

    async def encode_query(self, text: str) -> QueryEncoding:
        assert text == ASKED.text
        await self.go.wait()
        if self.error:
            raise self.error
        return encoding()


class Heard:
    """Collects answers, and lets a test wait for the n-th."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._send, self._receive = trio.open_memory_channel[Answer](10)

    def __call__(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._send.send_nowait(answer)

    async def next(self) -> Answer:
        return await self._receive.receive()


def dense() -> MadeLane:
    return MadeLane("dense", hits((1, 0.7), (2, 0.69), (4, 0.2)), needs_encoding=True)


def lexical() -> MadeLane:
    return MadeLane("lexical", hits((3, 9.0), (2, 5.0)))


def late(error: Exception | None = None) -> LateInteraction:
    return LateInteraction(MadeTokens({2: 0.49 * EYE[[0, 1]]}, error))


def order(answer: Answer) -> list[int]:
    return [candidate.passage for candidate in answer.candidates]


def play(
    lanes: Sequence[Lane],
    scene: Callable[[MadeEncoder, Heard, trio.testing.MockClock], Awaitable[None]],
    encoder_error: Exception | None = None,
    token_error: Exception | None = None,
    exclude: frozenset[int] = frozenset(),
) -> list[Answer]:
    """Runs one recall beside a scene that moves the clock and the encoder; gives all answers."""
    clock = trio.testing.MockClock()
    answers: list[Answer] = []

    async def main() -> None:
        encoder, heard = MadeEncoder(encoder_error), Heard()
        recaller = Recaller(encoder, lanes, [late(token_error)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recaller.run, ASKED, View(), exclude, heard)
            await scene(encoder, heard, clock)
        answers.extend(heard.answers)

    trio.run(main, clock=clock)
    return answers


async def at_once(encoder: MadeEncoder, heard: Heard, clock: trio.testing.MockClock) -> None:
    encoder.go.set()


def test_fused_then_late() -> None:
    lanes = [dense(), lexical()]
    fused, deeper = play(lanes, at_once)
    assert (fused.stage, deeper.stage) == ("fused", "late")
    assert set(order(fused)) == {1, 2, 3, 4}
    assert all(candidate.late is None for candidate in fused.candidates)
    assert order(deeper)[0] == 2  # its tokens match both of the query's
    assert (fused.notes, deeper.notes) == ((), ())


def test_lanes_get_what_they_need() -> None:
    lanes = [dense(), lexical()]
    play(lanes, at_once, exclude=frozenset({7, 8}))
    ((query, seen, view, limit),) = lanes[0].asked
    assert seen is not None
    assert (query, view, limit) == (ASKED, View(), 102)
    assert lanes[1].asked[0][0] == ASKED


def test_excluded_passages_are_in_no_answer() -> None:
    answers = play([dense(), lexical()], at_once, exclude=frozenset({2}))
    assert [set(order(answer)) for answer in answers] == [{1, 3, 4}, {1, 3, 4}]


def test_encoder_unavailable_lexical_answers_alone() -> None:
    (only,) = play([dense(), lexical()], at_once, encoder_error=EncoderUnavailable("loading"))
    assert (only.stage, order(only), only.notes) == ("fused", [3, 2], ("encoder: loading",))


def test_encoder_late_lexical_answers_first_and_fused_follows() -> None:
    async def scene(encoder: MadeEncoder, heard: Heard, clock: trio.testing.MockClock) -> None:
        first = await heard.next()
        assert (order(first), first.notes) == ([3, 2], ("encoder: late",))
        encoder.go.set()

    early, fused, deeper = play([dense(), lexical()], scene)
    assert [early.stage, fused.stage, deeper.stage] == ["fused", "fused", "late"]
    assert set(order(fused)) == {1, 2, 3, 4}
    assert fused.notes == ()


def test_a_lane_that_raises_costs_itself_only(caplog: pytest.LogCaptureFixture) -> None:
    broken = MadeLane("dense", OSError("index torn"), needs_encoding=True)
    with caplog.at_level(logging.WARNING):
        answers = play([broken, lexical()], at_once)
    assert {answer.notes for answer in answers} == {("dense: OSError: index torn",)}
    assert [set(order(answer)) for answer in answers] == [{2, 3}, {2, 3}]
    assert len(caplog.records) == 1


def test_an_encoder_that_breaks_costs_the_dense_lane_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        (only,) = play([dense(), lexical()], at_once, encoder_error=RuntimeError("pipe broke"))
    assert (order(only), only.notes) == ([3, 2], ("encoder: RuntimeError: pipe broke",))


def test_a_token_store_that_fails_leaves_the_fused_answer(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        answers = play([dense(), lexical()], at_once, token_error=OSError("no tokens"))
    assert [answer.stage for answer in answers] == ["fused", "fused"]
    assert answers[-1].notes == ("late: OSError: no tokens",)
    assert "late failed" in caplog.text


def test_all_lanes_failing_still_gives_an_answer_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    broken = MadeLane("lexical", ValueError("x"))
    (only,) = play([broken], at_once, encoder_error=EncoderUnavailable("dead"))
    assert order(only) == []
    assert set(only.notes) == {"lexical: ValueError: x", "encoder: dead"}


def test_a_query_without_text_answers_none_and_asks_nobody() -> None:
    lane, heard = lexical(), []

    async def main() -> None:
        silent = Query("", (), "", "small talk")
        await Recaller(MadeEncoder(), [lane], []).run(silent, View(), frozenset(), heard.append)

    trio.run(main)
    assert [(answer.stage, list(answer.candidates)) for answer in heard] == [("none", [])]
    assert lane.asked == []


def test_cancelled_in_mid_stage_it_ends_at_once_and_the_next_recall_runs() -> None:
    gate = threading.Event()
    stuck = MadeLane("lexical", hits((3, 9.0)), gate=gate)

    async def main() -> None:
        recaller = Recaller(MadeEncoder(EncoderUnavailable("x")), [stuck], [])
        recaller.encoder.go.set()  # type: ignore[attr-defined]
        first, second = Heard(), Heard()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recaller.run, ASKED, View(), frozenset(), first)
            while not stuck.asked:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert recaller.beside.borrowed_tokens == 1  # the abandoned thread keeps its place until it ends
        gate.set()
        await recaller.run(ASKED, View(), frozenset(), second)
        assert first.answers == []
        assert [order(answer) for answer in second.answers] == [[3]]

    trio.run(main)


def test_answers_are_independent_values() -> None:
    """A judge may write into an early answer's candidates while a deeper stage is at work on its own."""
    fused, deeper = play([dense(), lexical()], at_once)
    for candidate in fused.candidates:
        candidate.gates["mine"] = "passed: x"
    assert all(not candidate.gates for candidate in deeper.candidates)
    assert not {id(c) for c in fused.candidates} & {id(c) for c in deeper.candidates}


@dataclass
class Reverse:
    """A stage that turns the order round, whatever it is called."""

    name: str = "cross"
    stage: Stage | None = "full"

    def deepen(self, query: Query, seen: QueryEncoding, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return list(reversed(candidates))


def run(deepeners: Sequence[Deepener], budget: Budget) -> tuple[list[Answer], list[Answer]]:
    """What was published, and what was closed before."""
    heard: list[Answer] = []
    closed: list[Answer] = []

    async def main() -> None:
        encoder = MadeEncoder()
        encoder.go.set()
        recaller = Recaller(encoder, [dense(), lexical()], deepeners)
        await recaller.run(ASKED, View(), frozenset(), heard.append, closed.append, budget)

    trio.run(main)
    return heard, closed


def test_a_further_deepener_is_asked_with_what_the_one_before_left() -> None:
    heard, closed = run([late(), Reverse()], UNBOUNDED)
    assert [answer.stage for answer in heard] == ["fused", "late", "full"]
    assert order(heard[2]) == order(heard[1])[::-1]
    assert [answer.final for answer in heard] == [False, False, True]
    assert closed == heard[2:]


def test_a_stage_without_a_name_for_answers_keeps_the_one_before() -> None:
    heard, _ = run([late(), Reverse("ranked", None)], UNBOUNDED)
    assert [answer.stage for answer in heard] == ["fused", "late", "late"]


def test_what_is_not_afforded_comes_after_the_answer_before_it_is_judged() -> None:
    costs = Costs({"late": 0.0, "judge": 0.0, "cross": 300.0})
    heard, closed = run([late(), Reverse()], Budget(250.0, costs))
    assert [answer.stage for answer in heard] == ["fused", "late", "full"]
    assert [(answer.stage, answer.final) for answer in closed] == [("late", False), ("full", True)]


def test_what_is_neither_afforded_nor_cheap_enough_to_slip_is_left_out() -> None:
    costs = Costs({"late": 0.0, "judge": 0.0, "cross": 10_000.0})
    heard, closed = run([late(), Reverse()], Budget(5_000.0, costs))
    assert [answer.stage for answer in heard] == ["fused", "late"]
    assert [(answer.stage, answer.final) for answer in closed] == [("late", False), ("late", True)]


def test_a_budget_learns_what_each_stage_took() -> None:
    costs = Costs()
    run([late(), Reverse()], Budget(1_000.0, costs))
    assert {"dense", "lexical", "late", "cross", "close"} <= costs.table().keys()


@dataclass
class Echo:
    """A spreading lane that returns one passage more."""

    name: str = "neighbours"

    def spread(self, query: Query, found: Sequence[Candidate], view: View, limit: int) -> LaneHits:
        assert found[0].fused >= found[-1].fused
        return hits((77, 1.0), (found[0].passage, 0.5))


def test_hints_are_read_first_and_spreading_lanes_go_on_from_what_was_fused() -> None:
    asked = Hints(speakers=("Ada",))
    lexical_lane = lexical()
    parts = Parts([dense(), lexical_lane], [late()], [Echo()], lambda query, view: asked)
    answer = recall_now(parts, ASKED, encoding(), View())
    assert lexical_lane.asked[0][0].hints == asked
    assert 77 in order(answer)
    assert (answer.stage, answer.final) == ("late", True)
    bare = recall_now(parts.without("neighbours").without("late"), ASKED, encoding(), View())
    assert 77 not in order(bare)
    assert bare.stage == "fused"


def test_hints_that_fail_cost_themselves_only() -> None:
    def broken(query: Query, view: View) -> Hints:
        raise KeyError("no such speaker")

    answer = recall_now(Parts([dense(), lexical()], (), (), broken), ASKED, encoding(), View())
    assert answer.notes == ("hints: KeyError: 'no such speaker'",)
    assert len(answer.candidates) == 4


def test_what_the_query_itself_leaves_out_is_left_out_unless_nothing_stays() -> None:
    since = Hints(whens=(When(1.0, float("inf"), "span", "since May"),))

    def run_within(stays: frozenset[int]) -> set[int]:
        within = lambda query, ids: np.isin(ids, list(stays))  # noqa: E731
        parts = Parts([dense(), lexical()], (), (), lambda query, view: since, within)
        return set(order(recall_now(parts, ASKED, encoding(), View())))

    assert run_within(frozenset({2, 3})) == {2, 3}
    assert run_within(frozenset()) == {1, 2, 3, 4}
    parts = Parts([dense(), lexical()], (), (), None, lambda query, ids: np.zeros(len(ids), np.bool_))
    assert set(order(recall_now(parts, ASKED, encoding(), View()))) == {1, 2, 3, 4}  # no time is named
