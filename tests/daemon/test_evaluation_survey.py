"""The whole survey: what is judged on what, what is kept apart, what is said where there is too little."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from log_house import DAY, DIMS, NOON, LogHouse, MadeEncoder
from recalld_daemon.__main__ import main
from recalld_daemon.config import Config
from recalld_daemon.evaluation import command, plots
from recalld_daemon.evaluation import trained as trained_of
from recalld_daemon.evaluation.command import ProgressLine
from recalld_daemon.evaluation.ground import Ground, open_ground
from recalld_daemon.evaluation.questions import read_log
from recalld_daemon.evaluation.survey import Wish, effect, reliability, survey
from recalld_daemon.evaluation.told import told
from recalld_daemon.evaluation.trained import Lessons, candidates_of, wanted_before
from recalld_daemon.learned import Learned
from recalld_daemon.recall.adapter import Adapter
from store_samples import passage

THINGS = "server vault garden kitchen bus library bridge office harbour market tower stable cellar attic".split()  # noqa: SIM905
FACTS = "opens at nine|is painted blue|was sold to Marta|needs a new roof|closes on Fridays|has two keys".split("|")  # noqa: SIM905


def filled(house: LogHouse, count: int = 40, *, seed: int = 1) -> list[int]:
    """`count` questions about THINGS, with an answer each, four to a session, and two that nothing answered."""
    texts = [f"the {thing} {fact}" for thing in THINGS for fact in FACTS]
    ids = house.remember("/notes.md", [passage(text, 100 * n, at=NOON - DAY) for n, text in enumerate(texts)])
    rng = random.Random(seed)
    for n, row in enumerate(rng.sample(range(len(ids)), count)):
        other = ids[(row + 7) % len(ids)]
        shown: list[Any] = [(ids[row], "used"), (other, "ignored"), (ids[(row + 1) % len(ids)], "")]
        house.asked(f"please tell {texts[row]}", shown, at=NOON + 60 * n, session=f"s{n // 4}", probability=n / count)
    house.asked("what about zebras", [(ids[0], "ignored")], at=NOON + 9_000, session="z")
    house.asked("why is the moon", [(ids[1], "bad")], at=NOON + 9_001, session="z")
    house.asked(f"please tell {texts[3]}", [(ids[3], "ignored", "withheld")], at=NOON + 9_002, propensity=0.03)
    return ids


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path, MadeEncoder(shift=12.0)) as house:
        yield house


@pytest.fixture
def ground(house: LogHouse) -> Iterator[Ground]:
    filled(house)
    with open_ground(house.home, Config(), live=house.live) as ground:
        yield ground


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A survey of all, for those who only read it."""
    with LogHouse(tmp_path_factory.mktemp("home"), MadeEncoder(shift=12.0)) as house:
        filled(house)
        with open_ground(house.home, Config(), live=house.live) as ground:
            return survey(ground, Wish(least=20, folds=2, curve=True, fit=MadeFit()))


