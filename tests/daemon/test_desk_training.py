"""What a person is asked to judge: which query, which candidates, and what is kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio.testing

from desk_house import DeskHouse, at_the_desk
from recalld_daemon.recall.gate import _likely
from recalld_daemon.store.rows import RecallRecord, SessionRecord
from recalld_daemon.training_desk import doubt_of
from recalld_protocol import messages as wire

TEXTS = {
    "bollard": "every bollard was painted crimson before the regatta",
    "gangway": "a gangway steeper than eight degrees needs a second steward",
    "capstan": "the capstan motor trips its fuse when salt gets into the housing",
}
ASK_BOLLARD = "which colour has the bollard at the regatta"
ASK_CAPSTAN = "why does the capstan motor trip"


async def ask(house: DeskHouse, question: wire.FromAgent) -> Any:
    house.router.sent.clear()
    house.say(question)
    while not house.router.sent:
        await trio.testing.wait_all_tasks_blocked()
    return house.router.sent[-1][1]


async def heard(house: DeskHouse, *texts: str, session: str = "s") -> None:
    for number, text in enumerate(texts, 1):
        house.say(wire.Turn(session=session, turn=number, text=text))
        await house.settled()


def past(house: DeskHouse, probability: str, query: str, id: str, scope: int = 1, **more: Any) -> None:
    """A recall in the log, as if it had been judged so."""
    rows = [wire.WhyCandidate(path="p", gates={"probability": probability})] if probability else []
    explain = msgspec.msgpack.encode(wire.Why(recall=id, candidates=rows))

    def write(writer: Any) -> None:
        writer.touch_session(SessionRecord(f"of {scope}", scope=scope))
        fields = {"session": f"of {scope}", "cause": "turn 1: it", "at": 1.0, "outcome": "silent", "explain": explain}
        writer.record_recall(RecallRecord(id=id, query=query, **(fields | more)))

    house.journal.note(write)


def test_a_past_query_comes_with_candidates_that_feedback_binds_to(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        await heard(house, ASK_BOLLARD)
        training = await ask(house, wire.TrainAsk())
        assert isinstance(training, wire.Training)
        assert (training.query, training.cause) == (ASK_BOLLARD, f"turn 1: {ASK_BOLLARD}")
        (candidate,) = training.candidates
        assert "crimson" in candidate.text
        assert candidate.probability == 0.0  # it would sway who answers
        kept = house.reader.impression(candidate.id)
        assert kept is not None
        assert (kept.recall, kept.outcome, kept.propensity, kept.rank) == (training.recall, "asked", 1.0, 1)
        assert kept.probability > 0.0
        for _ in range(2):
            answer = await ask(house, wire.Feedback(impression=candidate.id, verdict="good", key="k"))
            assert isinstance(answer, wire.Acked)
        (judged,) = house.reader.judged_of(training.recall)
        assert (judged.query, judged.session, judged.verdicts) == (ASK_BOLLARD, "s", ("good",))
        assert house.reader.delivered_passages("s") == set()
        assert (await ask(house, wire.TrainAsk())).candidates == []

    at_the_desk(tmp_path, TEXTS, body)


def test_why_tells_of_what_was_asked(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        training = await ask(house, wire.TrainAsk(query=ASK_CAPSTAN))
        why = await ask(house, wire.WhyAsk(target=training.recall))
        assert (why.outcome, why.query, why.stage) == ("asked", ASK_CAPSTAN, "late")
        assert why.candidates[0].impression == training.candidates[0].id

    at_the_desk(tmp_path, TEXTS, body)


def test_what_was_judged_in_any_recall_or_is_to_be_skipped_does_not_come(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        house.hello()
        await heard(house, ASK_BOLLARD, "which gangway needs a steward", ASK_CAPSTAN)
        queries, skip = [], []
        for _ in range(3):
            training = await ask(house, wire.TrainAsk(skip=skip))
            queries.append(training.query)
            skip.append(training.recall)
        assert sorted(queries) == sorted([ASK_BOLLARD, "which gangway needs a steward", ASK_CAPSTAN])
        assert await ask(house, wire.TrainAsk(skip=skip)) == wire.Training(re=house._ids)
        typed = await ask(house, wire.TrainAsk(query=ASK_CAPSTAN))
        await ask(house, wire.Feedback(impression=typed.candidates[0].id, verdict="bad"))
        left = {(await ask(house, wire.TrainAsk(skip=skip[:n]))).query for n in (0, 1, 2)}
        assert ASK_CAPSTAN not in left

    at_the_desk(tmp_path, TEXTS, body)


def test_the_least_certain_comes_first_and_what_found_nothing_never(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        past(house, "stopped: 0.02 < 0.35", "sure about the bollard", "r1")
        past(house, "passed: 0.36 >= 0.35", "torn over the gangway", "r2")
        past(house, "passed: 0.97 >= 0.35", "sure about the capstan", "r3")
        past(house, "", "nothing of the bollard", "r4")
        past(house, "passed: 0.35 >= 0.35", "a repeat of the bollard", "r5", outcome="repeat")
        await house.journal.flush()
        order, skip = [], []
        while (training := await ask(house, wire.TrainAsk(skip=skip))).candidates:
            order.append(training.query)
            skip.append(training.recall)
        assert order[0] == "torn over the gangway"
        assert sorted(order[1:]) == ["sure about the bollard", "sure about the capstan"]

    at_the_desk(tmp_path, TEXTS, body)


def test_only_recalls_of_what_the_person_may_see_are_asked_about_and_in_their_own_scope(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        number = await house.journal.promised(lambda writer: writer.scope_id("/w/shop"))
        house.answers.scopes["/w/shop"] = number
        past(house, "passed: 0.36 >= 0.35", "the shop's bollard", "r1", scope=number)
        await house.journal.flush()
        assert (await ask(house, wire.TrainAsk(cwd="/w/other"))).candidates == []
        assert (await ask(house, wire.TrainAsk(cwd="/w/shop"))).query == "the shop's bollard"
        assert house.recaller.views[-1].scopes == (number, 1)
        assert (await ask(house, wire.TrainAsk(all_scopes=True))).query == "the shop's bollard"
        assert house.recaller.views[-1].scopes == (number, 1)
        typed = await ask(house, wire.TrainAsk(cwd="/w/shop", query=ASK_CAPSTAN))
        assert house.recaller.views[-1].scopes == (number, 1)
        (judged,) = house.reader.judged_of(typed.recall)
        assert (judged.scope, judged.session) == (number, f"train-{number}")

    at_the_desk(tmp_path, TEXTS, body)


def test_the_order_tells_nothing_and_the_rank_is_kept(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        orders = set()
        for _ in range(40):
            training = await ask(house, wire.TrainAsk(query="bollard, gangway and capstan", limit=2))
            assert len(training.candidates) == 2
            ranks = {row.id: row.rank for row in house.reader.impressions(training.recall)}
            assert sorted(ranks.values()) == [1, 2]
            orders.add(tuple(ranks[candidate.id] for candidate in training.candidates))
        assert orders == {(1, 2), (2, 1)}  # by chance once in 5e11 runs

    at_the_desk(tmp_path, TEXTS, body)


def test_p016_a_secret_in_a_query_of_ones_own_is_not_kept_in_the_log(tmp_path: Path) -> None:
    async def body(house: DeskHouse) -> None:
        training = await ask(house, wire.TrainAsk(query=f"{ASK_CAPSTAN} with AKIAIOSFODNN7EXAMPLE"))
        assert training.candidates
        assert "AKIA" not in training.query
        assert b"AKIAIOSFODNN7EXAMPLE" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())

    at_the_desk(tmp_path, TEXTS, body)


@pytest.mark.parametrize("query", ["😀", "zebra crossings in winter"])
def test_a_query_that_finds_nothing_has_no_candidates(tmp_path: Path, query: str) -> None:
    async def body(house: DeskHouse) -> None:
        assert (await ask(house, wire.TrainAsk(query=query))).candidates == []

    at_the_desk(tmp_path, TEXTS, body)


@pytest.mark.parametrize(("probability", "cut"), [(0.5, 0.35), (0.184, 0.1841), (0.9, 0.35)])
def test_doubt_reads_what_the_gate_writes(probability: float, cut: float) -> None:
    rows = [wire.WhyCandidate(path="p", gates={"query": "passed: x", "probability": _likely(probability, cut)})]
    doubt = doubt_of(msgspec.msgpack.encode(wire.Why(recall="r", candidates=rows)))
    assert doubt < 3.0
    assert (doubt < 0.01) == (abs(probability - cut) < 0.001)
    assert doubt_of(b"") == float("inf")


def test_a_query_of_file_names_alone_is_not_asked_about() -> None:
    gates = {"query": "stopped: only file names and ordinary words are asked for", "probability": _likely(0.3, 0.35)}
    rows = [wire.WhyCandidate(path="p", gates=gates)]
    assert doubt_of(msgspec.msgpack.encode(wire.Why(recall="r", candidates=rows))) == float("inf")
