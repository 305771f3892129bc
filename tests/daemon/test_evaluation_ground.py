"""A recall without the daemon: its encoder, the daemon's lanes and stages, nothing written, nothing sorted after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trio

from log_house import DAY, DIMS, NOON, LogHouse, MadeEncoder
from recalld_daemon.config import Config
from recalld_daemon.evaluation.ground import NoGround, load_live, open_ground
from recalld_daemon.evaluation.judge import Candidate, TrainedOn, judge, marks_of, report_of
from recalld_daemon.evaluation.judge import Result as Judged
from recalld_daemon.evaluation.questions import Question, read_log
from recalld_daemon.index import open_catalogue, open_index
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.memory import Memory
from recalld_daemon.paths import home_under
from recalld_daemon.ranking.features import FEATURES
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.cascade import Recaller
from recalld_daemon.recall.query import query_from, query_of
from recalld_daemon.recall.types import Answer, Focus, QueryEncoding, View
from recalld_daemon.store.errors import StoreError
from store_samples import passage

TEXTS = [
    "the Zephyr server listens on port 9090", "we deploy Zephyr on Fridays after lunch", "Marta likes green tea",
    "the staging key lies in the vault", "blue paint for the kitchen door", "the bus to town leaves at nine",
    "port wine goes with cheese", "the server room is cold", "lunch is at noon on Fridays", "keys hang by the door",
]  # fmt: skip


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path) as house:
        yield house


@pytest.fixture
def filled(house: LogHouse) -> LogHouse:
    house.remember("/notes.md", [passage(text, 100 * n, at=NOON - DAY * n - 1) for n, text in enumerate(TEXTS)])
    return house


def learned_by(seed: int, size: float = 0.4) -> Adapter:
    born = Adapter.born(DIMS, hidden=8)
    rng = np.random.default_rng(seed)
    w2, b2 = (rng.normal(size=part.shape).astype(np.float32) * size for part in (born.w2, born.b2))
    return Adapter(born.w1, born.b1, w2.astype(np.float32), b2.astype(np.float32))


def question(text: str, *gold: int, **changes: object) -> Question:
    view = View(scopes=None, as_of=NOON)
    return replace(Question(text, 1, NOON, "s1", (), view, frozenset(gold)), **changes)  # type: ignore[arg-type]


def opened(house: LogHouse):  # type: ignore[no-untyped-def]
    return open_ground(house.home, Config(), live=house.live)


# ---------------------------------------------------------------- the same recall


@pytest.mark.parametrize("f_q", [None, learned_by(1)])
def test_it_recalls_what_the_daemon_recalls(filled: LogHouse, f_q: Adapter | None) -> None:
    wanted = _as_the_daemon(filled, "which port does the server listen on", f_q)
    with opened(filled) as ground:
        found = ground.answer(question("which port does the server listen on"), replace(PLAIN, query=f_q))
    assert [c.passage for c in found.candidates] == [c.passage for c in wanted.candidates]
    assert [c.fused for c in found.candidates] == pytest.approx([c.fused for c in wanted.candidates], abs=1e-4)
    assert found.notes == ()


def test_a_challenger_s_keys_are_the_snapshot_it_would_make(filled: LogHouse) -> None:
    """f_K that is in no snapshot yet is judged as the stored one would be: passages and facts in the new space."""
    f_k, asked = learned_by(2, size=3.0), question("which port does the server listen on")
    version = filled.writer.begin_version(filled.encoder, at=NOON, vectors=None, why="f_K")
    for hashes, vectors in filled.reader.walk_vectors(filled.encoder):
        filled.writer.put_projected(filled.encoder, version, hashes, f_k.apply(vectors).astype(np.float16))
    with opened(filled) as ground:
        plain, projected = ground.dense(asked), ground.dense(asked, replace(PLAIN, key=f_k))
        whole = ground.ranked(asked, replace(PLAIN, key=f_k))
        assert ground.dense(asked) == plain  # and back
    index = open_index(filled.home.data / "test", filled.reader, filled.encoder, version)
    vector = filled.live.encode_query(asked.text)[0]
    assert projected == index.search(vector, asked.view, 1_000).ids.tolist()
    index.close()
    assert projected != plain
    assert set(whole) >= set(projected[:5])


def test_the_final_order_is_by_score_and_not_by_date(filled: LogHouse) -> None:
    """What a reference system did: it ranked, and then sorted what it had ranked by date."""
    with opened(filled) as ground:
        answer = ground.answer(question("port of the Zephyr server"))
        ranked = ground.ranked(question("port of the Zephyr server"))
        dense = ground.dense(question("port of the Zephyr server"))
    scores = [candidate.fused for candidate in answer.candidates]
    assert scores == sorted(scores, reverse=True)
    assert ranked == [candidate.passage for candidate in answer.candidates]
    dates = {p.id: p.written_at for p in filled.reader.passages(ranked)}
    by_date = sorted(ranked, key=lambda id: -(dates[id] or 0.0))
    assert ranked not in (by_date, by_date[::-1])
    vector = filled.live.encode_query("port of the Zephyr server")[0]
    _, vectors = filled.reader.plain_vectors(dense, filled.encoder)
    assert len(dense) == len(TEXTS)
    cosines = dict(zip(filled.reader.plain_vectors(dense, filled.encoder)[0].tolist(), vectors @ vector, strict=True))
    assert [float(cosines[id]) for id in dense] == sorted(map(float, cosines.values()), reverse=True)


def test_queries_are_encoded_as_queries(filled: LogHouse) -> None:
    filled.live.as_passage.clear()
    with opened(filled) as ground:
        ground.ranked(question("where is the key"))
        ground.ranked(question("where is the key"))
        ground.encode(["where is the key", "and the tea"])
    assert filled.live.as_query == ["where is the key", "and the tea"]  # each once
    assert filled.live.as_passage == []


@pytest.mark.models
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_asymmetric_encoder_gets_its_query_prompt(tmp_path: Path) -> None:
    """The worker's own loader with a model that has two prompts: a question is encoded with that of queries."""
    from recalld_daemon.models.encoder import EncoderSettings, load_encoder
    from small_models import build, encode

    prompts = {"query": "what when search ? ", "document": "the index moved to a first passage : "}
    folder = build(tmp_path, prompts=prompts)
    home, text = home_under(tmp_path / "home"), "when is the first deploy"
    home.make()
    config = Config(encoder=str(folder), token_dims=16)
    live = load_live(home, config, lambda phase, done, total: None)
    bulk = load_encoder(EncoderSettings(home.models, str(folder), token_dims=16), "bulk", lambda *_: None)
    with LogHouse(tmp_path / "home", live, bulk) as house:
        house.remember("/n.md", ["the deploy needs the staging key", "the port moved"])
        with open_ground(house.home, config, live=live) as ground:
            (vector,) = ground.encode([text])
    as_query, as_passage = (encode(folder, [text], as_query=kind)[0] for kind in (True, False))
    assert vector @ as_query > 0.99
    assert vector @ as_query > vector @ as_passage + 0.005


