"""One night after the other: what is collected, promoted or not, projected again or not, and what is refused."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sleep_house
from log_house import DAY, DIMS, NOON
from recalld_daemon.config import Config
from recalld_daemon.evaluation import bootstrap
from recalld_daemon.evaluation.ground import NoGround
from recalld_daemon.evaluation.questions import read_log
from recalld_daemon.interests import SLOW, vector_of
from recalld_daemon.learned import read_learned
from recalld_daemon.paths import Home, home_under
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.sleep.cycle import Ended, NotYet, last_of
from recalld_daemon.sleep.kept import SPLIT, Kept, names
from recalld_daemon.sleep.ports import Answer, Fit, Interrupted, Works
from recalld_daemon.sleep.reproject import project_all
from recalld_daemon.sleep.train import drift_of
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.writer import open_writer
from sleep_house import CONFIG, SETTINGS, MadeFits, Plainly, filled, night, real_fits, turned_key, usual_query, works
from store_samples import passage

DRIFTS = SETTINGS.least_drift


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("template")
    filled(directory, 40).close()
    return directory


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Home:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return home_under(tmp_path)


@pytest.fixture
def reader(home: Home) -> Iterator[Reader]:
    with open_reader(home.database) as reader:
        yield reader


def versions(reader: Reader) -> dict[int, tuple[int, str, bool]]:
    """version -> (whose vectors, why, is live)."""
    return {row.version: (row.vectors, row.why, row.live) for row in reader.versions(1) if row.version}


def ask_more(home: Home, count: int, start: int = 40) -> None:
    """More of the same questions, later."""
    with sleep_house.reopened(home) as house:
        ids = house.reader.passage_ids("/notes.md")
        sleep_house.ask(house, ids, range(start, start + count))


def fits(query: Adapter, key: Adapter | None) -> Works:
    identity = Adapter.born(DIMS, hidden=4)
    both = Fit(query, key)
    return works(fit=MadeFits({"q": Fit(identity), "qk": both, "qkv": Fit(query, key, identity)}, []))


def partly(share: float) -> Adapter:
    """What takes a part of the shift back."""
    whole = usual_query()
    return replace(whole, b2=(share * whole.b2).astype(np.float32))


@pytest.fixture
def few_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen questions are held out here: too few to change six of them twice."""
    monkeypatch.setattr(bootstrap, "LEAST_MOVED", 1)


# ---------------------------------------------------------------- collecting


def test_too_few_queries_train_nothing_and_that_is_said(home: Home, reader: Reader) -> None:
    def no_ground(*_: Any) -> Any:
        raise AssertionError("nothing needs to be opened")

    ended = night(home, works(ground=no_ground), settings=replace(SETTINGS, least_queries=41))
    assert not ended.failed
    assert "nothing was trained: 40 distinct queries" in ended.report["result"]
    assert "trained" not in ended.report
    assert versions(reader) == {}
    last = last_of(reader)
    assert last is not None
    assert last.ended_at is not None
    assert json.loads(last.report)["result"] == ended.report["result"]


def test_a_night_without_a_single_pair_fails_and_never_says_it_trained(home: Home, reader: Reader) -> None:
    """Zero pairs were once called "trained". Here the vectors of all that helped go after the questions were read."""

    def tell(what: str, done: int, total: int) -> None:
        if what == "making pairs":
            with closing(sqlite3.connect(home.database)) as database, database:
                database.execute("DELETE FROM vectors")

    ended = night(home, real_fits(), tell)
    assert ended.failed
    assert ended.report["result"].endswith("no question's answer has a vector: nothing could be trained")
    assert "trained" not in ended.report
    assert (versions(reader), reader.live_version(1)) == ({}, 0)


