"""What of a question quotes what is to be forgotten, and so is masked in the log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recalld_daemon import forgetting, purging
from recalld_daemon.recall.quotes import MASK, NO_QUOTES, RUN, Quotes, QuoteSearch
from recalld_daemon.store.lexical import fold

TEXT = "The ferry's staging database moved to port 5433 on Vintgaard, after the deploy"
DOC = Path(__file__).parents[2] / "docs" / "forgetting.md"
VOCABULARY = ["port", "staging", "moved", "to", "the", "on", "ferry", "alpha", "beta", "Größe", "x2"]
words = st.lists(st.sampled_from(VOCABULARY), max_size=30)


def quotes(asked: list[str], forgotten: list[str], kept: str = "") -> Quotes:
    search = QuoteSearch(asked, fold)
    for text in forgotten:
        search.add(text)
    everywhere = [set(map(fold, re.findall(r"[^\W_]+", text))) for text in [*forgotten, *kept.split("|")]]
    return search.quotes(lambda word: sum(word in held for held in everywhere))


@pytest.mark.parametrize(
    ("asked", "masked"),
    [
        ("remember: staging database moved to port 5433, please", f"remember: {MASK}, please"),
        ("is STAGING  database\nmoved to PORT free?", f"is {MASK} free?"),
        ("what runs at port 5433?", "what runs at port 5433?"),  # others have these words
        ("where is Vintgaard, and the vintgaards?", f"where is {MASK}, and the vintgaards?"),
        ("", ""),
        ("…", "…"),
    ],
)
def test_what_is_quoted_is_masked_and_nothing_else(asked: str, masked: str) -> None:
    kept = "the staging port 5433 of the ferry's database moved to the deploy|after on"
    assert quotes([asked], [TEXT], kept).mask(asked) == masked


def test_a_word_that_several_forgotten_ones_share_is_theirs_alone() -> None:
    found = quotes(["the vintgaard plan"], ["Vintgaard is here", "Vintgaard was there"], "the plan is here")
    assert found.mask("the vintgaard plan") == f"the {MASK} plan"


def test_what_nobody_asked_is_not_looked_for() -> None:
    assert quotes(["hello"], [TEXT]).mask(TEXT) == TEXT
    assert NO_QUOTES.mask(TEXT) == TEXT


@settings(deadline=None)
@given(words, words, words)
def test_no_run_of_it_is_left_and_what_is_left_was_there(asked: list[str], said: list[str], kept: list[str]) -> None:
    question, text = " ".join(asked), " ".join(said)
    found = quotes([question], [text], " ".join(kept))
    masked = found.mask(question)
    left = [part.split() for part in masked.split(MASK)]
    runs = {tuple(map(fold, said[at : at + RUN])) for at in range(len(said) - RUN + 1)}
    for part in left:
        assert not any(tuple(map(fold, part[at : at + RUN])) in runs for at in range(len(part) - RUN + 1))
    remaining = iter(asked)
    assert all(word in remaining for part in left for word in part)  # in order, nothing made up
    assert found.mask(masked) == masked


def test_the_document_says_what_the_code_does() -> None:
    said = " ".join(DOC.read_text(encoding="utf-8").split())
    assert RUN == 5
    assert "five words or more that stood in a forgotten text" in said
    assert f"become `{MASK}`" in said
    assert purging.CUT_SECONDS == 10.0
    assert "after ten seconds the command says so" in said
    assert forgetting.OPEN_SECONDS == 60.0
    assert "files within a minute of the index being open" in said
