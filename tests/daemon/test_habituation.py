"""What was shown in vain needs more each time; use forgives; what says nearly the same is treated the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_made import answer, found, passage
from recalld_daemon.habits import HabitWatch
from recalld_daemon.recall.gate import Context, decide, stopped_by, words_shown
from recalld_daemon.recall.gate_model import Model, shifted
from recalld_daemon.recall.habituation import MOST_LOG_ODDS, Habits, Ignored, alike
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.signals import FEATURES
from recalld_daemon.recall.types import Focus
from recalld_daemon.store.reader import open_reader
from recalld_daemon.store.rows import ImpressionRecord, Outcome, RecallRecord, SessionRecord
from recalld_daemon.store.writer import Writer, open_writer

ASKED = query_of(Focus(user_text="which port does the ledger service listen on?"))
NOTE = passage(1, "The ledger service listens on port 8080 behind the proxy.")
AGAIN = passage(2, "Remember: the ledger service listens on port 8080 behind the proxy.")
LIKELY = {stage: Model((), (), (), (), 0.4, 0.5) for stage in FEATURES}  # p = 0.60


def stopped(habits: Habits, note: object = NOTE) -> str:
    made = found(note.id)  # type: ignore[attr-defined]
    decide(answer(made), [note], Context(ASKED, habits=habits), LIKELY)  # type: ignore[list-item]
    return stopped_by(made)


def test_once_in_vain_costs_little_and_often_silences() -> None:
    assert stopped(Habits()) == ""
    assert stopped(Habits({1: Ignored(1)})) == ""
    assert stopped(Habits({1: Ignored(3)})) == "probability"


def test_a_bad_verdict_silences_at_once() -> None:
    assert stopped(Habits({1: Ignored(1, bad=1)})) == "probability"


def test_what_says_nearly_the_same_is_treated_the_same() -> None:
    assert stopped(Habits({1: Ignored(9)}, [(words_shown(NOTE), Ignored(9))]), AGAIN) == "probability"
    assert stopped(Habits({1: Ignored(9)}), AGAIN) == ""


@given(st.integers(0, 10_000), st.integers(0, 50))
def test_it_never_falls_with_more_sessions_and_is_bounded(sessions: int, bad: int) -> None:
    now, later = Ignored(sessions, bad).log_odds, Ignored(sessions + 1, bad).log_odds
    assert 0.0 <= now <= later <= MOST_LOG_ODDS
    assert shifted(0.5, later) < 1.0


@given(st.text(max_size=60), st.text(max_size=60))
def test_alike_is_no_crash_and_a_text_is_like_itself(one: str, other: str) -> None:
    words = frozenset(one.split())
    alike(words, frozenset(other.split()))
    assert alike(words, words) == (len(words) >= 2)


# ---------------------------------------------------------------- from the log


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    with open_writer(tmp_path / "db") as writer:
        yield writer


def shown(writer: Writer, session: str, passage_id: int, at: float, outcome: Outcome = "won") -> str:
    record = SessionRecord(
        id=session, scope=1, host="", client="", cwd="", opened_at=at, last_seen_at=at, closed_at=None, boundary=1,
        turn=1, calls=0, won=1, slipped=0, silent=0,
    )  # fmt: skip
    writer.touch_session(record)
    asked = RecallRecord(
        id=f"r-{session}", session=session, cause="", query="", at=at, outcome="won", reason="", stage="late", ms=1.0
    )
    writer.record_recall(asked)
    impression = ImpressionRecord(
        id=f"i-{session}-{passage_id}", recall=asked.id, session=session, passage=passage_id, path="p", start=0, end=1,
        text="t", rank=1, score=0.0, probability=0.5, stage="late", outcome=outcome, boundary=1, shown_at=at,
    )  # fmt: skip
    writer.record_impressions([impression])
    return impression.id


def test_sessions_count_and_use_forgives(writer: Writer, tmp_path: Path) -> None:
    _, (note,) = writer.remember("The ledger service listens on port 8080.", at=1.0)
    for number in range(3):
        impression = shown(writer, f"s{number}", note, at=10.0 + number)
    with open_reader(tmp_path / "db") as reader:
        watch = HabitWatch(reader)
        habits = watch.read()
        assert habits.passages == {note: Ignored(3)}
        assert [ignored for _, ignored in habits.words] == [Ignored(3)]
        writer.record_feedback(impression, "bad", at=15.0)
        assert watch.read().passages == {note: Ignored(3, bad=1)}
        writer.record_feedback(impression, "used", at=20.0)
        assert watch.read().passages == {}
        shown(writer, "s9", note, at=30.0)
        assert watch.read().passages == {note: Ignored(1)}
        writer.record_feedback("i-s9-" + str(note), "acted", at=40.0)
        assert watch.read().passages == {}


def test_no_answer_to_a_question_that_a_person_was_asked_is_no_blame(writer: Writer, tmp_path: Path) -> None:
    _, (note,) = writer.remember("The ledger service listens on port 8080.", at=1.0)
    writer.record_feedback(shown(writer, "s1", note, at=10.0, outcome="asked"), "bad", at=11.0)
    with open_reader(tmp_path / "db") as reader:
        assert HabitWatch(reader).read().passages == {}
        writer.record_feedback(shown(writer, "s2", note, at=20.0), "bad", at=21.0)
        assert HabitWatch(reader).read().passages == {note: Ignored(1, bad=1)}
