"""The word index against BM25 written down plainly, whatever was added, replaced and removed before."""

from __future__ import annotations

import doctest
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue_samples import Known, batch_of, bm25
from recalld_daemon.index import words_terms
from recalld_daemon.index.words import POSTINGS_BUDGET, TIER, WordIndex, _chosen
from recalld_daemon.recall.types import View

ALL = View(scopes=None)
VOCABULARY = ["gull", "tern", "auk", "puffin", "skua", "petrel", "kittiwake", "fulmar", "gannet", "shag", "eider"]
words_in = st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join)
known = st.builds(
    Known,
    text=words_in,
    heading=words_in,
    speaker=st.sampled_from(["", "Ada", "Grace Tern"]),
    path=st.sampled_from(["", "notes puffin"]),
    parts=words_in,
    scope=st.integers(1, 3),
    written_at=st.integers(0, 5).map(float),
)
ids = st.integers(1, 30)
change = st.one_of(
    st.tuples(st.just("add"), st.dictionaries(ids, known, min_size=1, max_size=12)),
    st.tuples(st.just("remove"), st.lists(ids, max_size=8)),
)


def changed(changes: Sequence[tuple[str, object]]) -> tuple[WordIndex, dict[int, Known]]:
    index, there = WordIndex(), dict[int, Known]()
    for what, value in changes:
        if what == "add":
            assert isinstance(value, dict)
            index.add(batch_of(value))
            there.update(value)
        else:
            assert isinstance(value, list)
            index.remove(value)
            there = {id: row for id, row in there.items() if id not in value}
    return index, there


def check(
    index: WordIndex, there: Mapping[int, Known], asked: Sequence[str], view: View = ALL, limit: int = 50
) -> None:
    """Search and score give what plain BM25 gives."""
    wanted = bm25(there, asked)
    assert len(index) == len(there)
    scores = index.score(asked, np.arange(1, 41))
    for id, score in zip(range(1, 41), scores.tolist(), strict=True):
        assert score == pytest.approx(wanted[id], rel=1e-4) if id in wanted else np.isnan(score)
    seen = {
        id: wanted[id]
        for id, row in there.items()
        if wanted[id] > 0
        and (view.scopes is None or row.scope in view.scopes)
        and (view.as_of is None or row.written_at < view.as_of)
    }
    hits = index.search(asked, view, limit)
    assert hits.scores.tolist() == pytest.approx(sorted(seen.values(), reverse=True)[:limit], rel=1e-4)
    assert len(set(hits.ids.tolist())) == len(hits.ids)
    assert all(
        seen[id] == pytest.approx(score, rel=1e-4) for id, score in zip(hits.ids.tolist(), hits.scores, strict=True)
    )


@given(st.lists(change, max_size=12), st.lists(st.sampled_from([*VOCABULARY, "ada", "the"]), max_size=5))
@settings(max_examples=60, deadline=None)
def test_after_any_changes_search_and_score_are_those_of_plain_bm25(
    changes: list[tuple[str, object]], asked: list[str]
) -> None:
    index, there = changed(changes)
    check(index, there, asked)


@given(
    st.lists(change, min_size=1, max_size=8),
    st.lists(st.integers(1, 4), max_size=3).map(tuple),
    st.none() | st.integers(0, 6).map(float),
    st.integers(0, 6),
)
@settings(max_examples=50, deadline=None)
def test_p014_only_what_the_view_shows_is_found(
    changes: list[tuple[str, object]], scopes: tuple[int, ...], as_of: float | None, limit: int
) -> None:
    index, there = changed(changes)
    check(index, there, ["gull", "tern", "auk"], View(scopes, as_of), limit)
    check(index, there, ["gull", "tern", "auk"], View(None, as_of), limit)


@given(st.lists(change, max_size=10))
@settings(max_examples=30, deadline=None)
def test_one_segment_of_all_says_the_same_and_has_nothing_dead(changes: list[tuple[str, object]]) -> None:
    index, there = changed(changes)
    whole = index.whole()
    check(index, there, VOCABULARY[:4])
    if whole is None:
        assert not there
        return
    assert (whole.dead, whole.ids.tolist()) == (0, sorted(there))
    other = WordIndex()
    other.restore(whole)
    check(other, there, VOCABULARY[:4])


def test_segments_stay_few_however_many_changes_come() -> None:
    index = WordIndex()
    for at in range(1, 1001):
        index.add(batch_of({at: Known(f"number{at} tern"), 5_000 + at % 7: Known("a passage that comes again")}))
    sizes = [len(segment) for segment in index._table.segments]
    assert sum(sizes) == len(index) == 1_007
    assert all(big >= TIER * small for big, small in pairwise(sizes))
    assert index.search(["number77"], ALL, 3).ids.tolist() == [77]


def test_a_text_of_any_length_and_an_empty_one_are_held() -> None:
    index, there = changed([("add", {1: Known("tern " * 5_000), 2: Known(""), 3: Known("the of and")})])
    assert index.search(["tern"], ALL, 5).ids.tolist() == [1]
    assert index.score(["tern"], np.array([1, 2, 3, 4]))[1:].tolist() == pytest.approx([0, 0, np.nan], nan_ok=True)
    assert len(index) == len(there)