class MadeFit:
    """Fits nothing, and remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, Lessons]] = []

    def __call__(self, lessons: Lessons, parts: trained_of.Parts) -> MadeFit:
        self.given.append((parts, lessons))
        return self

    query = Adapter.born(DIMS, hidden=4)
    key = Adapter.born(DIMS, hidden=4)
    value = None


# ---------------------------------------------------------------- what is judged on what


def test_what_is_judged_was_never_learned_from(ground: Ground) -> None:
    fit = MadeFit()
    document = survey(ground, Wish(least=20, folds=2, curve=True, fit=fit))
    questions = {question.key for question in read_log(ground.reader).questions}
    assert document["trained"]
    assert [split["n"] for split in document["splits"].values()] == [10, 40]
    assert document["splits"]["chronological"]["learned_from"] == [30]
    assert document["splits"]["random"]["learned_from"] == [20, 20]
    names = list(document["splits"]["chronological"]["candidates"])
    assert names[:6] == ["plain", "+f_Q", "f_Q without W2", "f_Q without b2", "+f_K", "+f_V"]
    for _, lessons in fit.given:
        on, by = set(lessons.fitted_on.tolist()), set(lessons.stopped_by.tolist())
        assert not on & by
        assert on | by == set(range(len(lessons.pairs)))
        assert lessons.pairs.at[list(by)].min() >= lessons.pairs.at[list(on)].max()
        assert set(lessons.pairs.names) < questions
    assert [row["questions"] for row in document["curve"]] == [0, 8, 15, 22, 30]


def test_an_adapter_that_is_the_identity_gains_exactly_nothing(document: dict[str, Any]) -> None:
    for split in document["splits"].values():
        for name in ("+f_Q", "f_Q without W2", "f_Q without b2", "+f_K"):
            assert {gain["gain"] for gain in split["candidates"][name]["gain"].values()} == {0.0}
            assert name not in split["better"]


def test_goldless_questions_stand_apart_and_in_no_average(
    house: LogHouse, ground: Ground, document: dict[str, Any]
) -> None:
    for n in range(15):
        house.asked(f"nothing helped {n}", [(1, "ignored")], at=NOON + 20_000 + n)
    after = survey(ground, Wish(least=20, folds=2, fit=MadeFit()))
    assert after["log"]["unanswered"] == document["log"]["unanswered"] + 15 == 17
    assert after["splits"] == document["splits"]
    assert after["passing"]["unanswered"]["n"] == 17


def test_the_real_fit_learns_what_it_can(ground: Ground) -> None:
    """All questions of the made encoder lie off in one direction: f_Q finds that; what it has it may show."""
    found = candidates_of(ground, read_log(ground.reader).questions[:30])
    by_name = {candidate.name: candidate.learned for candidate in found}
    f_q = by_name["+f_Q"].query
    assert f_q is not None
    assert not f_q.is_identity
    w2, b2 = by_name["f_Q without W2"].query, by_name["f_Q without b2"].query
    assert w2 is not None
    assert b2 is not None
    assert (w2.norms[0], b2.norms[1]) == (0.0, 0.0)
    assert w2.norms[1] == f_q.norms[1] > 0
    assert by_name["+f_K"].key is not None
    assert by_name["+f_V"].value is not None


def test_what_the_user_is_after_is_known_from_before_alone(ground: Ground) -> None:
    """The interests with which f_V is judged: nothing before the first question, never the question's own answer."""
    questions = read_log(ground.reader).questions
    wanted = wanted_before(ground, questions)
    assert not wanted[questions[0].key].any()
    changed = [*questions[:-1], replace(questions[-1], gold=frozenset({1}))]
    again = wanted_before(ground, changed)
    assert all(np.array_equal(wanted[key], again[key]) for key in wanted)
    (gold,) = questions[0].gold
    _, (vector,) = ground.reader.plain_vectors([gold], ground.encoder)
    second = wanted[questions[1].key]
    assert second @ vector == pytest.approx(float(np.linalg.norm(second)), rel=1e-3)


def test_f_v_is_judged_with_what_the_user_is_after(ground: Ground) -> None:
    questions = read_log(ground.reader).questions
    question = questions[5]
    plain, wanted = ground.dense(question), 50 * wanted_before(ground, questions)[question.key]
    valued = Learned(value=Adapter.born(DIMS, hidden=4))
    found = ground.dense(question, valued, wanted=wanted)
    assert sorted(found) == sorted(plain)
    assert found != plain
    assert ground.dense(question, valued) == plain  # without knowing what that is, nothing is added
    assert ground.dense(question, valued, wanted=np.zeros(DIMS, np.float32)) == plain


def test_the_version_that_is_live_is_judged_beside_plain(house: LogHouse, ground: Ground) -> None:
    version = house.writer.begin_version(house.encoder, at=NOON, vectors=0, why="f_Q")
    born = Adapter.born(DIMS, hidden=4)
    adapter = replace(born, b2=np.ones(DIMS, np.float32))
    house.writer.put_artefact(house.encoder, version, "query", "k", adapter.to_bytes())
    house.writer.finish_version(house.encoder, version, metrics='{"mrr": 0.5}', drift=0.01)
    house.writer.set_live(house.encoder, version)
    document = survey(ground, Wish(least=500))
    assert list(document["splits"]["untrained"]["candidates"]) == ["plain", f"version {version}"]
    assert any("flatters it" in note for note in document["notes"])
    row = document["versions"][-1]
    assert (row["version"], row["live"], row["drift"], row["metrics"]) == (version, True, 0.01, {"mrr": 0.5})
    assert (row["w2"], row["b2"]) == (0.0, pytest.approx(DIMS**0.5, abs=1e-3))


# ---------------------------------------------------------------- too little