# ---------------------------------------------------------------- what may be seen


def test_a_question_is_asked_of_what_was_there_then(filled: LogHouse) -> None:
    (late,) = filled.remember("/late.md", [passage("the Zephyr server listens on port 7070", at=NOON + DAY)])
    (other,) = filled.remember("/p.md", ["port 6060 is the project's"], scope="project")
    with opened(filled) as ground:
        asked = question("which port does the server listen on", view=View(as_of=NOON))
        for ranked in (ground.ranked(asked), ground.dense(asked)):
            assert not {late, other} & set(ranked)
        assert late in ground.ranked(replace(asked, view=View(as_of=NOON + 2 * DAY)))
        assert other in ground.ranked(replace(asked, view=View(scopes=None)))


def test_a_session_s_own_transcript_is_no_answer(filled: LogHouse) -> None:
    own = filled.remember("/t/s1.jsonl", ["which port does the Zephyr server listen on", "let me look"])
    with opened(filled) as ground:
        asked = question("which port does the Zephyr server listen on")
        for ranked in (ground.ranked(asked), ground.dense(asked)):
            assert not set(own) & set(ranked)
        assert own[0] in ground.ranked(replace(asked, group="another"))


def test_nothing_is_written_and_a_daemon_s_index_is_not_touched(filled: LogHouse) -> None:
    index = filled.home.index / f"encoder-{filled.encoder}"
    open_index(index, filled.reader, filled.encoder).save()
    filled.writer.checkpoint()
    before = _files(filled.home.data)
    with opened(filled) as ground:
        ground.ranked(question("where is the key"), replace(PLAIN, key=learned_by(3), query=learned_by(4)))
        assert ground.lesson(question("where is the key")) is not None
        during = _files(filled.home.data)
    assert before == during == _files(filled.home.data)