@pytest.mark.parametrize("asked", [[], [""], ["the"], ["😀"], ["\ud83d"], ["\x00"], ["nowhere"], ["''"]])
def test_p037_nothing_to_search_for_finds_nothing(asked: list[str]) -> None:
    for index in (WordIndex(), changed([("add", {1: Known("foo and bar")})])[0]):
        hits = index.search(asked, ALL, 5, asked)
        assert (hits.ids.shape, hits.scores.shape) == ((0,), (0,))


# ------------------------------------------------------------ names


def test_a_rare_name_always_makes_its_passage_a_candidate() -> None:
    """Two hundred passages have many of the asked words; one, a long one, has only the name."""
    crowd = {n: Known("deploy staging failed again") for n in range(1, 201)}
    there = {**crowd, 900: Known("zzyx_9 " + "filler words here " * 400)}
    index, _ = changed([("add", there)])
    asked = ["deploy", "staging", "failed", "zzyx_9", "zzyx"]
    hits = index.search(asked, ALL, 20, ["zzyx_9"])
    assert 900 in hits.ids.tolist()
    assert (len(hits.ids), sorted(hits.scores.tolist(), reverse=True)) == (20, hits.scores.tolist())
    assert 900 not in index.search(asked, View((2,)), 20, ["zzyx_9"]).ids.tolist()


@given(st.integers(1, 6), st.integers(1, 8), st.sets(st.integers(1, 60), max_size=3))
@settings(max_examples=60, deadline=None)
def test_names_have_a_place_whatever_the_limit(limit: int, crowd: int, holders: set[int]) -> None:
    there = {n: Known("tern " * crowd + ("kelp " + "x " * 50 if n in holders else "")) for n in range(1, 61)}
    index, _ = changed([("add", there)])
    hits = index.search(["tern", "kelp"], ALL, limit, ["kelp"]).ids.tolist()
    assert len(hits) == len(set(hits)) == limit
    assert len(set(hits) & holders) >= min(limit, len(holders))


def test_a_common_name_gives_no_place() -> None:
    there = {n: Known("tern tern") for n in range(1, 50)} | {n: Known("kelp " + "x" * 9 * n) for n in range(50, 60)}
    index, _ = changed([("add", there)])
    assert (
        index.search(["tern", "kelp"], ALL, 5).ids.tolist()
        == index.search(["tern", "kelp"], ALL, 5, ["kelp"]).ids.tolist()
    )


# ------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("run the pre-edit hook first", "pre-edit"),
        ("ask O'Brien for the old key", "o’brien"),
        ("call getUserName now", "getusername"),
        ("read max_retry_ms from it", "max_retry_ms"),
        ("see src/auth/login.py", "login"),
        ("we were painting", "painted"),
        ("das Café in der Größe", "CAFE größe"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("昨日は東京タワーに行きました", "東京タワー"),
        ("昨日は東京タワーに行きました", "タワー"),
        ("项目部署到生产环境", "生产"),
        ("항구에서 갈매기를 보았다", "갈매기"),
        ("gptモデルを使う", "モデル"),
        ("แมวนอนอยู่บนเตียง", "เตียง"),
    ],
)
def test_p037_words_are_found_as_people_write_them(text: str, asked: str) -> None:
    index, _ = changed([("add", {1: Known(text), 2: Known("something quite different"), 3: Known("別の話です")})])
    assert index.search([asked], ALL, 5).ids.tolist()[0] == 1


def test_the_examples_in_the_docs_hold() -> None:
    assert doctest.testmod(words_terms).failed == 0


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_any_text_is_found_by_itself(text: str) -> None:
    index, _ = changed([("add", {1: Known(text)})])
    found = index.search([text], ALL, 1).ids.tolist()
    assert found == ([1] if words_terms.terms_in(text) else [])


def test_the_cache_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_terms, "CACHED_WORDS", 10)
    words_terms._terms.clear()
    before = words_terms.terms_in(" ".join(f"word{n}" for n in range(50)))
    assert len(words_terms._terms) <= 10
    assert words_terms.terms_in(" ".join(f"word{n}" for n in range(50))) == before


def test_terms_beyond_the_budget_are_the_most_common_ones() -> None:
    assert _chosen(np.array([POSTINGS_BUDGET, 0, 5, POSTINGS_BUDGET - 5])) == [2, 3]
    assert _chosen(np.array([POSTINGS_BUDGET + 1, 0])) == [0]


# ------------------------------------------------------------ threads


def test_searches_go_on_while_others_add_and_remove() -> None:
    """Passage 1 is never touched: every search must find it, whatever goes on."""
    index, _ = changed([("add", {1: Known("the zeppelin rose", scope=7)})])
    wrong: list[object] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            hits = index.search(["zeppelin"], View((7,)), 3)
            scores = index.score(["zeppelin"], np.array([1, 10**6]))
            if hits.ids.tolist() != [1] or not scores[0] > 0 or not np.isnan(scores[1]):
                wrong.append((hits, scores))

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for at in range(2, 3_000, 100):
        index.add(batch_of({id: Known(f"tern {id} gull {id % 17}") for id in range(at, at + 100)}))
        index.remove(range(at, at + 40))
    index.whole()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(index) == 1 + 30 * 60