def test_the_newest_fifth_is_held_out_and_never_given_to_a_fit(home: Home, reader: Reader) -> None:
    with sleep_house.reopened(home) as house:
        first = read_log(house.reader).questions[0]
        house.asked(first.text, [(next(iter(first.gold)), "used")], at=NOON + 9 * DAY, scope=house.writer.scope_id("p"),
                    session="other")  # fmt: skip
    made = MadeFits.both_sides()
    ended = night(home, works(fit=made))
    questions = {question.key: question for question in read_log(reader).questions}
    given = {key for _, lessons in made.given for key in lessons.pairs.names}
    held = [question for key, question in questions.items() if key not in given]
    assert (len(given), len(held)) == (ended.report["collected"]["train"], ended.report["collected"]["held"])
    assert len(held) == 8
    assert not {question.name for question in held} & {questions[key].name for key in given}
    assert min(question.at for question in held) > max(questions[key].at for key in given if questions[key].scope == 1)


def test_a_challenger_is_never_judged_on_what_it_was_trained_on(home: Home, reader: Reader) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if what == "judge":
            raise Interrupted

    with pytest.raises(Interrupted):
        night(home, tell=stop)
    last = last_of(reader)
    assert last is not None
    with open_writer(home.database) as writer:
        kept = Kept(writer, reader, 1, last.key)
        split = kept.get_json(SPLIT)
        kept.put_json(SPLIT, {**split, "held": [*split["held"], split["train"][0]]})
    ended = night(home)
    assert ended.failed
    assert "was trained on 1 of the 9 questions" in ended.report["result"]
    assert versions(reader) == {}
    assert reader.live_version(1) == 0


# ---------------------------------------------------------------- training, for real


def test_real_fits_promote_the_simplest_that_wins_and_the_second_night_learns_from_all_again(
    home: Home, reader: Reader
) -> None:
    ended = night(home, real_fits())
    trained, judged = ended.report["trained"], ended.report["judged"]
    assert (trained["q"]["pairs"], trained["q"]["pairs_per_epoch"]) == (26, 26)
    assert trained["q"]["epochs"] > 0
    gains = {name: row["gain"]["mrr"] for name, row in judged["candidates"].items() if name != "champion"}
    better = [name for name, gain in gains.items() if gain["gain"] > 0 and gain["low"] >= 0]
    assert ended.report["chosen"] == better[0] == "f_Q"
    assert versions(reader) == {1: (0, "f_Q", True)}
    assert not ended.report["reprojected"]["needed"]
    record = reader.version(1, 1)
    assert record is not None
    metrics = json.loads(record.metrics)
    assert metrics["mrr"] == judged["candidates"]["f_Q"]["mrr"]
    assert metrics["judged"].keys() == judged["candidates"].keys()
    assert read_learned(reader, 1, 1).query is not None

    ask_more(home, 5)
    again = night(home, real_fits()).report
    assert again["champion"] == 1
    assert (again["trained"]["q"]["pairs"], again["trained"]["q"]["pairs_per_epoch"]) == (29, 29)
    assert again["trained"]["q"]["epochs"] > 0
    assert again["judged"]["champion_knows"] == 0


def test_a_fit_that_is_interrupted_goes_on_with_the_next_epoch(home: Home) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if (what, done) == ("fitting qk", 5):
            raise Interrupted

    with pytest.raises(Interrupted):
        night(home, real_fits(), stop)
    trained = night(home, real_fits()).report["trained"]
    assert (trained["q"]["resumed"], trained["qk"]["resumed"]) == (0, 5)
    assert trained["qk"]["epochs"] > 5


# ---------------------------------------------------------------- keys and drift


def test_new_keys_bring_vectors_of_their_own_and_what_is_there_is_f_k_of_the_frozen(home: Home, reader: Reader) -> None:
    ended = night(home)
    assert ended.report["chosen"] == "f_Q + f_K"
    assert versions(reader) == {1: (1, "f_Q + f_K", True)}
    learned = read_learned(reader, 1, 1)
    assert learned.key is not None
    assert reader.count_vectors(1, 1) == reader.count_vectors(1, 0) > 96  # names of subjects, too
    for (hashes, frozen), (again, own) in zip(reader.walk_vectors(1, 0), reader.walk_vectors(1, 1), strict=True):
        assert hashes == again
        np.testing.assert_allclose(learned.key.apply(frozen), own, atol=1e-3)


