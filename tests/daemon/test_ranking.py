"""The ranker: the forest is what was fitted, features are finite and say what they mean, a fit learns an order."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranking_made import MadeCards, MadeScorer
from recall_made import encoding
from recalld_daemon.ranking.features import ABSENT, FEATURES, MISSING_GAP, features_of
from recalld_daemon.ranking.fit import Lesson, Settings, fit
from recalld_daemon.ranking.forest import ForestError, forest_of, read_forest
from recalld_daemon.ranking.ranker import Ranking
from recalld_daemon.ranking.sheet import Gatherer
from recalld_daemon.recall.types import Candidate, Hints, Query

ASKED = Query("when did Ada adopt a dog?", ("ada", "adopt", "dog"), "k", hints=Hints(speakers=("Ada",), asks_when=True))


def tree_of(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    leaf = st.builds(lambda v: {"v": v}, st.floats(-5, 5, width=32))
    if depth == 0:
        return leaf
    node = st.builds(
        lambda f, t, left, right: {"f": f, "t": t, "l": left, "r": right},
        st.integers(0, 2), st.integers(-3, 3).map(float), tree_of(depth - 1), tree_of(depth - 1),
    )  # fmt: skip
    return leaf | node


def walked(tree: dict[str, Any], row: np.ndarray) -> float:
    while "v" not in tree:
        tree = tree["l"] if row[tree["f"]] <= tree["t"] else tree["r"]
    return float(tree["v"])


@given(st.lists(tree_of(4), max_size=4), st.lists(st.tuples(*[st.integers(-4, 4)] * 3), min_size=1, max_size=6))
def test_a_forest_gives_each_row_the_sum_of_the_leaves_that_a_walk_reaches(
    trees: list[dict[str, Any]], rows: list[tuple[int, int, int]]
) -> None:
    features = np.array(rows, np.float32)
    expected = [sum(walked(tree, row) for tree in trees) for row in features]
    assert forest_of(["a", "b", "c"], trees).scores(features) == pytest.approx(expected, abs=1e-4)


def test_a_tree_with_too_many_leaves_is_refused() -> None:
    def chain(n: int) -> dict[str, Any]:
        return {"v": 0.0} if n == 0 else {"f": 0, "t": float(n), "l": {"v": 1.0}, "r": chain(n - 1)}

    forest_of(["a"], [chain(15)])
    with pytest.raises(ForestError, match="17 leaves"):
        forest_of(["a"], [chain(16)])


def lessons(count: int, seed: int) -> list[Lesson]:
    """What is right is nearest to the best by words, unless it asks."""
    rng = np.random.default_rng(seed)
    gap, asks = FEATURES.index("lexical.gap"), FEATURES.index("is.QUESTION")
    found = []
    for _ in range(count):
        features = rng.normal(size=(30, len(FEATURES))).astype(np.float32)
        features[:, asks] = rng.random(30) < 0.5
        worth = features[:, gap] - 4.0 * features[:, asks]
        found.append(Lesson(features, worth == worth.max()))
    return found


def test_a_fit_learns_an_order_and_its_text_scores_as_the_library_does() -> None:
    few = Settings(rounds=30, least_in_leaf=5, columns=1.0)
    text = fit(lessons(80, 1), few, {"data": "made up"})
    forest = read_forest(text, FEATURES)
    right = [bool(lesson.right[forest.scores(lesson.features).argmax()]) for lesson in lessons(40, 2)]
    assert sum(right) / len(right) > 0.6  # by chance 1 in 30
    document = json.loads(text)
    assert document["provenance"]["data"] == "made up"
    assert (document["provenance"]["lessons"], document["provenance"]["used"]) == (80, 80)
    assert next(iter(document["gain"])) == "lexical.gap"
    assert text == fit(lessons(80, 1), few, {"data": "made up"})


def test_trees_are_read_back_as_lightgbm_meant_them() -> None:
    import lightgbm

    made = lessons(40, 3)
    features = np.concatenate([lesson.features for lesson in made])
    labels = np.concatenate([lesson.right for lesson in made]).astype(np.float32)
    parameters = {"objective": "regression", "num_leaves": 16, "verbose": -1, "num_threads": 1, "use_missing": False}
    booster = lightgbm.train(parameters, lightgbm.Dataset(features, labels), 20)
    from recalld_daemon.ranking.fit import _tree

    trees = [_tree(info["tree_structure"]) for info in booster.dump_model()["tree_info"]]
    assert forest_of(FEATURES, trees).scores(features) == pytest.approx(booster.predict(features), abs=1e-4)


def test_lessons_that_teach_no_order_are_refused() -> None:
    none_right = Lesson(np.zeros((3, len(FEATURES)), np.float32), np.zeros(3, np.bool_))
    with pytest.raises(ValueError, match="none of 1 lessons"):
        fit([none_right])
    with pytest.raises(ValueError, match="2 to 16 leaves"):
        fit(lessons(2, 1), Settings(leaves=31))


def test_a_ranker_fitted_on_other_features_is_refused() -> None:
    text = fit(lessons(10, 1), Settings(rounds=2))
    with pytest.raises(ForestError, match="fit it anew"):
        read_forest(text, FEATURES[:-1])
    with pytest.raises(ForestError, match="not a ranker"):
        read_forest("{}", FEATURES)
    with pytest.raises(ForestError, match="not a ranker"):
        read_forest(text[:-20], FEATURES)


def talk() -> tuple[MadeCards, list[MadeScorer], list[Candidate]]:
    cards = MadeCards(9, {id: "Ada" if id % 2 else "Ben" for id in range(1, 10)})
    dense = MadeScorer("dense", {id: 0.1 * id for id in range(1, 10)}, needs_encoding=True)
    words = MadeScorer("lexical", {5: 8.0, 4: 4.0})
    found = [Candidate(5, {"dense": (2, 0.5)}, 1.0, 0.6), Candidate(7, {}, 0.8, 0.4), Candidate(2, {}, 0.2)]
    return cards, [dense, words], found


def column(features: np.ndarray, name: str) -> list[float]:
    return [round(float(x), 3) for x in features[:, FEATURES.index(name)]]


def test_features_say_what_they_mean() -> None:
    cards, scorers, found = talk()
    features = features_of(Gatherer(scorers, cards).sheet(ASKED, encoding(), found))
    assert features.shape == (3, len(FEATURES))
    assert column(features, "hand.rank") == pytest.approx(np.log1p([0, 1, 2]).round(3).tolist())
    assert column(features, "dense") == pytest.approx([0.5, 0.7, 0.2])
    assert column(features, "dense.gap")[1] == 0.0
    assert column(features, "speaker") == [1.0, 1.0, 0.0]
    assert column(features, "speaker.before") == [0.0, 0.0, 1.0]
    assert column(features, "late.gap")[0] == 0.0
    assert column(features, "dense.before2")[2] == MISSING_GAP  # passage 2 has nothing two before it
    assert column(features, "asked.when") == [1.0, 1.0, 1.0]
    assert scorers[0].asked[0] == sorted({0, 1, 2, 3, 4, 5, 6, 7, 8, 9})


def test_without_an_encoding_the_words_are_ranked_alone() -> None:
    cards, scorers, found = talk()
    features = features_of(Gatherer(scorers, cards).sheet(ASKED, None, found))
    assert np.isfinite(features).all()
    assert not scorers[0].asked
    assert column(features, "lexical.gap")[0] == 0.0


def test_where_nobody_is_named_the_speaker_is_no_matter() -> None:
    cards, scorers, found = talk()
    features = features_of(Gatherer(scorers, cards).sheet(Query("a dog", ("dog",), "k"), encoding(), found))
    assert column(features, "speaker") == [ABSENT] * 3


scores = st.dictionaries(st.integers(1, 9), st.floats(-1e6, 1e6, width=32), max_size=9)


@settings(max_examples=60)
@given(scores, scores, st.lists(st.integers(1, 12), min_size=1, max_size=9, unique=True), st.booleans())
def test_features_are_finite_whatever_lanes_say(
    dense: dict[int, float], words: dict[int, float], ids: list[int], late: bool
) -> None:
    found = [Candidate(id, {"facts": (1, 0.5)} if id % 2 else {}, 1.0 / id, 0.1 * id if late else None) for id in ids]
    gatherer = Gatherer([MadeScorer("dense", dense), MadeScorer("lexical", words)], MadeCards(9))
    features = features_of(gatherer.sheet(ASKED, encoding(), found))
    assert features.shape == (len(ids), len(FEATURES))
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


def test_the_stage_orders_its_head_and_leaves_the_rest_below() -> None:
    cards, scorers, found = talk()
    least = FEATURES.index("dense")
    stump = {"f": least, "t": 0.6, "l": {"f": least, "t": 0.3, "l": {"v": 0.5}, "r": {"v": 0.0}}, "r": {"v": 1.0}}
    ranking = Ranking(Gatherer(scorers, cards), forest_of(FEATURES, [stump]), limit=2)
    ranked = ranking.deepen(ASKED, encoding(), found)
    assert [candidate.passage for candidate in ranked] == [7, 5, 2]  # 2 would come before 5, but is beyond the limit
    assert [candidate.ranked for candidate in ranked] == [1.0, 0.0, None]
    assert ranked[0].fused > ranked[1].fused > ranked[2].fused
    assert [candidate.ranked for candidate in found] == [None] * 3
    assert (ranked[0].late, ranked[1].lanes) == (0.4, {"dense": (2, 0.5)})


def test_a_forest_that_tells_nothing_apart_leaves_the_order() -> None:
    cards, scorers, found = talk()
    ranking = Ranking(Gatherer(scorers, cards), forest_of(FEATURES, [{"v": 0.5}]))
    ranked = ranking.deepen(ASKED, encoding(), found)
    assert [candidate.passage for candidate in ranked] == [candidate.passage for candidate in found]