def test_the_writer_goes_on_beside_it(filled: LogHouse) -> None:
    with opened(filled) as ground:
        before = ground.ranked(question("where is the key"))
        filled.remember("/new.md", ["the key is new"])
        assert ground.ranked(question("where is the key")) == before


# ---------------------------------------------------------------- lessons, gate, faults


def test_a_lesson_is_what_the_ranker_would_see(filled: LogHouse) -> None:
    with opened(filled) as ground:
        (key,) = [id for id in range(1, 11) if "staging key" in filled.reader.passages([id])[0].text]
        lesson = ground.lesson(question("where is the staging key", key, weight=2.5))
        empty = ground.lesson(question("where is it", view=View(as_of=0.0)))
    assert lesson is not None
    assert lesson.features.shape == (len(lesson.right), len(FEATURES))
    assert lesson.right.sum() == 1
    assert lesson.weight == 2.5
    assert empty is None


def test_what_passes_the_gate_is_what_the_daemon_would_show(filled: LogHouse) -> None:
    with opened(filled) as ground:
        assert ground.passing(question("Qxv jjkw pwqz")) == []
        shown = ground.passing(question("on which port does the Zephyr server listen"))
    assert all(0.0 < probability <= 1.0 for probability in shown)


def test_faults_name_the_remedy(filled: LogHouse, tmp_path: Path) -> None:
    with pytest.raises(NoGround, match="start recalld first"), open_ground(home_under(tmp_path / "none"), Config()):
        pass
    other = MadeEncoder(fingerprint="another 1")
    with pytest.raises(NoGround, match="index with it first"), open_ground(filled.home, Config(), live=other):
        pass
    with opened(filled) as ground:
        pass
    with pytest.raises(StoreError, match="closed"):
        ground.learned(1)


def test_a_tool_call_s_name_is_no_term() -> None:
    focus = Focus(tool_name="bash", tool_args='{"command": "git push origin main"}')
    assert query_from(query_of(focus).text).terms == query_of(focus).terms
    assert query_from("what is the port").terms == query_of(Focus(user_text="what is the port")).terms


# ---------------------------------------------------------------- judging


def test_the_simplest_that_is_better_is_chosen(filled: LogHouse) -> None:
    """f_Q that undoes a shift of all queries helps; one that makes noise does not; the first that helps is taken."""
    filled.live = MadeEncoder(shift=12.0)
    questions = [question(f"{TEXTS[n]} please", n + 1, group=f"s{n}") for n in range(len(TEXTS))]
    toward = -filled.live.encode_query("")[0]
    born = Adapter.born(DIMS, hidden=8)
    undo = Learned(query=Adapter(born.w1, born.b1, born.w2, (3.2 * toward).astype(np.float32)))
    noise = Learned(query=learned_by(5, size=9.0))
    config = Config(late_interaction=False, ranker=False)
    with open_ground(filled.home, config, live=filled.live) as ground:
        report = judge(
            ground, Candidate("plain", PLAIN),
            [Candidate("noise", noise), Candidate("f_Q", undo), Candidate("f_Q again", undo)], questions,
        )  # fmt: skip
    dense = report.dense_gains["f_Q"]["mrr"]
    assert dense.gain > 0
    assert report.dense_gains["noise"]["mrr"].gain < 0
    assert report.chosen in (None, "f_Q")
    assert report.gains["f_Q"] == report.gains["f_Q again"]
    assert (report.chosen == "f_Q") is report.gains["f_Q"]["mrr"].is_better
    document = report.to_json()
    assert document["n"] == document["groups"] == len(TEXTS)
    assert list(document["candidates"]) == ["plain", "noise", "f_Q", "f_Q again"]
    assert set(document["candidates"]["f_Q"]) == {"r1", "r5", "r10", "r20", "mrr", "dense", "gain", "dense_gain"}