def test_too_little_drift_is_not_worth_a_projection_and_what_is_judged_is_what_goes_live(
    home: Home, reader: Reader
) -> None:
    ended = night(home, fits(usual_query(), turned_key(2 * DRIFTS)))
    drift = ended.report["drifts"]["qk"]
    assert 0 < drift < DRIFTS
    assert ended.report["chosen"] == "f_Q + f_K"
    assert ended.report["judged"]["candidates"]["f_Q + f_K"]["vectors"] == 0
    assert not ended.report["reprojected"]["needed"]
    record, learned = reader.version(1, 1), read_learned(reader, 1, 1)
    assert record is not None
    assert (record.vectors, record.live) == (0, True)
    assert record.drift == pytest.approx(drift)
    assert learned.key is None
    assert reader.count_vectors(1, 1) == 0


@pytest.mark.usefixtures("few_tell")
def test_drift_adds_up_against_what_is_live_however_little_each_night_moves(home: Home, reader: Reader) -> None:
    first = night(home, fits(partly(0.5), turned_key(2 * DRIFTS)))
    second = night(home, fits(partly(1.0), turned_key(4.5 * DRIFTS)))
    step = np.abs(turned_key(4.5 * DRIFTS).b2 - turned_key(2 * DRIFTS).b2).max()
    assert step < np.abs(turned_key(4.5 * DRIFTS).b2).max()
    assert first.report["drifts"]["qk"] < DRIFTS
    assert (
        second.report["drifts"]["qk"] - first.report["drifts"]["qk"] < DRIFTS
    )  # from night to night: always too little
    assert second.report["drifts"]["qk"] > DRIFTS
    assert second.report["reprojected"]["needed"]
    assert {version: vectors for version, (vectors, _, _) in versions(reader).items()} == {1: 0, 2: 2}
    key = read_learned(reader, 1, 2).key
    assert key is not None
    assert drift_of(reader, 1, 2, key, 1_000) < 1e-3  # projected again: it begins at nought


def test_what_is_written_behind_the_walk_is_projected_too(home: Home, reader: Reader) -> None:
    key, steps = turned_key(), []
    with sleep_house.reopened(home) as house:
        version = house.writer.begin_version(1, at=1.0, vectors=None, why="")

        def tell(what: str, done: int, total: int) -> None:
            steps.append(done)
            if len(steps) == 4:
                house.remember("/more.md", [passage(f"later {n}", 50 * n) for n in range(30)])

        about = project_all(house.writer, reader, 1, version, Plainly(key), tell, 16)
        assert reader.count_unprojected(1, version) == 0
        assert about["vectors"] == reader.count_vectors(1, version) == reader.count_vectors(1, 0)
        assert reader.count_vectors(1, 0) >= 126


def test_vectors_that_are_not_what_f_k_makes_are_not_taken(home: Home, reader: Reader) -> None:
    class Wrong(Plainly):
        def __call__(self, vectors: Any) -> Any:
            return super().__call__(vectors[:, ::-1])

    ended = night(home, works(projection=Wrong))
    assert ended.failed
    assert "from what f_K makes of it" in ended.report["result"]
    assert versions(reader) == {}
    assert reader.live_version(1) == 0
    assert list(home.index.iterdir()) == []
    assert reader.count_vectors(1, 1) == 0


# ---------------------------------------------------------------- going live, keeping, being told no


def test_no_challenger_that_is_not_better_goes_live(home: Home, reader: Reader) -> None:
    identity = Adapter.born(DIMS, hidden=4)
    same = {parts: Fit(identity, identity if "k" in parts else None) for parts in ("q", "qk", "qkv")}
    ended = night(home, works(fit=MadeFits(same, [])))
    assert (ended.failed, ended.version, ended.report["chosen"]) == (False, None, None)
    assert "plain search stays" in ended.report["result"]
    assert versions(reader) == {}