def test_too_few_are_told_and_nothing_is_trained(ground: Ground) -> None:
    fit = MadeFit()
    document = survey(ground, Wish(least=200, curve=True, fit=fit))
    assert not document["trained"]
    assert fit.given == []
    assert list(document["splits"]) == ["untrained"]
    assert document["splits"]["untrained"]["n"] == 40
    assert "40 distinct questions have an answer; adapters are trained from 200 on" in told(document)
    assert "curve" not in document


def test_an_empty_log_is_told(tmp_path: Path) -> None:
    with LogHouse(tmp_path) as house:
        house.remember("/n.md", ["one fact"])
        with open_ground(house.home, Config(), live=house.live) as ground:
            document = survey(ground, Wish(fit=MadeFit()))
    assert "splits" not in document
    assert document["effect"]["difference"]["n"] == document["reliability"]["n"] == 0
    assert "no question in the log has an answer yet" in told(document)
    json.dumps(document, allow_nan=False)


def test_where_no_gold_has_a_vector_nothing_is_trained(ground: Ground) -> None:
    gone = [replace(question, gold=frozenset({99_999})) for question in read_log(ground.reader).questions]
    assert candidates_of(ground, gone, fit=MadeFit()) == []


def test_one_text_alone_can_t_be_split(tmp_path: Path) -> None:
    """Asked in two projects it is two questions, of which none may be learned from while the other is judged."""
    with LogHouse(tmp_path) as house:
        (id,) = house.remember("/n.md", ["the port is 9090"])
        for number, scope in enumerate((1, house.writer.scope_id("p"))):
            house.asked("which port", [(id, "used")], session=f"s{number}", scope=scope)
        with open_ground(house.home, Config(), live=house.live) as ground:
            document = survey(ground, Wish(least=2, folds=2, curve=True, fit=MadeFit()))
    assert document["splits"]["chronological"]["learned_from"] == [0]
    assert list(document["splits"]["random"]["candidates"]) == ["plain"]
    assert [row["questions"] for row in document["curve"]] == [0]
    assert "2 judged" in told(document)
    json.dumps(document, allow_nan=False)


# ---------------------------------------------------------------- gate and showing


def test_the_effect_of_showing_is_the_difference_to_what_was_withheld(house: LogHouse) -> None:
    filled(house, 4)
    found = effect(read_log(house.reader).effect)
    assert (found["shown"]["n"], found["withheld"]["n"]) == (9, 1)  # one ignored; a verdict "bad" is not watching
    assert found["difference"]["gain"] == pytest.approx(4 / 9, abs=1e-4)
    assert found["difference"]["low"] < 0 < found["difference"]["high"]


def test_reliability_sets_what_was_predicted_beside_what_came() -> None:
    probabilities = np.repeat([0.1, 0.9], 50)
    useful = np.r_[np.tile([1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 5), np.tile([0, 1, 1, 1, 1, 1, 1, 1, 1, 1], 5)].astype(float)
    honest = reliability(probabilities, useful)
    assert honest["n"] == 100
    assert sum(n for *_, n in honest["bins"]) == 100
    turned = reliability(probabilities, 1 - useful)
    assert turned["error"] > 0.6
    assert honest["error"] < 0.1
    assert min(n for *_, n in honest["bins"]) >= 20  # of fewer a share is chance
    assert reliability(np.empty(0), np.empty(0)) == {"bins": [], "error": None, "n": 0}


# ---------------------------------------------------------------- text, pictures, command


def test_the_text_says_all_of_it(document: dict[str, Any]) -> None:
    text = told(document)
    for wanted in (
        "chronological: 30 to learn from, 10 judged", "random: 20/20 to learn from, 40 judged", "cosine alone", "+f_Q",
        "without an answer: something passes", "effect of showing", "learning curve", "better than plain",
    ):  # fmt: skip
        assert wanted in text
    assert max(map(len, text.splitlines())) < 200
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("format", ["png", "svg"])
def test_pictures_are_drawn_of_what_there_is(document: dict[str, Any], tmp_path: Path, format: plots.Format) -> None:
    versions = [{"version": n, "at": NOON + n * DAY, "drift": 0.01 * n, "w2": 0.2 * n, "b2": 0.1} for n in range(4)]
    written = plots.draw(document | {"versions": versions}, tmp_path / "pictures", format)
    assert [path.name for path in written] == [
        f"{name}.{format}" for name in ("learning_curve", "reliability", "drift")
    ]
    heads = {"png": b"\x89PNG", "svg": b"<?xml"}
    assert all(path.read_bytes().startswith(heads[format]) and path.stat().st_size > 3_000 for path in written)
    assert plots.left_out(document | {"versions": versions}) == []
    empty = document | {"curve": [], "versions": [], "reliability": {"bins": []}}
    assert plots.draw(empty, tmp_path / "none", format) == []
    one = empty | {"versions": versions[:2]}  # version 0 is plain search, which has not drifted
    assert plots.draw(one, tmp_path / "none", format) == []
    assert plots.left_out(one) == ["drift is drawn from two versions on; there is one so far"]


def test_without_matplotlib_it_says_what_to_install(
    house: LogHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "can_draw", lambda: False)
    assert main(["eval", "--home", str(house.home.data.parent), "--plot", "pictures"]) == 1
    assert "pip install 'recalld[plots]'" in capsys.readouterr().err
    assert not Path("pictures").exists()


def test_without_a_memory_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.os, "nice", lambda by: 0)
    assert main(["eval", "--home", str(tmp_path)]) == 1
    assert "start recalld first" in capsys.readouterr().err
    assert main(["eval", "--home", str(tmp_path), "--folds", "1"]) == 2


