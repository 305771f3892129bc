"""The gate's fit: memories cut apart keep their answers, and cuts give the rates they promise."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # `training` is no package of the distribution
sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from training import gate, gate_asks
from training.gate_runs import Judged, Run, ask_all
from training.pools import Ask, Pool, Row, user

from recall_made import found
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.signals import FEATURES, pool_of

NOTES = [f"{thing} is kept at {place}" for thing in ("rope", "paint", "flour", "salt") for place in ("Oban", "Mallaig")]


def pool(name: str = "til") -> Pool:
    rows = [Row(text, f"note {number // 2}") for number, text in enumerate(NOTES)]
    asks = [Ask(f"{name}.title", user(f"where is {text}"), frozenset({at})) for at, text in enumerate(NOTES)]
    return Pool(name, rows, asks)


def test_a_part_keeps_the_answers_that_it_holds() -> None:
    made = gate_asks.part(pool(), [6, 1, 0], "til/3").pool
    assert [row.text for row in made.rows] == [NOTES[0], NOTES[1], NOTES[6]]
    for ask in made.asks:
        assert ask.focus.user_text == f"where is {made.rows[next(iter(ask.gold))].text}"


def test_halves_share_no_source_and_parts_have_their_size() -> None:
    left, right = gate_asks.halves(pool(), random.Random(1))
    assert not {row.source for row in left.pool.rows} & {row.source for row in right.pool.rows}
    assert len(left.rows) + len(right.rows) == len(NOTES)
    for part in gate_asks.small_parts(pool(), random.Random(1)):
        assert len(part.rows) == len(part.pool.rows) in gate_asks.TINY
        assert all(ask.gold for ask in part.pool.asks)


def test_what_is_absent_has_no_gold_and_hidden_answers_are_hidden() -> None:
    others = [pool("til"), pool("wiki")]
    for ask in gate_asks.absent(pool(), others, 0.5, random.Random(1)):
        assert not ask.gold
        assert bool(ask.hidden) == (ask.kind == "absent.hidden")


def runs(count: int, seed: int) -> list[Run]:
    """Half answered and near, half not and far, with some overlap; of two kinds of memories."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        answered = number % 2 == 0
        candidate = found(1, rng.gauss(0.6 if answered else 0.3, 0.1))
        made.append(
            Run(
                "til" if number % 4 < 2 else "wiki", 1_000, "til.title" if answered else "absent.sibling", "fused",
                query_of(user(f"where is {NOTES[number % 8]}")), answered,
                (Judged(candidate, NOTES[number % 8], answered, True),), pool_of([candidate, found(2, 0.2, 1.0)]),
            )
        )  # fmt: skip
    unlike = [Run("til", 1_000, "absent.smalltalk", "", query_of(user("ok")), False)] * 10
    return [*made, *unlike]


def test_a_model_tells_near_from_far_and_its_cuts_hold_on_other_runs() -> None:
    model, report = gate.fit_stage("fused", runs(800, seed=1))
    assert model.names == FEATURES["fused"]
    fresh = runs(800, seed=2)
    table = gate.table_of("fused", fresh)
    best = gate.bests(table, gate.probabilities(model, table.x))
    fired = {True: [], False: []}  # type: dict[bool, list[bool]]
    for run, p in zip(table.runs, best.tolist(), strict=True):
        if run.stage:
            fired[run.answered].append(p >= model.cut(0.02))
    assert np.mean(fired[True]) > 0.5
    assert np.mean(fired[False]) < 0.2  # one in ten, since alike ones are a fifth of what the rate is of
    assert report["log_loss"]["logistic"] < 0.4
    assert report["ece"]["logistic"] < 0.1


@pytest.mark.models
def test_questions_go_through_the_products_own_stages(tmp_path: Path, model_cache: Path) -> None:
    from house import open_house
    from house_encoders import Encoders

    with open_house(pool(), Encoders(model_cache, tmp_path)) as house:
        found_runs = list(ask_all(house, [*pool().asks[:2], Ask("absent.smalltalk", user("ok, thanks"))]))
    stages = [run.stage for run in found_runs]
    assert stages[0] == "lexical"
    assert "late" in stages
    assert stages[-1] == ""
    for run in found_runs[:-1]:
        assert run.rows(FEATURES[run.stage], {}).shape == (len(run.judged), len(FEATURES[run.stage]))
        assert any(one.gold for one in run.judged)