def test_the_rule_of_choice() -> None:
    def result(name: str, values: list[float]) -> Judged:
        row = {metric: np.array(values) for metric in ("r1", "r5", "r10", "r20", "mrr")}
        return Judged(name, row, row)

    questions = [question(f"q{n}", 1, group=f"s{n}") for n in range(40)]
    plain, same = result("plain", [0.5] * 40), result("same", [0.5] * 40)
    good, best = result("good", [0.6] * 40), result("best", [1.0] * 40)
    shaky = result("shaky", [1.0, 0.0] * 19 + [1.0, 1.0])
    assert report_of([plain, same, shaky, good, best], questions).chosen == "good"
    assert report_of([plain, same, shaky], questions).chosen is None
    assert report_of([plain], questions).chosen is None


def test_a_challenger_is_never_judged_on_what_it_was_trained_on(filled: LogHouse) -> None:
    learned, held = question("where is the key", 4), question("where is the tea", 3)
    elsewhere = replace(learned, scope=9)  # the same text in another scope: known all the same
    with opened(filled) as ground:
        trained = Candidate("f_Q", replace(PLAIN, query=learned_by(6)), marks_of([learned]))
        for questions in ([held, learned], [elsewhere]):
            with pytest.raises(TrainedOn, match="f_Q was trained on 1 of"):
                judge(ground, Candidate("plain", PLAIN), [trained], questions)
        report = judge(ground, Candidate("live", PLAIN, marks_of([held])), [trained], [held])
    assert report.to_json()["notes"] == ["the champion was trained on 1 of these questions, which flatters it"]


def test_goldless_questions_are_not_judged(filled: LogHouse) -> None:
    filled.asked("where is the key", [(4, "used")])
    filled.asked("what about nothing at all", [(3, "ignored")])
    with opened(filled) as ground:
        log = read_log(ground.reader)
        report = judge(ground, Candidate("plain", PLAIN), [], log.questions)
    assert len(log.unanswered) == 1
    assert report.to_json()["n"] == 1


def _as_the_daemon(house: LogHouse, text: str, f_q: Adapter | None) -> Answer:
    """By `Memory` and `Recaller`, over the FAISS index and the saved catalogue."""

    class Encoder:
        async def encode_query(self, text: str) -> QueryEncoding:
            vector, tokens = house.live.encode_query(text)
            return QueryEncoding(vector if f_q is None else f_q.apply(vector), tokens)

    memory = Memory.open(house.home)
    memory.catalogue = open_catalogue(house.home.index / "catalogue", memory.reader)
    memory.index = open_index(house.home.index / "encoder", memory.reader, house.encoder)
    memory.extracts.fill()
    memory.extracts.attach(house.encoder, 0)
    parts = memory.recaller(None, True).parts  # type: ignore[arg-type]
    recaller = Recaller(
        Encoder(), parts.lanes, parts.deepeners, spreading=parts.spreading, hints=parts.hints, within=parts.within
    )
    answers: list[Answer] = []
    query, view = query_of(Focus(user_text=text)), View(scopes=None, as_of=NOON)
    trio.run(recaller.run, query, view, frozenset(), answers.append)
    memory.close()
    return answers[-1]


def _files(directory: Path) -> dict[str, bytes]:
    shared = {"recalld.db-shm"}  # its read marks belong to whoever reads
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name not in shared}