@pytest.mark.usefixtures("few_tell")
def test_the_last_versions_are_kept_and_the_others_indexes_go(home: Home, reader: Reader) -> None:
    config = replace(CONFIG, keep_versions=1)
    night(home, fits(partly(0.5), turned_key()), config=config)
    assert [entry.name for entry in home.index.iterdir()] == ["encoder-1-v1"]
    ended = night(home, fits(partly(1.0), turned_key(seed=4)), config=config)
    assert ended.report["dropped"] == [1]
    assert versions(reader) == {2: (2, "f_Q + f_K", True)}
    assert [entry.name for entry in home.index.iterdir()] == ["encoder-1-v2"]


def test_a_version_that_the_daemon_refuses_is_dropped(home: Home, reader: Reader) -> None:
    ended = night(home, works(activate=lambda home, encoder, version: Answer(False, "daemon", "no")))
    assert ended.failed
    assert "version 1 was refused: no" in ended.report["result"]
    assert versions(reader) == {}
    assert list(home.index.iterdir()) == []


def test_a_daemon_that_can_t_be_asked_now_is_asked_by_the_next_run(home: Home, reader: Reader) -> None:
    with pytest.raises(NotYet, match="busy"):
        night(home, works(activate=lambda home, encoder, version: Answer(False, "daemon", "busy", again=True)))
    assert versions(reader) == {1: (1, "f_Q + f_K", False)}
    ended = night(home)
    assert ended.report["resumed"] == ["activate"]
    assert versions(reader) == {1: (1, "f_Q + f_K", True)}


def test_a_version_that_went_live_meanwhile_is_not_pushed_aside(home: Home, reader: Reader) -> None:
    def meanwhile(what: str, done: int, total: int) -> None:
        if what == "activate":
            with open_writer(home.database) as writer:
                other = writer.begin_version(1, at=1.0, vectors=0, why="by hand")
                writer.finish_version(1, other, metrics="{}", drift=0.0)
                writer.set_live(1, other)

    ended = night(home, tell=meanwhile)
    assert not ended.failed
    assert "`recallctl rollback 1`" in ended.report["result"]
    assert versions(reader) == {1: (1, "f_Q + f_K", False), 2: (0, "by hand", True)}


def test_a_version_that_nobody_noted_goes_with_the_next_night(home: Home, reader: Reader) -> None:
    with open_writer(home.database) as writer:
        writer.begin_version(1, at=1.0, vectors=None, why="killed before it was noted")
    (home.index / "encoder-1-v9").mkdir(parents=True)

    def tell(what: str, done: int, total: int) -> None:
        if what == "train":  # from the beginning on
            assert versions(reader) == {}
            assert list(home.index.iterdir()) == []

    night(home, tell=tell)
    assert versions(reader) == {2: (2, "f_Q + f_K", True)}
    assert [entry.name for entry in home.index.iterdir()] == ["encoder-1-v2"]


def test_nothing_of_a_night_is_kept_when_it_has_ended(home: Home, reader: Reader) -> None:
    night(home)
    assert [name for name in names() if reader.learning_state(f"sleep {name}", 1)] == []


def test_a_home_without_memory_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NoGround, match="there is no memory yet"):
        night(home_under(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


# ---------------------------------------------------------------- interests


def test_long_term_interests_move_once_per_use_and_no_version_resets_them(home: Home, reader: Reader) -> None:
    def slow() -> Any:
        state = reader.learning_state(SLOW, 1)
        assert state is not None
        return vector_of(state.data)

    assert night(home).report["uses"] == 40
    after = slow()
    assert 0 < np.linalg.norm(after) <= 1
    assert night(home).report["uses"] == 0
    np.testing.assert_array_equal(slow(), after)
    ask_more(home, 3)
    few = replace(SETTINGS, least_queries=1_000)
    ended: Ended = night(home, settings=few, config=Config())
    assert ended.report["uses"] == 3
    assert not np.array_equal(slow(), after)