@pytest.mark.parametrize(("flag", "taken"), [("--json", "."), ("--json", "no/such/file"), ("--plot", "taken")])
def test_what_could_not_be_kept_is_said_before_anything_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, taken: str
) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(plots, "can_draw", lambda: True)
    assert main(["eval", "--home", str(tmp_path / "nothing is here"), flag, str(tmp_path / taken)]) == 1
    assert capsys.readouterr().err.startswith(f"recalld: {tmp_path / taken}: ")


def test_progress_is_a_line_per_phase_or_one_line_on_a_terminal() -> None:
    plain, terminal = StringIO(), StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    for out in (plain, terminal):
        line = ProgressLine(out, clock=lambda: 0.0)
        for n in range(3):
            line("judging", n + 1, 3)
        line("fitting", 0, 0)
        line.end()
    assert plain.getvalue() == "judging\nfitting\n"
    assert terminal.getvalue() == "\r\x1b[Kjudging 1/3\r\x1b[Kjudging 3/3\r\x1b[Kfitting\r\x1b[K"


def test_where_there_is_nothing_to_draw_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with LogHouse(tmp_path / "home") as house:
        house.remember("/n.md", ["the port is 9090"])
    monkeypatch.setattr("recalld_daemon.evaluation.ground.load_live", lambda *_: house.live)
    monkeypatch.setattr(os, "nice", lambda by: 0)
    pictures = tmp_path / "pictures"
    assert main(["eval", "--home", str(tmp_path / "home"), "--plot", str(pictures)]) == 0
    assert capsys.readouterr().err.endswith("\nnothing to draw yet\n")
    assert list(pictures.iterdir()) == []


@pytest.mark.models
def test_recalld_eval_from_the_command_line(model_cache: Path, tmp_path: Path) -> None:
    """The packaged encoder, the real fit, the store open in another process meanwhile, as a daemon has it."""
    from recalld_daemon.models.encoder import EncoderSettings, load_encoder

    settings = EncoderSettings(model_cache)
    live, bulk = (load_encoder(settings, role, lambda *_: None) for role in ("live", "bulk"))  # type: ignore[arg-type]
    with LogHouse(tmp_path / "home", live, bulk) as house:
        filled(house, 24)
        before = {path: path.read_bytes() for path in house.home.data.glob("recalld.db*") if "shm" not in path.name}
        flags = ["--home", str(tmp_path / "home"), "--model-cache", str(model_cache), "--min", "20", "--folds", "2"]
        pictures = tmp_path / "pictures"
        flags += ["--json", "--plot", str(pictures), "--format", "svg"]
        done = subprocess.run(
            [sys.executable, "-m", "recalld_daemon", "eval", *flags],
            capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"}, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert {path: path.read_bytes() for path in before} == before
    document = json.loads(done.stdout)
    assert document["splits"]["chronological"]["n"] == 6
    assert document["splits"]["chronological"]["candidates"]["plain"]["mrr"] > 0.5
    assert document["log"]["unanswered"] == 2
    assert "chronological: fitting f_Q" in done.stderr
    assert {path.name for path in pictures.iterdir()} == {"learning_curve.svg", "reliability.svg"}
