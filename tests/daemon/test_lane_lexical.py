"""The lexical lane over a word index, and over its fallback while there is none."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from catalogue_samples import Known, batch_of
from recalld_daemon.index.words import WordIndex
from recalld_daemon.recall.lanes import lexical
from recalld_daemon.recall.lanes.lexical import LexicalLane, names_of
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.types import Focus, Lane, LaneHits, Query, QueryEncoding, Scorer, View


class FullText:
    """In the store's place."""

    name = "lexical"
    needs_encoding = False

    def search(self, query: Query, encoding: QueryEncoding | None, view: View, limit: int) -> LaneHits:
        return LaneHits(np.array([77]), np.array([3.0], np.float32))


@pytest.fixture
def words() -> WordIndex:
    index = WordIndex()
    passages = {
        1: Known("we deploy on Fridays", speaker="Ada"),
        2: Known("the deploy of parseConfig failed", parts="parse config"),
        3: Known("gulls nest on the roof"),
        4: Known("deploy notes of the other project", scope=2),
    }
    index.add(batch_of(passages))
    return index


def test_it_searches_and_scores_any_passage(words: WordIndex) -> None:
    lane = LexicalLane(words, FullText())
    as_lane: Lane = lane
    as_scorer: Scorer = lane
    query = query_of(Focus(user_text="did Ada deploy it?"))
    hits = as_lane.search(query, None, View(), 5)
    assert hits.ids.tolist() == [1, 2]
    scores = as_scorer.score(query, None, np.array([2, 3, 99, 1]))
    assert scores[[3, 0]].tolist() == hits.scores.tolist()
    assert (scores[1], np.isnan(scores[2])) == (0.0, True)


def test_until_the_index_is_open_the_full_text_search_answers() -> None:
    lane = LexicalLane(None, FullText())
    query = query_of(Focus(user_text="did Ada deploy it?"))
    assert lane.search(query, None, View(), 5).ids.tolist() == [77]
    assert np.isnan(lane.score(query, None, np.array([1, 2]))).all()


def test_an_exact_name_is_a_candidate_among_many_that_match_better(words: WordIndex) -> None:
    words.add(batch_of({n: Known("why did the deploy fail again, deploy") for n in range(100, 200)}))
    lane = LexicalLane(words, FullText())
    query = query_of(Focus(user_text="why did the deploy fail again in parseConfig"))
    assert 2 in lane.search(query, None, View(), 10).ids.tolist()


def test_names_are_what_is_written_like_one() -> None:
    query = query_of(Focus("Edit", '{"file_path": "/w/app/src/auth.py", "new_string": "call max_retry for Ada, utf8"}'))
    assert set(names_of(query)) == {"app/src/auth.py", "max_retry", "ada", "utf8"}
    assert names_of(query_of(Focus(user_text="why does it fail so often now"))) == []


def test_the_examples_in_the_docs_hold() -> None:
    assert doctest.testmod(lexical).failed == 0
