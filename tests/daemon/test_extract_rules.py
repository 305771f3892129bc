"""Facts and subjects by rules: what is kept of a message and of a document, and what is left out."""

from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.extract.interface import SUBJECT_KINDS, Piece
from recalld_daemon.extract.passages import extracted
from recalld_daemon.extract.propositions import RuleFacts
from recalld_daemon.extract.rules import RULES, recipe_of
from recalld_daemon.extract.sentences import asks, is_prose, is_question, sentences
from recalld_daemon.extract.subjects import RuleSubjects, fold
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

MAY_8 = 1_683_554_400.0
FACTS = RuleFacts(UTC)


def said(text: str, speaker: str = "Ana", before: Piece | None = None) -> list[str]:
    return FACTS.facts(Piece(text, speaker, MAY_8, before=before))


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("I planted two olive trees yesterday.", "Ana planted two olive trees yesterday (7 May 2023)."),
        ("I'm allergic to walnuts.", "Ana is allergic to walnuts (8 May 2023)"),
        ("I've got my mother's violin.", "Ana has got Ana's mother's violin (8 May 2023)"),
        ("We're moving to Oslo next month!", "Ana and others are moving to Oslo next month (June 2023)!"),
        ("Hey Ben! My knee surgery went well.", "Ana's knee surgery went well (8 May 2023)"),
        ("Wow, thanks! I don’t eat meat or fish.", "Ana doesn't eat meat or fish (8 May 2023)"),
        ("The ferry to Bergen was cancelled.", "Ana: The ferry to Bergen was cancelled (8 May 2023)"),
    ],
)
def test_a_message_becomes_statements_about_its_speaker(text: str, fact: str) -> None:
    assert said(text) == [fact]


@pytest.mark.parametrize(
    "text", ["", "ok", "Wow, that's so cool!", "Thanks a lot, see you!", "How was your trip to Oslo?", "Haha 😂"]
)
def test_reactions_greetings_and_questions_state_nothing(text: str) -> None:
    assert said(text) == []


def test_you_is_who_is_answered() -> None:
    before = Piece("I finished the marathon.", "Ben", MAY_8)
    assert said("You are the fastest runner in your family.", before=before) == [
        "Ana: Ben is the fastest runner in Ben's family (8 May 2023)"
    ]


def test_an_elliptic_answer_takes_its_question_along() -> None:
    before = Piece("Nice pictures! Where did you go?", "Ben", MAY_8)
    assert said("To the Dolomites.", before=before) == ["Ana, asked where did you go: to the Dolomites (8 May 2023)"]
    assert said("No", before=Piece("Did you ever eat octopus?", "Ben", MAY_8)) == [
        "Ana, asked did you ever eat octopus: no (8 May 2023)"
    ]
    assert said("I went to the Dolomites. I climbed with my sister.", before=before) == [
        "Ana went to the Dolomites (8 May 2023), asked where did you go",
        "Ana climbed with Ana's sister (8 May 2023)",
    ]
    assert said("Wow, thanks!", before=before) == []
    assert said("To the Dolomites.", speaker="Ben", before=before) == []  # nobody answers himself


def test_at_most_three_the_most_telling_ones_in_their_order() -> None:
    text = (
        "My sister plays cello. I have a dog. My brother repairs accordions. I study Portuguese literature. It is nice."
    )
    found = said(text)
    assert len(found) == 3
    assert [text for text in ("cello", "accordions", "Portuguese") if any(text in fact for fact in found)] == [
        "cello", "accordions", "Portuguese",
    ]  # fmt: skip


def test_a_document_states_what_it_decides_under_its_heading() -> None:
    text = """Some words on the queue as it is now.
Never restart the queue worker by hand, because leases are lost.

- the default port is 9092
- is that so?
```
retries = 5
```
"""
    assert FACTS.facts(Piece(text, heading="Ops > Queue")) == [
        "Queue: Never restart the queue worker by hand, because leases are lost.",
        "Queue: the default port is 9092",
    ]
    assert FACTS.facts(Piece("Never restart the queue worker by hand, because leases are lost.")) == []  # the passage


def test_sentences_are_cut_where_they_end() -> None:
    assert sentences("I saw Dr. Who at 3.30 p.m. today... Then e.g. nothing! Really?\n\n1. first\n2. second") == [
        "I saw Dr. Who at 3.30 p.m. today...", "Then e.g. nothing!", "Really?", "first", "second",
    ]  # fmt: skip
    assert [is_question(s) for s in ('Is it?"', "It is.")] == [True, False]
    assert [asks(q) for q in ("where is it", "fix the bug", "it is?")] == [True, False, True]
    assert [is_prose(s) for s in ("plain words", "x=[{(1,2)}]; y=[{(3,4)}]; z", "a" * 400)] == [True, False, False]


def found(text: str, speaker: str = "", heading: str = "") -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {}
    for subject in RuleSubjects().subjects(Piece(text, speaker, heading=heading)):
        kinds.setdefault(subject.kind, set()).add(subject.name)
    return kinds


def test_subjects_have_their_kinds() -> None:
    kinds = found(
        "Ask Grace Hopper: parse_http_url() in src/net/urls.py raises WireError. Run `git push -f`, then `rg -n x`. "
        "Project aurora needs MAX_RETRIES.", speaker="Ana", heading="Net > Message queue",
    )  # fmt: skip
    assert kinds["person"] == {"Ana", "Grace Hopper"}
    assert kinds["path"] == {"src/net/urls.py"}
    assert kinds["symbol"] == {"parse_http_url", "WireError", "MAX_RETRIES"}
    assert kinds["tool"] == {"git", "rg"}
    assert kinds["project"] == {"aurora"}
    assert "message queue" in kinds["topic"]
    assert set(kinds) <= set(SUBJECT_KINDS)


def test_the_beginning_of_a_sentence_is_not_a_name_unless_the_word_is_rare() -> None:
    assert found("Loving it. Yesterday we ran. The tests pass. In May, on Monday.").get("person", set()) == set()
    assert found("Ottoline came along.")["person"] == {"Ottoline"}
    assert found("We met Ana. Ana's dog barked.")["person"] == {"Ana"}


def test_fractions_and_alternatives_are_no_paths() -> None:
    assert "path" not in found("and/or, 3/4 of he/she")
    assert found("see ./x.py and ~/notes/a and README.md")["path"] == {"./x.py", "~/notes/a", "README.md"}


def test_names_fold_to_one() -> None:
    assert fold("getUserName") == fold("get_user_name") == fold("GetUserName()") == "get user name"
    assert fold("Ada's") == fold("ada") == "ada"
    assert fold("Deploy Keys") == fold("deploy key")
    assert fold("./src/a.py") == fold("/src/a.py")


def test_the_parsers_extract_in_view_of_the_passage_before() -> None:
    def message(text: str, speaker: str) -> ParsedPassage:
        return ParsedPassage(start=0, end=1, text=text, codec="json", speaker=speaker, written_at=MAY_8)

    problem = FileProblem(line=3, text="torn")
    first, kept, second = extracted([message("Which port is it?", "user"), problem, message("port 9092", "assistant")])
    assert kept is problem
    assert isinstance(first, ParsedPassage)
    assert isinstance(second, ParsedPassage)
    assert first.facts == []
    assert second.facts == ["assistant, asked which port is it: port 9092 (8 May 2023)"]
    assert first.recipe == second.recipe == RULES.name == "facts=rules-1 subjects=rules-1 whens=rules-1"


def test_an_extractor_nobody_registered_is_named() -> None:
    with pytest.raises(KeyError, match="llm"):
        recipe_of(facts="llm")


@given(st.text(max_size=300), st.sampled_from(["", "Ana", "user"]), st.floats(-1e12, 1e13) | st.none())
def test_no_text_is_too_strange(text: str, speaker: str, at: float | None) -> None:
    piece = Piece(text, speaker, at, "A > B", "/a.md", Piece(text + "?", "Ben", at))
    made = RULES.extract(piece)
    assert len(made.facts) <= 3
    assert all(fact.strip() for fact in made.facts)
    keys = [(subject.kind, fold(subject.name)) for subject in made.subjects]
    assert len(keys) == len(set(keys))
